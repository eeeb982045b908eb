"""Figures of a benchmark as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedsaddle.report.words import amount, cased, short

HEADS = ("method", "mean rank", "exchanges", "bytes", "local steps", "processor s")
WORDS = {
    "test worst": "accuracy of the worst client",
    "test global": "accuracy of all rows",
    "test mean": "mean accuracy of clients",
    "test loss worst": "loss of the worst client",
    "auroc": "AUROC of all rows",
    "average_precision": "average precision of all rows",
    "worst_client_auroc": "AUROC of the worst client",
    "squared_gradient_of_phi": "squared gradient of Φ",
    "squared_distance_to_saddle": "squared distance to the saddle",
}


def measure_in_words(measure: str) -> str:
    """What a column is.

    Examples:
        >>> measure_in_words("test worst"), measure_in_words("duality_gap")
        ('accuracy of the worst client', 'duality gap')
    """
    return WORDS.get(measure, cased(measure))


def number(value: float | None, share: bool) -> str:
    """A figure: shares in per cent, others with three significant digits; a dash for none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{100 * value:.1f}" if share else f"{value:.2g}"


def cell_text(own: Mapping[str, Any], share: bool) -> str:
    """The mean with half the width of its interval, or with the interval where it is no share.

    Examples:
        >>> cell_text({"mean": 0.812, "low": 0.80, "high": 0.824}, True)
        '81.2 ± 1.2'
        >>> cell_text({"mean": 2e-4, "low": 1e-4, "high": 4e-4}, False)
        '0.0002 (0.0001 to 0.0004)'
    """
    mean, high = own["mean"], own["high"]
    if mean is None or high is None or not math.isfinite(high):
        return number(mean, share)
    if not share:
        return f"{number(mean, share)} ({number(own['low'], share)} to {number(high, share)})"
    return f"{number(mean, share)} ± {number(high - mean, share)}"


def gain_text(gain: Sequence[float | None], share: bool) -> str:
    """A paired difference in points, or a ratio, with its interval; a star where that leaves out no difference.

    Examples:
        >>> gain_text([0.012, 0.004, 0.02], True), gain_text([0.5, 0.3, 1.2], False)
        ('+1.2 [+0.4, +2.0] *', '×0.5 [0.3, 1.2]')
    """
    mean, low, high = (None if v is None or not math.isfinite(v) else v for v in gain)
    if mean is None or low is None or high is None:
        return "–"
    star = " *" if (low > 0 or high < 0 if share else low > 1 or high < 1) else ""
    if share:
        return f"{100 * mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]{star}"
    return f"×{mean:.2g} [{low:.2g}, {high:.2g}]{star}"


def gain_rows(summary: Mapping[str, Any]) -> Iterator[list[str]]:
    """A row for each method but the first of the suite, the best first: its gain over that one on each task."""
    for label in summary["ranks"]:
        if label != summary["baseline"]:
            tasks = summary["tasks"]
            yield [label, *(gain_text(task["methods"][label]["gain"], not task["falling"]) for task in tasks)]


def rank_text(rank: Mapping[str, Any]) -> str:
    """A mean rank with its interval."""
    if rank["low"] is None or not math.isfinite(rank["low"]):
        return f"{rank['rank']:.1f}"
    return f"{rank['rank']:.1f} ({rank['low']:.1f} to {rank['high']:.1f})"


def rank_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str, list[tuple[str, bool]], list[str]]]:
    """A row for each method, the best first: label, rank, a figure and a mark for each task, costs of a run."""
    for label, rank in summary["ranks"].items():
        figures = [
            (cell_text(own, not task["falling"]), bool(own["near_best"]))
            for task in summary["tasks"]
            for own in [task["methods"][label]]
        ]
        yield label, rank_text(rank), figures, cost_texts(rank)


def cost_texts(costs: Mapping[str, Any]) -> list[str]:
    """Exchanges, bytes, local steps and seconds of a run, means over tasks."""
    found = [costs.get(key) for key in ("exchanges", "bytes", "local_steps", "seconds")]
    exchanges, sent, local, seconds = (None if v is None or not math.isfinite(v) else v for v in found)
    return [
        "–" if exchanges is None else f"{exchanges:.0f}",
        "–" if sent is None else amount(sent),
        "–" if local is None else f"{local:,.0f}",
        "–" if seconds is None else short(seconds, 1),
    ]
