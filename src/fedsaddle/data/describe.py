"""How unlike the clients are: sizes, label counts, one figure for the heterogeneity, and charts of who holds what."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedsaddle.array_types import Ints
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.splits.partition import visible_name
from fedsaddle.data.store import Stacked
from fedsaddle.data.table import Array
from fedsaddle.errors import BadInput
from fedsaddle.files import Json, write_atomically
from fedsaddle.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN_CLIENTS = 20
SHOWN_CLASSES = 3


@dataclass(frozen=True, eq=False)
class SplitReport:
    """Per client: sizes and label counts (N, classes), or target means (N,) for regression.

    `heterogeneity` is the mean total-variation distance between the clients' label distributions and the
    pooled one, where each client counts the same whatever its size: 0 for like clients, towards 1 when
    each client holds one of many classes. It is None for regression. The label counts, the distance and
    `size_ratio` (largest over smallest client) are those of the training rows.
    """

    data: str
    names: tuple[str, ...]
    classes: tuple[str, ...]
    train_sizes: Ints
    test_sizes: Ints
    label_counts: Ints | None
    target_means: NDArray[np.float64] | None
    heterogeneity: float | None
    size_ratio: float
    validation_sizes: Ints | None = None  # None: nobody has any
    test_clients: dict[str, int] = field(default_factory=dict)  # rows of the clients that are for the test only

    @property
    def positive_share(self) -> float | None:
        """Of two classes, the share of the second in all training rows."""
        counts = self.label_counts
        return None if counts is None or len(self.classes) != 2 else float(counts[:, 1].sum() / counts.sum())

    @property
    def single_class_clients(self) -> int | None:
        """Of two classes, how many clients have training rows of one only."""
        counts = self.label_counts
        return None if counts is None or len(self.classes) != 2 else int((counts == 0).any(axis=1).sum())

    def to_dict(self) -> dict[str, Json]:
        """Plain numbers, lists and strings, for JSON."""
        return {
            "data": self.data,
            "clients": len(self.names),
            "names": list(self.names),
            "classes": list(self.classes),
            "train_sizes": self.train_sizes.tolist(),
            "validation_sizes": None if self.validation_sizes is None else self.validation_sizes.tolist(),
            "test_sizes": self.test_sizes.tolist(),
            "test_clients": self.test_clients,
            "label_counts": None if self.label_counts is None else self.label_counts.tolist(),
            "target_means": None if self.target_means is None else self.target_means.tolist(),
            "heterogeneity": self.heterogeneity,
            "size_ratio": self.size_ratio,
            "positive_share": self.positive_share,
            "single_class_clients": self.single_class_clients,
        }

    def text(self) -> str:
        """A table for the terminal, of the first 20 clients."""
        shown = min(len(self.names), SHOWN_CLIENTS)
        names = [visible(name) for name in self.names[:shown]]
        width = max(6, *map(len, (*names, *map(visible, self.test_clients))))
        last = "most frequent labels" if self.label_counts is not None else "mean target"
        sizes = {"train": self.train_sizes, "validation": self.validation_sizes, "test": self.test_sizes}
        there = {part: counts for part, counts in sizes.items() if counts is not None}
        head = "  ".join(f"{part:>{_width(part)}}" for part in there)
        lines = [self.headline(), "", f"{'client':<{width}}  {head}  {last}"]
        for i in range(shown):
            cells = "  ".join(f"{counts[i]:>{_width(part)},}" for part, counts in there.items())
            lines.append(f"{names[i]:<{width}}  {cells}  {self._labels(i)}")
        if shown < len(self.names):
            lines.append(f"... and {len(self.names) - shown:,} more clients")
        for name, rows in self.test_clients.items():
            cells = "  ".join(f"{rows if part == 'test' else 0:>{_width(part)},}" for part in there)
            lines.append(f"{visible(name):<{width}}  {cells}  test only")
        return "\n".join(lines)

    def plot(self, path: str | Path) -> Path:
        """A chart of the label counts per client; the end of the name (.png, .svg, .pdf) sets the format."""
        where, figure, drawn = Path(path), draw(self), io.BytesIO()
        kind = where.suffix.lstrip(".").lower() or "png"
        if kind not in figure.canvas.get_supported_filetypes():
            raise BadInput("path", str(path), "has an unknown picture format; end the name in .png, .svg or .pdf")
        figure.savefig(drawn, format=kind, dpi=150)
        write_atomically(where, drawn.getvalue())
        return where

    def headline(self) -> str:
        """The whole split in two lines, or three for two classes."""
        held = "" if self.validation_sizes is None else f", {self.validation_sizes.sum():,} validation"
        tested = self.test_sizes.sum() + sum(self.test_clients.values())
        total = f"{self.train_sizes.sum():,} training{held} and {tested:,} test rows"
        unlike = "" if self.heterogeneity is None else f"; heterogeneity {self.heterogeneity:.3f} (0 = alike)"
        lines = (
            f"{visible(self.data)}: {len(self.names):,} clients, {total}\n"
            f"largest client / smallest client {self.size_ratio:.1f}{unlike}"
        )
        if self.positive_share is None:
            return lines
        alone = f"{self.single_class_clients:,} clients have a single class"
        return f"{lines}\n{self.positive_share:.1%} of the training rows are '{visible(self.classes[1])}'; {alone}"

    def _labels(self, i: int) -> str:
        if self.label_counts is None:
            return "" if self.target_means is None else f"{self.target_means[i]:.4g}"
        counts = self.label_counts[i]
        top = [c for c in np.argsort(-counts, kind="stable")[:SHOWN_CLASSES] if counts[c]]
        return ", ".join(f"{visible_name(self.classes[c])} {counts[c] / counts.sum():.0%}" for c in top)


def describe(data: FederatedData) -> SplitReport:
    """Measure how a data set is split: sizes, labels and heterogeneity of the clients.

    Args:
        data: The clients' rows, from `load` or `federate`.
    """
    sizes = data.train.sizes
    test_sizes = np.zeros(len(data.test_names), dtype=np.int64) if data.test is None else data.test.sizes
    counts = label_counts(data.train, len(data.classes)) if data.classes else None
    return SplitReport(
        data=data.name,
        names=data.names,
        classes=data.classes,
        train_sizes=sizes,
        test_sizes=test_sizes[: data.count],
        label_counts=counts,
        target_means=None if counts is not None else _means(data.train),
        heterogeneity=None if counts is None else heterogeneity(counts),
        size_ratio=float(sizes.max() / sizes.min()),
        validation_sizes=None if data.validation is None else data.validation.sizes,
        test_clients=dict(zip(data.test_names[data.count :], test_sizes[data.count :].tolist(), strict=True)),
    )


def _width(part: str) -> int:
    return max(8, len(part))


def label_counts(rows: Stacked, classes: int) -> Ints:
    """Rows of each class at each client, (N, classes); characters where a row is a sequence."""
    per_row = rows.y[0].numel()
    client = np.repeat(np.arange(rows.count), rows.sizes * per_row)
    flat = np.bincount(client * classes + rows.y.numpy().ravel(), minlength=rows.count * classes)
    return flat.reshape(rows.count, classes).astype(np.int64)


def heterogeneity(counts: Ints) -> float:
    """Mean total-variation distance of the rows of `counts`, as distributions, to their pooled one."""
    each = counts / counts.sum(axis=1, keepdims=True)
    pooled = counts.sum(axis=0) / counts.sum()
    return float(np.abs(each - pooled).sum(axis=1).mean() / 2)


def _means(rows: Stacked) -> NDArray[np.float64]:
    y = rows.y.numpy().astype(np.float64)
    return np.asarray(np.add.reduceat(y if y.ndim == 1 else y[:, 0], rows.offsets[:-1]) / rows.sizes)


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
        return _draw_means(report, means) if few else _scatter(report, means)
    return _bars(report, report.label_counts) if few else _heat_map(report, report.label_counts)


def _blank_figure(size: tuple[float, float]) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def _bars(report: SplitReport, counts: Array) -> Figure:
    labels, columns = _merged(report, counts, MAX_COLOURS)
    figure = _blank_figure((8.5, _height(report)))
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
    figure = _blank_figure((10, 2.2 + 0.26 * len(names)))
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


def _draw_means(report: SplitReport, target: Array) -> Figure:
    figure = _blank_figure((8.5, _height(report)))
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
    figure = _blank_figure((8.5, 5))
    axes = figure.add_subplot()
    axes.plot(report.train_sizes, target, "o", color=BLUE, alpha=0.5, markersize=5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.set_xlabel("training rows")
    axes.set_ylabel("mean target")
    axes.set_title(_title(report), loc="left", fontsize=11)
    return figure


def _style(axes: Axes, report: SplitReport) -> None:
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
