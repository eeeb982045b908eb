"""A task's view of the clients it runs for: their rows in this process, and the state they keep between rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from fedsaddle.array_types import Ints
from fedsaddle.data.store import ClientRows, Labelled
from fedsaddle.errors import BadCheckpoint, BadInput
from fedsaddle.federation.clients import Batch, Own, Remembers, Sent, Site, Task
from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.federation.records import Layout, R, Record, field_marks

CPU = torch.device("cpu")
NEGATIVES_STREAM = 128  # offset of the stream that draws the negatives of balanced batches; algorithms use lower ones
AHEAD, AHEAD_ROWS = 16, 8192  # most steps whose rows are drawn at once, and most rows
EVERYTHING_STREAM = 255  # of dropout where a gradient is taken over all rows


@dataclass
class LocalSite:
    """One client, or a chunk of a cohort; every tensor has a leading axis of clients.

    Args:
        rows: the rows of all clients.
        clients: numbers of the clients of this block.
        keys: their keys.
        samples: samples processed so far.
    """

    rows: ClientRows
    clients: Ints
    keys: ClientKeys
    samples: int = field(default=0)

    @classmethod
    def alone(cls, rows: ClientRows, client: int, seed: int = 0) -> LocalSite:
        """One client, outside any round."""
        clients = np.array([client], dtype=np.int64)
        return cls(rows, clients, ClientKeys.of(seed, 0, 0, clients))

    def __post_init__(self) -> None:
        self._sizes = self.rows.sizes[self.clients]
        self._ahead: dict[tuple[int, int, int | None], tuple[int, Ints | None]] = {}  # draw -> first step, rows
        self._by_label: dict[int, Labelled] = {}

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return CPU

    @property
    def sizes(self) -> Tensor:
        """Rows per client, (C,)."""
        return torch.from_numpy(self._sizes)

    def broadcast(self, v: Tensor) -> Tensor:
        """The same vector for every client, without a copy."""
        return v.expand(len(self.clients), *v.shape)

    def minibatch(self, step: int, size: int, stream: int = 0, label: int | None = None) -> Batch:
        """Rows drawn uniformly with replacement, from all rows or from those of one label."""
        return self.minibatches(step, [(size, stream, label)])[1][0]

    def minibatches(self, step: int, draws: Sequence[tuple[int, int, int | None]]) -> tuple[Tensor, list[Batch]]:
        """Several minibatches, gathered in one pass."""
        picks = [self._draw(step, *draw) for draw in draws]
        sizes = [size for size, _, _ in draws]
        self.samples += sum(sizes) * len(self.clients)
        together = picks[0][0] if len(picks) == 1 else np.concatenate([rows for rows, _ in picks], 1)
        x, y = self.rows.gather(self.clients, together)
        xs_ys = ([x], [y]) if len(sizes) == 1 else (torch.split(x, sizes, 1), torch.split(y, sizes, 1))
        parts = zip(*xs_ys, picks, draws, strict=True)
        return x, [
            Batch(
                xs,
                ys,
                None if weight is None else weight.to(_dtype(x)),
                torch.from_numpy(rows),
                partial(self._keys, step, stream),
            )
            for xs, ys, (rows, weight), (_, stream, _) in parts
        ]

    def _draw(self, step: int, size: int, stream: int, label: int | None) -> tuple[Ints, Tensor | None]:
        """Row numbers within each client, (C, B), and weights if rows have different ones."""
        if label is not None:
            return self._draw_labelled(step, size, stream, label)
        if self.rows.positives is not None:
            return self._draw_balanced(step, size, stream, self.rows.positives)
        return self._draw_ahead(step, size, stream), None

    def _draw_ahead(self, step: int, size: int, stream: int, label: int | None = None) -> Ints:
        """Row numbers; from the second of consecutive steps on, those of the next few steps are drawn in one go."""
        if type(self.keys) is not ClientKeys:  # draws of one's own
            return self._rows(label, lambda sizes: self.keys.rows(sizes, step, size, stream))
        first, drawn = self._ahead.get((size, stream, label), (step, None))
        if drawn is None or not first <= step < first + len(drawn):
            follows = drawn is not None and step == first + len(drawn)
            steps = max(min(AHEAD, AHEAD_ROWS // (size * len(self.clients))), 1) if follows and size else 1
            drawn = self._rows(label, lambda sizes: self.keys.rows_of_steps(sizes, step, steps, size, stream))
            self._ahead[size, stream, label] = (step, drawn)
            first = step
        rows: Ints = drawn[step - first]
        return rows

    def _rows(self, label: int | None, draw: Callable[[Ints], Ints]) -> Ints:
        """What is drawn among all rows, or among those of a label; `draw` is given how many each client has."""
        if label is None:
            return draw(self._sizes)
        labelled = self._labelled(label)
        return labelled.pick(draw(np.maximum(labelled.counts, 1)))

    def _draw_labelled(self, step: int, size: int, stream: int, label: int) -> tuple[Ints, Tensor | None]:
        counts = self._labelled(label).counts
        real = None if counts.all() else torch.from_numpy(counts > 0)[:, None].expand(-1, size)
        return self._draw_ahead(step, size, stream, label), real

    def _labelled(self, label: int) -> Labelled:
        """The clients' rows of one label, looked up once."""
        if label not in self._by_label:
            self._by_label[label] = self.rows.labelled(self.clients, label)
        return self._by_label[label]

    def _draw_balanced(self, step: int, size: int, stream: int, share: float) -> tuple[Ints, Tensor | None]:
        """A batch with a given share of positives; its weighted mean estimates the mean over the client's rows."""
        ups = positives_in(size, share)
        negatives = self._draw_labelled(step, size - ups, stream + NEGATIVES_STREAM, 0)
        sides = (self._draw_labelled(step, ups, stream, 1), negatives)
        own = torch.from_numpy(self._labelled(1).counts / self._sizes)[:, None]
        parts = (own / ups).expand(-1, ups), ((1 - own) / (size - ups)).expand(-1, size - ups)
        return np.concatenate([rows for rows, _ in sides], 1), torch.cat(parts, 1) * size

    def everything(self) -> Batch:
        """All rows; smaller clients repeat their last row with weight 0."""
        self.samples += int(self._sizes.sum())
        whole, keys = self.rows.everything(self.clients), partial(self._keys, 0, EVERYTHING_STREAM)
        longest = int(self._sizes.max())
        if whole is not None:
            return Batch(*whole, keys=keys, units=self._units)
        at = np.arange(longest)
        x, y = self.rows.gather(self.clients, np.minimum(at, self._sizes[:, None] - 1))
        if (self._sizes == longest).all():
            return Batch(x, y, keys=keys, units=self._units)
        real = torch.from_numpy(at < self._sizes[:, None])
        return Batch(x, y, real.to(_dtype(x)), keys=keys, sizes=self._sizes.tolist(), units=self._units)

    def _units(self) -> Tensor | None:
        """The number of each row's unit within its client, `(C, B)`; 0 for padding."""
        numbers = [self.rows.unit_numbers(client) for client in self.clients.tolist()]
        if all(own is None for own in numbers):
            return None
        units = np.zeros((len(self.clients), int(self._sizes.max())), dtype=np.int64)
        for row, own, size in zip(units, numbers, self._sizes.tolist(), strict=True):
            row[:size] = np.arange(size) if own is None else own
        return torch.from_numpy(units)

    def _keys(self, step: int, stream: int) -> Tensor:
        """What a batch's dropout is drawn from, (C,)."""
        return torch.from_numpy(self.keys.inner(step, stream).view(np.int64))

    def discount_samples(self, rows: int) -> None:
        """Subtract rows that were drawn for clients that had already finished."""
        self.samples -= rows

    def labelled(self, label: int) -> Tensor:
        """The number of rows with that label, (C,)."""
        return torch.from_numpy(self._labelled(label).counts)

    def uniforms(self, step: int, size: int, stream: int = 0) -> Tensor:
        """Numbers uniform on [0, 1) for each client."""
        return torch.from_numpy(self.keys.uniforms(step, size, stream))


