"""FedX's guard on real tables: FedX1 and FedX2 with linear models and their defaults, beside the box without it.

FEDSADDLE_DATA=... OMP_NUM_THREADS=1 python benchmarks/fedx_guard.py [--rounds 30] [--seeds 2] [--tables lung,pneumon]

Printed are the AUROC and the average precision of the test rows, means over seeds, where a run that ends without a
finite model counts as "diverged".
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

import fedsaddle as fs

RISKS = {
    "AUC": (fs.FedX1, fs.risks.auc),
    "partial AUC": (fs.FedX2, fs.risks.partial_auc),
    "average precision": (fs.FedX2, fs.risks.average_precision),
}
PATIENTS = ("eicu-demo-died", "randhie-admission")


def federation(path: Path, seed: int) -> fs.FederatedData:
    """The table by site; a fifth of the rows is for the test."""
    patient = "patient" if path.name.split(".")[0] in PATIENTS else None
    rows = fs.from_file(path, target="label", client="site", together=patient, positive="1")
    return fs.federate(rows, fs.splits.Natural("site"), seed, stratify=True)


def figures(data: fs.FederatedData, risk: str, guard: float, rounds: int, seed: int) -> tuple[float, float]:
    """AUROC and average precision of the test rows."""
    make, objective = RISKS[risk]
    model = fs.models.logistic_regression(data.train.x.shape[1], 1)
    for p in model.parameters():
        torch.nn.init.zeros_(p)
    algorithm, quiet = make(problem=objective(model), guard=guard), fs.LambdaCallback(on_warning=lambda text: None)
    try:
        found = fs.run(algorithm, data, rounds=rounds, seed=seed, evaluate_every=rounds, callbacks=[quiet]).model
    except fs.Diverged:
        return math.nan, math.nan
    scores, labels = algorithm.problem.ranking(found, data.test.x), data.test.y.numpy()
    if not torch.isfinite(scores).all():
        return math.nan, math.nan
    return float(roc_auc_score(labels, scores)), float(average_precision_score(labels, scores))


def line(path: Path, rounds: int, seeds: int) -> None:
    """A table's line for each risk."""
    for risk in RISKS:
        cells = []
        for guard in (math.inf, 2.0):
            found = [figures(federation(path, seed), risk, guard, rounds, seed) for seed in range(seeds)]
            bad = sum(math.isnan(auroc) for auroc, _ in found)
            means = " | ".join(f"{v:.4f}" for v in np.mean(found, 0))
            cells.append(f"{bad} of {seeds} diverged | " if bad else means)
        print(f"| {path.name.split('.')[0]} | {risk} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tables", default="")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| table | risk | box: AUROC | AP | guard: AUROC | AP |\n| --- | --- | ---: | ---: | ---: | ---: |")
    wanted = [w for w in given.tables.split(",") if w]
    for path in sorted(Path(os.environ["FEDSADDLE_DATA"], "tables").glob("*.csv*")):
        if not wanted or any(w in path.name for w in wanted):
            line(path, given.rounds, given.seeds)


if __name__ == "__main__":
    sys.exit(main())
