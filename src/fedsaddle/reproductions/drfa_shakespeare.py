"""DRFA's figure 6: Shakespeare over 100 speakers, a GRU of 50 units that predicts the next character."""

from __future__ import annotations

from dataclasses import replace

from fedsaddle.reproductions.claims import Claim, more, no_less, values_at
from fedsaddle.reproductions.drfa_lines import FEDAVG, Q_FEDAVG, SOURCE, VARIANTS, contenders
from fedsaddle.reproductions.figure import Figure, Line, Panel, Setting
from fedsaddle.reproductions.tracks import WINDOW, Tracks

ROUNDS = 40
MARGIN = 2.0  # percentage points within which two accuracies are "the same level"

_SETTING = Setting(
    data={"name": "shakespeare", "split": "natural", "column": "speaker", "options": {"clients": 100}},
    model="gru",
    model_options={"embedding": 50, "units": 50},
    evaluate_every=2,
)


def speaker_lines(rounds: int) -> tuple[Line, ...]:
    """The contenders, without averaged outputs; AFL, whose rounds are ten times cheaper, runs five times as long."""
    shared = {"batch_size": 2, "primal_step": 0.8}
    lines = contenders(shared, gamma=0.01, q=0.1, rounds=rounds, afl_rounds=5 * rounds)
    # q-FedAvg measures its loss on all rows, where small chunks waste less on padding.
    chunked = [replace(line, chunk=10) if line.label == Q_FEDAVG else line for line in lines]
    return tuple(line for line in chunked if "output" not in line.options)


def speaker_claims(tracks: Tracks) -> list[Claim]:
    """At equal rounds FedAvg and DRFA are about the same, AFL and q-FedAvg below."""
    end = tracks[FEDAVG][0].columns["round"][-1]
    claims = []
    for variant, drfa, afl in (v for v in VARIANTS if v[1] in tracks.by_label):
        worst = {label: values_at(tracks, label, "test worst", end) for label in (drfa, afl, Q_FEDAVG, FEDAVG)}
        text = f"DRFA's worst accuracy after {end:.0f} rounds is at most {MARGIN:.0f} points below FedAvg's, {variant}"
        claims.append(
            no_less(text, "DRFA has a slight advantage over FedAvg (fig. 6a)", worst[drfa], worst[FEDAVG], MARGIN)
        )
        for best in (drfa, FEDAVG):
            for other in (afl, Q_FEDAVG):
                names = [label.split()[0] for label in (best, other)]
                text = f"{names[0]}'s worst accuracy after {end:.0f} rounds is above {names[1]}'s, {variant}"
                said = "DRFA and FedAvg outperform the other two in communication (fig. 6a)"
                claims.append(more(text, said, worst[best], worst[other]))
        claims += _cost_claims(tracks, variant, drfa, afl, end)
    return claims


def _cost_claims(tracks: Tracks, variant: str, drfa: str, afl: str, end: float) -> list[Claim]:
    means = [values_at(tracks, label, "test mean", end) for label in (drfa, afl)]
    text = f"DRFA's average accuracy after {end:.0f} rounds is above AFL's, {variant}"
    claims = [more(text, "AFL requires much more communication for the same average (fig. 6c)", *means)]
    steps = tracks[afl][0].columns["local_steps"][-1]
    theirs, ours = (values_at(tracks, label, "test worst", steps, "local_steps") for label in (afl, drfa))
    text = f"AFL's worst accuracy after {steps:.0f} local iterations is at most {MARGIN:.0f} points below DRFA's"
    said = "AFL can achieve the same level with lower computation cost (fig. 6b)"
    return [*claims, no_less(f"{text}, {variant}", said, theirs, ours, MARGIN)]


SPEAKERS = Figure(
    "DRFA and its baselines on Shakespeare, 100 speakers, GRU of 50 units",
    f"{SOURCE}, figure 6",
    _SETTING,
    speaker_lines(ROUNDS),
    (
        Panel("round", "test worst", "worst distribution accuracy", WINDOW),
        Panel("local_steps", "test worst", "worst distribution accuracy", WINDOW),
        Panel("round", "test mean", "average accuracy", WINDOW),
    ),
    speaker_claims,
    seeds=3,
    quick_seeds=2,
    quick_share=0.5,
    quick_setting=replace(_SETTING, data={**_SETTING.data, "options": {"clients": 20}}),
)
