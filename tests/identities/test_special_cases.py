"""An algorithm at a special value of its parameters is another algorithm."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fedsaddle as fs
from fedsaddle import Drfa, DrfaGa, FedAvg, QFedAvg
from fedsaddle.federation.records import same
from fedsaddle.numerics.projections import Everywhere
from fedsaddle.numerics.regularisers import Concave, KullbackLeibler, Quadratic
from fedsaddle.problems.supervised import Supervised
from small import alike, classes, play, seeded, serial, vectorised

engines = pytest.mark.parametrize("engine", [serial, vectorised])
LOCAL = {"sampled_clients": 4, "local_steps": 3, "batch_size": 4, "primal_step": 0.2}
DUAL = LOCAL | {"dual_step": 0.05}


def problem(l2=0.0):
    return Supervised(seeded(lambda: nn.Linear(4, 3)), l2=l2)


def identical(a, b, engine, rows=None, rounds=4, atol=1e-12):
    rows = classes() if rows is None else rows
    for u, v in zip(play(a, engine(rows), rounds), play(b, engine(rows), rounds), strict=True):
        torch.testing.assert_close(u.w, v.w, rtol=0, atol=atol)
        if hasattr(u, "lam") and hasattr(v, "lam"):
            torch.testing.assert_close(u.lam, v.lam, rtol=0, atol=atol)


@engines
@pytest.mark.parametrize(("m", "weighting"), [(None, "weight"), (6, "weight"), (4, "sample")])
def test_drfa_weighs_all_clients_and_draws_fewer_unless_told_otherwise(engine, m, weighting):
    options = DUAL | {"sampled_clients": m}
    told, plain = Drfa(problem=problem(), weighting=weighting, **options), Drfa(problem=problem(), **options)
    identical(told, plain, engine, atol=0)


@engines
@pytest.mark.parametrize("weighting", ["sample", "weight"])
def test_afl_is_drfa_with_one_local_step(engine, weighting):
    options = {k: v for k, v in DUAL.items() if k != "local_steps"} | {"weighting": weighting}
    afl, drfa = fs.algorithm("AFL", problem=problem(), **options), Drfa(problem=problem(), local_steps=1, **options)
    for a, b in zip(play(afl, engine(classes()), 4), play(drfa, engine(classes()), 4), strict=True):
        assert same(a, b)


@engines
@pytest.mark.parametrize(
    "g",
    [Quadratic(0.0), KullbackLeibler(0.0), Concave(lambda u: 0 * u.sum(), tolerance=1e-13)],
    ids=["quadratic", "KL", "general"],
)
def test_drfa_prox_without_strength_is_drfa(engine, g):
    identical(Drfa(problem=problem(), regulariser=g, **DUAL), Drfa(problem=problem(), **DUAL), engine, atol=1e-10)


@engines
def test_drfa_prox_is_drfa_with_a_regulariser(engine):
    g = KullbackLeibler(0.5)
    identical(
        fs.algorithm("DRFA-Prox", problem=problem(), regulariser=g, **DUAL),
        Drfa(problem=problem(), regulariser=g, **DUAL),
        engine,
    )


@engines
@pytest.mark.parametrize("g", [Quadratic(0.0), KullbackLeibler(0.0)], ids=["quadratic", "KL"])
def test_drfa_ga_without_strength_has_no_regulariser(engine, g):
    identical(DrfaGa(problem=problem(), regulariser=g, **DUAL), DrfaGa(problem=problem(), **DUAL), engine)


@engines
@pytest.mark.parametrize("m", [4, None])
def test_qfedavg_at_zero_is_uniform_fedavg(engine, m):
    options = LOCAL | {"sampled_clients": m}
    a = QFedAvg(problem=problem(), q=0.0, **options)
    identical(a, FedAvg(problem=problem(), weighting="uniform", **options), engine)


@engines
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("output", ["last", "average"])
def test_fedavgm_without_momentum_is_fedavg_to_the_bit(engine, nesterov, output):
    a = fs.algorithm("FedAvgM", problem=problem(), server_momentum=0.0, nesterov=nesterov, output=output, **LOCAL)
    b = FedAvg(problem=problem(), output=output, **LOCAL)
    for u, v in zip(play(a, engine(classes()), 4), play(b, engine(classes()), 4), strict=True):
        assert same(u, v)
        assert u.velocity is None


@engines
def test_the_first_heavy_ball_step_is_fedavg(engine):
    a = play(FedAvg(problem=problem(), server_momentum=0.9, **LOCAL), engine(classes()), 2)
    b = play(FedAvg(problem=problem(), **LOCAL), engine(classes()), 2)
    torch.testing.assert_close(a[1].w, b[1].w, rtol=0, atol=1e-12)
    assert float((a[2].w - b[2].w).abs().max()) > 1e-3


@engines
def test_weighting_by_size_is_uniform_when_sizes_are_equal(engine):
    rows = classes([5] * 6)
    identical(FedAvg(problem=problem(), **LOCAL), FedAvg(problem=problem(), weighting="uniform", **LOCAL), engine, rows)


@engines
def test_sizes_matter_when_they_differ(engine):
    a = play(FedAvg(problem=problem(), **LOCAL), engine(classes()), 1)[-1]
    b = play(FedAvg(problem=problem(), weighting="uniform", **LOCAL), engine(classes()), 1)[-1]
    assert float((a.w - b.w).abs().max()) > 1e-4


@engines
@pytest.mark.parametrize("make", [FedAvg, Drfa, DrfaGa, QFedAvg])
def test_no_constraint_is_no_projection(engine, make):
    identical(make(problem=problem(), projection=Everywhere(), **LOCAL), make(problem=problem(), **LOCAL), engine)


@engines
@pytest.mark.parametrize("make", [Drfa, DrfaGa, QFedAvg])
def test_with_one_client_every_method_is_local_sgd(engine, make):
    one = LOCAL | {"sampled_clients": 1}
    special = {"q": 0.0} if make is QFedAvg else {}
    identical(make(problem=problem(), **one, **special), FedAvg(problem=problem(), **one), engine, classes([9]))


@engines
@pytest.mark.parametrize("make", [Drfa, DrfaGa])
def test_clients_that_are_all_the_same_keep_the_mixture_uniform(engine, make):
    rows = alike(classes([4]))
    x, y = rows.client(0)
    same_rows = type(rows).of(x, y, [torch.arange(4).numpy()] * 6)
    algorithm = make(problem=problem(), **(DUAL | {"sampled_clients": None}))
    for state in play(algorithm, engine(same_rows), 3):
        torch.testing.assert_close(state.lam, torch.full((6,), 1 / 6), rtol=0, atol=1e-12)


@engines
def test_the_first_model_of_weighted_drfa_with_all_clients_is_that_of_uniform_fedavg(engine):
    options = LOCAL | {"sampled_clients": None}
    a = play(Drfa(problem=problem(), weighting="weight", **options), engine(classes()), 1)[-1]
    b = play(FedAvg(problem=problem(), weighting="uniform", **options), engine(classes()), 1)[-1]
    torch.testing.assert_close(a.w, b.w, rtol=0, atol=1e-12)


@engines
def test_a_strong_regulariser_holds_the_mixture_at_its_prior(engine):
    prior = torch.tensor([0.3, 0.1, 0.1, 0.2, 0.2, 0.1])
    for g in (Quadratic(1e8, prior), KullbackLeibler(1e8, prior)):
        state = play(Drfa(problem=problem(), regulariser=g, **DUAL), engine(classes()), 2)[-1]
        torch.testing.assert_close(state.lam, prior, rtol=0, atol=1e-5)


@engines
def test_a_general_g_that_is_quadratic_is_the_quadratic_one(engine):
    mu = 4.0
    general = Concave(lambda u: -mu / 2 * (u - 1 / 6).square().sum(), most_steps=500)
    a = Drfa(problem=problem(), regulariser=general, **DUAL)
    identical(a, Drfa(problem=problem(), regulariser=Quadratic(mu), **DUAL), engine, atol=1e-9)


@engines
def test_the_penalty_is_a_gradient_step_towards_zero(engine):
    options = LOCAL | {"local_steps": 1, "sampled_clients": None}
    plain = play(FedAvg(problem=problem(), **options), engine(classes()), 1)
    penalised = play(FedAvg(problem=problem(l2=0.5), **options), engine(classes()), 1)
    shrunk = plain[1].w - 0.2 * 0.5 * plain[0].w
    torch.testing.assert_close(penalised[1].w, shrunk, rtol=0, atol=1e-12)
