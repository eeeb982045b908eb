"""CVaR-DORO inside a client's batch, beside the formula in numpy."""

import numpy as np
import pytest
import torch

import fedsaddle as fs
from fedsaddle.federation.clients import Batch


def literal(losses, trimmed, tail):
    """`sum_{k = n2 + 1 .. n1} l_(k) / (α (b - n2))`, one row at least."""
    b = len(losses)
    n2 = min(int(trimmed * b + 1e-9), b - 1)
    n1 = max(int((trimmed + tail * (1 - trimmed)) * b + 1e-9), n2 + 1)
    return np.sort(losses)[::-1][n2:n1].sum() / (tail * (b - n2))


def some(weight=None, clients=2, rows=10):
    g = torch.Generator().manual_seed(1)
    x, y = torch.randn(clients, rows, 3, generator=g), torch.randint(2, (clients, rows), generator=g)
    return torch.randn(clients, 8, generator=g), Batch(x, y, weight)


def problem(**options):
    torch.manual_seed(0)
    return fs.Supervised(torch.nn.Linear(3, 2), **options)


def losses_of(f, w, batch, client):
    return f.row_measures(w[client], batch.x[client], batch.y[client])["loss"].numpy()


@pytest.mark.parametrize(("trimmed", "tail"), [(0.2, 1.0), (0.0, 0.3), (0.2, 0.5), (0.15, 0.05), (0.95, 1.0)])
def test_the_value_is_that_of_the_formula(trimmed, tail):
    w, batch = some()
    f = problem(trimmed=trimmed, hardest=tail)
    wanted = [literal(losses_of(f, w, batch, k), trimmed, tail) for k in range(2)]
    np.testing.assert_allclose(f.value(w, batch).numpy(), wanted, rtol=0, atol=1e-12)


def test_rows_of_padding_do_not_count():
    weight = torch.ones(2, 10)
    weight[0, 6:] = 0
    w, batch = some(weight)
    f = problem(trimmed=0.2, hardest=0.5)
    wanted = literal(losses_of(f, w, batch, 0)[:6], 0.2, 0.5)
    assert float(f.value(w, batch)[0]) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("weight", [None, torch.tensor([[1.0] * 6 + [0.0] * 4, [1.0] * 10])])
def test_the_gradient_is_that_of_the_value(weight):
    w, batch = some(weight)
    f = problem(trimmed=0.2, hardest=0.5, l2=0.1)
    w.requires_grad_()
    (wanted,) = torch.autograd.grad(f.value(w, batch).sum(), w)
    torch.testing.assert_close(f.gradient(w.detach(), batch), wanted, rtol=0, atol=1e-12)
    stepped = f.descend_(w.detach().clone(), batch, 0.1)
    torch.testing.assert_close(stepped, w.detach() - 0.1 * wanted, rtol=0, atol=1e-12)


def test_by_default_all_rows_count_to_the_last_bit():
    w, batch = some()
    plain, same = problem(), problem(trimmed=0.0, hardest=1.0)
    assert torch.equal(plain.gradient(w, batch), same.gradient(w, batch))
    assert torch.equal(plain.value(w, batch), same.value(w, batch))


def test_flipped_labels_do_less_harm():
    """A fifth of the labels of every site is wrong, with far-off features."""
    g = torch.Generator().manual_seed(0)
    y = torch.randint(2, (400,), generator=g)
    x = torch.randn(400, 3, generator=g) + 2.0 * (2 * y[:, None] - 1)
    wrong = torch.rand(400, generator=g) < 0.2
    x = torch.where(wrong[:, None], 4 * x, x)
    rows = fs.Stacked(x, torch.where(wrong, 1 - y, y), np.arange(5) * 100)
    test = fs.Stacked(x[~wrong], y[~wrong], np.array([0, int((~wrong).sum())]))
    found = {}
    for trimmed in (0.0, 0.25):
        f = problem(trimmed=trimmed)
        w = fs.run(fs.FedAvg(problem=f, local_steps=5, batch_size=50), rows, rounds=30, evaluate_every=30).model
        found[trimmed] = float(f.row_measures(w, test.x, test.y)["accuracy"].mean())
    assert found[0.25] > found[0.0]
    assert found[0.25] > 0.95


@pytest.mark.parametrize(
    ("options", "key"),
    [({"trimmed": 1.0}, "trimmed"), ({"hardest": 0.0}, "hardest"), ({"hardest": 0.5, "compiled": True}, "compiled")],
)
def test_what_cannot_be_is_refused(options, key):
    with pytest.raises(fs.BadInput, match=key):
        problem(**options)


def test_what_leaves_rows_out_by_the_others_cannot_be_private():
    with pytest.raises(fs.BadInput, match="trimmed"):
        fs.Private(algorithm=fs.FedAvg(problem=problem(trimmed=0.1)), privacy=fs.Privacy(epsilon=8, rounds=10))
