"""Wrappers around clients and generators that the contracts look through."""

from __future__ import annotations

import time
from dataclasses import fields

import numpy as np
import torch

from fedsaddle.federation.records import visibility


class Passing:
    """Passes everything on."""

    def __init__(self, inner):
        self.inner = inner

    count = property(lambda self: self.inner.count)
    sizes = property(lambda self: self.inner.sizes)

    def begin(self, round):
        self.inner.begin(round)

    def commit(self):
        self.inner.commit()

    def ask(self, cohort, task, sent, *, weights=None):
        return self.inner.ask(cohort, task, sent, weights=weights)


class Witness(Passing):
    """Writes down who was asked and who answered, and what was sent, as a copy made before the ask."""

    def __init__(self, inner):
        super().__init__(inner)
        self.asked, self.answered, self.sent = [], [], []

    def ask(self, cohort, task, sent, *, weights=None):
        self.asked.append(np.array(cohort))
        self.sent.append((sent, copied(sent)))
        clients, reply = self.inner.ask(cohort, task, sent, weights=weights)
        self.answered.append(np.array(clients))
        return clients, reply


class Only(Passing):
    """Asks only the clients of a list made beforehand, one entry an exchange."""

    def __init__(self, inner, lists):
        super().__init__(inner)
        self.lists = iter(lists)

    def ask(self, cohort, task, sent, *, weights=None):
        cohort = np.asarray(cohort)
        here = np.isin(cohort, next(self.lists))
        return self.inner.ask(cohort[here], task, sent, weights=None if weights is None else np.asarray(weights)[here])


class Hurried(Passing):
    """Makes every second chunk wait: those that begin with an even client, or (late = 1) an odd one."""

    def __init__(self, inner, late):
        super().__init__(inner)
        self.late = late

    def ask(self, cohort, task, sent, *, weights=None):
        def waiting(own, message, site):
            if int(site.clients[0]) % 2 == self.late:
                time.sleep(0.004)
            return task(own, message, site)

        waiting.__self__ = getattr(task, "__self__", None)  # an engine finds `fresh` through the bound method
        return self.inner.ask(cohort, waiting, sent, weights=weights)


class Weighing(Passing):
    """Weighs by hand what every single client draws, receives and sends; for the serial engine."""

    def __init__(self, inner):
        super().__init__(inner)
        self.exchanges = self.down = self.up = self.runs = self.samples = 0
        self.shown = set()

    def ask(self, cohort, task, sent, *, weights=None):
        self.exchanges += 1

        def weighed(own, message, site):
            counting = CountingSite(site)
            own, reply = task(own, message, counting)
            self.runs += 1
            self.down += weight(message)
            self.up += weight(reply)
            self.samples += counting.drawn
            how = {f.name: visibility(type(reply))[f.name].value for f in fields(reply)}
            self.shown |= {f"{type(reply).__name__}.{n}" for n, h in how.items() if h != "averaged"}
            return own, reply

        weighed.__self__ = getattr(task, "__self__", None)  # an engine finds `fresh` through the bound method
        return self.inner.ask(cohort, weighed, sent, weights=weights)


class CountingSite:
    """A site that counts the rows it hands out."""

    def __init__(self, site):
        self.site, self.drawn = site, 0
        self.clients, self.sizes, self.broadcast = site.clients, site.sizes, site.broadcast
        self.labelled, self.uniforms, self.device = site.labelled, site.uniforms, site.device

    def minibatch(self, step, size, stream=0, label=None):
        self.drawn += size
        return self.site.minibatch(step, size, stream, label)

    def minibatches(self, step, draws):
        self.drawn += sum(size for size, _, _ in draws)
        return self.site.minibatches(step, draws)

    def discount_samples(self, rows):
        self.drawn -= rows
        self.site.discount_samples(rows)

    def everything(self):
        self.drawn += int(self.sizes.sum())
        return self.site.everything()


def weight(record) -> int:
    """Eight bytes for each number of a float64 tensor, and for a plain number."""
    total = 0
    for f in fields(record):
        value = getattr(record, f.name)
        if value is not None:
            total += 8 * (value.numel() if isinstance(value, torch.Tensor) else 1)
    return total


class Notebook:
    """A generator that writes its draws down, or gives back those of another with the clients' names changed."""

    def __init__(self, rng=None, replay=None, rename=None):
        self.rng, self.draws = rng, []
        self.replay, self.rename = iter(replay or ()), rename

    def choice(self, *args, **kwargs):
        draw = self.rng.choice(*args, **kwargs) if self.rng is not None else self.rename[next(self.replay)]
        self.draws.append(draw)
        return draw

    def integers(self, *args, **kwargs):
        draw = self.rng.integers(*args, **kwargs) if self.rng is not None else next(self.replay)
        self.draws.append(draw)
        return draw

    def permutation(self, size):
        draw = self.rng.permutation(size) if self.rng is not None else next(self.replay)
        self.draws.append(draw)
        return draw

    def random(self):
        draw = self.rng.random() if self.rng is not None else next(self.replay)
        self.draws.append(draw)
        return draw


def copied(record):
    """A record whose tensors share nothing with the first."""
    values = {f.name: getattr(record, f.name) for f in fields(record)}
    return type(record)(**{k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in values.items()})
