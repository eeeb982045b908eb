"""Runs the library on the world of the oracles and compares trajectories."""

from __future__ import annotations

import numpy as np
from torch import nn

from fedsaddle.problems.supervised import Supervised
from small import SIZES, classes, play, seeded, serial, vectorised

SEED, CLASSES, ROUNDS = 5, 3, 5
ENGINES = {"serial": serial, "vectorised": vectorised}
ROWS = classes(SIZES, features=4, classes=CLASSES)


def problem(l2=0.0):
    return Supervised(seeded(lambda: nn.Linear(4, CLASSES)), l2=l2)


def start():
    """The same starting vector as numpy."""
    return problem().initial().numpy().copy()


class Losing:
    """Clients of whom some do not answer: they are never asked."""

    def __init__(self, inner, lost):
        self.inner, self.lost = inner, lost
        self.count, self.sizes = inner.count, inner.sizes

    def begin(self, round):
        self.round, self.exchange = round, 0
        self.inner.begin(round)

    def commit(self):
        self.inner.commit()

    def ask(self, cohort, task, sent, *, weights=None):
        cohort = np.asarray(cohort)
        here = ~np.isin(cohort, self.lost(self.round, self.exchange))
        self.exchange += 1
        weights = None if weights is None else np.asarray(weights)[here]
        return self.inner.ask(cohort[here], task, sent, weights=weights)


def library(algorithm, engine, lost=None):
    """The states after each round."""
    clients = ENGINES[engine](ROWS, seed=SEED)
    return play(algorithm, clients if lost is None else Losing(clients, lost), ROUNDS, seed=SEED)[1:]


def agree(found, expected, atol=1e-10):
    """Two trajectories, vector by vector."""
    found = [np.asarray(v) for v in found]
    assert len(found) == len(expected)
    for r, (a, b) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_allclose(a, b, rtol=0, atol=atol, err_msg=f"after round {r}")
    assert np.abs(np.asarray(found[-1]) - np.asarray(found[0])).max() > 1e-6, "the trajectory stands still"
