"""Anderson mixing and the extragradient family: what they equal at special values, and where they end."""

from __future__ import annotations

import pytest
import torch

import fedsaddle as fs
from fedsaddle.config.build import build, check_keys
from fedsaddle.config.schema import validate_config
from fedsaddle.data.sets.synthetic import nonconvex_pl
from fedsaddle.federation.records import same
from fedsaddle.federation.wrappers import Lossy
from fedsaddle.numerics.projections import Ball
from small import loopback, near, play, rows_of, serial, vectorised

engines = pytest.mark.parametrize("engine", [serial, vectorised])
STEPS = {"primal_step": 0.1, "dual_step": 0.1}


def unlike(dimension: int = 3, seed: int = 2):
    """Five clients whose own saddle points differ."""
    rows = nonconvex_pl(clients=5, rows=4, dimension=dimension, seed=seed)
    return rows_of(*zip(*((x.double() + k / 2, y) for k, (x, y) in enumerate(map(rows.client, range(5)))), strict=True))


class From(fs.QuadraticGame):
    """The game, begun elsewhere than at 0."""

    def initial(self):
        return torch.full((self.dimension,), 0.7), torch.full((self.dimension,), -0.4)


def game(mu: float = 0.5, **given) -> fs.QuadraticGame:
    return From(3, mu=mu, **given)


MADE = {
    "Extragradient": lambda problem: fs.Extragradient(problem=problem, **STEPS),
    "Local Extragradient": lambda problem: fs.LocalExtragradient(
        problem=problem, local_steps=3, batch_size=None, **STEPS
    ),
    "FedGDA-GT": lambda problem: fs.FedGdaGt(problem=problem, local_steps=3, **STEPS),
}
methods = pytest.mark.parametrize("method", MADE.values(), ids=MADE)


def distance(state, rows, problem) -> float:
    return problem.pooled_measures(state.x, state.y, rows)["squared_distance_to_saddle"]


def test_one_local_step_of_one_client_is_extragradient():
    rows, given = unlike(), {"project_y": Ball(0.9)}
    one = rows_of([rows.client(1)[0]], [rows.client(1)[1]])
    local = fs.LocalExtragradient(problem=game(**given), local_steps=1, batch_size=None, **STEPS)
    for a, b in zip(
        play(local, serial(one), 6), play(MADE["Extragradient"](game(**given)), serial(one), 6), strict=True
    ):
        torch.testing.assert_close((a.x, a.y), (b.x, b.y), rtol=0, atol=1e-14)


def test_without_projections_optimistic_is_the_step_with_the_past_gradient():
    """`h <- h - 2 η F(h) + η F(h⁻)`, with F(h⁻) = 0 in the first round."""
    rows, problem = unlike(), game()
    each = [fs.Batch(x[None], y[None]) for x, y in map(rows.client, range(5))]

    def F(z):
        g = [problem.gradients(z[None, :3], z[None, 3:], batch) for batch in each]
        return torch.cat([sum(u.x[0] for u in g), -sum(u.y[0] for u in g)]) / 5

    h, past = torch.cat(problem.initial()), torch.zeros(6)
    for state in play(fs.Optimistic(problem=problem, **STEPS), serial(rows), 6)[1:]:
        now = F(h)
        torch.testing.assert_close(torch.cat([state.past_x, -state.past_y]), now, rtol=0, atol=1e-12)
        h, past = h - 0.1 * (2 * now - past), now


@engines
@methods
def test_memory_0_is_the_method_itself(method, engine):
    rows = unlike()
    mixed, plain = fs.Anderson(method(game()), 0), method(game())
    assert all(same(a, b) for a, b in zip(play(mixed, engine(rows), 4), play(plain, engine(rows), 4), strict=True))


