"""FedX's tables 1 and 2, figures 1 and 2, and a comparison under label skew, where pairs across clients matter most.

The figures vary local steps, clients and buffers of FedX2 for partial AUC on CIFAR-10. All their lines take the same
number of local iterations, with the step that was tuned for 16 clients and K = 32. Under label skew FedX2 also runs
with fewer local steps, and with normalised weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from fedsaddle_papers.reproductions.claims import Claim, SeedValues, higher, non_inferior
from fedsaddle_papers.reproductions.curves import Runs
from fedsaddle_papers.reproductions.fedx_tasks import (
    AUROC,
    CENTRALISED,
    CLIENTS,
    CODASCA,
    FPR30,
    FPR50,
    HIDDEN,
    LOCAL_PAIR,
    LOCAL_SGD,
    LOCAL_STEPS,
    ROUNDS,
    SKEWED,
    SOURCE,
    TASKS,
    fedx_for,
    label,
    line,
    methods,
    setting,
    tuning,
)
from fedsaddle_papers.reproductions.figure import Figure, Line, Panel

MARGIN = 1.0  # percentage points; "competitive" methods are at most this much worse
METRICS = {FPR30: "pAUC, FPR ≤ 0.3", FPR50: "pAUC, FPR ≤ 0.5", AUROC: "AUC"}
_XRAYS = "PneumoniaMNIST"
# The paper's values in the order of `methods`; for X-rays those of CheXpert and of ChestMNIST.
PAPER: dict[tuple[str, str], tuple[str, ...]] = {
    ("CIFAR-10", FPR30): ("76.6", "68.3", "72.9", "74.9", "75.8"),
    ("CIFAR-10", FPR50): ("80.3", "72.8", "77.0", "78.9", "79.8"),
    ("CIFAR-100", FPR30): ("62.9", "58.8", "61.3", "62.8", "63.3"),
    ("CIFAR-100", FPR50): ("64.9", "61.2", "64.1", "65.7", "66.2"),
    (_XRAYS, FPR30): ("72.2 / 63.4", "65.0 / 59.0", "69.0 / 60.7", "69.0 / 58.0", "73.4 / 62.3"),
    (_XRAYS, FPR50): ("78.6 / 66.2", "70.2 / 60.7", "77.7 / 62.7", "74.8 / 60.3", "79.2 / 64.9"),
    ("CIFAR-10, flipped", AUROC): ("73.5", "65.0", "64.1", "72.9", "73.4"),
    ("CIFAR-100, flipped", AUROC): ("61.1", "57.0", "59.5", "61.8", "62.1"),
    (f"{_XRAYS}, flipped", AUROC): ("81.5 / 72.3", "67.8 / 56.4", "70.6 / 65.1", "79.2 / 67.7", "84.3 / 69.3"),
}


def final_metric(runs: Runs, task: str, method: str, column: str) -> SeedValues:
    """The metric of all test rows in the round that the validation rows chose, in per cent."""
    values = np.array([100 * curves.selected.get(column, np.nan) for curves in runs[label(task, method)]])
    return SeedValues(method, values, digits=2)


def table_claims(tasks: Sequence[str], columns: Sequence[str], runs: Runs) -> list[Claim]:
    """FedX is better than every local method, and at most the margin below the centralised one."""
    return [
        _claim(runs, task, column, other)
        for task in tasks
        for column in columns
        for other in (LOCAL_PAIR, CODASCA, LOCAL_SGD, CENTRALISED)
    ]


def _claim(runs: Runs, task: str, column: str, other: str) -> Claim:
    ours, risk = fedx_for(TASKS[task].risk), TASKS[task].risk
    values = dict(zip(methods(risk), PAPER.get((task, column), ()), strict=False))
    paper = f"{values[ours]} against {values[other]}" if values else "not in the paper"
    pair = (final_metric(runs, task, ours, column), final_metric(runs, task, other, column))
    if other == CENTRALISED:
        text = f"{task}: {ours} ends at most {MARGIN:g} point below the centralised method ({METRICS[column]})"
        return non_inferior(text, paper, *pair, MARGIN)
    return higher(f"{task}: {ours} ends above {other} ({METRICS[column]})", paper, *pair)


def _lines(tasks: Sequence[str]) -> tuple[Line, ...]:
    return tuple(line(task, method) for task in tasks for method in methods(TASKS[task].risk))


def _panel(task: str, column: str, lines: Sequence[Line]) -> Panel:
    names = tuple(x.label for x in lines if x.label.startswith(f"{task}: "))
    return Panel("round", column, f"{task}: {METRICS[column]}", lines=names)


def _table(
    title: str,
    source: str,
    tasks: Sequence[str],
    columns: Sequence[str],
    more: tuple[Line, ...] = (),
    more_claims: Callable[[Runs], list[Claim]] = lambda runs: [],
) -> Figure:
    lines = (*_lines(tasks), *more)
    return Figure(
        f"{title}, {CLIENTS} clients, K = {LOCAL_STEPS}, MLP of 2 x {HIDDEN[0]} units",
        source,
        setting(columns[0]),
        lines,
        tuple(_panel(task, column, lines) for column in columns for task in tasks),
        lambda runs: [*table_claims(tasks, columns, runs), *more_claims(runs)],
        quick_seeds=2,
        quick_share=0.03,
        rows=len(columns),
        looks=(5, 10),
        minutes=4.9 * len(tasks) + 2.0 * len(more),
        tuning=tuning(columns[0]),
    )


NORMALISED_TASK = "CIFAR-10, skewed"


def skew_claims(runs: Runs) -> list[Claim]:
    """What normalised weights gain over FedX2's own at two K, and what local steps cost without and with them."""
    pairs = (
        ("FedX2, K = 4, normalised", "FedX2, K = 4"),
        ("FedX2, K = 32, normalised", "FedX2"),
        ("FedX2, K = 32, normalised", LOCAL_SGD),
        ("FedX2, K = 4, normalised", LOCAL_SGD),
        ("FedX2, K = 4", "FedX2"),
    )
    found = []
    for one, other in pairs:
        values = (final_metric(runs, NORMALISED_TASK, method, FPR30) for method in (one, other))
        found.append(
            higher(f"{NORMALISED_TASK}: {one} ends above {other} ({METRICS[FPR30]})", "not in a paper", *values)
        )
    return found


