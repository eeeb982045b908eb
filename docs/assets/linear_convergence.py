"""Draw linear-convergence.png: FedSGDA converges linearly, Local SGDA stops at a distance from the saddle point.

python docs/assets/linear_convergence.py [PICTURE]

A strongly convex, strongly concave quadratic game between clients with different gradients and different curvatures.
Every client has one row, so that each batch is a full batch: the only error is the drift of the local steps.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fedsaddle as fs
from fedsaddle.report.plots import pooled

CLIENTS, EXCHANGES, STEP = 20, 300, 0.03
PICTURE = Path(__file__).with_name("linear-convergence.png")


def value(x: Tensor, y: Tensor, batch: Any) -> Tensor:
    """`(1/2 + s²) |x|²/2 + s x'y - |y|²/2 + p'x - q'y`; a row is (p, q, s)."""
    p, q, s = batch.x[:, :2], batch.x[:, 2:4], batch.x[:, 4]
    return (0.5 + s**2) * (x @ x) / 2 + s * (x @ y) - y @ y / 2 + p @ x - q @ y


def saddle(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The saddle point: both gradients of the mean vanish."""
    p, q, s = rows[:, :2].mean(0), rows[:, 2:4].mean(0), rows[:, 4].mean()
    x = (s * q - p) / (0.5 + rows[:, 4].square().mean() + s * s)
    return x, s * x - q


def runs() -> dict[str, list[dict[str, Any]]]:
    """The histories by name, each to the same number of exchanges."""
    rows = torch.randn(CLIENTS, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    data = fs.Stacked(rows, torch.zeros(CLIENTS), np.arange(CLIENTS + 1))
    ones = torch.ones(2, dtype=torch.float64)
    problem = fs.Minimax(value, start_x=ones, start_y=ones)
    distance = fs.measures.DistanceToSaddle(*saddle(rows))

    def history(make: Any, exchanges: int, local_steps: int, step: float) -> list[dict[str, Any]]:
        options = {"local_steps": local_steps, "batch_size": 1, "primal_step": step, "dual_step": step}
        algorithm = make(problem=problem, **options)
        return list(fs.run(algorithm, data, EXCHANGES // exchanges, measures=[distance]).history)

    return {
        "Local SGDA, 10 local steps": history(fs.LocalSgda, 1, 10, STEP),
        "Local SGDA, 10 local steps, a tenth of the step": history(fs.LocalSgda, 1, 10, STEP / 10),
        "Local SGDA, 1 local step": history(fs.LocalSgda, 1, 1, STEP),
        "FedSGDA-MB, 10 local steps": history(fs.FedSgda, 2, 10, STEP),
    }


def main(picture: Path = PICTURE) -> None:
    """Draw the picture and print the last distance of every run."""
    histories = runs()
    pooled(histories, "distance_to_saddle", picture, x="exchanges")
    for name, history in histories.items():
        print(f"{name:50} {history[-1]['exchanges']} exchanges: {history[-1]['pooled']['distance_to_saddle']:.1e}")


if __name__ == "__main__":
    main(*(Path(path) for path in sys.argv[1:2]))
