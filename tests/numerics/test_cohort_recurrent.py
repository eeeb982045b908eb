"""Recurrent layers of several clients in one loop over the steps: torch's own, one client after the other."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedsaddle.numerics import recurrent
from fedsaddle.numerics.flat import FlatModel
from fedsaddle.numerics.keyed_draws import KeyedDraws
from fedsaddle.numerics.modules import in_precision
from fedsaddle.numerics.recurrent import Unrolled, is_batched
from small import seeded

KINDS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *args, **options: nn.RNN(*args, nonlinearity="relu", **options),
}
SHAPES = {
    "plain": {},
    "rows first": {"batch_first": True},
    "no biases": {"bias": False, "batch_first": True},
    "two layers": {"num_layers": 2, "batch_first": True},
    "both ways": {"bidirectional": True},
    "all of it": {"num_layers": 3, "bidirectional": True, "batch_first": True, "bias": False},
}
kinds = pytest.mark.parametrize("kind", KINDS)
CLIENTS, ROWS, STEPS = 3, 4, 5


def together(module, parameters, x, hx=None):
    """All outputs and last states, flat: (C, ...)."""

    def one(own, rows, first):
        with Unrolled():
            return flat(torch.func.functional_call(module, own, (rows, first)))

    return torch.func.vmap(one, in_dims=(0, 0, None if hx is None else 0))(parameters, x, hx)


def alone(module, parameters, x, hx=None):
    each = []
    for c in range(len(x)):
        first = None if hx is None else tuple(h[c] for h in hx) if isinstance(hx, tuple) else hx[c]
        each.append(flat(torch.func.functional_call(module, {n: p[c] for n, p in parameters.items()}, (x[c], first))))
    return torch.stack(each)


def flat(found):
    out, last = found
    return torch.cat([v.flatten() for v in (out, *(last if isinstance(last, tuple) else (last,)))])


def made(kind, shape):
    module = seeded(lambda: KINDS[kind](3, 2, **SHAPES[shape]))
    g = torch.Generator().manual_seed(4)
    parameters = {
        n: (p + 0.3 * torch.randn(CLIENTS, *p.shape, generator=g)).detach().requires_grad_()
        for n, p in module.named_parameters()
    }
    axes = (ROWS, STEPS) if module.batch_first else (STEPS, ROWS)
    return module, parameters, torch.randn(CLIENTS, *axes, 3, generator=g).requires_grad_(), g


@kinds
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("first", [False, True], ids=["from zero", "from given states"])
def test_outputs_last_states_and_gradients_are_torchs(kind, shape, first):
    module, parameters, x, g = made(kind, shape)
    hx = None
    if first:
        size = (CLIENTS, module.num_layers * (1 + module.bidirectional), ROWS, 2)
        h, c = (torch.randn(size, generator=g).requires_grad_() for _ in range(2))
        hx = (h, c) if kind == "lstm" else h
    wanted = [x, *parameters.values(), *(hx if isinstance(hx, tuple) else () if hx is None else (hx,))]
    found, expected = (run(module, parameters, x, hx) for run in (together, alone))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    slope = torch.randn(found.shape, generator=g)
    for a, b in zip(*(torch.autograd.grad(z, wanted, slope) for z in (found, expected)), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


def test_what_is_not_used_has_no_slope():
    """The last cell alone, and the outputs alone."""
    module, parameters, x, _ = made("lstm", "plain")
    for part in (slice(-ROWS * 2, None), slice(0, 2)):
        ends = (run(module, parameters, x)[:, part] for run in (together, alone))
        for a, b in zip(*(torch.autograd.grad(z.sum(), [x, *parameters.values()]) for z in ends), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


class Reader(nn.Module):
    def __init__(self, kind: str, **options) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(6, 3), nn.Linear(4, 2)
        self.body = KINDS[kind](3, 4, batch_first=True, **options)

    def forward(self, x):
        return self.head(self.body(self.words(x))[0][:, -1])


def reader(kind, **options):
    model = FlatModel(seeded(lambda: Reader(kind, **options)))
    g = torch.Generator().manual_seed(5)
    return model, 0.4 * torch.randn(3, model.dimension, generator=g), torch.randint(6, (3, 4, 5), generator=g)


@kinds
@pytest.mark.parametrize("p", [0.0, 0.5])
def test_a_cohort_is_one_client_after_the_other(kind, p):
    """With masks from the clients' keys between the layers."""
    model, w, x = reader(kind, num_layers=2, dropout=p)
    assert model.takes_cohorts(x)
    assert model.draws(x) == (p > 0)
    keys = torch.tensor([3, 1, 4])
    scores, pull, _ = model.pullback(w, x, lambda: keys)
    slope = torch.randn(scores.shape, generator=torch.Generator().manual_seed(6))
    gradient, plain = pull(slope), model.scores(w, x)
    for c in range(3):
        one = slice(c, c + 1)
        own, own_pull, _ = model.pullback(w[one], x[one], lambda one=one: keys[one])
        torch.testing.assert_close(scores[one], own, rtol=0, atol=1e-12)
        torch.testing.assert_close(gradient[one], own_pull(slope[one]), rtol=0, atol=1e-12)
        torch.testing.assert_close(plain[one], model.scores(w[one], x[one]), rtol=0, atol=1e-12)
    assert torch.allclose(scores, plain) == (p == 0)


def test_frozen_weights_are_everyones():
    module = seeded(lambda: Reader("gru"))
    module.body.requires_grad_(False)
    model = FlatModel(module)
    w, x = 0.4 * torch.randn(3, model.dimension), torch.randint(6, (3, 4, 5))
    for c in range(3):
        torch.testing.assert_close(
            model.scores(w, x)[c], model.scores(w[c : c + 1], x[c : c + 1])[0], rtol=0, atol=1e-12
        )


def test_one_client_runs_torchs_own_layer(monkeypatch):
    """Which is the oracle."""
    model, w, x = reader("lstm")

    def refuse(*args):
        raise AssertionError("by hand")

    monkeypatch.setattr(recurrent, "_layers", refuse)
    model._takes_cohorts = True
    model.pullback(w[:1], x[:1])
    with pytest.raises(AssertionError, match="by hand"):
        model.pullback(w, x)


def test_in_bfloat16():
    """The layers around it compute in bfloat16."""
    module = seeded(lambda: Reader("gru")).float()
    model = FlatModel(module)
    w, x = 0.4 * torch.randn(3, model.dimension, dtype=torch.float32), torch.randint(6, (3, 4, 5))
    full = model.scores(w, x)
    with in_precision("bf16"):
        half, pull, _ = model.pullback(w, x)
        assert half.dtype == pull(half).dtype == torch.float32
    torch.testing.assert_close(half, full, rtol=0, atol=0.03)
    assert not torch.equal(half, full)


def test_what_vmap_hides():
    assert not is_batched(torch.zeros(2))
    torch.func.vmap(lambda v: v if is_batched(v) else 1 / 0)(torch.zeros(2))


def test_dropout_outside_of_keyed_draws_is_torchs():
    module, parameters, x, _ = made("gru", "two layers")
    module.dropout = 1.0
    with KeyedDraws(None):
        expected = alone(module, parameters, x)
        torch.testing.assert_close(together(module, parameters, x), expected, rtol=0, atol=1e-12)