@methods
def test_it_ends_in_one_round_more_than_gmres(method):
    """With six unknowns GMRES ends after six steps; the image of that point is the round after."""
    rows, problem = unlike(), game(mu=0.05)
    plain = method(problem)
    mixed = play(fs.Anderson(plain, 10, ridge=0), serial(rows), 7)
    fixed = play(fs.Anderson(plain, 10), serial(rows), 40)[-1]
    assert torch.cat([mixed[-1].x - fixed.x, mixed[-1].y - fixed.y]).norm() < 1e-7
    assert torch.cat([mixed[6].x - fixed.x, mixed[6].y - fixed.y]).norm() > 1e-2
    last = play(plain, serial(rows), 7)[-1]
    assert torch.cat([last.x - fixed.x, last.y - fixed.y]).norm() > 1e-2, "the method alone is not there"
    assert (distance(fixed, rows, problem) < 1e-20) == (method is not MADE["Local Extragradient"])


class AtTheSaddle(fs.QuadraticGame):
    def initial(self):
        return self.saddle(unlike())


@pytest.mark.parametrize("name", ["Extragradient", "FedGDA-GT", "Optimistic"])
@pytest.mark.parametrize("memory", [None, 4])
def test_the_saddle_of_unlike_clients_is_a_fixed_point(name, memory):
    rows, problem = unlike(), AtTheSaddle(3, mu=0.5)
    algorithm = fs.Optimistic(problem=problem, **STEPS) if name == "Optimistic" else MADE[name](problem)
    if memory is not None:
        algorithm = fs.Anderson(algorithm, memory, exact=name != "Optimistic")
    assert max(distance(state, rows, problem) for state in play(algorithm, serial(rows), 30)) < 1e-24


def test_control_variates_bring_local_steps_back_to_the_saddle():
    rows, problem = unlike(), AtTheSaddle(3, mu=0.5)
    options = {"problem": problem, "local_steps": 5, "batch_size": None, "primal_step": 0.04, "dual_step": 0.04}
    plain, corrected = (fs.LocalExtragradient(**options, control_variates=v) for v in (False, True))
    away, back = (distance(play(a, vectorised(rows), 500)[-1], rows, problem) for a in (plain, corrected))
    assert away > 1e-2
    assert back < 1e-16


@methods
def test_the_engines_agree_and_workers_have_the_bits_of_threads(method):
    rows = unlike()
    make = lambda: fs.Anderson(method(game()), 3)  # noqa: E731
    a, b, c = (
        play(make(), clients, 6) for clients in (serial(rows), vectorised(rows), loopback(make(), rows, chunk=3))
    )
    for u, v, w in zip(a, b, c, strict=True):
        near(u, v, atol=1e-9)
        assert same(v, w)


def test_a_resumed_run_has_the_same_bits(tmp_path):
    rows, algorithm = unlike(), fs.Anderson(MADE["FedGDA-GT"](game()), 3)
    whole = fs.run(algorithm, rows, rounds=8)
    fs.run(algorithm, rows, rounds=5, out=tmp_path)
    resumed = fs.run(algorithm, rows, rounds=8, out=tmp_path, resume=True)
    assert torch.equal(whole.model, resumed.model)


def test_lost_replies_empty_the_window():
    rows, algorithm = unlike(), fs.Anderson(MADE["FedGDA-GT"](game()), 5)
    steady = play(algorithm, serial(rows), 6)
    assert steady[-1].mixing_restarts == 0
    assert len(steady[-1].mixing_points) == 5
    lossy = play(algorithm, Lossy(serial(rows), share=0.3, seed=1), 6)
    assert lossy[-1].mixing_restarts > 0
    assert torch.isfinite(lossy[-1].x).all()


def test_a_mix_that_is_not_finite_is_replaced(monkeypatch):
    from fedsaddle.algorithms import anderson

    rows = unlike()
    monkeypatch.setattr(anderson, "least_squares", lambda f, ridge: f[1:, 0] * float("nan"))
    mixed = play(fs.Anderson(MADE["FedGDA-GT"](game()), 3), serial(rows), 4)
    for a, b in zip(mixed, play(MADE["FedGDA-GT"](game()), serial(rows), 4), strict=True):
        assert torch.equal(a.x, b.x)


def test_a_mix_stays_in_the_sets():
    problem = fs.QuadraticGame(3, mu=0.05, project_x=Ball(0.4), project_y=Ball(0.3))
    for state in play(fs.Anderson(MADE["Extragradient"](problem), 5), serial(unlike()), 12)[1:]:
        assert state.x.norm() < 0.4 + 1e-12
        assert state.y.norm() < 0.3 + 1e-12


