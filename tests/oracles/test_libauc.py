"""Gradients against LibAUC's: against recorded ones always, and against the library itself where it is installed."""

import json
from pathlib import Path

import pytest
import torch
from libauc_losses import CASES, MINIMAX_AT, gradient, inputs
from torch import nn

from fedsaddle.federation.clients import Batch
from fedsaddle.problems import pair_losses, risks
from fedsaddle.problems.auc import MinimaxAuc

RECORDED = json.loads((Path(__file__).parent / "libauc.json").read_text())
SURROGATES = {
    "squared_hinge": lambda m: pair_losses.SquaredHinge(margin=m),
    "squared": lambda m: pair_losses.SquaredMargin(margin=m),
    "hinge": lambda m: pair_losses.Hinge(margin=m),
    "logistic": lambda m: pair_losses.LogisticMargin(steepness=m),
    "barrier_hinge": lambda m: pair_losses.BarrierHinge(width=m[0], slope_outside=m[1]),
}


def risk(kind, options, model):
    loss = SURROGATES[options.get("surr_loss", "squared_hinge")](options.get("margin", 1.0))
    if kind == "PairwiseAUCLoss":
        return risks.auc(model, loss)
    if kind == "pAUC_DRO_Loss":
        return risks.partial_auc(model, loss, options["Lambda"])
    if kind == "tpAUC_KL_Loss":
        return risks.two_way_partial_auc(model, loss, options["Lambda"], options["tau"])
    return risks.average_precision(model, loss)


def ours(case, scores, labels):
    """The scores are the weights of a linear model whose rows are the unit vectors."""
    kind, options = CASES[case]
    model = nn.Linear(len(scores), 1, bias=False).double()
    batch = Batch(torch.eye(len(scores), dtype=torch.float64)[None], torch.tensor(labels)[None])
    w = torch.tensor(scores, dtype=torch.float64)[None]
    if kind != "AUCMLoss":
        return risk(kind, options, model).gradient(w, batch)[0]
    problem = MinimaxAuc(model=model, positive_share=options["imratio"], margin=options["margin"])
    at = torch.tensor(MINIMAX_AT, dtype=torch.float64)
    gx, gy, _ = problem.gradients(torch.cat([w[0], at[:2]])[None], at[2:][None], batch)
    return torch.cat([gx[0], gy[0]])


def test_what_was_recorded():
    assert RECORDED["libauc"] == "2.0.1"
    assert {r["case"] for r in RECORDED["found"].values()} == set(CASES)


@pytest.mark.parametrize("name", RECORDED["found"])
def test_recorded_gradients(name):
    r = RECORDED["found"][name]
    expected = torch.tensor(r["gradient"], dtype=torch.float64)
    assert float(expected.abs().max()) > 1e-3
    torch.testing.assert_close(ours(r["case"], r["scores"], r["labels"]), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_the_library_itself(case):
    losses = pytest.importorskip("libauc.losses", reason="libauc is not installed")
    torch.set_default_dtype(torch.float32)  # its own dtype; conftest puts it back
    for seed in range(2, 12):
        scores, labels = inputs(seed)
        expected = torch.tensor(gradient(losses, case, scores, labels), dtype=torch.float64)
        torch.testing.assert_close(ours(case, scores, labels), expected, rtol=3e-6, atol=1e-6)
