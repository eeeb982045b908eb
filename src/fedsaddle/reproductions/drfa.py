"""DRFA's figures 1 to 6.

DRFA and AFL run as in the paper's Algorithm 1 with the last iterate as output ("as boxed"), with the average of all
iterates (the algorithm allows both), and as in the published code. A fourth variant is not described in the paper: the
published code with the paper's γ as the step of a whole round, without the factor τ.
"""

from __future__ import annotations

from dataclasses import replace

from fedsaddle.reproductions.claims import (
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
from fedsaddle.reproductions.curves import LAST, WINDOW, Runs
from fedsaddle.reproductions.figure import Figure, Line, Options, Panel, Setting

SOURCE = "Deng, Kamani, Mahdavi 2020, Distributionally Robust Federated Averaging"
DRFA, DRFA_MEAN = "DRFA (box)", "DRFA (box, average)"
DRFA_PUBLISHED, DRFA_PER_ROUND = "DRFA (published)", "DRFA (published, γ/τ)"
AFL, AFL_MEAN, AFL_PUBLISHED = "AFL (box)", "AFL (box, average)", "AFL (published)"
Q_FEDAVG, FEDAVG, FEDAVG_UNIFORM = "q-FedAvg", "FedAvg", "FedAvg (uniform)"
VARIANTS = (
    ("as boxed", DRFA, AFL),
    ("as boxed, average output", DRFA_MEAN, AFL_MEAN),
    ("as published", DRFA_PUBLISHED, AFL_PUBLISHED),
    ("as published, γ/τ", DRFA_PER_ROUND, AFL_PUBLISHED),
)

# The published code samples clients uniformly and weights them with λ; DRFA's γ (not AFL's) decays by 0.9 a round.
AVERAGE: Options = {"output": "average"}
WEIGHT: Options = {"weighting": "weight"}
DECAY: Options = {"dual_decay": 0.9}


def method_lines(
    shared: Options, *, gamma: float, q: float, rounds: int, afl_rounds: int, both_weightings: bool = False
) -> list[Line]:
    """DRFA, AFL, q-FedAvg and FedAvg with τ = 10 local steps (AFL: one).

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
    uniform = Line(FEDAVG_UNIFORM, "FedAvg", {**shared, **steps, "weighting": "uniform"}, rounds, 3, "--")
    return [
        Line(DRFA, "DRFA", {**dual, **steps}, rounds, 0),
        Line(DRFA_MEAN, "DRFA", {**dual, **steps, **AVERAGE}, rounds, 0, ":"),
        Line(DRFA_PUBLISHED, "DRFA", {**dual, **steps, **WEIGHT, **DECAY}, rounds, 0, "--"),
        Line(DRFA_PER_ROUND, "DRFA", {**dual, **steps, **WEIGHT, **DECAY, "dual_step": gamma / 10}, rounds, 4, "-."),
        Line(AFL, "AFL", dual, afl_rounds, 1),
        Line(AFL_MEAN, "AFL", {**dual, **AVERAGE}, afl_rounds, 1, ":"),
        Line(AFL_PUBLISHED, "AFL", {**dual, **WEIGHT}, afl_rounds, 1, "--"),
        Line(Q_FEDAVG, "q-FedAvg", {**shared, **steps, "q": q}, rounds, 2),
        Line(FEDAVG, "FedAvg", {**shared, **steps, "weighting": "size"}, rounds, 3),
        *([uniform] if both_weightings else []),
    ]


# Figures 1 to 3: Fashion-MNIST over 10 clients of one class each, logistic regression

ROUNDS = 300  # of figures 2, 4 and 5
TARGET = 0.5  # worst distribution accuracy
MARGIN = 2.0  # percentage points; accuracies within it are at "the same level"
MEASURES = (("first round there", 1), (f"mean of {WINDOW} rounds", WINDOW))
_GAP_PAIRS = ((5, 10), (10, 15))
_GAP_SUFFIXES = {
    "as boxed": "",
    "as boxed, average output": ", average",
    "as published": ", published",
    "as published, γ/τ": ", published, γ/τ",
}

_FASHION = Setting(
    data={"name": "fashion-mnist", "split": "by-class", "clients": 10, "options": {"normalise": False}},
    model="logistic",
)
_FASHION_OPTIONS = {"batch_size": 50, "primal_step": 0.1}
_FASHION_GAMMA = 8e-3


def gap_lines(rounds: int) -> tuple[Line, ...]:
    """DRFA with τ = 5, 10, 15, in every variant."""
    published = {**WEIGHT, **DECAY}
    lines = []
    for colour, gap in enumerate((5, 10, 15)):
        options = {**_FASHION_OPTIONS, "dual_step": _FASHION_GAMMA, "local_steps": gap}
        variants: tuple[Options, ...] = ({}, AVERAGE, published, {**published, "dual_step": _FASHION_GAMMA / gap})
        for suffix, extra, style in zip(_GAP_SUFFIXES.values(), variants, ("-", ":", "--", "-."), strict=True):
            lines.append(Line(f"τ = {gap}{suffix}", "DRFA", {**options, **extra}, rounds, colour, style))
    return tuple(lines)


def gap_claims(runs: Runs) -> list[Claim]:
    """Figure 1: with a larger τ rounds decrease and local iterations increase."""
    claims = []
    for variant, suffix in _GAP_SUFFIXES.items():
        for short, long in _GAP_PAIRS:
            few, many = f"τ = {short}{suffix}", f"τ = {long}{suffix}"
            for measure, window in MEASURES:
                text = f"τ = {long} needs fewer rounds than τ = {short} to 50 % worst accuracy, {variant} ({measure})"
                rounds = [time_to_target(runs, label, TARGET, window=window) for label in (many, few)]
                claims.append(lower(text, "the larger gap needs fewer communications (fig. 1b)", *rounds))
            text = f"τ = {short} needs fewer local iterations than τ = {long}, {variant} ({MEASURES[1][0]})"
            steps = [time_to_target(runs, label, TARGET, window=WINDOW, unit="local_steps") for label in (few, many)]
            claims.append(lower(text, "the smaller gap needs fewer iterations (fig. 1a)", *steps))
    return claims


def baseline_claims(runs: Runs) -> list[Claim]:
    """Figure 2: DRFA needs the fewest rounds, AFL the fewest local iterations; FedAvg never reaches 50 %."""
    claims = []
    for variant, drfa, afl in VARIANTS:
        for other in (afl, Q_FEDAVG):
            for measure, window in MEASURES:
                text = f"DRFA needs fewer rounds than {other.split()[0]} to 50 % worst accuracy, {variant} ({measure})"
                rounds = [time_to_target(runs, label, TARGET, window=window) for label in (drfa, other)]
                claims.append(lower(text, "DRFA outperforms it in number of communications (fig. 2a)", *rounds))
            text = f"DRFA's deviation over clients, mean of {ROUNDS} rounds, is below {other.split()[0]}'s, {variant}"
            spreads = [mean_percent(runs, label, "test std", ROUNDS) for label in (drfa, other)]
            claims.append(lower(text, "DRFA gets to the same level with fewer rounds (fig. 2c)", *spreads))
        text = f"AFL needs fewer local iterations than DRFA to 50 % worst accuracy, {variant} ({MEASURES[0][0]})"
        steps = [time_to_target(runs, label, TARGET, unit="local_steps") for label in (afl, drfa)]
        claims.append(lower(text, "AFL reaches 50 % with fewer local iterations (fig. 2b)", *steps))
        text = f"DRFA's worst accuracy, mean of the last {LAST} rounds, is above FedAvg's, {variant}"
        ends = [final_percent(runs, label, "test worst", LAST) for label in (drfa, FEDAVG)]
        claims.append(higher(text, "DRFA outperforms FedAvg (fig. 2a)", *ends))
    for measure, window in MEASURES:
        found = time_to_target(runs, FEDAVG, TARGET, window=window)
        text = f"FedAvg does not reach 50 % worst accuracy in {ROUNDS} rounds ({measure})"
        claims.append(never_reached(text, "FedAvg cannot reach 50 % even after 300 rounds", found))
    return claims


def global_claims(runs: Runs) -> list[Claim]:
    """Figure 3: after 100 rounds DRFA's global training accuracy is about FedAvg's, AFL's is lower."""
    claims = []
    for variant, drfa, afl in VARIANTS:
        ours, theirs, average = (final_percent(runs, label, "train global", WINDOW) for label in (drfa, afl, FEDAVG))
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
    gap_lines(400),
    (_worst("local_steps"), _worst("round"), _worst("seconds")),
    gap_claims,
    quick_seeds=2,
)

