"""A module as a function of one flat vector: by itself, by its own cohort method, as a chain, and through vmap."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from fedsaddle.errors import BadInput
from fedsaddle.numerics.flat import FlatModel
from fedsaddle.numerics.tensors import shrink_
from fedsaddle.problems.models.networks import CharacterGru, McMahanCnn, mlp
from small import seeded


def same_module_twice():
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.Tanh(), layer)


def same_weights_twice():
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    return nn.Sequential(first, nn.SiLU(), second)


MODULES = {
    "chain": (lambda: mlp(4, [5], 3), lambda: torch.randn(3, 6, 4)),
    "vmap": (lambda: nn.Sequential(nn.Linear(4, 5), nn.SiLU(), nn.Linear(5, 3)), lambda: torch.randn(3, 6, 4)),
    "vmap, a module used twice": (same_module_twice, lambda: torch.randn(3, 6, 4)),
    "vmap, weights used twice": (same_weights_twice, lambda: torch.randn(3, 6, 4)),
    "vmap, norm": (lambda: nn.Sequential(nn.Linear(4, 6), nn.GroupNorm(2, 6)), lambda: torch.randn(3, 6, 4)),
    "vmap, convolution": (lambda: McMahanCnn(1, 2, side=4), lambda: torch.randn(3, 2, 1, 4, 4)),
    "cohort": (lambda: CharacterGru(6, 3, 4), lambda: torch.randint(6, (3, 2, 5))),
}
modules = pytest.mark.parametrize("name", MODULES)


def made(name):
    make, rows = MODULES[name]
    flat = FlatModel(seeded(make))
    return flat, 0.3 * torch.randn(3, flat.dimension), rows()


def loaded(flat, w):
    """The module with `w` copied into its parameters: the plainest way to use it."""
    torch.nn.utils.vector_to_parameters(w, flat.module.parameters())
    return flat.module


@modules
def test_the_start_is_the_modules_parameters(name):
    flat, _, _ = made(name)
    assert flat.dimension == sum(p.numel() for p in flat.module.parameters())
    assert torch.equal(flat.initial(), torch.nn.utils.parameters_to_vector(flat.module.parameters()))
    assert not flat.initial().requires_grad


@modules
def test_views_are_views(name):
    flat, w, _ = made(name)
    views = flat.views(w)
    assert {n: v.shape[1:] for n, v in views.items()} == {n: p.shape for n, p in flat.module.named_parameters()}
    assert torch.equal(torch.cat([v.flatten(1) for v in views.values()], 1), w)
    for v in views.values():
        v.fill_(7.0)
    assert (w == 7).all()
    assert {n: v.shape for n, v in flat.views(w[0]).items()} == flat.shapes


@modules
def test_scores_and_gradient_are_the_modules(name):
    flat, w, x = made(name)
    start = flat.initial()
    scores = flat.scores(w, x)
    same_scores, pull, statistics = flat.pullback(w, x)
    slope = torch.randn(scores.shape)
    gradient = pull(slope)
    assert torch.equal(flat.initial(), start), "the module's own parameters must not change"
    for c in range(3):
        module = loaded(flat, w[c])
        z = module(x[c])
        g = torch.autograd.grad((z * slope[c]).sum(), list(module.parameters()))
        torch.testing.assert_close(scores[c], z, rtol=0, atol=1e-11)
        torch.testing.assert_close(same_scores[c], z, rtol=0, atol=1e-11)
        torch.testing.assert_close(gradient[c], torch.cat([v.flatten() for v in g]), rtol=0, atol=1e-11)
    assert not same_scores.requires_grad
    assert statistics is None, "there is no BatchNorm"


@modules
def test_one_client_and_a_cohort_agree(name):
    flat, w, x = made(name)
    together, pull, _ = flat.pullback(w, x)
    slope = torch.randn(together.shape)
    gradient = pull(slope)
    for c in range(3):
        one = slice(c, c + 1)
        alone, pull_alone, _ = flat.pullback(w[one], x[one])
        torch.testing.assert_close(together[one], alone, rtol=0, atol=1e-11)
        torch.testing.assert_close(gradient[one], pull_alone(slope[one]), rtol=0, atol=1e-11)


@modules
def test_where_gradients_are_switched_off(name):
    flat, w, x = made(name)
    expected, pull, _ = flat.pullback(w, x)
    slope = torch.randn(expected.shape)
    gradient = pull(slope)
    with torch.no_grad():
        scores, pull, _ = flat.pullback(w, x)
        torch.testing.assert_close(scores, expected, rtol=0, atol=0)
        torch.testing.assert_close(pull(slope), gradient, rtol=0, atol=0)


@modules
def test_threads_do_not_see_each_others_parameters(name):
    flat, w, x = made(name)
    jobs = [slice(c, c + k) for k in (1, 2) for c in range(3)] * 8
    expected = [flat.scores(w[j], x[j]) for j in jobs]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda j: flat.scores(w[j], x[j]), jobs))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


@modules
def test_the_module_bound_to_a_vector(name):
    flat, w, x = made(name)
    torch.testing.assert_close(flat.bound(w[0])(x[0]), flat.scores(w[:1], x[:1])[0], rtol=0, atol=1e-12)


@modules
def test_a_copy_that_carries_the_vector(name):
    flat, w, x = made(name)
    start = flat.initial()
    copy = flat.module_with(w[0])
    assert torch.equal(torch.nn.utils.parameters_to_vector(copy.parameters()), w[0])
    assert torch.equal(start, flat.initial())
    torch.testing.assert_close(copy(x[0]).detach(), flat.scores(w[:1], x[:1])[0], rtol=0, atol=1e-12)


def test_the_fast_paths_are_taken(monkeypatch):
    """A chain and a cohort of one's own never go through vmap; anything else does, for several clients."""

    def refuse(*args, **kwargs):
        raise AssertionError("vmap")

    monkeypatch.setattr(torch.func, "vmap", refuse)
    for name in ("chain", "cohort"):
        flat, w, x = made(name)
        flat.scores(w, x)
    flat, w, x = made("vmap")
    flat.scores(w[:1], x[:1])
    with pytest.raises(AssertionError, match="vmap"):
        flat.scores(w, x)


