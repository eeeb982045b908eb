"""Models with BatchNorm: running statistics are the tail of the vector, and are averaged, kept and saved with it."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

import fedsaddle as fs
from fedsaddle.algorithms.fedavg import Start
from fedsaddle.algorithms.sgda.local_sgda import LocalSgda
from fedsaddle.algorithms.sgda.momentum import MomentumLocalSgda
from fedsaddle.data.store import Stacked
from fedsaddle.engines.choose import device_engine, make_engine
from fedsaddle.engines.simulated import DeviceEngine, SerialEngine, VectorisedEngine
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import BadInput
from fedsaddle.federation.records import same
from fedsaddle.numerics.flat import FlatModel
from fedsaddle.numerics.projections import Ball
from fedsaddle.problems.auc import MinimaxAuc
from fedsaddle.problems.fair import ClassFair
from fedsaddle.problems.robust import RobustTraining
from pretend import PRETEND
from small import classes, loopback, near, play, seeded


def network(outputs: int) -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, outputs)))


def cross_entropy() -> fs.Supervised:
    return fs.Supervised(network(2))


def auc() -> MinimaxAuc:
    return MinimaxAuc(model=network(1), positive_share=0.4)


def rows() -> Stacked:
    return classes(classes=2)


STEPS = {"local_steps": 3, "batch_size": 4, "primal_step": 0.1, "sampled_clients": 4}
ALGORITHMS = {
    "FedAvg": lambda: fs.FedAvg(problem=cross_entropy(), **STEPS),
    "FedAvgM": lambda: fs.algorithm("FedAvgM", problem=cross_entropy(), **STEPS),
    "DRFA": lambda: fs.Drfa(problem=cross_entropy(), **STEPS),
    "SCAFFOLD": lambda: fs.Scaffold(problem=cross_entropy(), global_step=1.2, **STEPS),
    "q-FedAvg": lambda: fs.QFedAvg(problem=cross_entropy(), q=0.5, **STEPS),
    "Local SGDA": lambda: fs.LocalSgda(problem=auc(), **STEPS),
    "Local SGDA+": lambda: LocalSgda(problem=auc(), snapshot_every=2, **STEPS),
    "Momentum Local SGDA": lambda: fs.MomentumLocalSgda(problem=auc(), **STEPS),
    "Momentum Local SGDA+": lambda: MomentumLocalSgda(
        problem=auc(), snapshot_every=4, momentum_at_sync="reset", **STEPS
    ),
    "FedAvg, Adam": lambda: fs.FedAvg(problem=cross_entropy(), local_optimiser=fs.optimisers.Adam(), **STEPS),
    "FedAdam": lambda: fs.FedAvg(problem=cross_entropy(), server_optimiser=fs.optimisers.ServerAdam(0.3), **STEPS),
    "FedSGDA": lambda: fs.FedSgda(problem=auc(), **STEPS),
    "CODA+": lambda: fs.CodaPlus(problem=auc(), stage_rounds=2, **STEPS),
    "CODASCA": lambda: fs.Codasca(problem=auc(), stage_rounds=2, global_step=1.1, **STEPS),
    "FedX1": lambda: fs.FedX1(problem=fs.risks.auc(network(1)), **STEPS),
    "FedX2": lambda: fs.FedX2(problem=fs.risks.partial_auc(network(1)), **STEPS),
    "Local Pair": lambda: fs.LocalPair(problem=fs.risks.partial_auc(network(1)), **STEPS),
    "class-fair": lambda: fs.LocalSgda(problem=ClassFair(model=network(2), classes=2), **STEPS),
}
every = pytest.mark.parametrize("name", ALGORITHMS)


def statistics(algorithm, w):
    flat = algorithm.problem.flat
    return w[flat.dimension - flat.tail : flat.dimension]


@every
def test_threads_do_what_one_client_after_the_other_does(name):
    expected = play(ALGORITHMS[name](), SerialEngine(rows()), 3)[-1]
    for workers in (1, 2):
        assert same(play(ALGORITHMS[name](), VectorisedEngine(rows(), chunk=1, workers=workers), 3)[-1], expected)


@every
def test_statistics_move_and_stay_sound(name):
    algorithm = ALGORITHMS[name]()
    states = play(algorithm, SerialEngine(rows()), 4)
    first, last = (statistics(algorithm, algorithm.model(s)) for s in (states[0], states[-1]))
    assert torch.equal(first, torch.tensor([0.0] * 5 + [1.0] * 5, dtype=torch.float64))
    assert (last[:5].abs() > 1e-4).all()
    assert (last[5:] > 0).all()


@pytest.mark.parametrize("momentum", [0.1, 0.6])
def test_one_client_of_fedavg_is_plain_pytorch(momentum):
    """The same batches, torch's own SGD and BatchNorm in training mode."""
    model = network(2)
    model[1].momentum = momentum
    data = classes(sizes=(9,), classes=2)
    algorithm = fs.FedAvg(problem=fs.Supervised(model), local_steps=4, batch_size=4, primal_step=0.1)
    result = algorithm.problem.module(play(algorithm, SerialEngine(data), 2)[-1].w)
    by_hand = deepcopy(model).train()
    optimiser = torch.optim.SGD(by_hand.parameters(), lr=0.1)
    clients = SerialEngine(data)
    for r in range(2):
        for t in range(4):
            keys = clients.draw(0, r, 0, np.array([0]))
            at = keys.rows(np.array([9]), t, 4)[0]
            optimiser.zero_grad()
            nn.functional.cross_entropy(by_hand(data.x[at]), data.y[at]).backward()
            optimiser.step()
    for key, value in by_hand.state_dict().items():
        if "num_batches" not in key:
            torch.testing.assert_close(result.state_dict()[key], value, rtol=0, atol=1e-12)


