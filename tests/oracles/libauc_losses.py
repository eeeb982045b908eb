"""Gradients of LibAUC's losses in the scores, with its moving averages at their exact values (gamma = 1).

Run it with LibAUC 2.0.1 installed (`pip install --no-deps libauc==2.0.1`, and numpy scipy scikit-learn tqdm) to record
them anew: `python tests/oracles/libauc_losses.py > tests/oracles/libauc.json`.
"""

from __future__ import annotations

import json

import numpy as np
import torch

CASES = {
    "pairwise, squared hinge": ("PairwiseAUCLoss", {"surr_loss": "squared_hinge", "margin": 0.7}),
    "pairwise, square": ("PairwiseAUCLoss", {"surr_loss": "squared", "margin": 1.0}),
    "pairwise, hinge": ("PairwiseAUCLoss", {"surr_loss": "hinge", "margin": 1.0}),
    "pairwise, logistic": ("PairwiseAUCLoss", {"surr_loss": "logistic", "margin": 2.0}),
    "pairwise, barrier hinge": ("PairwiseAUCLoss", {"surr_loss": "barrier_hinge", "margin": (0.8, 5.0)}),
    "partial, temperature 1": ("pAUC_DRO_Loss", {"gamma": 1.0, "Lambda": 1.0}),
    "partial, temperature 0.5": ("pAUC_DRO_Loss", {"gamma": 1.0, "Lambda": 0.5, "margin": 0.6}),
    "two-way": ("tpAUC_KL_Loss", {"gammas": (1.0, 1.0), "Lambda": 1.0, "tau": 2.0}),
    "two-way, other": ("tpAUC_KL_Loss", {"gammas": (1.0, 1.0), "Lambda": 2.0, "tau": 0.7}),
    "average precision": ("APLoss", {"gamma": 1.0}),
    "average precision, margin": ("APLoss", {"gamma": 1.0, "margin": 0.6}),
    "min-max, margin": ("AUCMLoss", {"margin": 0.8, "imratio": 0.3}),
}
MINIMAX_AT = (0.4, -0.2, 0.3)  # a, b, alpha


def inputs(seed: int) -> tuple[list[float], list[int]]:
    """Twelve scores and labels."""
    rng = np.random.default_rng(seed)
    return np.float32(rng.normal(size=12)).tolist(), (rng.permutation(12) < 5).astype(int).tolist()


def gradient(losses, name: str, scores: list[float], labels: list[int]) -> list[float]:
    """Of the loss in the scores; of the min-max loss in the scores, a, b and alpha."""
    kind, options = CASES[name]
    h, y = torch.tensor(scores).view(-1, 1).requires_grad_(), torch.tensor(labels).view(-1, 1)
    if kind == "AUCMLoss":
        loss = losses.AUCMLoss(**options)
        with torch.no_grad():
            for parameter, value in zip((loss.a, loss.b, loss.alpha), MINIMAX_AT, strict=True):
                parameter.fill_(value)
        loss(h, y, auto=False).backward()
        return [*h.grad.flatten().tolist(), *(float(p.grad) for p in (loss.a, loss.b, loss.alpha))]
    if kind == "PairwiseAUCLoss":
        options = {("hparam" if k == "margin" else k): v for k, v in options.items()}
        loss = losses.PairwiseAUCLoss(**options)
        loss(h, y).backward()
    else:
        getattr(losses, kind)(data_len=len(scores), **options)(h, y, torch.arange(len(scores))).backward()
    return h.grad.flatten().tolist()


def main() -> None:
    import libauc
    from libauc import losses

    found = {}
    for name in CASES:
        for seed in (0, 1):
            scores, labels = inputs(seed)
            given = {"scores": scores, "labels": labels, "gradient": gradient(losses, name, scores, labels)}
            found[f"{name}, seed {seed}"] = {"case": name, **given}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(values)}" for name, values in found.items())
    print(f'{{"libauc": "{libauc.__version__}", "torch": "{torch.__version__}", "found": {{\n{lines}\n}}}}')


if __name__ == "__main__":
    main()
