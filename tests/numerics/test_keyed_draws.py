"""Random functions of torch under a key: the right shares, independent, and the same for one client and under vmap."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedsaddle.errors import BadInput
from fedsaddle.numerics.keyed_draws import KeyedDraws

KEYS = torch.tensor([5, -7, 2**62 + 1, 0])
N = 100_000


def key(k=0):
    return KEYS[k]


def mixed(z):
    """SplitMix64's finaliser, on unsigned words."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@pytest.mark.parametrize("k", range(4))
def test_words_are_splitmix64(k):
    gamma = np.uint64(0x9E3779B97F4A7C15)
    draws = KeyedDraws(key(k))
    for call in (1, 2, 3):
        found = draws.words(torch.Size((4, 5))).numpy().astype(np.uint64)
        start = mixed(KEYS[k : k + 1].numpy().view(np.uint64) + np.array([call], dtype=np.uint64) * gamma)
        expected = mixed(start + np.arange(20, dtype=np.uint64) * gamma) >> np.uint64(11)
        assert np.array_equal(found, expected.reshape(4, 5))


def off(share, p, n):
    """In standard deviations."""
    return abs(share - p) / math.sqrt(p * (1 - p) / n)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_rate_and_the_scale(p):
    with KeyedDraws(key()):
        z = F.dropout(torch.ones(N, dtype=torch.float64), p)
    assert off(float((z == 0).double().mean()), p, N) < 4
    assert torch.equal(z[z != 0].unique(), torch.tensor([1 / (1 - p)], dtype=torch.float64))


def test_neighbours_steps_calls_and_keys_are_independent():
    """Chi-squared tests of pairs of masks: what is dropped in one says nothing of the other."""
    masks = []
    for k in range(4):
        with KeyedDraws(key(k)):
            masks += [F.dropout(torch.ones(N), 0.3) == 0 for _ in range(2)]
    pairs = [(a, b) for i, a in enumerate(masks) for b in masks[:i]] + [(m[1:], m[:-1]) for m in masks]
    for a, b in pairs:
        both = float((a & b).double().mean())
        assert off(both, 0.09, len(a)) < 4.5


def test_uniform_and_normal_numbers():
    with KeyedDraws(key()):
        u, v = torch.rand(N), torch.randn(N)
        w, x = torch.empty(N).uniform_(2, 4), torch.empty(N).normal_(1, 3)
        y = torch.rand_like(u.half())
        b = torch.bernoulli(torch.full((N,), 0.2))
    assert 0 <= float(u.min()) < 1e-3
    assert 1 - 1e-3 < float(u.max()) < 1
    assert float(y.max()) < 1
    for found, mean, std in ((u, 0.5, 12**-0.5), (v, 0, 1), (w, 3, 3**-0.5), (x, 1, 3), (b, 0.2, 0.4)):
        assert abs(float(found.mean()) - mean) < 4 * std / math.sqrt(N)
        assert abs(float(found.std()) / std - 1) < 0.02


CALLS = {
    "dropout": lambda x: F.dropout(x, 0.4),
    "dropout1d": lambda x: F.dropout1d(x[:, :, 0], 0.4),
    "dropout2d": lambda x: F.dropout2d(x, 0.4),
    "dropout3d": lambda x: F.dropout3d(x[None], 0.4),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.4, training=True),
    "feature alpha dropout": lambda x: F.feature_alpha_dropout(x, 0.4, training=True),
    "torch.dropout": lambda x: torch.dropout(x, 0.4, True),
    "in place": lambda x: F.dropout(x + 0, 0.4, inplace=True),
    "alpha in place": lambda x: F.alpha_dropout(x + 0, 0.4, True, True),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.4, is_causal=True),
    "uniform": torch.rand_like,
    "normal": torch.randn_like,
    "bernoulli": lambda x: x.new_empty(3, 1).bernoulli_(0.4),
    "shapes": lambda x: torch.rand(3, 4),
}


@pytest.mark.parametrize("name", CALLS)
def test_one_client_and_many(name):
    x = torch.randn(4, 3, 5, 6, 2, dtype=torch.float64)

    def once(key, rows):
        with KeyedDraws(key):
            return CALLS[name](rows)

    alone = torch.stack([once(k, rows) for k, rows in zip(KEYS, x, strict=True)])
    torch.testing.assert_close(torch.func.vmap(once)(KEYS, x), alone, rtol=0, atol=1e-14)
    assert not torch.equal(alone[0], alone[1])
    if name in ("dropout", "in place"):
        assert ((alone == 0) | torch.isclose(alone, x / 0.6)).all()


def test_whole_channels_are_dropped():
    with KeyedDraws(key()):
        z = F.dropout2d(torch.ones(50, 40, 3, 3), 0.5)
    share = (z == 0).double().mean((2, 3))
    assert torch.equal(share, share.round())
    assert 0.4 < float(share.mean()) < 0.6


def test_alpha_dropout_keeps_mean_and_variance():
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(N))
    with KeyedDraws(key()):
        z = F.alpha_dropout(x, 0.3, training=True)
    assert abs(float(z.mean())) < 0.02
    assert abs(float(z.std()) - 1) < 0.02


def test_attention_is_torchs_apart_from_the_mask():
    q, k, v = (torch.randn(2, 4, 5, 6, dtype=torch.float64) for _ in range(3))
    mask = torch.rand(5, 5) > 0.3
    mask[:, 0] = True
    for options in ({}, {"is_causal": True}, {"attn_mask": mask}, {"attn_mask": mask.double()}, {"scale": 0.3}):
        expected = F.scaled_dot_product_attention(q, k, v, **options)
        with KeyedDraws(key()):
            found = F.scaled_dot_product_attention(q, k, v, dropout_p=1e-18, **options)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_layers_one_by_one_are_torchs(make, bidirectional):
    model = make(3, 4, 3, dropout=1e-18, bidirectional=bidirectional, batch_first=True).double()
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3]), batch_first=True)
    expected, seen = model(x), KeyedDraws(key())
    with seen:
        found, of_packed = model(x), model(packed)
    assert seen.calls == 4
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(of_packed[0].data, model(packed)[0].data, rtol=0, atol=1e-12)
    model.dropout = 0.5
    with KeyedDraws(key()):
        dropped = model(x)[0]
    assert not torch.allclose(dropped, expected[0])
    with KeyedDraws(None):
        torch.testing.assert_close(model(x)[0], expected[0], rtol=0, atol=1e-12)


def test_without_a_key_nothing_is_dropped_and_nothing_may_draw():
    x = torch.randn(3, 4)
    with KeyedDraws(None):
        assert torch.equal(F.dropout(x, 0.5), x)
        for draw in (torch.rand_like, torch.randn_like, torch.bernoulli, torch.Tensor.normal_, torch.Tensor.uniform_):
            with pytest.raises(BadInput, match="draws random numbers in evaluation mode too"):
                draw(x)


def test_all_is_dropped_and_nothing_is():
    x = torch.randn(3, 4)
    with KeyedDraws(key()):
        assert not F.dropout(x, 1.0).any()
        assert torch.equal(F.dropout(x, 0.0), x)
        assert torch.equal(F.dropout(x, 0.5, training=False), x)
