"""DRFA's figures 1 to 3: Fashion-MNIST over 10 clients of one class each, logistic regression."""

from __future__ import annotations

from dataclasses import replace

from fedsaddle.reproductions.claims import Claim, less, levels, more, never, no_less, overall, time_to
from fedsaddle.reproductions.drfa_lines import AVERAGE, DECAY, FEDAVG, Q_FEDAVG, SOURCE, VARIANTS, WEIGHT, contenders
from fedsaddle.reproductions.figure import Figure, Line, Options, Panel, Setting
from fedsaddle.reproductions.tracks import LAST, WINDOW, Tracks

ROUNDS = 300
TARGET = 0.5  # worst distribution accuracy
MARGIN = 2.0  # percentage points within which two accuracies are "the same level"
MEASURES = (("first round there", 1), (f"mean of {WINDOW} rounds", WINDOW))
GAPS_TRIED = ((5, 10), (10, 15))
GAP_VARIANTS = {
    "as boxed": "",
    "as boxed, average output": ", average",
    "as published": ", published",
    "as published, γ/τ": ", published, γ/τ",
}

_SETTING = Setting(
    data={"name": "fashion-mnist", "split": "by-class", "clients": 10, "options": {"normalise": False}},
    model="logistic",
)
_SHARED = {"batch_size": 50, "primal_step": 0.1}
_GAMMA = 8e-3


def gap_lines(rounds: int) -> tuple[Line, ...]:
    """DRFA with τ = 5, 10, 15, in every variant."""
    code = {**WEIGHT, **DECAY}
    lines = []
    for colour, gap in enumerate((5, 10, 15)):
        options = {**_SHARED, "dual_step": _GAMMA, "local_steps": gap}
        variants: tuple[Options, ...] = ({}, AVERAGE, code, {**code, "dual_step": _GAMMA / gap})
        for suffix, extra, style in zip(GAP_VARIANTS.values(), variants, ("-", ":", "--", "-."), strict=True):
            lines.append(Line(f"τ = {gap}{suffix}", "DRFA", {**options, **extra}, rounds, colour, style))
    return tuple(lines)


def gap_claims(tracks: Tracks) -> list[Claim]:
    """Rounds fall and local iterations grow with τ."""
    claims = []
    for variant, suffix in GAP_VARIANTS.items():
        for short, long in GAPS_TRIED:
            few, many = f"τ = {short}{suffix}", f"τ = {long}{suffix}"
            for measure, window in MEASURES:
                text = f"τ = {long} needs fewer rounds than τ = {short} to 50 % worst accuracy, {variant} ({measure})"
                rounds = [time_to(tracks, label, TARGET, window=window) for label in (many, few)]
                claims.append(less(text, "the larger gap needs fewer communications (fig. 1b)", *rounds))
            text = f"τ = {short} needs fewer local iterations than τ = {long}, {variant} ({MEASURES[1][0]})"
            steps = [time_to(tracks, label, TARGET, window=WINDOW, unit="local_steps") for label in (few, many)]
            claims.append(less(text, "the smaller gap needs fewer iterations (fig. 1a)", *steps))
    return claims


def baseline_claims(tracks: Tracks) -> list[Claim]:
    """DRFA needs the fewest rounds, AFL the fewest local iterations; FedAvg does not get there."""
    claims = []
    for variant, drfa, afl in VARIANTS:
        for other in (afl, Q_FEDAVG):
            for measure, window in MEASURES:
                text = f"DRFA needs fewer rounds than {other.split()[0]} to 50 % worst accuracy, {variant} ({measure})"
                rounds = [time_to(tracks, label, TARGET, window=window) for label in (drfa, other)]
                claims.append(less(text, "DRFA outperforms it in number of communications (fig. 2a)", *rounds))
            text = f"DRFA's deviation over clients, mean of {ROUNDS} rounds, is below {other.split()[0]}'s, {variant}"
            spreads = [overall(tracks, label, "test std", ROUNDS) for label in (drfa, other)]
            claims.append(less(text, "DRFA gets to the same level with fewer rounds (fig. 2c)", *spreads))
        text = f"AFL needs fewer local iterations than DRFA to 50 % worst accuracy, {variant} ({MEASURES[0][0]})"
        steps = [time_to(tracks, label, TARGET, unit="local_steps") for label in (afl, drfa)]
        claims.append(less(text, "AFL reaches 50 % with fewer local iterations (fig. 2b)", *steps))
        text = f"DRFA's worst accuracy, mean of the last {LAST} rounds, is above FedAvg's, {variant}"
        ends = [levels(tracks, label, "test worst", LAST) for label in (drfa, FEDAVG)]
        claims.append(more(text, "DRFA outperforms FedAvg (fig. 2a)", *ends))
    for measure, window in MEASURES:
        found = time_to(tracks, FEDAVG, TARGET, window=window)
        text = f"FedAvg does not reach 50 % worst accuracy in {ROUNDS} rounds ({measure})"
        claims.append(never(text, "FedAvg cannot reach 50 % even after 300 rounds", found))
    return claims


def global_claims(tracks: Tracks) -> list[Claim]:
    """After 100 rounds DRFA's global training accuracy is about FedAvg's, AFL's is lower."""
    claims = []
    for variant, drfa, afl in VARIANTS:
        ours, theirs, average = (levels(tracks, label, "train global", WINDOW) for label in (drfa, afl, FEDAVG))
        text = f"DRFA's global accuracy in rounds 91-100 is at most {MARGIN:.0f} points below FedAvg's, {variant}"
        claims.append(no_less(text, "DRFA performs as good as FedAvg (fig. 3)", ours, average, MARGIN))
        text = f"AFL's global accuracy in rounds 91-100 is below DRFA's, {variant}"
        claims.append(less(text, "AFL needs more rounds to the same level (fig. 3)", theirs, ours))
    return claims


def _worst(x: str) -> Panel:
    return Panel(x, "test worst", "worst distribution accuracy", WINDOW, TARGET)


GAPS = Figure(
    "DRFA's synchronisation gap on Fashion-MNIST, logistic regression",
    f"{SOURCE}, figure 1",
    _SETTING,
    gap_lines(400),
    (_worst("local_steps"), _worst("round"), _worst("seconds")),
    gap_claims,
    quick_seeds=2,
)

BASELINES = Figure(
    "DRFA and its baselines on Fashion-MNIST, logistic regression",
    f"{SOURCE}, figure 2",
    _SETTING,
    tuple(contenders(_SHARED, gamma=_GAMMA, q=0.2, rounds=ROUNDS, afl_rounds=2 * ROUNDS)),
    (_worst("round"), _worst("local_steps"), Panel("round", "test std", "deviation over clients", WINDOW)),
    baseline_claims,
    quick_seeds=2,
)

GLOBAL = Figure(
    "Global training accuracy on Fashion-MNIST, logistic regression",
    f"{SOURCE}, figure 3",
    replace(_SETTING, evaluate_train=True),
    tuple(contenders(_SHARED, gamma=_GAMMA, q=0.2, rounds=100, afl_rounds=100)),
    (Panel("round", "train global", "global training accuracy", WINDOW),),
    global_claims,
)
