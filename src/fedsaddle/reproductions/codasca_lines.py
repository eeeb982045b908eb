"""The lines and claims that CODASCA's figures and tables share.

All lines take T local iterations a client, whatever the window I, as in the paper. At I = 1 CODASCA's corrections
cancel in the average, so that one line stands for both methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsaddle.reproductions.claims import Claim, Figures, more, no_less
from fedsaddle.reproductions.figure import Line, Options
from fedsaddle.reproductions.tracks import Tracks

SOURCE = "Yuan, Guo, Xu, Ying, Yang 2021, Federated Deep AUC Maximization for Heterogeneous Data"
SCA, PLUS = "CODASCA", "CODA+"
ITERATIONS = 2048  # T
STEP = 0.1  # η at first; the best of 0.1, 0.01, 0.001 at I = 1, for both methods
MARGIN = 1.0  # points of AUC within which a window is harmless
_EVALUATIONS = 16
_OPTIONS: Options = {
    "batch_size": 32,
    "proximal": 1 / 500,
}
_COLOURS = {1: 5, 4: 2, 16: 3, 64: 0, 128: 3, 256: 0}


def label(method: str, window: int, clients: str = "") -> str:
    """Such as "K = 16, CODA+, I = 4"; with I = 1 both methods are one line."""
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
    """CODA+ is dashed; a window has its colour. The step is divided by 3 half-way, T_0 = T / 2."""
    rounds, steps = iterations // window, {"name": "geometric", "first": step, "factor": 1 / 3}
    return Line(
        label(method, window, clients),
        method,
        {**_OPTIONS, "primal_step": steps, "local_steps": window, "stage_steps": iterations // 2},
        rounds,
        _COLOURS[window],
        "--" if method == PLUS and window > 1 else "-",
        data=data or {},
        evaluate_every=max(1, rounds // _EVALUATIONS),
        legend=label(method, window),
    )


def lines(windows: Sequence[int], clients: str = "", **others: Any) -> list[Line]:
    """I = 1 once, and every larger window with either method; `others` as for `line`."""
    larger = [line(m, w, clients, **others) for w in windows if w > 1 for m in (SCA, PLUS)]
    return [line(PLUS, 1, clients, **others), *larger]


def final(tracks: Tracks, name: str) -> Figures:
    """The pooled AUC of the test rows at the last iteration, in per cent."""
    shown = name.split(", ", 1)[-1] if name.startswith("K") else name  # "CODA+, I = 4"
    return Figures(f"{shown}:", last(tracks, name), digits=2)


def last(tracks: Tracks, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The same, seed by seed."""
    return np.array([100 * t.column("auroc")[-1] for t in tracks[name]])


def better(tracks: Tracks, window: int, said: str, clients: str = "") -> Claim:
    """CODASCA's AUC is above CODA+'s at the same window."""
    where = f", {clients}" if clients else ""
    text = f"CODASCA ends with a higher AUC than CODA+ at I = {window}{where}"
    return more(text, said, *(final(tracks, label(m, window, clients)) for m in (SCA, PLUS)))


def harmless(tracks: Tracks, method: str, window: int, said: str, clients: str = "") -> Claim:
    """The AUC is at most the margin below that of I = 1."""
    where = f", {clients}" if clients else ""
    text = f"{method} at I = {window} ends at most {MARGIN:g} point of AUC below I = 1{where}"
    one, other = (final(tracks, label(m, w, clients)) for m, w in ((method, window), (PLUS, 1)))
    return no_less(text, said, one, other, MARGIN)


def largest_harmless(tracks: Tracks, method: str, windows: Sequence[int], clients: str, means: bool = False) -> int:
    """I_max: the largest window that is harmless, as are all shorter ones; with `means`, by the means of the seeds."""
    base, found = last(tracks, label(PLUS, 1, clients)), 1
    for window in windows[1:]:
        if means:
            passes = bool((last(tracks, label(method, window, clients)) - base).mean() >= -MARGIN)
        else:
            passes = harmless(tracks, method, window, "", clients).holds
        if not passes:
            break
        found = window
    return found