def test_statistics_are_averaged_with_the_weights():
    algorithm = fs.FedAvg(problem=cross_entropy(), local_steps=1, batch_size=4)
    state = play(algorithm, SerialEngine(rows()), 1)[-1]
    alone = []
    for i in range(6):
        clients = SerialEngine(rows())
        clients.begin(0)
        _, reply = clients.ask([i], algorithm.local_sgd, Start(algorithm.start(clients).w), weights=None)
        alone.append(reply.final)
    n = torch.from_numpy(rows().sizes).double()
    torch.testing.assert_close(state.w, (torch.stack(alone) * (n / n.sum())[:, None]).sum(0), rtol=0, atol=1e-12)


def test_evaluation_uses_the_running_statistics_and_changes_nothing():
    algorithm = ALGORITHMS["CODASCA"]()
    x = algorithm.model(play(algorithm, SerialEngine(rows()), 3)[-1])
    data = rows()
    found = algorithm.problem.scores(x, data.x)
    expected = algorithm.problem.module(x).eval()(data.x)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(algorithm.problem.scores(x, data.x[:1]), found[:1], rtol=0, atol=1e-12)


@every
def test_the_users_model_is_left_alone(name):
    algorithm = ALGORITHMS[name]()
    before = deepcopy(algorithm.problem.model.state_dict())
    play(algorithm, VectorisedEngine(rows(), chunk=1), 2)
    after = algorithm.problem.model.state_dict()
    assert all(torch.equal(after[k], v) for k, v in before.items())
    assert algorithm.problem.model.training


def test_fedadam_averages_statistics_and_steps_the_rest():
    plain, adam = ALGORITHMS["FedAvg"](), ALGORITHMS["FedAdam"]()
    averaged, stepped = (play(a, SerialEngine(rows()), 1)[-1].w for a in (plain, adam))
    assert torch.equal(statistics(plain, averaged), statistics(adam, stepped))
    assert not torch.isclose(averaged[:-10], stepped[:-10]).all()


def test_runs_and_resumes(tmp_path):
    whole = fs.run(ALGORITHMS["CODASCA"](), rows(), 6, out=tmp_path / "whole")
    fs.run(ALGORITHMS["CODASCA"](), rows(), 3, out=tmp_path / "half")
    resumed = fs.run(ALGORITHMS["CODASCA"](), rows(), 6, out=tmp_path / "half", resume=True)
    assert same(resumed.server, whole.server)


@every
def test_clients_together_do_what_one_after_the_other_does(name):
    """With statistics; FedSGDA looks at all rows of clients of different sizes.

    The bias before BatchNorm has a gradient of 0 up to rounding, which Adam divides by its own size.
    """
    expected = play(ALGORITHMS[name](), SerialEngine(rows()), 3)
    for a, b in zip(play(ALGORITHMS[name](), VectorisedEngine(rows(), chunk=3), 3), expected, strict=True):
        near(a, b, 1e-7 if "Adam" in name else 1e-10)