def skew_lines() -> tuple[Line, ...]:
    """FedX2 with K = 1 and 4, and with normalised weights at K = 4 and 32, for as many local iterations."""
    made = []
    for task in (NORMALISED_TASK,):
        for colour, (K, normalised) in enumerate(((1, False), (4, False), (4, True), (32, True)), 5):
            name = label(task, f"FedX2, K = {K}" + (", normalised" if normalised else ""))
            rounds = ROUNDS * LOCAL_STEPS // K
            own = line(task, "FedX2", rounds=rounds)
            options = {**own.options, "local_steps": K, **({"normalised_weights": True} if normalised else {})}
            made.append(
                replace(
                    own,
                    label=name,
                    legend=name.removeprefix(f"{task}: "),
                    options=options,
                    evaluate_every=rounds // 24,
                    colour=colour % 6,
                    style="--" if normalised else ":",
                    tuned=name,
                )
            )
    return tuple(made)


TABLE_1 = _table("Partial AUC", f"{SOURCE}, table 1", ["CIFAR-10", "CIFAR-100"], (FPR30, FPR50))
TABLE_2 = _table("AUC with 20 % flipped labels", f"{SOURCE}, table 2", ["CIFAR-10, flipped"], (AUROC,))
SKEW = _table(
    "Partial AUC where sites have one class, and where labels are skewed",
    f"beyond {SOURCE}: where pairs across clients matter most",
    list(SKEWED),
    (FPR30,),
    skew_lines(),
    skew_claims,
)


# Figures 1 and 2

ABLATION_TASK = "CIFAR-10"
ITERATIONS = ROUNDS * LOCAL_STEPS
LOCAL_STEP_GRID, CLIENT_GRID, BUFFER_ROUNDS = (1, 4, 32, 96), (1, 4, CLIENTS), 5  # K, N, τ
SUB_SAMPLED = "sub-sampled"
_LARGE_K = "tolerates a certain K without harming the performance (figure 1)"
_MORE_CLIENTS = "data from more sources dramatically improve the performance (figure 1)"
_BUFFERS = "keeping some larger τ can improve the performance (figure 2)"
_LARGE_K_BUFFERED = "can tolerate to skip a big number of communications (figure 2)"


def variant(K: int, clients: int = CLIENTS, τ: int = 1, sharing: str = "all") -> str:
    """The name of a variant, such as "K = 32, N = 16, τ = 5, sub-sampled"."""
    buffer = f", τ = {τ}" if τ > 1 else ""
    return f"K = {K}, N = {clients}{buffer}{f', {sharing}' if sharing != 'all' else ''}"


