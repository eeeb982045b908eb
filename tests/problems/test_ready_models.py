from __future__ import annotations

import pytest
import torch
from torch import nn

import fedsaddle
from fedsaddle.errors import BadInput
from fedsaddle.numerics.flat import FlatModel
from fedsaddle.problems.models.networks import CharacterGru, McMahanCnn, SmallCnn, logistic_regression, mlp
from small import seeded


def test_logistic_regression_starts_from_zero():
    model = logistic_regression(6, 3)
    assert all((p == 0).all() for p in model.parameters())
    assert model(torch.randn(5, 2, 3)).shape == (5, 3)
    assert FlatModel(model).dimension == 21


def test_mlp():
    model = mlp(14, [50, 50], 2)
    kinds = [type(part) for part in model]
    assert kinds == [nn.Flatten, nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]
    assert FlatModel(model).dimension == 14 * 50 + 50 + 50 * 50 + 50 + 50 * 2 + 2
    assert [type(part) for part in mlp(4, [], 2)] == [nn.Flatten, nn.Linear]


@pytest.mark.parametrize(("clients", "rows", "length"), [(1, 2, 5), (3, 2, 5), (4, 1, 1), (2, 3, 9)])
def test_the_cohort_of_the_gru_is_the_gru_of_each_client(clients, rows, length):
    model = seeded(lambda: CharacterGru(7, 4, 5))
    flat = FlatModel(model)
    w, x = torch.randn(clients, flat.dimension), torch.randint(7, (clients, rows, length))
    at = w.clone().requires_grad_()
    together = model.cohort(flat.views(at), x)
    slope = torch.randn(together.shape)
    (gradient,) = torch.autograd.grad((together * slope).sum(), at)
    assert together.shape == (clients, rows, length, 7)
    for c in range(clients):
        torch.nn.utils.vector_to_parameters(w[c], model.parameters())
        alone = model(x[c])
        g = torch.autograd.grad((alone * slope[c]).sum(), list(model.parameters()))
        torch.testing.assert_close(together[c], alone, rtol=0, atol=1e-12)
        torch.testing.assert_close(gradient[c], torch.cat([v.flatten() for v in g]), rtol=0, atol=1e-11)


def test_the_gru_of_the_paper():
    model = CharacterGru()
    assert (model.embed.num_embeddings, model.embed.embedding_dim, model.gru.hidden_size) == (86, 50, 50)
    assert model(torch.zeros(2, 50, dtype=torch.int64)).shape == (2, 50, 86)


@pytest.mark.parametrize(
    ("key", "make"),
    [
        ("hidden", lambda: mlp(3, [4, 0], 2)),
        ("embedding", lambda: CharacterGru(6, 0, 4)),
        ("units", lambda: CharacterGru(6, 4, -1)),
    ],
)
def test_layers_without_units(key, make):
    with pytest.raises(BadInput) as caught:
        make()
    assert caught.value.key == key


def test_the_cnn_of_mcmahan():
    model = McMahanCnn()
    assert FlatModel(model).dimension == 1_663_370
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_the_small_cnn():
    model = SmallCnn()
    assert FlatModel(model).dimension == (25 * 8 + 8) + (25 * 8 * 16 + 16) + (7 * 7 * 16 * 64 + 64) + (64 * 10 + 10)
    assert list(model.state_dict()) == list(McMahanCnn().state_dict())
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert SmallCnn(3, 1, 8, filters=[2, 5], units=7)(torch.zeros(2, 3, 8, 8)).shape == (2, 1)


@pytest.mark.parametrize("wrong", [{"filters": (8,)}, {"filters": 8}, {"filters": (8, 0)}, {"units": 0}])
def test_a_small_cnn_without_filters(wrong):
    with pytest.raises(BadInput) as caught:
        SmallCnn(**wrong)
    assert caught.value.key == next(iter(wrong))


def test_names_at_the_top():
    assert fedsaddle.models.mlp is mlp
    assert set(fedsaddle.__all__) <= set(dir(fedsaddle))
    for name in fedsaddle.__all__:
        assert getattr(fedsaddle, name) is not None
    with pytest.raises(AttributeError, match="module 'fedsaddle' has no attribute 'nothing'"):
        _ = fedsaddle.nothing


@pytest.mark.parametrize("side", [18, 26, 32])
def test_the_cnn_of_the_tutorial_takes_pictures_of_any_side(side):
    """Its last picture has (((side - 2) / 2 - 2) / 2 - 2)² places of 64 channels."""
    from fedsaddle.problems.models.networks import TutorialCnn

    model = TutorialCnn(side=side)
    assert model(torch.zeros(2, 3, side, side)).shape == (2, 10)
    last = ((side - 2) // 2 - 2) // 2 - 2
    assert any(p.shape == (64, 64 * last**2) for p in model.parameters())