@pytest.mark.parametrize("outputs", [1, 2])
def test_clients_take_a_step_together_by_default(outputs):
    problem = auc() if outputs == 1 else cross_entropy()
    assert make_engine("vectorised", problem, rows(), 0).chunk == 64
    assert make_engine("vectorised", problem, rows(), 0, chunk=3).chunk == 3
    assert device_engine(torch.device("cpu"), problem, rows(), 0, None).chunk == 64


def test_a_client_whose_reply_is_lost_leaves_the_others_statistics_alone():
    """Its numbers are not finite."""
    data = rows()
    poisoned = Stacked(data.x.clone(), data.y, data.offsets)
    poisoned.x[data.offsets[2] : data.offsets[3]] = torch.inf
    algorithm = fs.FedAvg(problem=cross_entropy(), local_steps=3, batch_size=4, primal_step=0.1)
    serial, together = SerialEngine(poisoned), VectorisedEngine(poisoned, chunk=6)
    near(play(algorithm, together, 2)[-1], play(algorithm, serial, 2)[-1])
    assert together.report() == serial.report()
    assert "2" in together.report()["left_out"]


@pytest.mark.parametrize("shape", ["plain", "penalty and clip"])
def test_padding_is_not_normalised(shape):
    """A gradient over all rows of clients of different sizes: that of each client's own rows."""
    options = {} if shape == "plain" else {"l2": 0.3, "clip": 0.5}
    model = nn.Sequential(*network(2)[:3], nn.BatchNorm1d(5, track_running_stats=False).double(), network(2)[3])
    problem = ClassFair(model=model, classes=2, **options)
    x, y = problem.initial()
    data, cohort = rows(), np.array([0, 2, 3])
    site = LocalSite(data, cohort, fs.ClientKeys.of(0, 0, 0, cohort))
    batch = site.everything()
    assert batch.sizes == [7, 11, 5]
    together = problem.gradients(x.expand(3, -1), y.expand(3, -1), batch)
    for c, client in enumerate(cohort):
        own = problem.gradients(x[None], y[None], LocalSite.alone(data, client).everything())
        for a, b in zip(together, own, strict=True):
            torch.testing.assert_close(a[c : c + 1], b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["FedAvg", "FedSGDA"])
def test_a_device_and_other_workers_give_the_same_bits(name):
    algorithm = ALGORITHMS[name]()
    expected = play(algorithm, VectorisedEngine(rows(), chunk=3), 2)[-1]
    assert same(play(algorithm, DeviceEngine(rows(), device=PRETEND, chunk=3), 2)[-1], expected)
    assert same(play(algorithm, loopback(algorithm, rows(), chunk=3), 2)[-1], expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FlatModel(network(2)),
        lambda: RobustTraining(model=network(2), shape=(4,)),
        lambda: fs.Minimax(lambda h, y, batch: h(batch.x).sum(1), start_y=torch.zeros(1), model=network(1)),
        lambda: fs.Supervised(network(2), compiled=True),
    ],
)
def test_problems_that_cannot_train_it_refuse_it(make):
    with pytest.raises(BadInput, match=r"model = '1': BatchNorm keeps running statistics; use nn.GroupNorm"):
        make()


def test_it_cannot_be_projected():
    with pytest.raises(BadInput, match="project_x = 'Ball'"):
        MinimaxAuc(model=network(1), positive_share=0.4, project_x=Ball(1.0))


def test_a_momentum_is_needed():
    model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2, momentum=None))
    with pytest.raises(BadInput, match="momentum=None counts batches"):
        fs.Supervised(model)


def test_a_batch_of_one_row_cannot_be_normalised():
    algorithm = fs.FedAvg(problem=cross_entropy(), batch_size=1)
    for engine in (SerialEngine(rows()), VectorisedEngine(rows(), chunk=3)):
        with pytest.raises(BadInput, match="batch of 1 row"):
            play(algorithm, engine, 1)


def test_a_row_that_is_normalised_by_itself() -> None:
    x = torch.randn(4, 1, 2, 2)
    net = nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2, track_running_stats=False), nn.Flatten())  # 1x1 pixels
    problem = fs.Supervised(net)
    assert problem.ranking(problem.initial(), x).shape == (4,)
    with pytest.raises(BadInput, match="cannot normalise a batch of 1 row"):
        problem.row_measures(problem.initial(), x[:1], torch.zeros(1, dtype=torch.long))
