"""How unlike the clients are: sizes, label counts and one figure for the heterogeneity."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsaddle.array_types import Ints
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.splits.partition import visible_name
from fedsaddle.data.store import Stacked
from fedsaddle.errors import BadInput
from fedsaddle.files import write_atomically
from fedsaddle.text import visible

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

    def to_dict(self) -> dict[str, Any]:
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
        there = {part: found for part, found in sizes.items() if found is not None}
        head = "  ".join(f"{part:>{_width(part)}}" for part in there)
        lines = [self.headline(), "", f"{'client':<{width}}  {head}  {last}"]
        for i in range(shown):
            cells = "  ".join(f"{found[i]:>{_width(part)},}" for part, found in there.items())
            lines.append(f"{names[i]:<{width}}  {cells}  {self._labels(i)}")
        if shown < len(self.names):
            lines.append(f"... and {len(self.names) - shown:,} more clients")
        for name, rows in self.test_clients.items():
            cells = "  ".join(f"{rows if part == 'test' else 0:>{_width(part)},}" for part in there)
            lines.append(f"{visible(name):<{width}}  {cells}  test only")
        return "\n".join(lines)

    def plot(self, path: str | Path) -> Path:
        """A chart of the label counts per client; the end of the name (.png, .svg, .pdf) sets the format."""
        from fedsaddle.data.split_chart import draw

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
    sums = np.add.reduceat(rows.y.numpy().astype(np.float64), rows.offsets[:-1])
    return np.asarray(sums / rows.sizes)
