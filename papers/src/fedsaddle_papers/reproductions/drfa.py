"""DRFA's figures 1 to 5; drfa_speakers.py has figure 6.

DRFA and AFL run as in the paper's Algorithm 1 with the paper's steps ("box") and as in the published code: uniform
cohorts, λ as a weight, γ multiplied by 0.9 every round. The lines that count are tuned alike: λ as a weight, no decay,
and for every method the same grid of steps, γ and q. AFL also runs with the values that were tuned for DRFA.
"""

from __future__ import annotations

from dataclasses import replace

from fedsaddle_papers.reproductions.claims import (
    Claim,
    final_percent,
    higher,
    lower,
    mean_percent,
    never_reached,
    non_inferior,
    percent_at,
    time_to_common_level,
    time_to_target,
)
from fedsaddle_papers.reproductions.curves import LAST, WINDOW, Runs
from fedsaddle_papers.reproductions.figure import Figure, Line, Options, Panel, Setting, Tuning

SOURCE = "Deng, Kamani, Mahdavi 2020, Distributionally Robust Federated Averaging"
DRFA, DRFA_PUBLISHED, DRFA_TUNED = "DRFA (box)", "DRFA (published)", "DRFA, tuned"
AFL, AFL_PUBLISHED, AFL_TUNED, AFL_EQUAL = "AFL (box)", "AFL (published)", "AFL, tuned", "AFL, DRFA's γ"
Q_FEDAVG, Q_TUNED = "q-FedAvg", "q-FedAvg, tuned"
FEDAVG, FEDAVG_UNIFORM, FEDAVG_TUNED = "FedAvg", "FedAvg (uniform)", "FedAvg, tuned"
VARIANTS = (
    ("as boxed", DRFA, AFL, Q_FEDAVG, FEDAVG),
    ("as published", DRFA_PUBLISHED, AFL_PUBLISHED, Q_FEDAVG, FEDAVG),
    ("tuned", DRFA_TUNED, AFL_TUNED, Q_TUNED, FEDAVG_TUNED),
    ("tuned for DRFA", DRFA_TUNED, AFL_EQUAL, Q_TUNED, FEDAVG_TUNED),
)

# The published code samples clients uniformly and weights them with λ; DRFA's γ (not AFL's) decays by 0.9 a round.
DRAW: Options = {"weighting": "sample"}
WEIGHT: Options = {"weighting": "weight"}
DECAY: Options = {"dual_decay": 0.9}


def method_lines(
    shared: Options, *, gamma: float, q: float, rounds: int, afl_rounds: int, both_weightings: bool = False
) -> list[Line]:
    """DRFA, AFL, q-FedAvg and FedAvg with τ = 10 local steps (AFL: one), at the paper's steps and tuned.

    Args:
        shared: options of all algorithms.
        gamma: γ of DRFA and AFL.
        q: q of q-FedAvg.
        rounds: of all but AFL.
        afl_rounds: of AFL, whose rounds are cheaper.
        both_weightings: run FedAvg weighted by client size, as in its paper, and uniform, as in DRFA's code.
    """
    dual = {**shared, "dual_step": gamma}
    steps = {"local_steps": 10}
    sized = {**shared, **steps, "weighting": "size"}
    uniform = Line(FEDAVG_UNIFORM, "FedAvg", {**shared, **steps, "weighting": "uniform"}, rounds, 3, "--")
    return [
        Line(DRFA, "DRFA", {**dual, **steps, **DRAW}, rounds, 0, ":"),
        Line(DRFA_PUBLISHED, "DRFA", {**dual, **steps, **WEIGHT, **DECAY}, rounds, 0, "--"),
        Line(AFL, "AFL", {**dual, **DRAW}, afl_rounds, 1, ":"),
        Line(AFL_PUBLISHED, "AFL", {**dual, **WEIGHT}, afl_rounds, 1, "--"),
        Line(Q_FEDAVG, "q-FedAvg", {**shared, **steps, "q": q}, rounds, 2, "--"),
        Line(FEDAVG, "FedAvg", sized, rounds, 3, "--"),
        *([uniform] if both_weightings else []),
        Line(DRFA_TUNED, "DRFA", {**dual, **steps, **WEIGHT}, rounds, 0, tuned=DRFA_TUNED),
        Line(AFL_TUNED, "AFL", {**dual, **WEIGHT}, afl_rounds, 1, tuned=AFL_TUNED),
        Line(AFL_EQUAL, "AFL", {**dual, **WEIGHT}, afl_rounds, 4, tuned=DRFA_TUNED),
        Line(Q_TUNED, "q-FedAvg", {**shared, **steps, "q": q}, rounds, 2, tuned=Q_TUNED),
        Line(FEDAVG_TUNED, "FedAvg", sized, rounds, 3, tuned=FEDAVG_TUNED),
    ]


