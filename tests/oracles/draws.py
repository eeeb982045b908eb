"""The draws of a run, as plain lists: which rows a client sees at a step, and the server's generator of a round.

Nothing else of the library is used by the boxes.
"""

from __future__ import annotations

import numpy as np

from fedsaddle.federation.randomness import ClientKeys, server_generator


class World:
    """Clients as numpy rows, and the draws of one seed. `lost(round, exchange)` names clients that do not answer."""

    def __init__(self, rows, classes, seed, l2=0.0, lost=lambda round, exchange: ()):
        self.xs = [rows.client(i)[0].numpy().astype(np.float64) for i in range(rows.count)]
        self.ys = [rows.client(i)[1].numpy() for i in range(rows.count)]
        self.sizes = [len(x) for x in self.xs]
        self.N, self.k, self.seed, self.l2, self.lost = rows.count, classes, seed, l2, lost

    def server(self, round):
        return server_generator(self.seed, round)

    def answered(self, cohort, round, exchange):
        """The cohort, repeats included, without those whose reply was lost."""
        gone = set(self.lost(round, exchange))
        return [int(i) for i in cohort if int(i) not in gone]

    def batch(self, round, exchange, client, step, size, stream=0):
        keys = ClientKeys.of(self.seed, round, exchange, np.array([client]))
        rows = keys.rows(np.array([self.sizes[client]]), step, size, stream)[0]
        return self.xs[client][rows], self.ys[client][rows]

    def everything(self, client):
        return self.xs[client], self.ys[client]