def test_a_module_without_parameters():
    with pytest.raises(BadInput, match="model = 'ReLU': it has no parameters"):
        FlatModel(nn.ReLU())


@pytest.mark.parametrize("make", [nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm])
def test_batch_norm_is_refused(make):
    with pytest.raises(BadInput, match="model = '1': BatchNorm keeps running statistics") as caught:
        FlatModel(nn.Sequential(nn.Linear(4, 4), make(4)))
    assert caught.value.key == "model"


def test_what_keeps_nothing_is_welcome():
    FlatModel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)))
    FlatModel(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0)))
    FlatModel(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval())
    FlatModel(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)))


def test_other_running_statistics_are_refused_too():
    with pytest.raises(BadInput, match="model = "):
        FlatModel(nn.InstanceNorm1d(4, affine=True, track_running_stats=True))


@modules
@pytest.mark.parametrize("watched", [0, 1])
def test_a_gradient_that_is_written(name, watched):
    """`into ← keep into + gain gradient`, also where `into` is the vector itself; watched rows have no slope."""
    flat, w, x = made(name)
    moving = x.shape[1] - watched
    expected = flat.scores(w, x)
    slope = torch.randn(expected[:, :moving].shape)
    _, pull, _ = flat.pullback(w, x[:, :moving])
    gradient = pull(slope)
    for into in (torch.randn(w.shape), w):
        scores, write_, statistics = flat.pushforward(w, x, watched)
        torch.testing.assert_close(scores, expected, rtol=0, atol=1e-11)
        assert statistics is None
        after = 0.5 * into - 0.25 * gradient
        write_(slope, into, 0.5, -0.25)
        torch.testing.assert_close(into, after, rtol=0, atol=1e-11)


@modules
def test_a_gradient_is_written_over_anything(name):
    """With `keep` 0 even over what is no number."""
    flat, w, x = made(name)
    expected, pull, _ = flat.pullback(w, x)
    slope, into = torch.randn(expected.shape), torch.full(w.shape, float("nan"))
    flat.pushforward(w, x).write_(slope, into, 0.0, 2.0)
    torch.testing.assert_close(into, 2 * pull(slope), rtol=0, atol=1e-11)


@modules
@pytest.mark.parametrize("keep", [1.0, 0.75])
def test_a_step_writes_into_the_vector(name, keep):
    flat, w, x = made(name)
    scores, pull, _ = flat.pullback(w, x)
    after = keep * w - 0.1 * pull(2 * scores)
    assert flat.descend_(w, x, lambda z: 2 * z, 0.1, keep) is None
    torch.testing.assert_close(w, after, rtol=0, atol=1e-11)


def test_statistics_are_a_result_and_not_a_side_effect():
    """BatchNorm's new running statistics come beside the gradient; only `write_statistics_` writes them to the tail."""
    flat = FlatModel(seeded(lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))), True)
    x, start = torch.randn(1, 6, 4), flat.initial()
    w = start[None].clone()
    module = flat.module_with(start).train()
    module(x[0])
    new = torch.cat([module[1].running_mean, module[1].running_var])[None]
    scores, pull, statistics = flat.pullback(w, x)
    written = flat.pushforward(w, x)
    gradient = pull(torch.ones_like(scores))
    for found in (statistics, written.statistics):
        torch.testing.assert_close(found, new, rtol=0, atol=1e-13)
    assert torch.equal(w[0], start)
    assert torch.equal(flat.initial(), start)
    assert not gradient[:, -flat.tail :].any()
    found = flat.descend_(w, x, torch.ones_like, 0.1)
    torch.testing.assert_close(found, new, rtol=0, atol=1e-13)
    torch.testing.assert_close(w, start - 0.1 * gradient, rtol=0, atol=1e-13)
    before = w.clone()
    assert flat.write_statistics_(w, None) is w
    assert torch.equal(w, before)
    assert flat.write_statistics_(w, statistics) is w
    assert torch.equal(w, torch.cat([before[:, : -flat.tail], statistics], 1))


