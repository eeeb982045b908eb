"""DRFA's figures 4 and 5: Adult over 10 nodes, by gender with logistic regression, by race with an MLP."""

from __future__ import annotations

from fedsaddle.reproductions.claims import Claim, less, levels, more, overall, time_to_same_level, values_at
from fedsaddle.reproductions.drfa_lines import FEDAVG, FEDAVG_EVEN, Q_FEDAVG, SOURCE, VARIANTS, contenders
from fedsaddle.reproductions.figure import Figure, Panel, Setting
from fedsaddle.reproductions.tracks import LAST, WINDOW, Tracks

ROUNDS = 300
_SHARED = {"batch_size": 50, "primal_step": 0.1}
_LAST = f"mean of the last {LAST} rounds"


def gender_claims(tracks: Tracks) -> list[Claim]:
    """DRFA gets to the same worst accuracy sooner and lowers the deviation; FedAvg stays below."""
    claims = []
    for variant, drfa, afl in VARIANTS:
        claims += _sooner(tracks, variant, drfa, afl, "fig. 4a")
        said = "DRFA decreases the variance with much fewer communications (fig. 4c)"
        claims += [_steadier(tracks, variant, drfa, other, said) for other in (afl, Q_FEDAVG, FEDAVG)]
        claims += _above_fedavg(tracks, variant, drfa, "FedAvg cannot reach the same level of worst accuracy")
    return claims


def race_claims(tracks: Tracks) -> list[Claim]:
    """DRFA gets to the same worst accuracy sooner, also per local iteration, and balances better than q-FedAvg."""
    claims = []
    for variant, drfa, afl in VARIANTS:
        claims += _sooner(tracks, variant, drfa, afl, "fig. 5a")
        steps = tracks[afl][0].columns["local_steps"][-1]
        text = f"AFL's worst accuracy after {steps:.0f} local iterations is below DRFA's after as many, {variant}"
        pair = [values_at(tracks, label, "test worst", steps, "local_steps") for label in (afl, drfa)]
        claims.append(less(text, "with the same number of local iterations AFL cannot reach DRFA (fig. 5b)", *pair))
        said = "DRFA is more successful than q-FedAvg to balance clients (fig. 5c)"
        claims.append(_steadier(tracks, variant, drfa, Q_FEDAVG, said))
        claims += _above_fedavg(tracks, variant, drfa, "not said in words; DRFA is compared with FedAvg (fig. 5a)")
    return claims


def _sooner(tracks: Tracks, variant: str, drfa: str, afl: str, where: str) -> list[Claim]:
    claims = []
    for other in (afl, Q_FEDAVG):
        text = f"DRFA gets to the same worst accuracy in fewer rounds than {other.split()[0]}, {variant}"
        pair = time_to_same_level(tracks, drfa, other, "test worst", window=WINDOW)
        claims.append(less(text, f"the same level with far fewer communications ({where})", *pair))
    return claims


def _steadier(tracks: Tracks, variant: str, drfa: str, other: str, said: str) -> Claim:
    text = f"DRFA's deviation over nodes, mean of {ROUNDS} rounds, is below {other.split()[0]}'s, {variant}"
    return less(text, said, *(overall(tracks, label, "test std", ROUNDS) for label in (drfa, other)))


def _above_fedavg(tracks: Tracks, variant: str, drfa: str, said: str) -> list[Claim]:
    claims = []
    for other, weights in ((FEDAVG, "weighted by size"), (FEDAVG_EVEN, "uniform")):
        text = f"DRFA's worst accuracy, {_LAST}, is above that of FedAvg {weights}, {variant}"
        claims.append(more(text, said, *(levels(tracks, label, "test worst", LAST) for label in (drfa, other))))
    return claims


def _figure(number: int, column: str, model: str, hidden: list[int]) -> Figure:
    by = {"sex": "gender", "race": "race"}[column]
    return Figure(
        f"DRFA and its baselines on Adult by {by}, {'MLP 14-50-50-2' if hidden else 'logistic regression'}",
        f"{SOURCE}, figure {number}",
        Setting(
            data={"name": "adult", "split": "by-column", "column": column, "clients": 10},
            model=model,
            model_options={"hidden": hidden} if hidden else {},
        ),
        tuple(contenders(_SHARED, gamma=0.2, q=0.5, rounds=ROUNDS, afl_rounds=ROUNDS, sizes=True)),
        (
            Panel("round", "test worst", "worst distribution accuracy", WINDOW),
            Panel("local_steps", "test worst", "worst distribution accuracy", WINDOW),
            Panel("round", "test std", "deviation over nodes", WINDOW),
        ),
        gender_claims if column == "sex" else race_claims,
    )


GENDER = _figure(4, "sex", "logistic", [])
RACE = _figure(5, "race", "mlp", [50, 50])