def positives_in(size: int, share: float) -> int:
    """How many rows of a balanced batch are positive."""
    if size < 2:
        raise BadInput("batch_size", size, "a balanced batch has at least 2 rows, one positive and one negative")
    return min(max(round(share * size), 1), size - 1)


def _dtype(x: Tensor) -> torch.dtype:
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()


@dataclass
class Memory:
    """State of the clients, by client number. Writes of a round become valid when it is committed.

    Args:
        kept: records of committed rounds, by client number.
        pending: records written in this round.
    """

    kept: dict[int, Record] = field(default_factory=dict)
    pending: dict[int, Record | None] = field(default_factory=dict)

    def begin(self) -> None:
        """Discard the writes of an unfinished round."""
        self.pending.clear()

    def commit(self) -> None:
        """Make the writes of the round valid."""
        for client, record in self.pending.items():
            if record is None:
                self.kept.pop(client, None)
            else:
                self.kept[client] = record
        self.pending.clear()

    def read(self, task: Task[Own, Sent, R], site: Site) -> Own:
        """The state of the site's clients, stacked; new clients start from the algorithm's `fresh(site)`.

        The result is a copy that the task may modify.
        """
        owner = remembering(task)
        return cast(Own, None if owner is None else self._of(owner, site))  # which is what its tasks wrote

    def _of(self, owner: Remembers, site: Site) -> Record | None:
        known = self.known(site.clients)
        if (whole := stacked(known)) is not None:
            return whole
        blank = owner.fresh(site)
        if blank is None or not any(k is not None for k in known):
            return blank
        kind = type(blank)
        return kind(**{f.name: _fill(getattr(blank, f.name), known, f.name) for f in fields(kind)})

    def known(self, clients: Ints) -> list[Record | None]:
        """The state of each client, or None."""
        return [self.pending[i] if i in self.pending else self.kept.get(i) for i in clients.tolist()]

    def write(self, clients: Ints, sizes: Tensor, own: Record | None) -> None:
        """Store each client's slice, without the padding of per-sample fields; None deletes the state."""
        if own is None:
            self.pending.update({i: None for i in clients.tolist() if i in self.kept or i in self.pending})
            return
        kind = type(own)
        marks = field_marks(kind)
        for c, i in enumerate(clients.tolist()):
            rows = {name: int(sizes[c]) for name, mark in marks.items() if mark is Layout.PER_SAMPLE}
            self.pending[i] = kind(**{f.name: _slice(getattr(own, f.name), c, rows.get(f.name)) for f in fields(kind)})

    def restore(
        self, algorithm: object, site_of: Callable[[int], Site], stored: Mapping[int, Mapping[str, Tensor]]
    ) -> None:
        """Load the state from a checkpoint."""
        self.pending.clear()
        if stored and not isinstance(algorithm, Remembers):
            raise BadCheckpoint(
                "the checkpoint holds clients' memory, but this algorithm keeps none; resume with the same algorithm"
            )
        self.kept = {i: type(algorithm.fresh(site_of(i)))(**values) for i, values in stored.items()}  # type: ignore[attr-defined]


def remembering(task: Task[Own, Sent, R]) -> Remembers | None:
    """The algorithm whose method the task is, if its clients keep state."""
    owner = getattr(task, "__self__", None)
    return owner if isinstance(owner, Remembers) else None


def stacked(known: Sequence[Record | None]) -> Record | None:
    """Stack records of equal shapes; None if a client has no record or a field needs padding."""
    records = [record for record in known if record is not None]
    if len(records) < len(known):
        return None
    kind = type(records[0])
    if Layout.PER_SAMPLE in field_marks(kind).values():
        return None
    columns = {f.name: [getattr(record, f.name) for record in records] for f in fields(kind)}
    if any(v.shape != values[0].shape for values in columns.values() for v in values):
        return None
    return kind(**{name: torch.stack(values) for name, values in columns.items()})


def _fill(blank: Tensor, known: Iterable[Record | None], name: str) -> Tensor:
    stacked = blank.clone()
    for c, record in enumerate(known):
        if record is not None:
            value = getattr(record, name)
            stacked[c][tuple(slice(0, n) for n in value.shape)] = value
    return stacked


def _slice(value: Tensor, c: int, rows: int | None) -> Tensor:
    return torch.clone(value[c] if rows is None else value[c, :rows])
