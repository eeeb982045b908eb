"""Losses of torch as they are: the same value and gradient as in a plain training loop, for every client."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fedsaddle as fs
from fedsaddle.config.arguments import arguments_of
from fedsaddle.data.store import Stacked
from fedsaddle.engines.simulated import SerialEngine
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.problems.losses import Loss, Square, TorchLoss
from fedsaddle.problems.supervised import Supervised
from small import classes, play, seeded

C, B, T, K = 2, 6, 3, 3


def labels(*shape):
    return torch.randint(K, (C, B, *shape))


def some_left_out():
    y = labels()
    y[:, ::3] = 1
    y[:, 1] = 2
    return y


W = torch.tensor([1.0, 5.0, 0.5])
CASES = {
    "cross-entropy": (lambda: nn.CrossEntropyLoss(), (K,), labels),
    "cross-entropy, weights": (lambda: nn.CrossEntropyLoss(weight=W), (K,), labels),
    "cross-entropy, smooth, weights, ignored": (
        lambda: nn.CrossEntropyLoss(weight=W, label_smoothing=0.2, ignore_index=1), (K,), some_left_out,
    ),
    "cross-entropy, ignored": (lambda: nn.CrossEntropyLoss(ignore_index=1), (K,), some_left_out),
    "cross-entropy, shares": (lambda: nn.CrossEntropyLoss(W), (K,), lambda: torch.rand(C, B, K).softmax(-1)),
    "cross-entropy of texts": (lambda: nn.CrossEntropyLoss(W, ignore_index=0), (T, K), lambda: labels(T)),
    "nll": (lambda: nn.NLLLoss(weight=W), (K,), labels),
    "multi-margin": (lambda: nn.MultiMarginLoss(weight=W), (K,), labels),
    "logistic": (lambda: nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0])), (1,), lambda: labels() % 2),
    "several labels": (lambda: nn.BCEWithLogitsLoss(pos_weight=W), (K,), lambda: (labels(K) % 2).double()),
    "mse": (lambda: nn.MSELoss(), (1,), lambda: torch.randn(C, B)),
    "mse of vectors": (lambda: nn.MSELoss(), (K,), lambda: torch.randn(C, B, K)),
    "l1": (lambda: nn.L1Loss(reduction="none"), (1,), lambda: torch.randn(C, B)),
    "smooth l1": (lambda: nn.SmoothL1Loss(beta=0.5), (1,), lambda: torch.randn(C, B)),
    "huber": (lambda: nn.HuberLoss(delta=0.3), (1,), lambda: torch.randn(C, B)),
    "soft margin": (lambda: nn.SoftMarginLoss(), (1,), lambda: labels() % 2 * 2 - 1),
}  # fmt: skip


def plain(loss, z, y):
    """The mean as torch takes it, for one client."""
    loss = loss.double()
    loss.reduction = "mean"
    if y.is_floating_point() or z.shape[-1] == 1:
        return loss(z if y.ndim == z.ndim else z.squeeze(-1), y.to(z.dtype))
    return loss(z.flatten(0, -2), y.flatten())


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_are_torchs(name):
    make, shape, targets = CASES[name]
    torch.manual_seed(3)
    model = seeded(lambda: nn.Sequential(nn.Linear(4, int(np.prod(shape))), nn.Unflatten(1, shape)))
    x, y = torch.randn(C, B, 4, dtype=torch.float64), targets()
    y = y.double() if y.is_floating_point() else y
    problem = Supervised(model, loss=make())
    w = problem.initial().expand(C, -1).clone()
    batch = Batch(x, y)
    found, gradient = problem.value(w, batch), problem.gradient(w, batch)
    moved = problem.descend_(w.clone(), batch, 0.1)
    for c in range(C):
        expected = plain(make(), model(x[c]), y[c])
        own = torch.autograd.grad(expected, list(model.parameters()))
        torch.testing.assert_close(found[c], expected.detach(), rtol=0, atol=1e-12)
        torch.testing.assert_close(gradient[c], torch.cat([g.flatten() for g in own]), rtol=0, atol=1e-12)
    torch.testing.assert_close(moved, w - 0.1 * gradient, rtol=0, atol=1e-12)


def test_padding_counts_nothing():
    problem = Supervised(seeded(lambda: nn.Linear(4, K)), loss=nn.CrossEntropyLoss(weight=W))
    x, y = torch.randn(1, B, 4, dtype=torch.float64), labels()[:1]
    w, real = problem.initial()[None], torch.tensor([[1.0] * 4 + [0.0] * 2])
    few, padded = Batch(x[:, :4], y[:, :4]), Batch(x, y, real)
    torch.testing.assert_close(problem.gradient(w, padded), problem.gradient(w, few), rtol=0, atol=1e-14)


def test_where_all_targets_are_left_out_nothing_moves():
    problem = Supervised(seeded(lambda: nn.Linear(4, K)), loss=nn.CrossEntropyLoss(ignore_index=1))
    batch = Batch(torch.randn(1, 2, 4, dtype=torch.float64), torch.ones(1, 2, dtype=torch.int64))
    assert not problem.gradient(problem.initial()[None], batch).any()


class Focal(nn.Module):
    """A loss of one's own, as torch's are written."""

    def __init__(self, reduction="mean"):
        super().__init__()
        self.reduction = reduction

    def forward(self, scores, y):
        p = scores.softmax(-1).gather(-1, y[:, None]).squeeze(-1)
        rows = -((1 - p) ** 2) * p.log()
        return rows.mean() if self.reduction == "mean" else rows


class Trained(Focal):
    def __init__(self):
        super().__init__()
        self.centres = nn.Parameter(torch.zeros(3))


def test_a_module_of_ones_own():
    problem = Supervised(seeded(lambda: nn.Linear(4, K)), loss=Focal())
    x, y, w = torch.randn(C, B, 4, dtype=torch.float64), labels(), problem.initial().expand(C, -1)
    expected = torch.stack([Focal()(problem.model(x[c]), y[c]) for c in range(C)]).detach()
    torch.testing.assert_close(problem.value(w, Batch(x, y)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (nn.CrossEntropyLoss(reduction="sum"), r"loss.reduction = 'sum': CrossEntropyLoss must be a mean"),
        (nn.Linear(2, 2), r"loss = 'Linear': has no `reduction`"),
        (nn.AdaptiveLogSoftmaxWithLoss(4, 3, [1]), "has no `reduction`"),
        (Trained(), r"loss = 'Trained': has parameters of its own"),
        (nn.MSELoss, r"torch.nn.L1Loss\(\)"),
        ("square", r"loss = 'square': give an object"),
    ],
)
def test_refused(loss, said):
    with pytest.raises(BadInput, match=said):
        Supervised(nn.Linear(4, 1), loss=loss)


def test_targets_that_do_not_fit():
    problem = Supervised(seeded(lambda: nn.Linear(4, 2)), loss=nn.MSELoss())
    with pytest.raises(BadInput, match=r"loss = 'MSELoss': does not fit targets of \(1,\) a row; .* \(2,\)"):
        fs.run(fs.FedAvg(problem=problem), classes(), 1)


def test_a_loss_that_ignores_its_reduction():
    class Mean(Focal):
        def forward(self, scores, y):
            return scores.mean()

    problem = Supervised(seeded(lambda: nn.Linear(4, K)), loss=Mean())
    with pytest.raises(BadInput, match=r"loss = 'Mean': gives a loss of shape \(\) for 2 rows"):
        fs.run(fs.FedAvg(problem=problem), classes(), 1)


def test_labels_that_are_left_out_may_lie_outside_of_the_classes():
    rows = classes()
    y = rows.y.clone()
    y[3] = -100
    with_gap = Stacked(rows.x, y, rows.offsets)
    model = seeded(lambda: nn.Linear(4, K))
    fs.run(fs.FedAvg(problem=Supervised(model, loss=nn.CrossEntropyLoss())), with_gap, 1)
    with pytest.raises(BadInput, match="label of client 0 = -100"):
        fs.run(fs.FedAvg(problem=Supervised(model)), with_gap, 1)


def test_measures_and_engines():
    rows = classes(classes=2)
    make = lambda: fs.Drfa(  # noqa: E731
        problem=Supervised(seeded(lambda: nn.Linear(4, 2)), loss=nn.CrossEntropyLoss(weight=torch.tensor([1.0, 4.0])))
    )
    slow, fast = play(make(), SerialEngine(rows), 2)[-1], play(make(), fs.VectorisedEngine(rows, chunk=3), 2)[-1]
    torch.testing.assert_close(slow.w, fast.w, rtol=0, atol=1e-12)
    result = fs.run(make(), rows, 1)
    assert 0 <= result.final("accuracy") <= 1


def test_the_fingerprint_sees_the_weights():
    def found(weight):
        problem = Supervised(seeded(lambda: nn.Linear(4, 2)), loss=nn.CrossEntropyLoss(weight=torch.tensor(weight)))
        return fs.run(fs.FedAvg(problem=problem), classes(classes=2), 1).summary["fingerprint"]

    assert found([1.0, 2.0]) != found([1.0, 3.0])


def from_config(loss):
    return arguments_of("problem", Supervised.from_data, {"loss": loss}, built=("facts", "model_for"))["loss"]


def test_in_a_config():
    weighted = from_config({"name": "cross-entropy", "weight": [1, 5], "label_smoothing": 0.1})
    assert weighted.function.weight.tolist() == [1, 5]
    assert weighted.function.label_smoothing == 0.1
    assert from_config("cross-entropy") == fs.losses.CrossEntropy()
    assert from_config("logistic") == fs.losses.Logistic()
    assert from_config("square") == Square()
    assert from_config({"name": "logistic", "pos_weight": 3.0}).function.pos_weight.tolist() == [3]
    assert from_config({"name": "huber", "delta": 2.0}).function.delta == 2
    assert isinstance(from_config("absolute").function, nn.L1Loss)
    assert weighted.scores(2) == 2
    with pytest.raises(BadInput, match=r"weight = \[1.0, 5.0\]: give one weight for each of the 3 classes"):
        weighted.scores(3)
    with pytest.raises(BadInput, match=r"problem.loss.label_smoothing = 2"):
        from_config({"name": "cross-entropy", "label_smoothing": 2.0})
    with pytest.raises(BadInput, match=r"problem.loss.weigth.*did you mean 'weight'"):
        from_config({"name": "cross-entropy", "weigth": [1, 2]})


def test_the_accuracy_of_a_text_is_the_share_of_its_targets_that_count():
    y = torch.tensor([[[1, 2, 2, 0], [1, 0, 0, 0], [0, 0, 0, 0]]])  # 0 is ignored
    predicted = torch.tensor([[[1, 2, 1, 0], [1, 1, 1, 1], [0, 1, 2, 0]]])
    scores = nn.functional.one_hot(predicted, K).double()
    found = TorchLoss(nn.CrossEntropyLoss(ignore_index=0)).correct(scores, y)
    torch.testing.assert_close(found, torch.tensor([[2 / 3, 1.0, 0.0]], dtype=torch.float64))


def test_the_ranking_of_a_single_score_is_that_score():
    one, several = (seeded(lambda k=k: nn.Linear(4, k)) for k in (1, K))
    x = torch.randn(5, 4, dtype=torch.float64)
    problem = Supervised(one, loss=nn.BCEWithLogitsLoss())
    torch.testing.assert_close(problem.ranking(problem.initial(), x), one(x)[:, 0].detach())
    problem = Supervised(several, loss=nn.BCEWithLogitsLoss())  # several labels a row
    assert problem.ranking(problem.initial(), x) is None


def test_a_module_that_is_a_loss_of_ours_is_taken_as_it_is():
    class Own(nn.Module, Loss):
        """Has no `reduction`, and needs none."""

        def value(self, scores, y):
            return scores.square().mean(-1)

        def slope(self, scores, y):
            return 2 * scores / scores.shape[-1]

    loss = Own()
    problem = Supervised(seeded(lambda: nn.Linear(4, K)), loss=loss)
    assert problem.loss is loss
    x = torch.randn(1, B, 4, dtype=torch.float64)
    expected = problem.model(x).square().mean((1, 2)).detach()
    torch.testing.assert_close(problem.value(problem.initial()[None], Batch(x, labels()[:1])), expected)
