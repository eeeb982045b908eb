"""Which of its rows each client keeps for the test."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from fedsaddle.arguments import number
from fedsaddle.data.splits.partition import Parts, generator
from fedsaddle.data.table import Array

HOLD_OUT = 3  # a stream of random numbers


def hold_out(
    parts: Parts, test_share: float, seed: int, labels: Array | None = None, together: Array | None = None
) -> tuple[Parts, Parts]:
    """Part each client's rows into those to train on and those held out: at least one if it has two, never all.

    With `labels`, that share of each class; rows of a client that are alike in `together` stay together, and count
    as one row, of the highest of their labels.
    """
    number("test_share", test_share, least=0, below=1)
    if together is None:
        return _rows(parts, test_share, seed) if labels is None else _classes(labels, parts, test_share, seed)
    member = np.zeros(len(together), dtype=np.int64)  # row -> its unit; units are numbered client by client
    units: Parts = []
    count = 0
    for part in parts:
        found, at = np.unique(together[part], return_inverse=True)
        member[part] = count + at
        units.append(count + np.arange(len(found)))
        count += len(found)
    highest = None
    if labels is not None:
        highest = np.zeros(count, dtype=np.int64)
        rows = np.concatenate(parts)
        np.maximum.at(highest, member[rows], np.unique(labels, return_inverse=True)[1][rows])
    _, held = hold_out(units, test_share, seed, highest)
    apart = np.zeros(count, dtype=bool)
    apart[np.concatenate(held)] = True
    return [part[~apart[member[part]]] for part in parts], [part[apart[member[part]]] for part in parts]


def _rows(parts: Parts, test_share: float, seed: int) -> tuple[Parts, Parts]:
    """Part each client's rows into those to train on and those held out for the test."""
    sizes = np.array([len(part) for part in parts])
    counts = np.round(test_share * sizes).astype(np.int64)
    if test_share > 0:
        counts = np.minimum(np.maximum(counts, 1), sizes - 1)
    client = np.repeat(np.arange(len(parts)), sizes)
    rows = np.concatenate(parts)
    # Shuffle within each client, and hold out the first rows: in one step, as there may be very many clients.
    order = np.lexsort((generator(seed, HOLD_OUT).random(len(rows)), client))
    place = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    held = np.empty(len(rows), dtype=bool)
    held[order] = place < counts[client]
    ends, test_ends = np.cumsum(sizes - counts)[:-1], np.cumsum(counts)[:-1]
    return np.split(rows[~held], ends), np.split(rows[held], test_ends)


def _classes(labels: Array, parts: Parts, test_share: float, seed: int) -> tuple[Parts, Parts]:
    """The same within each class of each client."""
    classes = np.unique(labels)
    strata = [part[labels[part] == c] for part in parts for c in classes]
    there = [k for k, rows in enumerate(strata) if len(rows)]
    halves = _rows([strata[k] for k in there], test_share, seed)
    ends = np.searchsorted(there, np.arange(len(parts) + 1) * len(classes)).tolist()
    kept, held = ([np.sort(np.concatenate(half[a:b])) for a, b in pairwise(ends)] for half in halves)
    return kept, held