BASELINES = Figure(
    "DRFA and its baselines on Fashion-MNIST, logistic regression",
    f"{SOURCE}, figure 2",
    _FASHION,
    tuple(method_lines(_FASHION_OPTIONS, gamma=_FASHION_GAMMA, q=0.2, rounds=ROUNDS, afl_rounds=2 * ROUNDS)),
    (_worst("round"), _worst("local_steps"), Panel("round", "test std", "deviation over clients", WINDOW)),
    baseline_claims,
    quick_seeds=2,
)

GLOBAL = Figure(
    "Global training accuracy on Fashion-MNIST, logistic regression",
    f"{SOURCE}, figure 3",
    replace(_FASHION, evaluate_train=True),
    tuple(method_lines(_FASHION_OPTIONS, gamma=_FASHION_GAMMA, q=0.2, rounds=100, afl_rounds=100)),
    (Panel("round", "train global", "global training accuracy", WINDOW),),
    global_claims,
)


# Figures 4 and 5: Adult over 10 nodes, by gender with logistic regression, by race with an MLP

_ADULT_OPTIONS = {"batch_size": 50, "primal_step": 0.1}
_LAST = f"mean of the last {LAST} rounds"


def gender_claims(runs: Runs) -> list[Claim]:
    """Figure 4: DRFA reaches the same worst accuracy in fewer rounds with a smaller deviation; FedAvg stays below."""
    claims = []
    for variant, drfa, afl in VARIANTS:
        claims += _fewer_rounds(runs, variant, drfa, afl, "fig. 4a")
        statement = "DRFA decreases the variance with much fewer communications (fig. 4c)"
        claims += [_smaller_deviation(runs, variant, drfa, other, statement) for other in (afl, Q_FEDAVG, FEDAVG)]
        claims += _above_fedavg(runs, variant, drfa, "FedAvg cannot reach the same level of worst accuracy")
    return claims


