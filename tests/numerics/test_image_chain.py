"""The hand-written pass through a chain of image layers against the module itself under autograd."""

from __future__ import annotations

import copy

import pytest
import torch
from test_chain import by_autograd
from torch import nn

from fedsaddle.algorithms.fedavg import FedAvg
from fedsaddle.engines.simulated import DeviceEngine, SerialEngine, VectorisedEngine
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.chain import ImageChain
from fedsaddle.numerics.flat import FlatModel, ShapedModel
from fedsaddle.numerics.modules import in_precision, laid
from fedsaddle.problems.models.networks import McMahanCnn
from fedsaddle.problems.supervised import Supervised
from pretend import PRETEND
from small import play, rows_of, seeded


def sequence(*parts):
    return lambda: nn.Sequential(*(part() for part in parts))


def conv(*args, **options):
    return lambda: nn.Conv2d(*args, **options)


def dense(*args, **options):
    return lambda: nn.Linear(*args, **options)


HALVED = lambda: nn.MaxPool2d(2)  # noqa: E731
NETWORKS = {  # rows of 2 channels, 6 x 5, unless they say something else
    "convolution": conv(2, 3, 2),
    "mcmahan": (lambda: McMahanCnn(1, 3, side=4), (1, 4, 4)),
    "three colours": (sequence(conv(3, 4, 3, padding=1), nn.ReLU, HALVED, nn.Flatten, dense(24, 2)), (3, 6, 5)),
    "no bias": sequence(conv(2, 3, 3, bias=False), nn.ReLU, nn.Flatten, dense(36, 4, bias=False), nn.ReLU, dense(4, 2)),
    "stride and padding": sequence(conv(2, 3, (3, 2), stride=(2, 1), padding=(1, 2)), nn.Tanh, nn.Flatten),
    "dilation": sequence(conv(2, 3, 2, dilation=(2, 1)), nn.Sigmoid, nn.Flatten, dense(48, 2)),
    "wide kernels": sequence(conv(2, 3, (5, 6), padding=(2, 3)), nn.ReLU, conv(3, 2, 5, padding=(0, 2)), nn.Flatten),
    "groups": sequence(conv(2, 4, 3, groups=2), nn.ReLU, conv(4, 4, 2, groups=4), nn.Flatten, dense(24, 2)),
    "equal shapes": sequence(conv(2, 2, 3, padding=1), nn.ReLU, conv(2, 2, 3, padding=1), nn.ReLU, nn.Flatten),
    "one channel between": sequence(conv(2, 1, 3), nn.ReLU, conv(1, 3, 2), nn.Tanh, nn.Flatten, dense(18, 1)),
    "mean pooling": sequence(
        conv(2, 3, 2), nn.ReLU, lambda: nn.AvgPool2d(2, 1, padding=1, count_include_pad=False), nn.Flatten
    ),
    "sums": sequence(lambda: nn.AvgPool2d(2, divisor_override=1, ceil_mode=True), conv(2, 3, 2), nn.ReLU),
    "windows that overlap": sequence(conv(2, 3, 2), nn.ReLU, lambda: nn.MaxPool2d(3, 1, padding=1), nn.Flatten),
    "odd borders": sequence(conv(2, 3, 2), nn.ReLU, lambda: nn.MaxPool2d((2, 3), ceil_mode=True, dilation=(2, 1))),
    "pooled twice": sequence(conv(2, 3, 2), nn.ReLU, HALVED, lambda: nn.MaxPool2d(2), nn.Flatten, dense(3, 2)),
    "pooled first": sequence(lambda: nn.MaxPool2d(2, 1), nn.ReLU, conv(2, 3, 2), nn.Flatten),
    "activation first": sequence(nn.ReLU, HALVED, conv(2, 3, 1), nn.Tanh, HALVED),
    "activations in a row": sequence(conv(2, 3, 2), nn.Tanh, nn.ReLU, nn.Sigmoid, nn.Flatten, nn.ReLU, dense(60, 2)),
    "nested": sequence(
        sequence(conv(2, 3, 3), lambda: nn.ReLU(inplace=True)), nn.Identity, sequence(nn.Flatten, dense(36, 2))
    ),
}
networks = pytest.mark.parametrize("name", NETWORKS)


def made(name, rows=4):
    case = NETWORKS[name]
    make, shape = case if isinstance(case, tuple) else (case, (2, 6, 5))
    module = seeded(make)
    return module, torch.randn(1, sum(p.numel() for p in module.parameters())), torch.randn(1, rows, *shape)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 * max(1.0, expected.abs().max().item()))