def fedx2_line(K: int, clients: int = CLIENTS, τ: int = 1, sharing: str = "all", colour: int = 0) -> Line:
    """FedX2 on the first `clients` of the 16 clients, each with its own rows; dashed where τ > 1."""
    rounds = ITERATIONS // K
    made = line(ABLATION_TASK, "FedX2", rounds=rounds)
    return replace(
        made,
        label=label(ABLATION_TASK, variant(K, clients, τ, sharing)),
        legend=variant(K, clients, τ, sharing),
        options={**made.options, "local_steps": K, "buffer_rounds": τ, "sharing": sharing},
        data={**made.data, "sources": clients},
        evaluate_every=max(1, rounds // 24),
        tuned=label(ABLATION_TASK, "FedX2"),
        colour=colour,
        style="--" if τ > 1 else "-",
    )


def ablation_claims(runs: Runs) -> list[Claim]:
    """Figure 1: a larger K does no harm; more clients help."""
    found = []
    for column in (FPR30, FPR50):
        for K in LOCAL_STEP_GRID[1:]:
            text = f"K = {K} ends at most {MARGIN:g} point below K = {LOCAL_STEP_GRID[0]} ({METRICS[column]})"
            one, other = (final_metric(runs, ABLATION_TASK, variant(k), column) for k in (K, LOCAL_STEP_GRID[0]))
            found.append(non_inferior(text, _LARGE_K, one, other, MARGIN))
        for few, many in pairwise(CLIENT_GRID):
            text = f"N = {many} ends above N = {few} ({METRICS[column]})"
            pair = (final_metric(runs, ABLATION_TASK, variant(LOCAL_STEPS, n), column) for n in (many, few))
            found.append(higher(text, _MORE_CLIENTS, *pair))
    return found


def buffer_claims(runs: Runs) -> list[Claim]:
    """Figure 2: buffers of several rounds help; with them a large K does no harm."""
    found = []
    for column in (FPR30, FPR50):
        for K, sharing in BUFFERED:
            pair = (
                final_metric(runs, ABLATION_TASK, variant(K, τ=τ, sharing=sharing), column) for τ in (BUFFER_ROUNDS, 1)
            )
            where = f"K = {K}{', sub-sampled scores' if sharing == SUB_SAMPLED else ''}"
            found.append(higher(f"τ = {BUFFER_ROUNDS} ends above τ = 1, {where} ({METRICS[column]})", _BUFFERS, *pair))
        large, small = LOCAL_STEP_GRID[-1], LOCAL_STEPS
        one, other = (final_metric(runs, ABLATION_TASK, variant(K, τ=BUFFER_ROUNDS), column) for K in (large, small))
        text = f"K = {large} ends at most {MARGIN:g} point below K = {small}, both with τ = {BUFFER_ROUNDS}"
        found.append(non_inferior(f"{text} ({METRICS[column]})", _LARGE_K_BUFFERED, one, other, MARGIN))
    return found


BUFFERED = ((LOCAL_STEPS, "all"), (LOCAL_STEP_GRID[-1], "all"), (LOCAL_STEPS, SUB_SAMPLED))
_BY_LOCAL_STEPS = tuple(fedx2_line(K, colour=c) for c, K in enumerate(LOCAL_STEP_GRID))
_BY_CLIENTS = tuple(fedx2_line(LOCAL_STEPS, n, colour=3 + c) for c, n in enumerate(CLIENT_GRID[:-1]))
_CLIENT_LABELS = (*(x.label for x in _BY_CLIENTS), label(ABLATION_TASK, variant(LOCAL_STEPS)))

ABLATION = Figure(
    f"FedX2 on CIFAR-10 with K local steps and N clients, MLP of 2 x {HIDDEN[0]} units",
    f"{SOURCE}, figure 1",
    setting(),
    (*_BY_LOCAL_STEPS, *_BY_CLIENTS),
    tuple(
        Panel("local_steps", column, METRICS[column], lines=lines)
        for lines in (tuple(x.label for x in _BY_LOCAL_STEPS), _CLIENT_LABELS)
        for column in (FPR30, FPR50)
    ),
    ablation_claims,
    quick_seeds=2,
    quick_share=0.03,
    rows=2,
    looks=(5, 10),
    minutes=10.0,
    tuned_by="fedx-table1",
)
BUFFERS = Figure(
    f"FedX2 on CIFAR-10 with scores of τ rounds, N = 16, MLP of 2 x {HIDDEN[0]} units",
    f"{SOURCE}, figure 2",
    setting(),
    tuple(
        fedx2_line(K, τ=τ, sharing=sharing, colour=c)
        for c, (K, sharing) in enumerate(BUFFERED)
        for τ in (1, BUFFER_ROUNDS)
    ),
    tuple(Panel("local_steps", column, METRICS[column]) for column in (FPR30, FPR50)),
    buffer_claims,
    quick_seeds=2,
    quick_share=0.03,
    looks=(5, 10),
    minutes=10.0,
    tuned_by="fedx-table1",
)
