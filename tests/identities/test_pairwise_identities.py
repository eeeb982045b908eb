"""FedX where the draws are told: every sample equally often, every client's scores equally often."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from fedsaddle import pair_losses
from fedsaddle.algorithms.fedx.fedx1 import FedX1
from fedsaddle.algorithms.fedx.fedx2 import FedX2
from fedsaddle.algorithms.fedx.local_pair import LocalPair
from fedsaddle.engines.simulated import SerialEngine, VectorisedEngine
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.problems import risks
from small import classes, play, rows_of, seeded

B1, B2 = 504, 168  # six clients have positives, in numbers that divide 84; six have negatives, that divide 28
STEP = 0.1


class Even:
    """Draws that take the rows in turn, and from a heap in the clients' order as many rows of each client."""

    def __init__(self, seed, round, exchange, clients):
        self.clients = clients

    def rows(self, sizes, step, size, stream=0):
        return np.stack([np.arange(size) % n for n in sizes])

    def uniforms(self, step=0, size=1, stream=0):
        """Of each client's stretch of the heap the first sixth comes first."""
        each = size // 6
        return np.tile(np.arange(size) % each, (len(self.clients), 1)).astype(float)


class Straight:
    """A server that asks in order and shuffles nothing."""

    def choice(self, count, size, replace):
        return np.arange(size)

    def permutation(self, size):
        return np.arange(size)


def federation():
    """Seven clients of unequal sizes; one has no positives, one no negatives."""
    six = classes(classes=2)
    pairs = [six.client(i) for i in range(6)]
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(3))
    return rows_of([*(p[0] for p in pairs), x], [*(p[1] for p in pairs), torch.ones(4, dtype=torch.int64)])


def first_round(algorithm, clients):
    clients.begin(0)
    after = algorithm.round(algorithm.start(clients), clients, Straight())
    clients.commit()
    return after


def linear():
    return seeded(lambda: nn.Linear(4, 1))


def whole(rows):
    return Batch(rows.x[None], rows.y[None])


ENGINES = pytest.mark.parametrize("engine", [SerialEngine, VectorisedEngine])
DRAWS = {"local_steps": 1, "batch_size": B1, "second_batch_size": B2, "primal_step": STEP}


@ENGINES
@pytest.mark.parametrize(
    "loss", [pair_losses.SquaredHinge(), pair_losses.Sigmoid(), pair_losses.SquaredMargin()], ids=repr
)
def test_fedx1_takes_a_step_along_the_gradient_of_all_pairs(engine, loss):
    """Pairs of all clients count alike, however uneven the clients are."""
    rows, problem = federation(), risks.auc(linear(), loss)
    after = first_round(FedX1(problem=problem, guard=math.inf, **DRAWS), engine(rows, draw=Even))
    w = problem.initial()
    torch.testing.assert_close(after.w, w - STEP * problem.gradient(w[None], whole(rows))[0], rtol=0, atol=1e-12)


EXACT = {
    "KL-OPAUC": lambda: risks.partial_auc(linear(), temperature=1.5),
    "two-way": lambda: risks.two_way_partial_auc(linear(), temperature=2.0, positive_temperature=3.0),
    "linear": lambda: risks.auc(linear()),
}


@ENGINES
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("kind", EXACT)
def test_fedx2_with_exact_u_takes_a_step_along_the_gradient_of_the_risk(engine, kind, normalised):
    rows, problem = federation(), EXACT[kind]()
    limits = {"pair_cap": math.inf, "guard": math.inf, "normalised_weights": normalised}
    algorithm = FedX2(problem=problem, averaging=1.0, **limits, **DRAWS)
    after = first_round(algorithm, engine(rows, draw=Even))
    w = problem.initial()
    torch.testing.assert_close(after.w, w - STEP * problem.gradient(w[None], whole(rows))[0], rtol=0, atol=1e-12)


class Full(Even):
    """The whole heap, as it lies."""

    def uniforms(self, step=0, size=1, stream=0):
        return np.tile(np.arange(size), (len(self.clients), 1)).astype(float)