@networks
def test_scores_and_gradients_are_those_of_autograd(name):
    module, w, x = made(name)
    chain = ImageChain.of(module)
    assert chain is not None
    assert chain.fits(w, x)
    before = w.clone(), x.clone()
    scores, pull = chain.pullback(w, x)
    slope = torch.randn(scores.shape)
    kept = slope.clone()
    expected, gradient = by_autograd(copy.deepcopy(module), w, x.clone(), slope)
    close(scores, expected)
    close(chain.scores(w, x), expected)
    close(pull(slope), gradient)
    close(pull(slope), gradient)  # a pullback can be used again
    assert torch.equal(w, before[0])
    assert torch.equal(x, before[1])
    assert torch.equal(slope, kept)


@networks
@pytest.mark.parametrize(("keep", "gain"), [(1.0, -0.1), (0.9, -0.1), (0.0, 2.0)])
def test_gradients_are_written(name, keep, gain):
    module, w, x = made(name, rows=1)
    chain, start = ImageChain.of(module), w.clone()
    scores, write = chain.push(w, x)
    slope = torch.randn(scores.shape)
    expected = keep * start + gain * by_autograd(copy.deepcopy(module), w, x.clone(), slope)[1]
    elsewhere = start.clone() if keep else torch.full_like(w, torch.nan)
    write(slope, elsewhere, keep, gain)
    close(elsewhere, expected)
    assert torch.equal(w, start)
    write(slope, w, keep, gain)
    close(w, expected)
    again = start.clone()
    chain.descend_(again, x, lambda scores: slope, -gain, keep)
    close(again, expected)


@pytest.mark.parametrize("name", ["mcmahan", "windows that overlap", "odd borders", "pooled twice", "three colours"])
def test_of_equal_numbers_the_same_one_has_the_slope(name):
    """With small whole numbers many windows have several largest ones, and all sums are exact."""
    module, w, x = made(name)
    w, x = w.mul(1.5).round(), x.round()
    scores, pull = ImageChain.of(module).pullback(w, x)
    slope = torch.randn(scores.shape).mul(2).round()
    expected, gradient = by_autograd(copy.deepcopy(module), w, x.clone(), slope)
    assert torch.equal(scores, expected)
    assert torch.equal(pull(slope), gradient)


@pytest.mark.parametrize("name", ["mcmahan", "mean pooling", "activations in a row"])
def test_scores_are_differentiable(name):
    module, w, x = made(name)
    w.requires_grad_()
    z = ImageChain.of(module).scores(w, x)
    slope = torch.randn(z.shape)
    (g,) = torch.autograd.grad((z * slope).sum(), w)
    close(g, by_autograd(copy.deepcopy(module), w.detach(), x.clone(), slope)[1])


def hooked(register):
    module = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten())
    getattr(module[0], register)(lambda *_: None)
    return module


def own_forward():
    module = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten())
    module[1].forward = lambda x: x.flatten(1) * 2
    return module


def with_a_parameter_more():
    module = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten())
    module[0].scale = nn.Parameter(torch.ones(1))
    return module


def one_layer_twice():
    layer = nn.Conv2d(2, 2, 3, padding=1)
    return nn.Sequential(layer, nn.ReLU(), layer)


def one_kernel_twice():
    first, second = nn.Conv2d(2, 2, 3), nn.Conv2d(2, 2, 3)
    second.weight = first.weight
    return nn.Sequential(first, nn.ReLU(), second)


class Other(nn.Conv2d):
    def forward(self, x):
        return super().forward(x) * 2


class Doubled(nn.Sequential):
    def forward(self, x):
        return super().forward(x) * 2


