from __future__ import annotations

import pytest
import torch
from torch import nn

from fedsaddle import FedAvg, FedSgda, Vectorised, models, run
from fedsaddle.data.store import Stacked
from fedsaddle.engines.choose import chunk_and_workers
from fedsaddle.errors import BadInput
from fedsaddle.numerics.flat import FlatModel
from fedsaddle.problems.auc import MinimaxAuc
from fedsaddle.problems.models.networks import Vgg11
from fedsaddle.problems.supervised import Supervised

KINDS = ("group", "none", "batch")


def pictures(channels: int = 3, side: int = 32, classes: int = 2) -> Stacked:
    x, y = torch.randn(12, channels, side, side), torch.arange(12) % classes
    return Stacked.of(x, y, [torch.arange(4 * i, 4 * i + 4).numpy() for i in range(3)])


def test_the_layers_of_configuration_a():
    model = Vgg11(normalisation="none")
    convolutions = [part for part in model.features if isinstance(part, nn.Conv2d)]
    assert [c.out_channels for c in convolutions] == [64, 128, 256, 256, 512, 512, 512, 512]
    assert FlatModel(model).dimension == 9_225_610
    assert models.Vgg11 is Vgg11


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("channels", "side"), [(3, 32), (1, 28), (1, 8), (2, 33)])
def test_any_picture_will_do(kind, channels, side):
    model = Vgg11(channels, 7, kind, width=2)
    out = model(torch.randn(4, channels, side, side))
    assert out.shape == (4, 7)
    assert out.isfinite().all()
    if kind == "group":  # a group of one number would come out as zero
        assert (model.features(torch.randn(4, channels, side, side)).std((0, 2, 3)) > 0).float().mean() > 0.5


@pytest.mark.parametrize("width", [1, 3, 8, 20, 33, 64])
def test_groups_divide_the_channels(width):
    groups = [p.num_groups for p in Vgg11(width=width).features if isinstance(p, nn.GroupNorm)]
    assert len(groups) == 8
    assert groups[-1] >= max(1, width // 4)


@pytest.mark.parametrize(
    ("key", "make"),
    [
        ("normalisation", lambda: Vgg11(normalisation="layer")),
        ("width", lambda: Vgg11(width=0)),
        ("channels", lambda: Vgg11(0)),
        ("classes", lambda: Vgg11(3, 0)),
    ],
)
def test_what_cannot_be(key, make):
    with pytest.raises(BadInput) as caught:
        make()
    assert caught.value.key == key


def test_one_client_a_step():
    assert chunk_and_workers(Supervised(Vgg11(width=2)), pictures())[0] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_both_engines_walk_the_same_way(kind):
    rows = pictures()
    start = Vgg11(3, 2, kind, width=4)
    algorithm = FedAvg(problem=Supervised(start), local_steps=2, batch_size=3, primal_step=0.05)
    slow = run(algorithm, rows, 3, engine="serial")
    for engine in ("vectorised", Vectorised(chunk=3, workers=1)):
        fast = run(algorithm, rows, 3, engine=engine)
        torch.testing.assert_close(fast.model, slow.model, rtol=0, atol=1e-8)
    assert (slow.model - FlatModel(start).initial()).abs().max() > 1e-4


def test_a_few_rounds_of_auc_on_both_engines():
    problem = MinimaxAuc(model=Vgg11(1, 1, width=2), positive_share=0.5)
    algorithm = FedSgda(problem=problem, local_steps=2, batch_size=3, primal_step=0.05, dual_step=0.05)
    rows = pictures(1, 28)
    runs = [run(algorithm, rows, 3, engine=name) for name in ("serial", "vectorised")]
    torch.testing.assert_close(runs[0].model, runs[1].model, rtol=0, atol=1e-8)
    assert (runs[0].model - problem.initial()[0]).abs().max() > 1e-4
