"""A toy algorithm whose clients remember, and whose replies use all three ways of being seen.

Each client adds its minibatch gradients up in `drift`, keeps a number for each of its rows in `marks`, and counts its
visits. The first exchange trains; the second reads the memory that the first has just written.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsaddle.federation.records import Averaged, PerClient, PerSample, Pooled


@dataclass(frozen=True)
class Diary:
    drift: Tensor  # (C, d)
    visits: Tensor  # (C,)
    marks: PerSample  # (C, rows)


@dataclass(frozen=True)
class Model:
    w: Tensor


@dataclass(frozen=True)
class Work:
    step: Averaged
    scores: Pooled
    visits: PerClient


@dataclass(frozen=True)
class Readout:
    marks: Averaged
    drift: Averaged


@dataclass(frozen=True)
class RememberingState:
    w: Tensor
    pooled: float = 0.0
    marks: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Remembering:
    problem: object
    sampled_clients: int = 4

    def start(self, clients):
        return RememberingState(self.problem.initial())

    def round(self, server, clients, rng):
        S = rng.choice(clients.count, self.sampled_clients)
        S, work = clients.ask(S, self.work, Model(server.w))
        _, readout = clients.ask(S, self.read, Model(server.w), weights=clients.sizes[S])
        w = server.w - 0.1 * work.step - 0.01 * readout.drift
        return RememberingState(w, float(work.scores.square().mean()), float(readout.marks))

    def fresh(self, site):
        C, there = len(site.clients), {"device": site.device}
        nothing = site.broadcast(torch.zeros(self.problem.dimension, **there))  # one vector seen by all, without a copy
        return Diary(nothing, torch.zeros(C, **there), torch.zeros(C, int(site.sizes.max()), **there))

    def work(self, own, sent, site):
        w = site.broadcast(sent.w)
        drift = own.drift + self.problem.gradient(w, site.minibatch(0, 3))
        here = self.problem.value(w, site.minibatch(1, 2))
        at = torch.arange(own.marks.shape[1], device=site.device)
        marks = own.marks / 2 + here[:, None] + at
        scores = torch.stack([here, 2 * here], 1)
        return Diary(drift, own.visits + 1, marks), Work(drift / (own.visits + 1)[:, None], scores, own.visits + 1)

    def read(self, own, sent, site):
        real = (torch.arange(own.marks.shape[1], device=site.device) < site.sizes[:, None]).to(own.marks.dtype)
        mean = (own.marks * real).sum(1) / site.sizes
        return own, Readout(mean, own.drift)

    def forget(self, own, sent, site):
        return None, Readout(own.visits, own.drift)

    def model(self, server):
        return server.w
