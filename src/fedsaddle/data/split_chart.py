"""Charts of a split: who holds how many rows of which class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from fedsaddle.data.splits.partition import visible_name
from fedsaddle.data.table import Array

if TYPE_CHECKING:
    from fedsaddle.data.describe import SplitReport

MAX_BARS = 60
MAX_COLUMNS = 2000
MAX_ROWS = 30
HUES = ("#3b6fb6", "#e8a33d", "#3f9c6b", "#c8504b", "#8a6fb8", "#7a5a44", "#e08fb8", "#5b6770", "#b5b83c", "#4fb6c2")
COLOURS = (*HUES, "#d5d8dc")  # a grey for the remaining classes
MAX_COLOURS = len(HUES)
BLUE = HUES[0]


def draw(report: SplitReport) -> Figure:
    """Stacked bars up to 60 clients and a heat map beyond; sizes and means for a regression target."""
    few = len(report.names) <= MAX_BARS
    if report.label_counts is None:
        means = report.target_means if report.target_means is not None else np.zeros(len(report.names))
        return _means(report, means) if few else _scatter(report, means)
    return _bars(report, report.label_counts) if few else _heat_map(report, report.label_counts)


def _bars(report: SplitReport, counts: Array) -> Figure:
    labels, columns = _merged(report, counts, MAX_COLOURS)
    figure = Figure(figsize=(8.5, _height(report)), layout="constrained")
    axes = figure.add_subplot()
    left = np.zeros(len(counts))
    for label, column, colour in zip(labels, columns.T, COLOURS, strict=False):
        axes.barh(range(len(counts)), column, left=left, color=colour, height=0.78, label=label)
        left += column
    _style(axes, report)
    axes.set_xlabel("training rows" if left.sum() == report.train_sizes.sum() else "training characters")
    axes.set_title(_title(report), loc="left", fontsize=11)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9, title="class")
    return figure


def _merged(report: SplitReport, counts: Array, limit: int) -> tuple[list[str], Array]:
    """The classes to show: all up to `limit`, else the most frequent and the others."""
    names = [_plain(name) for name in report.classes]
    if len(names) <= limit:
        return names, counts
    order = np.argsort(-counts.sum(axis=0), kind="stable")
    top, rest = np.sort(order[:limit]), order[limit:]
    columns = np.column_stack([counts[:, top], counts[:, rest].sum(axis=1)])
    return [*(names[c] for c in top), f"{len(rest)} others"], columns


def _heat_map(report: SplitReport, counts: Array) -> Figure:
    names, columns = _merged(report, counts, MAX_ROWS)
    shares = columns / columns.sum(axis=1, keepdims=True)
    clients = len(shares)
    if clients > MAX_COLUMNS:
        shares = shares[np.linspace(0, clients - 1, MAX_COLUMNS).astype(int)]
    figure = Figure(figsize=(10, 2.2 + 0.26 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    extent = (-0.5, clients - 0.5, len(names) - 0.5, -0.5)
    image = axes.imshow(
        shares.T,
        aspect="auto",
        cmap="Blues",
        interpolation="nearest",
        vmin=0,
        vmax=shares.max(),
        extent=extent,
    )
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set_xlabel("client")
    axes.set_ylabel("class")
    axes.spines[:].set_visible(False)
    axes.set_title(_title(report), loc="left", fontsize=11)
    figure.colorbar(image, ax=axes, label="share of the client's labels", pad=0.01).outline.set_visible(False)
    return figure


def _means(report: SplitReport, target: Array) -> Figure:
    figure = Figure(figsize=(8.5, _height(report)), layout="constrained")
    sizes, means = figure.subplots(1, 2, sharey=True)
    sizes.barh(range(len(report.names)), report.train_sizes, color=BLUE, height=0.78)
    means.plot(target, range(len(report.names)), "o", color=BLUE)
    for axes, label in ((sizes, "training rows"), (means, "mean target")):
        _style(axes, report)
        axes.set_xlabel(label)
    means.tick_params(labelleft=False)
    sizes.set_title(_title(report), loc="left", fontsize=11)
    return figure


def _scatter(report: SplitReport, target: Array) -> Figure:
    figure = Figure(figsize=(8.5, 5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(report.train_sizes, target, "o", color=BLUE, alpha=0.5, markersize=5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.set_xlabel("training rows")
    axes.set_ylabel("mean target")
    axes.set_title(_title(report), loc="left", fontsize=11)
    return figure


def _style(axes: Any, report: SplitReport) -> None:
    axes.set_yticks(range(len(report.names)), [_plain(name) for name in report.names], fontsize=9)
    axes.set_ylim(len(report.names) - 0.4, -0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)


def _height(report: SplitReport) -> float:
    return max(2.6, 1.3 + 0.24 * len(report.names))


def _title(report: SplitReport) -> str:
    unlike = "" if report.heterogeneity is None else f", heterogeneity {report.heterogeneity:.2f}"
    return f"{_plain(report.data)}: {len(report.names):,} clients{unlike}"


def _plain(name: str) -> str:
    """A name as a label: visible, not too long, and without the dollar signs that start a formula."""
    shown = visible_name(name)
    shown = shown if len(shown) <= 28 else f"{shown[:27]}…"
    return shown.replace("$", r"\$")