# Figures 1 to 3: Fashion-MNIST over 10 clients of one class each, logistic regression

ROUNDS = 300  # of figures 2, 4 and 5
TARGET = 0.5  # worst distribution accuracy
MARGIN = 2.0  # percentage points; accuracies within it are at "the same level"
_GAP_PAIRS = ((5, 10), (10, 15))
_GAP_SUFFIXES = {"as boxed": "", "as published": ", published", "tuned": ", tuned"}

_FASHION = Setting(
    data={"name": "fashion-mnist", "split": "by-class", "clients": 10, "options": {"normalise": False}},
    model="logistic",
)
_FASHION_OPTIONS = {"batch_size": 50, "primal_step": 0.1}
_FASHION_GAMMA = 8e-3


_FASHION_TUNING = Tuning(
    "test worst",
    {
        "primal_step": (0.01, 0.03, 0.1, 0.3, 1.0),
        "dual_step": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
        "q": (0.5, 2.0, 5.0, 10.0, 20.0),
    },
)


def gap_lines(rounds: int) -> tuple[Line, ...]:
    """DRFA with τ = 5, 10, 15, in every variant; the tuned ones have the values of figure 2's DRFA."""
    lines = []
    for colour, gap in enumerate((5, 10, 15)):
        options = {**_FASHION_OPTIONS, "dual_step": _FASHION_GAMMA, "local_steps": gap}
        lines.append(Line(f"τ = {gap}", "DRFA", {**options, **DRAW}, rounds, colour, ":"))
        lines.append(Line(f"τ = {gap}, published", "DRFA", {**options, **WEIGHT, **DECAY}, rounds, colour, "--"))
        lines.append(Line(f"τ = {gap}, tuned", "DRFA", {**options, **WEIGHT}, rounds, colour, tuned=DRFA_TUNED))
    return tuple(lines)


def gap_claims(runs: Runs) -> list[Claim]:
    """Figure 1: with a larger τ rounds decrease and local iterations increase."""
    claims = []
    for variant, suffix in _GAP_SUFFIXES.items():
        for short, long in _GAP_PAIRS:
            few, many = f"τ = {short}{suffix}", f"τ = {long}{suffix}"
            text = f"τ = {long} needs fewer rounds than τ = {short} to 50 % worst accuracy, {variant}"
            rounds = [time_to_target(runs, label, TARGET, window=WINDOW) for label in (many, few)]
            claims.append(lower(text, "the larger gap needs fewer communications (fig. 1b)", *rounds))
            text = f"τ = {short} needs fewer local iterations than τ = {long}, {variant}"
            steps = [time_to_target(runs, label, TARGET, window=WINDOW, unit="local_steps") for label in (few, many)]
            claims.append(lower(text, "the smaller gap needs fewer iterations (fig. 1a)", *steps))
    return claims


def baseline_claims(runs: Runs) -> list[Claim]:
    """Figure 2: DRFA needs the fewest rounds, AFL the fewest local iterations; FedAvg never reaches 50 %."""
    claims = []
    for variant, drfa, afl, q, fedavg in VARIANTS:
        for other in (afl, q):
            text = f"DRFA needs fewer rounds than {short(other)} to 50 % worst accuracy, {variant}"
            rounds = [time_to_target(runs, label, TARGET, window=WINDOW) for label in (drfa, other)]
            claims.append(lower(text, "DRFA outperforms it in number of communications (fig. 2a)", *rounds))
            text = f"DRFA's deviation over clients, mean of {ROUNDS} rounds, is below {short(other)}'s, {variant}"
            spreads = [mean_percent(runs, label, "test std", ROUNDS) for label in (drfa, other)]
            claims.append(lower(text, "DRFA gets to the same level with fewer rounds (fig. 2c)", *spreads))
        text = f"AFL needs fewer local iterations than DRFA to 50 % worst accuracy, {variant}"
        steps = [time_to_target(runs, label, TARGET, window=WINDOW, unit="local_steps") for label in (afl, drfa)]
        claims.append(lower(text, "AFL reaches 50 % with fewer local iterations (fig. 2b)", *steps))
        text = f"DRFA's worst accuracy, mean of the last {LAST} rounds, is above FedAvg's, {variant}"
        ends = [final_percent(runs, label, "test worst", LAST) for label in (drfa, fedavg)]
        claims.append(higher(text, "DRFA outperforms FedAvg (fig. 2a)", *ends))
    for fedavg in (FEDAVG, FEDAVG_TUNED):
        found = time_to_target(runs, fedavg, TARGET, window=WINDOW)
        text = f"{fedavg} does not reach 50 % worst accuracy in {ROUNDS} rounds (mean of {WINDOW})"
        claims.append(never_reached(text, "FedAvg cannot reach 50 % even after 300 rounds", found))
    return claims


