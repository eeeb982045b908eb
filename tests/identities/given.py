"""Generators and regularisers that do as they are told."""

from __future__ import annotations

import numpy as np
import torch

from fedsaddle.numerics.projections import Simplex


class Told:
    """A generator whose draws are given beforehand, whatever it is asked."""

    def __init__(self, *draws):
        self.draws = iter(draws)

    def choice(self, *args, **kwargs):
        return np.asarray(next(self.draws))

    def integers(self, *args, **kwargs):
        return next(self.draws)


class Overhears:
    """g = 0, which keeps the point it is asked to map: z = λ + γτ v."""

    def value(self, u):
        return torch.zeros(())

    def gradient(self, u):
        return torch.zeros_like(u)

    def prox(self, z, c):
        self.z, self.c = z.clone(), c
        return Simplex()(z)


def one_round(algorithm, state, clients, *draws):
    """A round with the given draws."""
    clients.begin(0)
    after = algorithm.round(state, clients, Told(*draws))
    clients.commit()
    return after
