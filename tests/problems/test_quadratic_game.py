import numpy as np
import pytest
import torch

import fedsaddle as fs
from fedsaddle.data.sets.synthetic import nonconvex_pl
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.projections import Ball
from small import rows_of


def literal(x, y, row, mu):
    a, b, c = np.split(row, 3)
    return mu / 2 * (x - a) @ (x - a) + (x - a) @ b * (b @ (y - c)) - mu / 2 * (y - c) @ (y - c)


def some():
    g = torch.Generator().manual_seed(3)
    x, y = torch.randn(2, 4, generator=g), torch.randn(2, 4, generator=g)
    rows = torch.randn(2, 5, 12, generator=g)
    return x, y, rows


def test_values_are_those_of_the_formula():
    x, y, rows = some()
    found = fs.QuadraticGame(4, mu=0.3).value(x, y, Batch(rows, torch.zeros(2, 5)))
    for k in range(2):
        each = [literal(x[k].numpy(), y[k].numpy(), row.numpy(), 0.3) for row in rows[k]]
        assert float(found[k]) == pytest.approx(np.mean(each), abs=1e-12)


@pytest.mark.parametrize("weight", [None, torch.tensor([[1.0, 1, 1, 0, 0], [1, 1, 1, 1, 1]])])
def test_gradients_are_those_of_the_value(weight):
    x, y, rows = some()
    batch, game = Batch(rows, torch.zeros(2, 5), weight), fs.QuadraticGame(4, mu=0.3)
    x.requires_grad_()
    y.requires_grad_()
    wanted = torch.autograd.grad(game.value(x, y, batch).sum(), (x, y))
    found = game.gradients(x.detach(), y.detach(), batch)
    torch.testing.assert_close((found.x, found.y), wanted, rtol=0, atol=1e-12)


def test_the_saddle_is_where_both_gradients_vanish():
    rows, game = nonconvex_pl(clients=3, rows=5, dimension=4, seed=2), fs.QuadraticGame(4, mu=0.2)
    x, y = game.saddle(rows)
    parts = [game.gradients(x[None], y[None], Batch(rows.client(k)[0][None], torch.zeros(1, 5))) for k in range(3)]
    for pick in ("x", "y"):
        mean = torch.stack([getattr(part, pick)[0] for part in parts]).mean(0)
        torch.testing.assert_close(mean, torch.zeros_like(mean), rtol=0, atol=1e-12)
    assert game.pooled_measures(x, y, rows)["squared_distance_to_saddle"] == pytest.approx(0, abs=1e-20)
    assert game.pooled_measures(x + 1, y, rows)["squared_distance_to_saddle"] == pytest.approx(4)
    assert len(game.best_response(x, Batch(rows.x, rows.y))) == 4


def test_the_saddle_of_clients_of_unequal_sizes_is_that_of_the_mean_of_their_means():
    """A client of one row counts as much as one of nine; the pool of all rows has another saddle."""
    g = torch.Generator().manual_seed(7)
    parts = [k + torch.randn(n, 12, generator=g, dtype=torch.float64) for k, n in enumerate((1, 9, 4))]
    rows, game = rows_of(parts, [torch.zeros(len(p), dtype=torch.int64) for p in parts]), fs.QuadraticGame(4, mu=0.7)
    x, y = game.saddle(rows)
    each = [game.gradients(x[None], y[None], Batch(p[None], torch.zeros(1, len(p)))) for p in parts]
    for pick in ("x", "y"):
        mean = torch.stack([getattr(one, pick)[0] for one in each]).mean(0)
        torch.testing.assert_close(mean, torch.zeros_like(mean), rtol=0, atol=1e-10)
    pool = game.gradients(x[None], y[None], Batch(torch.cat(parts)[None], torch.zeros(1, 14)))
    assert float(pool.x.norm()) > 0.1


def test_a_bounded_game_has_no_distance_to_the_saddle_of_the_whole_space():
    rows = nonconvex_pl(clients=3, rows=5, dimension=4, seed=2)
    for given in ({"project_x": Ball(0.1)}, {"project_y": Ball(0.1)}):
        game = fs.QuadraticGame(4, mu=0.2, **given)
        assert game.pooled_measures(*game.initial(), rows) == {}


def test_exact_methods_find_it():
    rows, game = nonconvex_pl(clients=3, rows=4, dimension=3, seed=0), fs.QuadraticGame(3)
    found = fs.run(fs.FedGdaGt(problem=game, primal_step=0.1, dual_step=0.1, local_steps=3), rows, rounds=150)
    assert found.summary["pooled"]["squared_distance_to_saddle"] < 1e-12


def test_a_game_has_no_model():
    config = {
        "data": {"name": "nonconvex-pl", "clients": 3, "rows": 4, "dimension": 2, "test_share": 0.0},
        "split": {"name": "natural", "column": "client"},
        "model": {"name": "logistic"},
        "problem": {"name": "quadratic", "mu": 0.5},
        "algorithm": {"name": "FedGDA-GT"},
    }
    from fedsaddle.config.build import build
    from fedsaddle.config.schema import validate_config

    with pytest.raises(fs.BadInput, match="no model"):
        build(validate_config(config))
    built = build(validate_config({**config, "model": {"name": "none"}}))
    assert built.algorithm.problem == fs.QuadraticGame(2, mu=0.5)
