"""The hand-written pass through a chain of linear layers against the module itself under autograd."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedsaddle.numerics.chain import Chain
from fedsaddle.numerics.flat import FlatModel
from small import seeded

ACTIVATIONS = [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity, None]


def two_layers(activation, last, first_bias, second_bias):
    parts = [nn.Linear(4, 5, bias=first_bias)]
    parts += [activation()] if activation else []
    parts.append(nn.Linear(5, 3, bias=second_bias))
    parts += [last()] if last else []
    return nn.Sequential(*parts)


def by_autograd(module, w, x, slope):
    """Scores and gradient, client by client."""
    names, shapes = zip(*((n, p.shape) for n, p in module.named_parameters()), strict=True)
    scores, gradients = [], []
    for c in range(len(w)):
        at = w[c].clone().requires_grad_()
        parts = torch.split(at, [s.numel() for s in shapes])
        parameters = {n: p.view(s) for n, p, s in zip(names, parts, shapes, strict=True)}
        z = torch.func.functional_call(module, parameters, (x[c],))
        scores.append(z.detach())
        gradients.append(torch.autograd.grad((z * slope[c]).sum(), at)[0])
    return torch.stack(scores), torch.stack(gradients)


def agrees(module, x, clients):
    w = torch.randn(clients, sum(p.numel() for p in module.parameters()))
    chain = Chain.of(module)
    assert chain is not None
    before_w, before_x = w.clone(), x.clone()
    scores, pull = chain.pullback(w, x)
    slope = torch.randn(scores.shape)
    before_slope = slope.clone()
    expected, gradient = by_autograd(module, w, x, slope)
    torch.testing.assert_close(chain.forward(w, x)[-1], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(pull(slope), gradient, rtol=0, atol=1e-12)
    torch.testing.assert_close(pull(slope), gradient, rtol=0, atol=1e-12)  # a pullback can be used again
    assert torch.equal(w, before_w)
    assert torch.equal(x, before_x)
    assert torch.equal(slope, before_slope)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("last", ACTIVATIONS)
@pytest.mark.parametrize("first_bias", [True, False])
@pytest.mark.parametrize("second_bias", [True, False])
def test_two_layers(activation, last, first_bias, second_bias):
    agrees(two_layers(activation, last, first_bias, second_bias), torch.randn(3, 6, 4), 3)


@pytest.mark.parametrize("bias", [True, False])
def test_one_layer(bias):
    agrees(nn.Linear(4, 3, bias=bias), torch.randn(3, 6, 4), 3)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_wide_layers(activation, bias):
    """Layers of up to 32 outputs and wider ones are multiplied in different orders."""
    parts = [nn.Linear(4, 40, bias=bias), *([activation()] if activation else []), nn.Linear(40, 33, bias=bias)]
    agrees(nn.Sequential(*parts), torch.randn(3, 6, 4), 3)
    agrees(nn.Sequential(*parts, nn.Tanh(), nn.Linear(33, 2)), torch.randn(3, 6, 4), 3)


def test_three_layers_and_one_row_and_one_client():
    deep = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1))
    agrees(deep, torch.randn(3, 1, 4), 3)
    agrees(deep, torch.randn(1, 7, 4), 1)


def test_images_are_flattened_first():
    agrees(nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), torch.randn(3, 5, 2, 3), 3)


def test_the_same_vector_for_all_clients():
    """As `site.broadcast` gives it, without a copy."""
    module = two_layers(nn.Tanh, None, True, True)
    w = torch.randn(1, 43).expand(3, 43)
    x = torch.randn(3, 6, 4)
    scores, pull = Chain.of(module).pullback(w, x)
    slope = torch.randn(scores.shape)
    expected, gradient = by_autograd(module, w, x, slope)
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(pull(slope), gradient, rtol=0, atol=1e-12)


def test_a_vector_that_wants_its_gradient():
    module = two_layers(nn.ReLU, None, True, True)
    w, x = torch.randn(2, 43, requires_grad=True), torch.randn(2, 6, 4)
    z = Chain.of(module).forward(w, x)[-1]
    slope = torch.randn(z.shape)
    (g,) = torch.autograd.grad((z * slope).sum(), w)
    torch.testing.assert_close(g, by_autograd(module, w.detach(), x, slope)[1], rtol=0, atol=1e-12)


shared = nn.Linear(4, 4)
OTHERS = {
    "SiLU": nn.Sequential(nn.Linear(4, 5), nn.SiLU(), nn.Linear(5, 3)),
    "two activations": nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Tanh(), nn.Linear(5, 3)),
    "activation first": nn.Sequential(nn.ReLU(), nn.Linear(4, 3)),
    "flatten inside": nn.Sequential(nn.Linear(4, 4), nn.Flatten(), nn.Linear(4, 3)),
    "flatten elsewhere": nn.Sequential(nn.Flatten(2), nn.Linear(4, 3)),
    "nested": nn.Sequential(nn.Sequential(nn.Linear(4, 3))),
    "shared": nn.Sequential(shared, nn.ReLU(), shared),
    "normalised": nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3)),
    "convolution": nn.Conv1d(1, 1, 1),
    "no layer": nn.Sequential(nn.Flatten()),
}


@pytest.mark.parametrize("name", OTHERS)
def test_anything_else_is_no_chain(name):
    assert Chain.of(OTHERS[name]) is None


@pytest.mark.parametrize("shape", [(2, 4, 5, 3), (2, 4, 1, 3)], ids=["five positions", "one position"])
def test_a_linear_layer_at_every_position_of_a_sequence(shape):
    """Without Flatten, nn.Linear acts on the last axis; a cohort must do what one client does."""
    flat = FlatModel(seeded(lambda: nn.Linear(3, 2)))
    w, x = torch.randn(2, flat.dimension), torch.randn(shape)
    alone = torch.cat([flat.scores(w[c : c + 1], x[c : c + 1]) for c in range(2)])
    together = flat.scores(w, x)
    assert together.shape == alone.shape
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)


def test_which_rows_it_can_take():
    vectors, images = Chain.of(nn.Linear(4, 3)), Chain.of(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)))
    assert vectors.fits(torch.zeros(2, 5, 4))
    assert not vectors.fits(torch.zeros(2, 5, 2, 2))
    assert not vectors.fits(torch.zeros(5, 4)), "the clients' axis is missing"
    assert images.fits(torch.zeros(2, 5, 2, 2))