def race_claims(runs: Runs) -> list[Claim]:
    """Figure 5: the same, also per local iteration, and a smaller deviation than q-FedAvg's."""
    claims = []
    for variant, drfa, afl in VARIANTS:
        claims += _fewer_rounds(runs, variant, drfa, afl, "fig. 5a")
        steps = runs[afl][0].columns["local_steps"][-1]
        text = f"AFL's worst accuracy after {steps:.0f} local iterations is below DRFA's after as many, {variant}"
        pair = [percent_at(runs, label, "test worst", steps, "local_steps") for label in (afl, drfa)]
        claims.append(lower(text, "with the same number of local iterations AFL cannot reach DRFA (fig. 5b)", *pair))
        statement = "DRFA is more successful than q-FedAvg to balance clients (fig. 5c)"
        claims.append(_smaller_deviation(runs, variant, drfa, Q_FEDAVG, statement))
        claims += _above_fedavg(runs, variant, drfa, "not said in words; DRFA is compared with FedAvg (fig. 5a)")
    return claims


def _fewer_rounds(runs: Runs, variant: str, drfa: str, afl: str, where: str) -> list[Claim]:
    claims = []
    for other in (afl, Q_FEDAVG):
        text = f"DRFA gets to the same worst accuracy in fewer rounds than {other.split()[0]}, {variant}"
        pair = time_to_common_level(runs, drfa, other, "test worst", window=WINDOW)
        claims.append(lower(text, f"the same level with far fewer communications ({where})", *pair))
    return claims


def _smaller_deviation(runs: Runs, variant: str, drfa: str, other: str, statement: str) -> Claim:
    text = f"DRFA's deviation over nodes, mean of {ROUNDS} rounds, is below {other.split()[0]}'s, {variant}"
    return lower(text, statement, *(mean_percent(runs, label, "test std", ROUNDS) for label in (drfa, other)))


def _above_fedavg(runs: Runs, variant: str, drfa: str, statement: str) -> list[Claim]:
    claims = []
    for other, weights in ((FEDAVG, "weighted by size"), (FEDAVG_UNIFORM, "uniform")):
        text = f"DRFA's worst accuracy, {_LAST}, is above that of FedAvg {weights}, {variant}"
        claims.append(
            higher(text, statement, *(final_percent(runs, label, "test worst", LAST) for label in (drfa, other)))
        )
    return claims