def half_frozen():
    module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    module[1].requires_grad_(False).eval()
    module[2].weight.requires_grad_(False)
    return module


class Branches(nn.Module):
    """What only a try can tell."""

    def __init__(self):
        super().__init__()
        self.norm, self.a, self.b = nn.BatchNorm1d(4), nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x):
        return self.a(self.norm(x)) + nn.functional.dropout(self.b(x), 0.5, self.training)


NORMALISED = {
    "1d": (lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, momentum=0.6), nn.Linear(5, 2)), (4,)),
    "1d of sequences": (lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(12, 2)), (4, 3)),
    "2d": (lambda: nn.Sequential(nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 2)), (1, 3, 3)),
    "3d": (lambda: nn.Sequential(nn.BatchNorm3d(2, affine=False), nn.Flatten(), nn.Linear(16, 2)), (2, 2, 2, 2)),
    "instances": (
        lambda: nn.Sequential(nn.InstanceNorm1d(4, track_running_stats=True), nn.Flatten(), nn.Linear(12, 2)),
        (4, 3),
    ),
    "two of them, half frozen": (half_frozen, (4,)),
    "with dropout, in a class of one's own": (Branches, (4,)),
}


@pytest.mark.parametrize("name", NORMALISED)
def test_clients_have_statistics_of_their_own(name):
    """A cohort, with frozen layers and dropout, is one client after the other, in training and in evaluation."""
    make, shape = NORMALISED[name]
    flat = FlatModel(seeded(make), True)
    g = torch.Generator().manual_seed(7)
    w = flat.initial() + 0.3 * torch.rand(3, flat.dimension, generator=g)
    x, keys = 2 + torch.randn(3, 6, *shape, generator=g), torch.tensor([3, 1, 4])
    assert flat.takes_cohorts(x)
    before = w.clone()
    scores, pull, statistics = flat.pullback(w, x, lambda: keys)
    evaluated, written = flat.scores(w, x), flat.pushforward(w, x, 2, lambda: keys)
    slope = torch.randn(scores.shape, generator=g)
    gradient = pull(slope)
    assert torch.equal(w, before)
    assert statistics.shape == (3, flat.tail)
    for c in range(3):
        one = slice(c, c + 1)
        own, own_pull, moved = flat.pullback(w[one], x[one], lambda one=one: keys[one])
        rest = flat.pushforward(w[one], x[one], 2, lambda one=one: keys[one])
        for a, b in (
            (scores, own), (gradient, own_pull(slope[one])), (statistics, moved),
            (evaluated, flat.scores(w[one], x[one])), (written.scores, rest.scores),
            (written.statistics, rest.statistics),
        ):  # fmt: skip
            torch.testing.assert_close(a[one], b, rtol=0, atol=1e-11)
        assert not torch.allclose(moved, before[one, -flat.tail :])
    assert not torch.allclose(evaluated, scores)


class Refuses:
    """A chain that must not be asked."""

    def fits(self, x):
        return True

    def __getattr__(self, name):
        raise AssertionError(f"the chain's {name} was used")


def test_one_client_runs_the_module_itself():
    """The single-client path is the oracle of the chain, so it must not go through it."""
    flat, w, x = made("chain")
    flat._chain = Refuses()
    flat.scores(w[:1], x[:1])
    flat.pullback(w[:1], x[:1])
    flat.pushforward(w[:1], x[:1])
    flat.descend_(w[:1].clone(), x[:1], torch.ones_like, 0.1)
    for several in (flat.scores, flat.pullback, flat.pushforward):
        with pytest.raises(AssertionError, match="the chain's"):
            several(w, x)
    with pytest.raises(AssertionError, match="the chain's"):
        flat.descend_(w, x, torch.ones_like, 0.1)


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0, 2.0])
def test_shrinking_in_place(keep):
    w = torch.tensor([1.0, -3.0])
    assert shrink_(w, keep) is w
    assert w.tolist() == [keep, -3 * keep]


def with_dropout_asleep():
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5)).eval()


def test_only_batch_norm_is_set_to_training():
    """Dropout that the user switched off stays off where BatchNorm needs training mode."""
    flat = FlatModel(seeded(with_dropout_asleep), True)
    w, x = flat.initial()[None], torch.randn(1, 6, 4)
    linear, norm = flat.module_with(w[0])[:2].train()
    torch.testing.assert_close(flat.pullback(w, x).scores[0], norm(linear(x[0])).detach(), rtol=0, atol=1e-12)


def test_a_gradient_that_is_written_takes_one_pass():
    flat, w, x = made("vmap")
    passes = []
    flat.module.register_forward_hook(lambda *_: passes.append(1))
    flat.pushforward(w[:1], x[:1])
    assert len(passes) == 1
    flat.pushforward(w[:1], x[:1], watched=2)
    assert len(passes) == 3, "the watched rows are a pass of their own"