def short(label: str) -> str:
    """The method of a line, such as "AFL"."""
    return label.replace(",", "").split()[0]


def global_claims(runs: Runs) -> list[Claim]:
    """Figure 3: after 100 rounds DRFA's global training accuracy is about FedAvg's, AFL's is lower."""
    claims = []
    for variant, *labels in VARIANTS:
        drfa, afl, _, fedavg = labels
        ours, theirs, average = (final_percent(runs, label, "train global", WINDOW) for label in (drfa, afl, fedavg))
        text = f"DRFA's global accuracy in rounds 91-100 is at most {MARGIN:.0f} points below FedAvg's, {variant}"
        claims.append(non_inferior(text, "DRFA performs as good as FedAvg (fig. 3)", ours, average, MARGIN))
        text = f"AFL's global accuracy in rounds 91-100 is below DRFA's, {variant}"
        claims.append(lower(text, "AFL needs more rounds to the same level (fig. 3)", theirs, ours))
    return claims


def _worst(x: str) -> Panel:
    return Panel(x, "test worst", "worst distribution accuracy", WINDOW, TARGET)


GAPS = Figure(
    "DRFA's synchronisation gap on Fashion-MNIST, logistic regression",
    f"{SOURCE}, figure 1",
    _FASHION,
    gap_lines(ROUNDS),
    (_worst("local_steps"), _worst("round"), _worst("seconds")),
    gap_claims,
    quick_seeds=2,
    quick_share=0.5,
    looks=(5, 10),
    tuned_by="drfa-fig2",
    minutes=1.0,
)

BASELINES = Figure(
    "DRFA and its baselines on Fashion-MNIST, logistic regression",
    f"{SOURCE}, figure 2",
    _FASHION,
    tuple(method_lines(_FASHION_OPTIONS, gamma=_FASHION_GAMMA, q=0.2, rounds=ROUNDS, afl_rounds=2 * ROUNDS)),
    (_worst("round"), _worst("local_steps"), Panel("round", "test std", "deviation over clients", WINDOW)),
    baseline_claims,
    quick_seeds=2,
    quick_share=0.5,
    looks=(5, 10),
    tuning=_FASHION_TUNING,
    minutes=1.7,
)

GLOBAL = Figure(
    "Global training accuracy on Fashion-MNIST, logistic regression",
    f"{SOURCE}, figure 3",
    replace(_FASHION, evaluate_train=True),
    tuple(method_lines(_FASHION_OPTIONS, gamma=_FASHION_GAMMA, q=0.2, rounds=100, afl_rounds=100)),
    (Panel("round", "train global", "global training accuracy", WINDOW),),
    global_claims,
    quick_seeds=2,
    quick_share=0.5,
    looks=(5, 10),
    tuned_by="drfa-fig2",
    minutes=1.6,
)


# Figures 4 and 5: Adult over 10 nodes, by gender with logistic regression, by race with an MLP

_ADULT_OPTIONS = {"batch_size": 50, "primal_step": 0.1}
_LAST = f"mean of the last {LAST} rounds"


def gender_claims(runs: Runs) -> list[Claim]:
    """Figure 4: DRFA reaches the same worst accuracy in fewer rounds with a smaller deviation; FedAvg stays below."""
    claims = []
    for variant, drfa, afl, q, fedavg in VARIANTS:
        claims += _fewer_rounds(runs, variant, drfa, (afl, q), "fig. 4a")
        statement = "DRFA decreases the variance with much fewer communications (fig. 4c)"
        claims += [_smaller_deviation(runs, variant, drfa, other, statement) for other in (afl, q, fedavg)]
        claims += _above_fedavg(runs, variant, drfa, fedavg, "FedAvg cannot reach the same level of worst accuracy")
    return claims


