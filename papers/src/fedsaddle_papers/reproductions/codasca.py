"""CODASCA's figures 1 to 4 and tables 3 and 4.

All lines take T local iterations on each client, whatever the window I, as in the paper. At I = 1 CODASCA's corrections
cancel in the average, so that one line represents both methods.

Figures 1 to 4 are the AUC against the window I on imbalanced heterogeneous (IH) pictures. Fashion-MNIST replaces
ImageNet, which needs a registration and is too large for a CPU; with ten classes K is at most 5. On CIFAR-100 a small
network hardly separates fifty random classes from the other fifty (AUC 0.56), so the positives are animals and people,
which are half of the classes too.

In tables 3 and 4 PneumoniaMNIST replaces the chest X-rays of five hospitals. Table 3 has 16 sites with Dirichlet shares
of either class and pixels with noise and an offset of their own. Table 4 adds one source after the other: five of
unequal size, the later ones brighter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from fedsaddle.array_types import Floats
from fedsaddle_papers.reproductions.claims import Claim, SeedValues, higher, non_inferior
from fedsaddle_papers.reproductions.curves import Runs
from fedsaddle_papers.reproductions.figure import Figure, FinalValues, Line, Options, Panel, Setting, Tuning
from fedsaddle_papers.reproductions.verdicts import HOLDS, UNDECIDED

SOURCE = "Yuan, Guo, Xu, Ying, Yang 2021, Federated Deep AUC Maximization for Heterogeneous Data"
CODASCA, CODA_PLUS = "CODASCA", "CODA+"
ITERATIONS = 2048  # T
STEP = 0.1  # η of the first stage, where the tuner starts from
TUNING = Tuning("auroc", {"primal_step": (0.01, 0.03, 0.1, 0.3, 1.0)}, share=0.5)  # the paper: 0.001 to 0.1
MARGIN = 1.0  # percentage points of AUC; a window that loses no more than this is harmless
_EVALUATIONS = 16
_OPTIONS: Options = {"batch_size": 32, "proximal": 1 / 500}
_NETWORK: Options = {"hidden": [32]}
_COLOURS = {1: 5, 4: 2, 16: 3, 64: 0, 128: 3, 256: 0}


def label(method: str, window: int, clients: str = "") -> str:
    """The label of a line, such as "K = 16, CODA+, I = 4"; at I = 1 without the method."""
    name = "I = 1" if window == 1 else f"{method}, I = {window}"
    return f"{clients}, {name}" if clients else name


def line(
    method: str,
    window: int,
    clients: str = "",
    data: Options | None = None,
    step: float = STEP,
    iterations: int = ITERATIONS,
) -> Line:
    """A method with a window I, dashed for CODA+; η is divided by 3 after T_0 = T / 2 iterations.

    Args:
        method: "CODASCA" or "CODA+".
        window: I.
        clients: the first part of the label.
        data: overrides of the setting's data.
        step: η of the first stage.
        iterations: T.
    """
    rounds, steps = iterations // window, {"name": "geometric", "first": step, "factor": 1 / 3}
    return Line(
        label(method, window, clients),
        method,
        {**_OPTIONS, "primal_step": steps, "local_steps": window, "stage_steps": iterations // 2},
        rounds,
        _COLOURS[window],
        "--" if method == CODA_PLUS and window > 1 else "-",
        data=data or {},
        evaluate_every=max(1, rounds // _EVALUATIONS),
        legend=label(method, window),
        tuned=label(method, window, clients),
    )


def lines(
    windows: Sequence[int],
    clients: str = "",
    data: Options | None = None,
    step: float = STEP,
    iterations: int = ITERATIONS,
) -> list[Line]:
    """I = 1 once, and every larger window with either method; the arguments are those of `line`."""
    pairs = [(CODA_PLUS, 1), *((m, w) for w in windows if w > 1 for m in (CODASCA, CODA_PLUS))]
    return [line(m, w, clients, data, step, iterations) for m, w in pairs]


def final_auc(runs: Runs, name: str) -> SeedValues:
    """The pooled test AUC after the last iteration, in per cent."""
    shown = name.split(", ", 1)[-1] if name.startswith("K") else name  # "CODA+, I = 4"
    return SeedValues(f"{shown}:", final_auc_by_seed(runs, name), digits=2)


def final_auc_by_seed(runs: Runs, name: str) -> Floats:
    """The same as an array over the seeds."""
    return np.array([100 * curves.column("auroc")[-1] for curves in runs[name]])


def better(runs: Runs, window: int, statement: str, clients: str = "") -> Claim:
    """Claim that CODASCA's AUC is above CODA+'s at the same window."""
    where = f", {clients}" if clients else ""
    text = f"CODASCA ends with a higher AUC than CODA+ at I = {window}{where}"
    return higher(text, statement, *(final_auc(runs, label(m, window, clients)) for m in (CODASCA, CODA_PLUS)))


def harmless(runs: Runs, method: str, window: int, statement: str, clients: str = "") -> Claim:
    """Claim that the AUC is at most the margin below that of I = 1."""
    where = f", {clients}" if clients else ""
    text = f"{method} at I = {window} ends at most {MARGIN:g} point of AUC below I = 1{where}"
    one, other = (final_auc(runs, label(m, w, clients)) for m, w in ((method, window), (CODA_PLUS, 1)))
    return non_inferior(text, statement, one, other, MARGIN)


def largest_harmless(runs: Runs, method: str, windows: Sequence[int], clients: str, by_means: bool = False) -> int:
    """I_max: the largest window that is harmless together with all shorter ones.

    By the intervals of the paired differences, or with `by_means` by their means over the seeds.
    """
    base, found = final_auc_by_seed(runs, label(CODA_PLUS, 1, clients)), 1
    for window in windows[1:]:
        if by_means:
            is_harmless = bool((final_auc_by_seed(runs, label(method, window, clients)) - base).mean() >= -MARGIN)
        else:
            is_harmless = harmless(runs, method, window, "", clients).holds
        if not is_harmless:
            break
        found = window
    return found


# Figures 1 to 4

WINDOWS = (1, 4, 16, 64)
_ANIMALS = """
aquarium_fish baby bear beaver bee beetle boy butterfly camel caterpillar cattle chimpanzee cockroach crab crocodile
dinosaur dolphin elephant flatfish fox girl hamster kangaroo leopard lion lizard lobster man mouse otter porcupine
possum rabbit raccoon ray seal shark shrew skunk snail snake spider squirrel tiger trout turtle whale wolf woman worm
"""
FASHION: Options = {"name": "fashion-mnist"}
CIFAR: Options = {"name": "cifar100", "options": {"first": 10_000, "side": 8}, "positive": _ANIMALS.split()}
_TITLES = {"fashion-mnist": "Fashion-MNIST-IH", "cifar100": "CIFAR100-IH"}
_IMAGENET = ("I_max is 128 for CODASCA and 32 for CODA+ (K = 16)", "I_max is 512 for CODASCA and 128 for CODA+ (K = 8)")
_SAME = ("the same phenomena on CIFAR100 (K = 16)", "the same phenomena on CIFAR100 (K = 8)")
_THIRTY = ("fig. 3, shown without words (K = 16)", "fig. 3, shown without words (K = 8)")


def window_claims(clients: tuple[int, int], statement: tuple[str, str], runs: Runs) -> list[Claim]:
    """CODASCA is better at every larger window, and its largest harmless window is larger."""
    found = []
    for k, paper in zip(clients, statement, strict=True):
        where = f"K = {k}"
        found += [better(runs, w, "CODASCA enjoys a larger window without hurting", where) for w in WINDOWS[1:]]
        found += [harmless(runs, CODASCA, w, paper, where) for w in WINDOWS[1:]]
        found.append(_larger_window(runs, where, paper))
    return found


def _larger_window(runs: Runs, where: str, paper: str) -> Claim:
    """By the intervals and by the means: with few seeds a window of CODA+ may fail by its wide interval alone."""
    shown, larger = [], []
    for by_means, how in ((False, "by intervals"), (True, "by means")):
        largest = {m: largest_harmless(runs, m, WINDOWS, where, by_means) for m in (CODASCA, CODA_PLUS)}
        named = ", ".join(f"{m} {'at least ' if w == WINDOWS[-1] else ''}{w}" for m, w in largest.items())
        shown.append(f"{named} ({how})")
        larger.append(largest[CODASCA] > largest[CODA_PLUS])
    text = f"CODASCA's largest harmless window is larger than CODA+'s, {where}"
    return Claim(text, paper, "; ".join(shown), HOLDS if all(larger) else UNDECIDED)


def _curves(where: str) -> Panel:
    return Panel("local_steps", "auroc", f"test AUC, {where}", lines=tuple(x.label for x in lines(WINDOWS, where)))


def _final_values(where: str) -> FinalValues:
    series = {m: tuple((float(w), label(m, w, where)) for w in WINDOWS) for m in (CODASCA, CODA_PLUS)}
    return FinalValues(
        "window I", "auroc", f"final AUC less that of I = 1, {where}", series, label(CODA_PLUS, 1, where), log=True
    )


def _windows(
    number: int, data: Options, percent: int, clients: tuple[int, int], statement: tuple[str, str], step: float = STEP
) -> Figure:
    sizes = [f"K = {k}" for k in clients]
    own = dict(zip(sizes, ({"clients": k} for k in clients), strict=True))
    shared = {**data, "split": "imbalanced", "clients": clients[0], "imratio": percent / 100}
    return Figure(
        f"CODASCA and CODA+ on {_TITLES[data['name']]}, imratio {percent} %, MLP of 32 units",
        f"{SOURCE}, figure {number}",
        Setting(data=shared, model="mlp", model_options=_NETWORK, problem="auc"),
        tuple(x for where in sizes for x in lines(WINDOWS, where, data=own[where], step=step)),
        (*map(_curves, sizes), *map(_final_values, sizes)),
        partial(window_claims, clients, statement),
        quick_seeds=2,
        quick_share=0.1,
        rows=2,
        seeds=5,
        looks=(5, 10) if percent == 10 else (5,),
        minutes=0.6,
        tuning=TUNING,
    )


FASHION_10 = _windows(1, FASHION, 10, (5, 2), _IMAGENET)
CIFAR_10 = _windows(2, CIFAR, 10, (16, 8), _SAME)
FASHION_30 = _windows(3, FASHION, 30, (5, 2), _THIRTY)
CIFAR_30 = _windows(4, CIFAR, 30, (16, 8), _SAME)


# Tables 3 and 4

SITE_WINDOWS = (1, 128, 256)
SITE_ITERATIONS = 8192  # T of table 3: 32 rounds of the longest window
SITE_STEP = 0.01  # with 0.1 long windows diverge at sites with few rows of one class, and one source learns nothing
SOURCES = (1, 2, 3, 4, 5)
_PAPER_AUC = {2: "0.9361", 3: "0.9356", 4: "0.9372", 5: "0.9376"}  # means of table 4; 0.9353 with one source


def site_claims(runs: Runs) -> list[Claim]:
    """Table 3: CODASCA is better at both large windows, and at most the margin below I = 1."""
    better_statement = "CODASCA is better than CODA+ on C0, C2, C3, C4 (table 3)"
    near_statement = "at most 1.1 points below I = 1 on every disease (table 3)"
    claims = [better(runs, window, better_statement) for window in SITE_WINDOWS[1:]]
    return claims + [harmless(runs, CODASCA, window, near_statement) for window in SITE_WINDOWS[1:]]


def source_claims(runs: Runs) -> list[Claim]:
    """Table 4: more sources are better than one."""
    return [
        higher(
            f"{k} sources are better than one",
            f"{_PAPER_AUC[k]} against 0.9353",
            *(final_auc(runs, _source_label(n)) for n in (k, 1)),
        )
        for k in SOURCES[1:]
    ]


def _source_line(count: int) -> Line:
    """CODASCA on the first `count` sources."""
    return replace(
        line(CODASCA, 16, data={"sources": count}, step=SITE_STEP),
        label=_source_label(count),
        tuned=_source_label(count),
        legend="",
        colour=count - 1,
    )


def _source_label(count: int) -> str:
    return f"{count} source{'s' if count > 1 else ''}"


_POINTS = tuple((float(count), _source_label(count)) for count in SOURCES)

SITES = Figure(
    "CODASCA and CODA+ on PneumoniaMNIST over 16 sites that differ, MLP of 32 units",
    f"{SOURCE}, table 3",
    Setting(
        data={
            "name": "pneumoniamnist",
            "split": "dirichlet",
            "clients": 16,
            "alpha": 0.5,
            "min_size": 32,
            "noise": {"mean": -0.08, "mean_step": 0.01, "variance": 0.04},
        },
        model="mlp",
        model_options=_NETWORK,
        problem="auc",
    ),
    tuple(lines(SITE_WINDOWS, step=SITE_STEP, iterations=SITE_ITERATIONS)),
    (Panel("local_steps", "auroc", "test AUC"), Panel("bytes", "auroc", "test AUC")),
    site_claims,
    quick_seeds=2,
    quick_share=0.05,
    looks=(5, 10),
    minutes=1.7,
    tuning=replace(TUNING, grid={"primal_step": (0.003, 0.01, 0.03, 0.1)}, share=0.25),
)

SOURCES_ADDED = Figure(
    "CODASCA on PneumoniaMNIST with 1 to 5 sources, MLP of 32 units, I = 16",
    f"{SOURCE}, table 4",
    Setting(
        data={
            "name": "pneumoniamnist",
            "split": "dirichlet",
            "clients": 5,
            "alpha": 2.0,
            "min_size": 200,
            "noise": {"mean_step": 0.02},
        },
        model="mlp",
        model_options=_NETWORK,
        problem="auc",
    ),
    tuple(_source_line(count) for count in SOURCES),
    (
        Panel("local_steps", "auroc", "test AUC"),
        FinalValues("sources K", "auroc", "final AUC less that of one source", {CODASCA: _POINTS}, _source_label(1)),
    ),
    source_claims,
    seeds=10,  # the differences are a few tenths of a point, and the sizes of the sources vary with the seed
    quick_seeds=2,
    quick_share=0.5,
    looks=(10, 20),
    minutes=0.15,
    tuning=replace(TUNING, grid={"primal_step": (0.003, 0.01, 0.03, 0.1)}),
)
