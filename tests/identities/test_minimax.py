"""Members of the min-max family that are each other in special cases."""

from __future__ import annotations

import pytest
import torch

from fedsaddle import FedGdaGt, FedSgda, FedSgdaPlus, FessGda, LocalSgda, Minimax, MomentumLocalSgda, ProxSkip
from fedsaddle.algorithms.fedsgda import MiniBatch, Spider, Storm
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.projections import Ball
from fedsaddle.numerics.schedules import Power
from small import SIZES, alike, classes, play, rows_of, serial, vectorised

ROUNDS = 6


def game(**options):
    def rows(x, y, batch):
        ax, ay = batch.x @ x, batch.x @ y
        return ax.cos() + ax * ay - y @ y / 2 + x @ x / 10

    start = {"start_x": torch.full((4,), 0.3), "start_y": torch.zeros(4)}
    return Minimax(rows, **start, **options)


def points(algorithm, rows=None):
    states = play(algorithm, serial(classes() if rows is None else rows), ROUNDS)[1:]
    return torch.stack([torch.cat([s.x, s.y]) for s in states])


def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    assert (a[-1] - a[0]).abs().max() > 1e-4, "nothing moved"


def test_momentum_with_alpha_beta_1_is_local_sgda_one_gradient_behind():
    """d is then the last gradient; on rows that are all alike it is the gradient at the present point."""
    rows, plain = alike(classes()), {"local_steps": 1, "batch_size": 3}
    momentum = MomentumLocalSgda(
        problem=game(project_y=Ball(0.7)), primal_step=0.2, dual_step=0.4, alpha=0.5, primal_beta=2.0, dual_beta=2.0,
        momentum_at_sync="keep", **plain,
    )  # fmt: skip
    sgda = LocalSgda(problem=game(project_y=Ball(0.7)), primal_step=0.1, dual_step=0.2, **plain)
    same(points(momentum, one_client(rows)), points(sgda, one_client(rows)))


def one_client(rows):
    return rows_of([rows.client(0)[0]], [rows.client(0)[1]])


def test_sgda_plus_with_a_snapshot_every_step_is_sgda():
    options = {"local_steps": 1, "batch_size": 3, "primal_step": 0.1, "dual_step": 0.2}
    same(points(LocalSgda(problem=game(), snapshot_every=1, **options)), points(LocalSgda(problem=game(), **options)))


@pytest.mark.parametrize(("alpha", "estimator"), [(1.0, MiniBatch()), (0.0, Spider(1000, 3))])
def test_storm_between_mb_and_spider(alpha, estimator):
    options = {"sampled_clients": 3, "local_steps": 2, "batch_size": 3, "primal_step": 0.1, "dual_step": 0.2}
    storm = FedSgda(problem=game(), estimator=Storm(alpha), **options)
    same(points(storm), points(FedSgda(problem=game(), estimator=estimator, **options)))


def test_one_local_step_of_all_clients_on_all_rows_is_gradient_descent_ascent():
    rows, problem = classes(sizes=(5,) * 4), game()
    found = points(FedSgda(problem=problem, local_steps=1, batch_size=1, primal_step=0.1, dual_step=0.2), rows)
    x, y = problem.initial()
    expected = []
    for _ in range(ROUNDS):
        at_x, at_y = x.clone().requires_grad_(), y.clone().requires_grad_()
        ax, ay = rows.x @ at_x, rows.x @ at_y
        f = (ax.cos() + ax * ay).mean() - at_y @ at_y / 2 + at_x @ at_x / 10
        gx, gy = torch.autograd.grad(f, (at_x, at_y))
        x, y = x - 0.1 * gx, y + 0.2 * gy
        expected.append(torch.cat([x, y]))
    same(found, torch.stack(expected))


def test_full_batches_converge_linearly_where_local_sgda_stalls():
    """A strongly convex, strongly concave quadratic game whose clients pull in different directions."""
    g = torch.Generator().manual_seed(3)
    rows = rows_of([torch.randn(1, 5, generator=g) for _ in SIZES], [torch.zeros(1) for _ in SIZES])

    def value(x, y, batch):
        a = batch.x
        pull = (a[:, :2] * x).sum(1) - (a[:, 2:4] * y).sum(1)
        return (0.5 + a[:, 4] ** 2) * (x @ x) / 2 + a[:, 4] * (x * y).sum() - y @ y / 2 + pull

    problem = Minimax(value, start_x=torch.ones(2), start_y=torch.ones(2))
    options = {"local_steps": 10, "batch_size": 1, "primal_step": 0.03, "dual_step": 0.03}
    a = rows.x.mean(0)
    A, m, p, q = 0.5 + rows.x[:, 4].square().mean(), a[4], a[:2], a[2:4]
    x = (m * q - p) / (A + m * m)  # where both gradients of the mean vanish
    at = torch.cat([x, m * x - q])

    def distances(algorithm, rounds):
        states = play(algorithm, vectorised(rows), rounds)
        return [float((torch.cat([s.x, s.y]) - at).norm()) for s in states]

    corrected = distances(FedSgda(problem=problem, **options), 45)
    local = distances(LocalSgda(problem=problem, **options), 45)
    assert corrected[30] < 1e-1 * corrected[15] < 1e-2 * corrected[0]
    assert corrected[45] < 1e-1 * corrected[30]
    assert local[45] > 1e-2
    assert local[45] > 0.98 * local[30], "Local SGDA has stopped away from the saddle"