def race_claims(runs: Runs) -> list[Claim]:
    """Figure 5: the same, also per local iteration, and a smaller deviation than q-FedAvg's."""
    claims = []
    for variant, drfa, afl, q, fedavg in VARIANTS:
        claims += _fewer_rounds(runs, variant, drfa, (afl, q), "fig. 5a")
        steps = runs[afl][0].columns["local_steps"][-1]
        text = f"AFL's worst accuracy after {steps:.0f} local iterations is below DRFA's after as many, {variant}"
        pair = [percent_at(runs, label, "test worst", steps, "local_steps") for label in (afl, drfa)]
        claims.append(lower(text, "with the same number of local iterations AFL cannot reach DRFA (fig. 5b)", *pair))
        statement = "DRFA is more successful than q-FedAvg to balance clients (fig. 5c)"
        claims.append(_smaller_deviation(runs, variant, drfa, q, statement))
        claims += _above_fedavg(runs, variant, drfa, fedavg, "not said in words; compared in fig. 5a")
    return claims


def _fewer_rounds(runs: Runs, variant: str, drfa: str, others: tuple[str, ...], where: str) -> list[Claim]:
    claims = []
    for other in others:
        text = f"DRFA gets to the same worst accuracy in fewer rounds than {short(other)}, {variant}"
        pair = time_to_common_level(runs, drfa, other, "test worst", window=WINDOW)
        claims.append(lower(text, f"the same level with far fewer communications ({where})", *pair))
    return claims


def _smaller_deviation(runs: Runs, variant: str, drfa: str, other: str, statement: str) -> Claim:
    text = f"DRFA's deviation over nodes, mean of {ROUNDS} rounds, is below {short(other)}'s, {variant}"
    return lower(text, statement, *(mean_percent(runs, label, "test std", ROUNDS) for label in (drfa, other)))


def _above_fedavg(runs: Runs, variant: str, drfa: str, fedavg: str, statement: str) -> list[Claim]:
    claims = []
    for other, weights in ((fedavg, "weighted by size"), (FEDAVG_UNIFORM, "uniform")):
        text = f"DRFA's worst accuracy, {_LAST}, is above that of FedAvg {weights}, {variant}"
        pair = [final_percent(runs, label, "test worst", LAST) for label in (drfa, other)]
        claims.append(higher(text, statement, *pair))
    return claims


def _adult(
    number: int, column: str, model: str, hidden: list[int], gammas: tuple[float, ...], qs: tuple[float, ...]
) -> Figure:
    by = {"sex": "gender", "race": "race"}[column]
    return Figure(
        f"DRFA and its baselines on Adult by {by}, {'MLP 14-50-50-2' if hidden else 'logistic regression'}",
        f"{SOURCE}, figure {number}",
        Setting(
            data={"name": "adult", "split": "by-column", "column": column, "clients": 10},
            model=model,
            model_options={"hidden": hidden} if hidden else {},
        ),
        tuple(method_lines(_ADULT_OPTIONS, gamma=0.2, q=0.5, rounds=ROUNDS, afl_rounds=ROUNDS, both_weightings=True)),
        (
            Panel("round", "test worst", "worst distribution accuracy", WINDOW),
            Panel("local_steps", "test worst", "worst distribution accuracy", WINDOW),
            Panel("round", "test std", "deviation over nodes", WINDOW),
        ),
        gender_claims if column == "sex" else race_claims,
        quick_seeds=2,
        quick_share=0.5,
        looks=(5, 10),
        minutes=1.9 if hidden else 1.1,
        tuning=Tuning(
            "test worst",
            {"primal_step": (0.01, 0.03, 0.1, 0.3, 1.0), "dual_step": gammas, "q": qs},
        ),
    )


GENDER = _adult(4, "sex", "logistic", [], (0.0005, 0.002, 0.01, 0.05, 0.2), (0.1, 0.5, 1.0, 2.0, 5.0))
RACE = _adult(5, "race", "mlp", [50, 50], (0.002, 0.01, 0.05, 0.2), (0.1, 0.5, 1.0, 2.0))
