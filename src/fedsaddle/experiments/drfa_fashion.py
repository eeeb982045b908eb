"""DRFA's figures 1 to 3: Fashion-MNIST over 10 clients of one class each, logistic regression."""

from __future__ import annotations

from dataclasses import replace

from fedsaddle.experiments.claims import Claim, less, levels, never, no_less, overall, time_to
from fedsaddle.experiments.drfa_lines import (
    DRFA_PUBLISHED,
    FEDAVG,
    Q_FEDAVG,
    SOURCE,
    VARIANTS,
    contenders,
)
from fedsaddle.experiments.figure import Figure, Line, Panel, Setting
from fedsaddle.experiments.tracks import WINDOW, Tracks

TARGET = 0.5  # worst distribution accuracy
MARGIN = 2.0  # percentage points within which two accuracies are "the same level"
MEASURES = (("first round there", 1), (f"mean of {WINDOW} rounds", WINDOW))
GAP_VARIANTS = (("as boxed", ""), ("as published", ", published"))

_SETTING = Setting(
    data={"name": "fashion-mnist", "split": "by-class", "clients": 10, "options": {"normalise": False}},
    model="logistic",
)
_SHARED = {"batch_size": 50, "primal_step": 0.1}
_GAMMA = 8e-3


def _gap_lines(rounds: int) -> tuple[Line, ...]:
    options = {**_SHARED, "dual_step": _GAMMA}
    return tuple(
        Line(f"τ = {gap}{suffix}", "DRFA", {**options, "local_steps": gap, **extra}, rounds, colour, style)
        for (_, suffix), extra, style in zip(GAP_VARIANTS, ({}, DRFA_PUBLISHED), ("-", "--"), strict=True)
        for colour, gap in enumerate((5, 10, 15))
    )


def gap_claims(tracks: Tracks) -> list[Claim]:
    """Rounds fall and local iterations grow with τ."""
    claims = []
    for variant, suffix in GAP_VARIANTS:
        for measure, window in MEASURES:
            for short, long in ((5, 10), (10, 15)):
                rounds = [time_to(tracks, f"τ = {gap}{suffix}", TARGET, window=window) for gap in (long, short)]
                text = f"τ = {long} needs fewer rounds than τ = {short} to 50 % worst accuracy, {variant} ({measure})"
                claims.append(less(text, "the larger gap needs fewer communications (fig. 1b)", rounds[0], rounds[1]))
        for short, long in ((5, 10), (10, 15)):
            steps = [
                time_to(tracks, f"τ = {gap}{suffix}", TARGET, window=WINDOW, unit="local_steps")
                for gap in (short, long)
            ]
            text = f"τ = {short} needs fewer local iterations than τ = {long}, {variant} ({MEASURES[1][0]})"
            claims.append(less(text, "the smaller gap needs fewer iterations (fig. 1a)", steps[0], steps[1]))
    return claims


def baseline_claims(tracks: Tracks) -> list[Claim]:
    """DRFA needs the fewest rounds, AFL the fewest local iterations; FedAvg does not get there."""
    claims = []
    for variant, drfa, afl in VARIANTS:
        for other in (afl, Q_FEDAVG):
            for measure, window in MEASURES:
                text = f"DRFA needs fewer rounds than {other.split()[0]} to 50 % worst accuracy, {variant} ({measure})"
                ours, theirs = (time_to(tracks, label, TARGET, window=window) for label in (drfa, other))
                claims.append(less(text, "DRFA outperforms it in number of communications (fig. 2a)", ours, theirs))
        text = f"AFL needs fewer local iterations than DRFA to 50 % worst accuracy, {variant} ({MEASURES[0][0]})"
        steps = [time_to(tracks, label, TARGET, unit="local_steps") for label in (afl, drfa)]
        claims.append(less(text, "AFL reaches 50 % with fewer local iterations (fig. 2b)", steps[0], steps[1]))
        for other in (afl, Q_FEDAVG, FEDAVG):
            text = f"DRFA's deviation over clients, averaged over all rounds, is below {other.split()[0]}'s, {variant}"
            said = "DRFA reaches the same level with fewer rounds (fig. 2c)"
            claims.append(less(text, said, *(overall(tracks, label, "test std") for label in (drfa, other))))
    for measure, window in MEASURES:
        text = f"FedAvg does not reach 50 % worst accuracy in 300 rounds ({measure})"
        claims.append(
            never(text, "cannot reach 50 % even after 300 rounds", time_to(tracks, FEDAVG, TARGET, window=window))
        )
    return claims


def global_claims(tracks: Tracks) -> list[Claim]:
    """After 100 rounds DRFA's global training accuracy is about FedAvg's, AFL's is lower."""
    claims = []
    for variant, drfa, afl in VARIANTS:
        ours, theirs, average = (levels(tracks, label, "train global", WINDOW) for label in (drfa, afl, FEDAVG))
        text = f"DRFA's global accuracy in rounds 91-100 is at most {MARGIN:.0f} points below FedAvg's, {variant}"
        claims.append(no_less(text, "performs as good as FedAvg (fig. 3)", ours, average, MARGIN))
        text = f"AFL's global accuracy in rounds 91-100 is below DRFA's, {variant}"
        claims.append(less(text, "AFL needs more rounds to the same level (fig. 3)", theirs, ours))
        text = f"AFL's global accuracy in rounds 91-100 is below FedAvg's, {variant}"
        claims.append(less(text, "AFL needs more rounds to the same level (fig. 3)", theirs, average))
    return claims


def _worst(x: str) -> Panel:
    return Panel(x, "test worst", "worst distribution accuracy", WINDOW, TARGET)


GAPS = Figure(
    "DRFA's synchronisation gap on Fashion-MNIST, logistic regression",
    f"{SOURCE}, figure 1",
    _SETTING,
    _gap_lines(500),
    (_worst("local_steps"), _worst("round"), _worst("seconds")),
    gap_claims,
)

BASELINES = Figure(
    "DRFA and its baselines on Fashion-MNIST, logistic regression",
    f"{SOURCE}, figure 2",
    _SETTING,
    contenders(_SHARED, gamma=_GAMMA, q=0.2, rounds=300),
    (_worst("round"), _worst("local_steps"), Panel("round", "test std", "deviation over clients", WINDOW)),
    baseline_claims,
)

GLOBAL = Figure(
    "Global training accuracy on Fashion-MNIST, logistic regression",
    f"{SOURCE}, figure 3",
    replace(_SETTING, evaluate_train=True),
    contenders(_SHARED, gamma=_GAMMA, q=0.2, rounds=100),
    (Panel("round", "train global", "global training accuracy", WINDOW),),
    global_claims,
)
