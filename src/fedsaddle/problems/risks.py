"""Ready pairwise risks, by the measure that each stands for; `l2` and `clip` are those of `PairwiseRisk`."""

from __future__ import annotations

from torch import nn

from fedsaddle.arguments import LARGEST_REAL, instance, number
from fedsaddle.errors import BadInput
from fedsaddle.problems.outers import Kl, LogPower, Ratio
from fedsaddle.problems.pair_losses import (
    MARGIN_LOSS,
    Contrastive,
    Difference,
    MarginLoss,
    PairLoss,
    Precision,
    SquaredHinge,
)
from fedsaddle.problems.pairwise import PairwiseRisk


def auc(model: nn.Module, loss: PairLoss | None = None, *, l2: float = 0.0, clip: float | None = None) -> PairwiseRisk:
    """AUROC: the mean loss of all pairs (positive, negative). Linear: for FedX1.

    Args:
        model: h, a network with one output.
        loss: pair loss, of `fs.pair_losses`; None is `SquaredHinge()`.
        l2: weight of the penalty `(l2 / 2) |w|²`.
        clip: largest norm of a gradient; None does not clip.
    """
    return PairwiseRisk(model=model, loss=SquaredHinge() if loss is None else loss, l2=l2, clip=clip)


def partial_auc(
    model: nn.Module,
    loss: PairLoss | None = None,
    temperature: float = 1.0,
    *,
    l2: float = 0.0,
    clip: float | None = None,
) -> PairwiseRisk:
    """One-way partial AUROC (KL-OPAUC): `mean_+ λ log mean_- exp(L / λ)`; a small λ for a low false positive rate.

    Args:
        model: h, a network with one output.
        loss: pair loss, of `fs.pair_losses`; None is `SquaredHinge()`.
        temperature: λ; a small one for a low false positive rate.
        l2: weight of the penalty `(l2 / 2) |w|²`.
        clip: largest norm of a gradient; None does not clip.
    """
    return PairwiseRisk(
        model=model, loss=SquaredHinge() if loss is None else loss, outer=Kl(temperature), l2=l2, clip=clip
    )


def two_way_partial_auc(
    model: nn.Module,
    loss: PairLoss | None = None,
    temperature: float = 1.0,
    positive_temperature: float = 1.0,
    *,
    l2: float = 0.0,
    clip: float | None = None,
) -> PairwiseRisk:
    """Two-way partial AUROC: `λ' log mean_+ (mean_- exp(L / λ))^(λ / λ')`; small λ' for hard positives alone.

    Args:
        model: h, a network with one output.
        loss: pair loss, of `fs.pair_losses`; None is `SquaredHinge()`.
        temperature: λ of the negatives; a small one for a low false positive rate.
        positive_temperature: λ' of the positives; a small one for hard positives alone.
        l2: weight of the penalty `(l2 / 2) |w|²`.
        clip: largest norm of a gradient; None does not clip.
    """
    number("temperature", temperature, above=0)
    number("positive_temperature", positive_temperature, above=0)
    power = temperature / positive_temperature
    if not 0 < power <= LARGEST_REAL:
        remedy = f"does not fit temperature = {temperature}: their ratio is {power:g}"
        raise BadInput("positive_temperature", positive_temperature, remedy)
    outer = LogPower(power, temperature)
    return PairwiseRisk(model=model, loss=SquaredHinge() if loss is None else loss, outer=outer, l2=l2, clip=clip)


def average_precision(
    model: nn.Module, loss: MarginLoss | None = None, *, l2: float = 0.0, clip: float | None = None
) -> PairwiseRisk:
    """AUPRC: minus the mean over positives of the precision; S2 is all rows, whose labels travel with their scores.

    Args:
        model: h, a network with one output.
        loss: L, a margin loss of `fs.pair_losses`; None is `SquaredHinge()`.
        l2: weight of the penalty `(l2 / 2) |w|²`.
        clip: largest norm of a gradient; None does not clip.
    """
    surrogate = SquaredHinge() if loss is None else instance("loss", loss, MarginLoss, MARGIN_LOSS)
    return PairwiseRisk(model=model, loss=Precision(surrogate), outer=Ratio(), second=None, l2=l2, clip=clip)


def p_norm_push(model: nn.Module, power: float = 4.0, *, l2: float = 0.0, clip: float | None = None) -> PairwiseRisk:
    """P-norm push (Rudin 2009): `(1 / p) log mean_- (mean_+ exp(h_- - h_+))^p`; S1 are the negatives.

    Args:
        model: h, a network with one output.
        power: p, exponent; a large one weights the highest ranked negatives.
        l2: weight of the penalty `(l2 / 2) |w|²`.
        clip: largest norm of a gradient; None does not clip.
    """
    return PairwiseRisk(
        model=model, loss=Difference(first_is_higher=False), outer=LogPower(power), first=0, second=1, l2=l2, clip=clip
    )


def metric(model: nn.Module, margin: float = 1.0, *, l2: float = 0.0, clip: float | None = None) -> PairwiseRisk:
    """Distance metric learning with the contrastive loss: models of several outputs, all rows against all.

    Args:
        model: h, a network with several outputs.
        margin: m, distance beyond which rows of two labels have no loss.
        l2: weight of the penalty `(l2 / 2) |w|²`.
        clip: largest norm of a gradient; None does not clip.
    """
    return PairwiseRisk(model=model, loss=Contrastive(margin), first=None, second=None, l2=l2, clip=clip)