BAD = {
    "memory": (lambda: fs.Anderson(MADE["FedGDA-GT"](game()), -1), "memory = -1"),
    "batches": (lambda: fs.Anderson(fs.LocalSgda(problem=game())), "batch_size = 32: draws minibatches"),
    "wrapper": (lambda: fs.Anderson(fs.Anderson(MADE["FedGDA-GT"](game()))), "wraps another algorithm"),
    "none": (lambda: fs.Anderson(3), "give an algorithm"),
    "average": (lambda: fs.Anderson(fs.Extragradient(problem=game(), output="average")), 'use output = "last"'),
    "growth": (lambda: fs.Anderson(MADE["FedGDA-GT"](game()), growth=0.5), "growth = 0.5"),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_bad_input(make, message):
    with pytest.raises(fs.BadInput, match=message):
        make()


LATE = {
    "cohort": (lambda: fs.FedGdaGt(problem=game(), sampled_clients=3), "draws 3 of 5 clients"),
    "memory at the server": (lambda: fs.Optimistic(problem=game()), "remembers past_x between rounds"),
    "variates": (
        lambda: fs.LocalExtragradient(problem=game(), batch_size=None, control_variates=True), "remembers cx"
    ),
    "random rounds": (lambda: fs.ProxSkip(problem=game(), chance=0.5, batch_size=None), "draws random numbers"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "message"), LATE.values(), ids=LATE)
def test_what_is_no_map_of_the_point(make, message):
    with pytest.raises(fs.BadInput, match=message):
        play(fs.Anderson(make()), serial(unlike()), 2)
    assert torch.isfinite(play(fs.Anderson(make(), exact=False), serial(unlike()), 3)[-1].x).all()


def config(**algorithm):
    return validate_config({
        "data": {"name": "nonconvex-pl", "clients": 3, "rows": 4, "dimension": 2, "test_share": 0.0},
        "split": {"name": "natural", "column": "client"}, "model": {"name": "none"},
        "problem": {"name": "quadratic"}, "algorithm": {"name": "Extragradient", **algorithm},
    })  # fmt: skip


def with_classes(**algorithm):
    return validate_config({
        "data": {"name": "digits"}, "model": {"name": "logistic"}, "split": {"name": "iid", "clients": 3},
        "problem": {"name": "class-fair"}, "algorithm": {"name": "Extragradient", **algorithm},
    })  # fmt: skip


def test_configs_name_it():
    check_keys(with_classes(anderson=4))
    built = build(config(anderson=4)).algorithm
    assert isinstance(built, fs.Anderson)
    assert built.memory == 4
    assert fs.algorithm("Extragradient", problem=game(), anderson=3).memory == 3
    for bad in (-1, "ten"):
        for read, given in ((build, config), (check_keys, with_classes)):
            with pytest.raises(fs.BadInput, match="anderson"):
                read(given(anderson=bad))


def test_a_memory_beyond_the_rounds_is_warned_of_in_one_line():
    for memory, rounds, warned in ((10, 4, True), (4, 4, False), (0, 4, False)):
        algorithm = fs.Anderson(fs.Extragradient(problem=game()), memory=memory)
        found = algorithm.cautions(play(algorithm, serial(unlike()), rounds)[-1])
        line = "the memory of Anderson mixing, 10, is longer than the 4 rounds; one of 4 does the same"
        assert list(found) == ([line] if warned else [])


def test_the_warning_is_in_the_summary_and_the_run_is_kept(tmp_path):
    algorithm = fs.Anderson(fs.Extragradient(problem=game()), memory=7)
    with pytest.warns(UserWarning, match="the memory of Anderson mixing, 7, is longer than the 3 rounds"):
        result = fs.run(algorithm, unlike(), rounds=3, out=tmp_path / "run")
    assert result.summary["rounds"] == 3
    assert any("memory of Anderson mixing" in one["text"] for one in result.summary["warnings"])