def test_a_schedule_of_power_zero_is_a_plain_step():
    options = {"sampled_clients": 3, "local_steps": 2, "batch_size": 3, "dual_step": 0.2}
    same(
        points(FedSgda(problem=game(), primal_step=Power(0.1, 0.0), **options)),
        points(FedSgda(problem=game(), primal_step=0.1, **options)),
    )


STEPS = {"local_steps": 3, "batch_size": 3, "primal_step": 0.1, "dual_step": 0.2}


@pytest.mark.parametrize("special", [{"smoothing": 0.0}, {"smoothing": 3.0, "trailing": 1.0}], ids=["p = 0", "β = 1"])
def test_fess_gda_without_smoothing_is_local_sgda(special):
    rows = {"sampled_clients": 4, **STEPS}
    same(points(FessGda(problem=game(project_y=Ball(0.7)), **special, **rows)),
         points(LocalSgda(problem=game(project_y=Ball(0.7)), **rows)))  # fmt: skip


def test_fess_gda_with_one_full_step_is_smoothed_descent_ascent():
    rows, p, β = alike(classes()), 0.7, 0.4
    algorithm = FessGda(problem=game(), smoothing=p, trailing=β, **(STEPS | {"local_steps": 1}))
    found = points(algorithm, rows)
    everything = Batch(*(t[None] for t in (torch.cat([rows.client(i)[0][:1] for i in range(6)]), torch.zeros(6))))
    (x, y), f = game().initial(), game()
    z = x
    for at in found:
        g = f.gradients(x[None], y[None], everything)
        x, y = x - 0.1 * (g.x[0] + p * (x - z)), y + 0.2 * g.y[0]
        z = z + β * (x - z)
        torch.testing.assert_close(at, torch.cat([x, y]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("S", [1, 2])
def test_fedsgda_plus_with_a_whole_server_step_is_local_sgda_plus(S):
    same(points(FedSgdaPlus(problem=game(), snapshot_rounds=S, **STEPS)),
         points(LocalSgda(problem=game(), snapshot_every=3 * S, **STEPS)))  # fmt: skip


def test_fedgda_gt_is_fedsgda_mb_with_all_rows():
    rows = alike(classes())
    steps = {"local_steps": 3, "primal_step": 0.1, "dual_step": 0.2}
    same(points(FedGdaGt(problem=game(), **steps), rows), points(FedSgda(problem=game(), batch_size=3, **steps), rows))


def quadratic(rows):
    """f_i = x'A_i x / 2 + x'B_i y - y'y / 2 + a_i'x, strongly convex and concave, with unlike clients."""

    def value(x, y, batch):
        a = batch.x
        return (a @ x).square() / 8 + x @ x / 4 + (a @ x) * y.sum() / 4 - y @ y / 2 + a @ x

    return Minimax(value, start_x=torch.full((4,), 0.3), start_y=torch.zeros(2))


@pytest.mark.parametrize("kind", ["FedGDA-GT", "ProxSkip-VIP", "Local SGDA"])
def test_control_variates_reach_the_saddle_point_and_local_sgda_does_not(kind):
    """With constant steps and full gradients: at the saddle point of the mean, its gradient is 0."""
    rows = alike(classes())
    problem, steps = quadratic(rows), {"primal_step": 0.15, "dual_step": 0.15}
    algorithm = {
        "FedGDA-GT": lambda: FedGdaGt(problem=problem, local_steps=3, **steps),
        "ProxSkip-VIP": lambda: ProxSkip(problem=problem, chance=0.5, **steps),
        "Local SGDA": lambda: LocalSgda(problem=problem, local_steps=3, batch_size=2, **steps),
    }[kind]()
    last = play(algorithm, vectorised(rows), 60)[-1]
    batches = [Batch(x[None, :1], y[None, :1]) for x, y in map(rows.client, range(6))]
    each = [problem.gradients(last.x[None], last.y[None], batch) for batch in batches]
    left = float(torch.cat([sum(g.x for g in each)[0], sum(g.y for g in each)[0]]).abs().max()) / 6
    assert left > 1e-2 if kind == "Local SGDA" else left < 1e-4


def test_proxskip_that_always_communicates_is_descent_ascent_on_the_mean():
    rows = alike(classes())
    steps = {"primal_step": 0.1, "dual_step": 0.2}
    same(points(ProxSkip(problem=game(), chance=1.0, **steps), rows),
         points(LocalSgda(problem=game(), local_steps=1, batch_size=2, **steps), rows))  # fmt: skip
