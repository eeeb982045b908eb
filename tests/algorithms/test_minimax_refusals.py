"""Invalid hyperparameters of the min-max algorithms."""

from __future__ import annotations

import pytest
import torch

import fedsaddle as fs
from fedsaddle.algorithms.coda.coda import Coda, CodaPlus
from fedsaddle.algorithms.coda.codasca import Codasca
from fedsaddle.algorithms.fedsgda import FedSgda, MiniBatch, Spider, Storm
from fedsaddle.algorithms.sgda.local_sgda import LocalSgda
from fedsaddle.algorithms.sgda.momentum import MomentumLocalSgda
from fedsaddle.errors import BadInput
from fedsaddle.numerics.schedules import Geometric, Power, Staged
from fedsaddle.problems.minimax import Minimax
from small import classes, serial

NAN, INFINITY = float("nan"), float("inf")
EVERY = {
    "LocalSgda": (LocalSgda, {}),
    "LocalSgdaPlus": (LocalSgda, {"snapshot_every": 4}),
    "MomentumLocalSgda": (MomentumLocalSgda, {}),
    "MomentumLocalSgdaPlus": (MomentumLocalSgda, {"snapshot_every": 4, "momentum_at_sync": "reset"}),
    "FedSgda": (FedSgda, {}),
    "FedSgdaStorm": (FedSgda, {"estimator": Storm()}),
    "FedSgdaSpider": (FedSgda, {"estimator": Spider()}),
    "CodaPlus": (CodaPlus, {}),
    "Codasca": (Codasca, {}),
}
STAGES = [("proximal", v) for v in (-0.1, NAN, INFINITY)] + [("stage_rounds", 0), ("stage_steps", 0)]
SHARED = [("local_steps", 0), ("batch_size", 0), ("output", "best"), ("sampled_clients", 0), ("sampled_clients", -1)]
SHARED += [(key, value) for key in ("primal_step", "dual_step") for value in (0.0, -0.1, NAN, INFINITY)]
MOMENTUM = [("momentum_at_sync", "never"), ("alpha", 0.0), ("alpha", 1.5), ("primal_beta", 0.0), ("dual_beta", 1.2)]
CASES = [(name, key, value) for name in EVERY for key, value in SHARED]
CASES += [(name, "snapshot_every", 0) for name in EVERY if "Local" in name]
CASES += [(name, key, value) for name in ("CodaPlus", "Codasca") for key, value in STAGES]
CASES += [("Codasca", "global_step", value) for value in (0.0, -1.0, NAN, "root")]
CASES += [(name, key, value) for name in EVERY if name.startswith("Momentum") for key, value in MOMENTUM]


def problem():
    return Minimax(lambda x, y, batch: batch.x @ x * y.sum(), start_x=torch.ones(4), start_y=torch.zeros(2))


def make(name, **options):
    kind, needed = EVERY[name]
    return kind(problem=problem(), **(needed | options))


@pytest.mark.parametrize(("name", "key", "value"), CASES)
def test_refused_when_made(name, key, value):
    with pytest.raises(BadInput) as caught:
        make(name, **{key: value})
    assert caught.value.key == key
    assert repr(caught.value.value) == repr(value)


@pytest.mark.parametrize("name", EVERY)
def test_more_clients_than_there_are(name):
    with pytest.raises(BadInput, match="sampled_clients = 7: there are only 6 clients"):
        make(name, sampled_clients=7).start(serial(classes()))


@pytest.mark.parametrize("name", ["Local SGDA+", "Momentum Local SGDA+"])
def test_the_period_of_snapshots_must_be_given(name):
    with pytest.raises(BadInput, match="snapshot_every"):
        fs.algorithm(name, problem=problem())


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("alpha", lambda: Storm(1.5)),
        ("alpha", lambda: Storm(-0.1)),
        ("period", lambda: Spider(0)),
        ("large_cohort", lambda: Spider(5, large_cohort=0)),
        ("c", lambda: Power(0.0, 0.5)),
        ("rho", lambda: Power(0.1, -1.0)),
        ("stages", lambda: Staged([])),
        ("stages.rounds", lambda: Staged([(0, 0.1)])),
        ("stages.value", lambda: Staged([(5, -0.1)])),
    ],
)
def test_estimators_and_schedules(key, wrong):
    with pytest.raises(BadInput) as caught:
        wrong()
    assert caught.value.key == key


class Careless(MiniBatch):
    """An estimator of ones own that loses the vector's shape."""

    def estimate(self, t, given):
        return given.now.sum()


class Silent(MiniBatch):
    def estimate(self, t, given):
        return None


class Lonely(MiniBatch):
    def cohort(self, t, sampled):
        return 0


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (Careless(), r"estimator = 'Careless': gave u of shape \(\); give a vector of shape \(4,\)"),
        (Silent(), r"estimator = 'Silent': gave u of type NoneType; give a vector of shape \(4,\)"),
        (Lonely(), "estimator = 'Lonely': asks for 0 clients in round 0; ask one"),
    ],
)
def test_estimators_that_give_something_else(estimator, said):
    algorithm = FedSgda(problem=problem(), estimator=estimator)
    clients = serial(classes())
    with pytest.raises(BadInput, match=said):
        algorithm.round(algorithm.start(clients), clients, None)


@pytest.mark.parametrize(
    ("given", "name"), [("storm", "str"), (Storm, "Storm"), (object(), "object"), (None, "NoneType")]
)
def test_what_is_no_estimator(given, name):
    with pytest.raises(BadInput, match=f"estimator = '{name}': must be an object with the methods wants_before"):
        FedSgda(problem=problem(), estimator=given)


def test_a_stage_has_one_length():
    with pytest.raises(BadInput, match="stage_steps = 10: stage_rounds is given too"):
        make("Codasca", stage_rounds=5, stage_steps=10)


def test_coda_needs_a_best_dual():
    with pytest.raises(BadInput, match=r"problem = 'Minimax': has no best dual in closed form.*use CODA\+"):
        Coda(problem=problem())


@pytest.mark.parametrize(("first", "factor"), [(0.0, 1.0), (1.0, 0.0), (NAN, 1.0), (1.0, INFINITY)])
def test_geometric_schedules(first, factor):
    with pytest.raises(BadInput, match="must be a positive number"):
        Geometric(first, factor)