def _adult(number: int, column: str, model: str, hidden: list[int]) -> Figure:
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
    )


GENDER = _adult(4, "sex", "logistic", [])
RACE = _adult(5, "race", "mlp", [50, 50])


# Figure 6: Shakespeare over 100 speakers, a GRU of 50 units that predicts the next character

_SPEAKER_ROUNDS = 40

_SHAKESPEARE = Setting(
    data={"name": "shakespeare", "split": "natural", "column": "speaker", "options": {"clients": 100}},
    model="gru",
    model_options={"embedding": 50, "units": 50},
    evaluate_every=2,
)


def speaker_lines(rounds: int) -> tuple[Line, ...]:
    """All methods without averaged outputs; AFL, whose rounds are ten times cheaper, runs five times as many."""
    shared = {"batch_size": 2, "primal_step": 0.8}
    lines = method_lines(shared, gamma=0.01, q=0.1, rounds=rounds, afl_rounds=5 * rounds)
    # q-FedAvg computes its loss on all rows; small chunks pad less.
    chunked = [replace(line, chunk=10) if line.label == Q_FEDAVG else line for line in lines]
    return tuple(line for line in chunked if "output" not in line.options)


def speaker_claims(runs: Runs) -> list[Claim]:
    """Figure 6: after equally many rounds FedAvg and DRFA are about the same, AFL and q-FedAvg below."""
    end = runs[FEDAVG][0].columns["round"][-1]
    claims = []
    for variant, drfa, afl in (v for v in VARIANTS if v[1] in runs.by_label):
        worst = {label: percent_at(runs, label, "test worst", end) for label in (drfa, afl, Q_FEDAVG, FEDAVG)}
        text = f"DRFA's worst accuracy after {end:.0f} rounds is at most {MARGIN:.0f} points below FedAvg's, {variant}"
        claims.append(
            non_inferior(text, "DRFA has a slight advantage over FedAvg (fig. 6a)", worst[drfa], worst[FEDAVG], MARGIN)
        )
        for best in (drfa, FEDAVG):
            for other in (afl, Q_FEDAVG):
                names = [label.split()[0] for label in (best, other)]
                text = f"{names[0]}'s worst accuracy after {end:.0f} rounds is above {names[1]}'s, {variant}"
                statement = "DRFA and FedAvg outperform the other two in communication (fig. 6a)"
                claims.append(higher(text, statement, worst[best], worst[other]))
        claims += _cost_claims(runs, variant, drfa, afl, end)
    return claims


def _cost_claims(runs: Runs, variant: str, drfa: str, afl: str, end: float) -> list[Claim]:
    means = [percent_at(runs, label, "test mean", end) for label in (drfa, afl)]
    text = f"DRFA's average accuracy after {end:.0f} rounds is above AFL's, {variant}"
    claims = [higher(text, "AFL requires much more communication for the same average (fig. 6c)", *means)]
    steps = runs[afl][0].columns["local_steps"][-1]
    theirs, ours = (percent_at(runs, label, "test worst", steps, "local_steps") for label in (afl, drfa))
    text = f"AFL's worst accuracy after {steps:.0f} local iterations is at most {MARGIN:.0f} points below DRFA's"
    statement = "AFL can achieve the same level with lower computation cost (fig. 6b)"
    return [*claims, non_inferior(f"{text}, {variant}", statement, theirs, ours, MARGIN)]


SPEAKERS = Figure(
    "DRFA and its baselines on Shakespeare, 100 speakers, GRU of 50 units",
    f"{SOURCE}, figure 6",
    _SHAKESPEARE,
    speaker_lines(_SPEAKER_ROUNDS),
    (
        Panel("round", "test worst", "worst distribution accuracy", WINDOW),
        Panel("local_steps", "test worst", "worst distribution accuracy", WINDOW),
        Panel("round", "test mean", "average accuracy", WINDOW),
    ),
    speaker_claims,
    seeds=3,
    quick_seeds=2,
    quick_share=0.5,
    quick_setting=replace(_SHAKESPEARE, data={**_SHAKESPEARE.data, "options": {"clients": 20}}),
)