@pytest.mark.parametrize("kind", EXACT)
def test_one_client_with_a_full_buffer_is_the_centralised_method(kind):
    """Both heaps hold all scores at w, so that lazy is active; the centralised method pairs the same rows."""
    rows, problem = federation(), EXACT[kind]()
    one = rows_of([rows.x], [rows.y])
    ups, downs = int((rows.y == 1).sum()), int((rows.y == 0).sum())
    draws = DRAWS | {"batch_size": ups, "second_batch_size": downs}
    make = FedX1 if kind == "linear" else FedX2
    options = {} if kind == "linear" else {"averaging": 0.3, "tracking": 0.6}
    caps = {"guard": math.inf} if kind == "linear" else {"pair_cap": math.inf, "guard": math.inf}
    ours = first_round(make(problem=problem, **draws, **options, **caps), SerialEngine(one, draw=Full))
    reference = LocalPair(problem=problem, centralised=True, **draws, **options)
    theirs = first_round(reference, SerialEngine(one, draw=Full))
    torch.testing.assert_close(ours.w, theirs.w, rtol=0, atol=1e-12)
    gradient = problem.gradient(problem.initial()[None], whole(rows))[0]
    β = options.get("averaging", 1.0)
    torch.testing.assert_close(theirs.w, problem.initial() - STEP * β * gradient, rtol=0, atol=1e-12)


def test_sgd_on_pairs_goes_on_round_after_round():
    """The centralised method with all rows in every batch is gradient descent."""
    rows, problem = federation(), risks.auc(linear())
    one = rows_of([rows.x], [rows.y])
    draws = DRAWS | {"batch_size": int((rows.y == 1).sum()), "second_batch_size": int((rows.y == 0).sum())}
    sgd = LocalPair(problem=problem, centralised=True, averaging=1.0, **draws)
    states = play(sgd, SerialEngine(one, draw=Full), 5)
    w = problem.initial()
    for state in states[1:]:
        w = w - STEP * problem.gradient(w[None], whole(rows))[0]
        torch.testing.assert_close(state.w, w, rtol=0, atol=1e-12)


def test_references_want_all_rows_in_one_place():
    with pytest.raises(BadInput, match="clients = 7: a centralised method has all rows in one place"):
        LocalPair(problem=risks.auc(linear()), centralised=True).start(SerialEngine(federation()))


def test_centralised_sgd_is_for_linear_f():
    with pytest.raises(BadInput, match=r"averaging = 1\.0: minibatch SGD needs a linear outer function, not Kl"):
        LocalPair(problem=risks.partial_auc(linear()), centralised=True, averaging=1.0)
    LocalPair(problem=risks.partial_auc(linear()), averaging=1.0)  # Local Pair may


def test_a_client_without_pairs_only_follows():
    rows = federation()
    alone = rows_of([rows.client(6)[0]], [rows.client(6)[1]])  # positives only
    states = play(LocalPair(problem=risks.partial_auc(linear()), local_steps=2, batch_size=3), SerialEngine(alone), 3)
    assert torch.equal(states[-1].w, states[0].w)


def test_data_without_positives_are_refused():
    rows = federation()
    alone = rows_of([rows.client(6)[0]], [torch.zeros(4, dtype=torch.int64)])
    with pytest.raises(BadInput, match="label = 1: no client has rows of this label"):
        play(FedX1(problem=risks.auc(linear()), local_steps=2, batch_size=3), SerialEngine(alone), 1)


def test_normalised_weights_change_nothing_where_all_weights_are_equal():
    """Three clients with two ones and three zeros each, and nothing drawn: the extra exchange shifts draws."""
    x = torch.randn(15, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.tensor([1, 1, 0, 0, 0])
    rows = rows_of([x[:5], x[5:10], x[10:]], [y, y, y])
    problem = EXACT["KL-OPAUC"]()
    draws = DRAWS | {"batch_size": 2, "second_batch_size": 3, "local_steps": 3}
    plain, normalised = (
        first_round(FedX2(problem=problem, normalised_weights=n, **draws), SerialEngine(rows, draw=Full))
        for n in (False, True)
    )
    torch.testing.assert_close(normalised.w, plain.w, rtol=0, atol=1e-14)
    assert normalised.mean_weight == 1
    assert (plain.w - problem.initial()).abs().max() > 1e-4
