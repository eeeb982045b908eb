"""Weight decay and a bound on gradients, of every problem over a network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedsaddle as fs
from fedsaddle.federation.clients import Batch
from fedsaddle.metrics.measures import Position
from fedsaddle.numerics.flat import without_penalty
from small import classes, play, seeded, serial, vectorised


class Silu(nn.Module):
    """Neither a chain of linear layers nor a module with a cohort of its own."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 5), nn.Linear(5, outputs)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.b(nn.functional.silu(self.a(x)))
        return scores


MINIMAX: dict[str, Any] = {
    "auc": lambda **o: fs.MinimaxAuc(model=seeded(lambda: Silu(1)), positive_share=0.4, **o),
    "auc, chain": lambda **o: fs.MinimaxAuc(model=seeded(lambda: fs.models.mlp(4, [5], 1)), positive_share=0.4, **o),
    "class-fair": lambda **o: fs.ClassFair(model=seeded(lambda: fs.models.mlp(4, [5], 2)), classes=2, **o),
    "robust": lambda **o: fs.RobustTraining(model=seeded(lambda: fs.models.mlp(4, [5], 2)), shape=(4,), **o),
}
MINIMISATION: dict[str, Any] = {
    "supervised, chain": lambda **o: fs.Supervised(seeded(lambda: fs.models.mlp(4, [5], 2)), **o),
    "supervised, vmap": lambda **o: fs.Supervised(seeded(lambda: Silu(2)), **o),
    "pairwise": lambda **o: fs.risks.auc(seeded(lambda: Silu(1)), **o),
    "pairwise, not linear": lambda **o: fs.risks.partial_auc(seeded(lambda: fs.models.mlp(4, [5], 1)), **o),
}
ALL = {**MINIMAX, **MINIMISATION}
every = pytest.mark.parametrize("name", ALL)
ROWS = classes(classes=2)


def batch(C: int = 3, B: int = 6) -> Batch:
    g = torch.Generator().manual_seed(2)
    x = 3 * torch.randn(C, B, 4, generator=g, dtype=torch.float64)
    return Batch(x, torch.arange(B).expand(C, B) % 2)


def points(problem: Any, C: int = 3) -> tuple[Tensor, ...]:
    """A point for each client, away from the start."""
    start = problem.initial()
    start = start if isinstance(start, tuple) else (start,)
    g = torch.Generator().manual_seed(3)
    moved = [v + 0.3 * torch.randn(C, *v.shape, generator=g, dtype=v.dtype) for v in start]
    return moved[0], *(problem.project_y(v) for v in moved[1:])


def gradient(problem: Any, at: tuple[Tensor, ...], rows: Batch) -> Tensor:
    found = problem.gradients(*at, rows).x if len(at) > 1 else problem.gradient(*at, rows)
    return found.clone()


def stepped(problem: Any, at: tuple[Tensor, ...], rows: Batch, step: float) -> Tensor:
    x = at[0].clone()
    problem.descend_(x, *at[1:], rows, step)
    return x


@every
@pytest.mark.parametrize("C", [1, 3])
def test_the_bound_holds_and_the_direction_stays(name: str, C: int) -> None:
    plain, rows = ALL[name](), batch(C)
    at, d = points(plain, C), plain.flat.dimension
    free = gradient(plain, at, rows)
    limit = float(free[:, :d].norm(dim=1).median()) / 2
    bound = gradient(ALL[name](clip=limit), at, rows)
    norms = bound[:, :d].norm(dim=1)
    assert (norms <= limit).all()
    assert (norms > 0.999 * limit).any(), "the bound must matter"
    cosine = torch.cosine_similarity(bound[:, :d], free[:, :d], dim=1)
    torch.testing.assert_close(cosine, torch.ones(C, dtype=torch.float64), rtol=0, atol=1e-12)
    assert torch.equal(bound[:, d:], free[:, d:]), "a and b of the AUC are no parameters of the network"
    wide = gradient(ALL[name](clip=1e6), at, rows)
    torch.testing.assert_close(wide, free, rtol=0, atol=1e-12)


@every
@pytest.mark.parametrize("options", [{"clip": 0.05}, {"l2": 0.3}, {"l2": 0.3, "clip": 0.05}], ids=str)
def test_a_step_is_that_of_the_gradient(name: str, options: dict[str, float]) -> None:
    problem, rows = ALL[name](**options), batch()
    at = points(problem)
    expected = at[0] - 0.1 * gradient(problem, at, rows)
    torch.testing.assert_close(stepped(problem, at, rows, 0.1), expected, rtol=0, atol=1e-12)