OTHERS = {
    "forward hook": lambda: hooked("register_forward_hook"),
    "hook before": lambda: hooked("register_forward_pre_hook"),
    "backward hook": lambda: hooked("register_full_backward_hook"),
    "backward hook before": lambda: hooked("register_full_backward_pre_hook"),
    "forward of an instance": own_forward,
    "subclass of a layer": sequence(lambda: Other(2, 3, 2)),
    "subclass of a sequence": lambda: Doubled(nn.Conv2d(2, 3, 2)),
    "parametrised": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 3, 2))),
    "padded by reflection": conv(2, 3, 3, padding=1, padding_mode="reflect"),
    "padded to the same size": conv(2, 3, 2, padding="same"),
    "one axis": lambda: nn.Conv1d(2, 3, 2),
    "three axes": lambda: nn.Conv3d(2, 3, 2),
    "transposed": lambda: nn.ConvTranspose2d(2, 3, 2),
    "dropout": sequence(conv(2, 3, 2), nn.Dropout, nn.Flatten),
    "normalised": sequence(conv(2, 4, 2), lambda: nn.GroupNorm(2, 4)),
    "SiLU": sequence(conv(2, 3, 2), nn.SiLU),
    "linear along a row": sequence(conv(2, 3, 2), dense(4, 2)),
    "convolution of vectors": sequence(nn.Flatten, conv(2, 3, 2)),
    "partly flat": sequence(conv(2, 3, 2), lambda: nn.Flatten(2)),
    "places of the largest": sequence(conv(2, 3, 2), lambda: nn.MaxPool2d(2, return_indices=True)),
    "a layer twice": one_layer_twice,
    "a kernel twice": one_kernel_twice,
    "a parameter more": with_a_parameter_more,
    "no convolution": sequence(nn.Flatten, dense(4, 2)),
    "frozen": lambda: nn.Sequential(nn.Conv2d(2, 3, 2), nn.Conv2d(3, 3, 2).requires_grad_(False)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_anything_else_is_left_to_autograd(name):
    assert ImageChain.of(OTHERS[name]()) is None


def test_which_rows_it_takes():
    flat = FlatModel(seeded(NETWORKS["groups"]))
    w, x = torch.randn(2, flat.dimension), torch.randn(2, 3, 2, 6, 5)
    assert isinstance(flat.by_hand(w[:1], x[:1]), ImageChain)
    assert flat.by_hand(w, x) is None, "several clients"
    assert flat.by_hand(w[:1], x[:1, :, 0]) is None, "pictures without an axis of channels"
    assert flat.by_hand(w[:1], x[:1].float()) is None, "mixed precision is autograd's to refuse"
    assert flat.by_hand(w[:1].bfloat16(), x[:1].bfloat16()) is None
    assert flat.by_hand(w[:1], x[:1, :0]) is None
    with in_precision("bf16"):
        assert flat.by_hand(w[:1].float(), x[:1].float()) is None


@pytest.mark.parametrize("watched", [0, 2])
def test_a_model_takes_it(watched):
    flat, plain = (FlatModel(seeded(lambda: McMahanCnn(1, 2, side=4))) for _ in "12")
    plain._images = None
    w, x = flat.initial()[None], torch.randn(1, 5, 1, 4, 4)
    close(flat.scores(w, x), plain.scores(w, x))
    (scores, write, _), (expected, expected_write, _) = (f.pushforward(w, x, watched) for f in (flat, plain))
    close(scores, expected)
    slope, both = torch.randn(1, 5 - watched, 2), (w.clone(), w.clone())
    write(slope, both[0], 0.9, 2.0)
    expected_write(slope, both[1], 0.9, 2.0)
    close(both[0], both[1])


@pytest.mark.parametrize("options", [{}, {"l2": 0.1}, {"l2": 0.1, "l2_biases": False}, {"clip": 0.01}])
def test_a_step_is_that_of_autograd(options):
    def make():
        return seeded(lambda: McMahanCnn(1, 2, side=4))

    problem, plain = Supervised(make(), **options), Supervised(make(), **options)
    plain.flat._images = None
    batch = Batch(torch.randn(1, 5, 1, 4, 4), torch.tensor([[0, 1, 1, 0, 1]]))
    start = problem.initial()[None]
    close(problem.gradient(start, batch), plain.gradient(start, batch))
    after = problem.descend_(start.clone(), batch, 0.3)
    close(after, plain.descend_(start.clone(), batch, 0.3))
    assert not torch.equal(after, start)
    shaped = [ShapedModel(make(), False, **({"l2": 0.0, "l2_biases": True, "clip": None} | options)) for _ in "12"]
    shaped[1]._images = None
    both = [start.clone(), start.clone()]
    for model, w in zip(shaped, both, strict=True):
        model.descend_(w, batch.x, torch.cos, 0.3, 0.9)
    close(both[0], both[1])


def test_engines_and_devices_agree():
    g = torch.Generator().manual_seed(3)
    sizes = (5, 3, 4)
    rows = rows_of(
        [torch.randn(n, 1, 4, 4, generator=g) for n in sizes], [torch.randint(2, (n,), generator=g) for n in sizes]
    )
    algorithm = FedAvg(
        problem=Supervised(seeded(lambda: McMahanCnn(1, 2, side=4))), local_steps=2, batch_size=3, primal_step=0.1
    )
    engines = (
        SerialEngine(rows),
        VectorisedEngine(rows, chunk=1),
        VectorisedEngine(rows, chunk=3),
        DeviceEngine(rows, device=PRETEND, chunk=1),
    )
    serial, alone, together, device = (play(algorithm, engine, 2)[-1].w for engine in engines)
    close(alone, serial)
    close(together, serial)
    assert torch.equal(device.cpu(), alone), "the bits of the CPU"


def test_one_channel_is_marked_as_channels_last():
    """Else torch pools with the channels first, ten times slower."""
    x, kernel = torch.randn(2, 1, 6, 6), laid(torch.randn(4, 1, 3, 3))
    assert kernel.stride() == (9, 1, 3, 1)
    assert torch.conv2d(x, kernel).is_contiguous(memory_format=torch.channels_last)
    z, _ = ImageChain.of(nn.Conv2d(1, 4, 3)).layers[0].forward(x, (kernel,))
    assert z.is_contiguous(memory_format=torch.channels_last)