@every
@pytest.mark.parametrize("biases", [True, False])
def test_the_penalty_is_in_value_and_gradient(name: str, biases: bool) -> None:
    plain = ALL[name]()
    rows, at, d = batch(), points(plain), plain.flat.dimension
    penalised = replace(plain, l2=0.3, l2_biases=biases)
    counted = torch.ones(d, dtype=torch.float64)
    if not biases:
        counted[without_penalty(plain.flat, biases=False)] = 0
        assert 0 < counted.sum() < d
    w = at[0][:, :d] * counted
    expected = plain.value(*at, rows) + 0.15 * w.square().sum(1)
    torch.testing.assert_close(penalised.value(*at, rows), expected, rtol=0, atol=1e-12)
    difference = gradient(penalised, at, rows) - gradient(plain, at, rows)
    torch.testing.assert_close(difference[:, :d], 0.3 * w, rtol=0, atol=1e-12)
    assert (difference[:, d:] == 0).all()


def test_one_client_is_torch_with_clip_grad_norm() -> None:
    torch.manual_seed(0)
    rows = classes((40,), classes=2)
    module = seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)))
    problem = fs.Supervised(module, l2=0.1, clip=0.2)
    w = problem.initial()[None].clone()
    optimiser = torch.optim.SGD(module.parameters(), lr=0.3)
    shortened = 0
    for t in range(8):
        x, y = rows.x[5 * t : 5 * t + 5], rows.y[5 * t : 5 * t + 5]
        w = problem.descend_(w, Batch(x[None], y[None]), 0.3)
        loss = nn.functional.cross_entropy(module(x), y) + 0.05 * sum(p.square().sum() for p in module.parameters())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        shortened += float(nn.utils.clip_grad_norm_(module.parameters(), 0.2)) > 0.2
        optimiser.step()
        torch.testing.assert_close(w[0], torch.cat([p.detach().flatten() for p in module.parameters()]))
    assert shortened > 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: fs.FedAvg(problem=ALL["supervised, chain"](clip=0.05), local_steps=3, batch_size=4),
        lambda: fs.Drfa(problem=ALL["supervised, vmap"](clip=0.05, l2=0.1), local_steps=3, batch_size=4),
        lambda: fs.CodaPlus(problem=ALL["auc"](clip=0.05, l2=0.1), local_steps=3, batch_size=4),
        lambda: fs.MomentumLocalSgda(problem=ALL["class-fair"](clip=0.05), local_steps=3, batch_size=4),
        lambda: fs.LocalSgda(problem=ALL["robust"](clip=0.05, l2=0.1), local_steps=3, batch_size=4),
        lambda: fs.FedX2(problem=ALL["pairwise, not linear"](clip=0.05, l2=0.1), local_steps=3, batch_size=4),
        lambda: fs.FedX1(problem=ALL["pairwise"](clip=0.05, l2=0.1), local_steps=3, batch_size=4),
    ],
)
def test_the_engines_agree_and_a_step_is_no_longer_than_allowed(make: Any) -> None:
    algorithm = make()
    slow, fast = play(algorithm, serial(ROWS), 2)[-1], play(algorithm, vectorised(ROWS), 2)[-1]
    torch.testing.assert_close(algorithm.model(slow), algorithm.model(fast), rtol=0, atol=1e-10)
    plain = replace(algorithm, problem=replace(algorithm.problem, clip=None))
    assert not torch.allclose(algorithm.model(slow), plain.model(play(plain, serial(ROWS), 2)[-1]))


def test_fedavg_moves_no_further_than_its_steps() -> None:
    algorithm = fs.FedAvg(problem=ALL["supervised, chain"](clip=0.05), local_steps=3, batch_size=4, primal_step=0.5)
    first, last = play(algorithm, vectorised(ROWS), 1)
    assert (last.w - first.w).norm() <= 3 * 0.5 * 0.05


def test_measures_of_the_objective_see_whole_gradients() -> None:
    clipped, plain = (MINIMAX["class-fair"](clip=c) for c in (1e-3, None))
    x, y = plain.initial()
    gradients = [Position(p, x, y, ROWS).objective.gradients(x, y)[0] for p in (clipped, plain)]
    torch.testing.assert_close(*gradients)
    assert gradients[0].norm() > 1e-2


@every
@pytest.mark.parametrize(("key", "value"), [("clip", 0), ("clip", -1.0), ("clip", "1"), ("l2", -0.1), ("l2_biases", 1)])
def test_what_cannot_be(name: str, key: str, value: object) -> None:
    with pytest.raises(fs.BadInput, match=key):
        replace(ALL[name](), **{key: value})


@pytest.mark.parametrize(
    "section",
    ["auc", "class-fair", "robust", "supervised", "pairwise"],
)
def test_a_config_has_them(section: str) -> None:
    from fedsaddle.config.build import build
    from fedsaddle.config.schema import validate_config

    algorithm = {"supervised": "FedAvg", "pairwise": "FedX1"}.get(section, "Local SGDA")
    built = build(
        validate_config(
            {
                "data": {"name": "breast-cancer"},
                "split": {"name": "iid", "clients": 3},
                "model": {"name": "mlp", "hidden": [4]},
                "problem": {"name": section, "l2": 0.1, "clip": 2.0},
                "algorithm": {"name": algorithm},
            }
        )
    )
    problem: Any = built.algorithm.problem
    assert (problem.l2, problem.clip) == (0.1, 2.0)
