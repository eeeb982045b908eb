"""What privacy costs in AUROC: FedAvg and CODA+ against ε, on eICU (by hospital) and imbalanced Fashion-MNIST.

    FEDSADDLE_DATA=... python benchmarks/privacy_utility.py [--seeds 5] [--rounds 40] [--data eicu] [--json FILE]

Each line is the mean and the standard deviation over seeds of the pooled AUROC on test rows. ε is for each row, or for
each patient where the table names one; "none" is the same run without clipping and noise. Steps and batches are the
same for every ε, so that the difference is what privacy costs without tuning.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import fedsaddle as fs

EPSILONS = (None, 8.0, 4.0, 2.0, 1.0)
LOCAL = {"local_steps": 5, "batch_size": 64}


def eicu(seed: int) -> tuple[Any, str]:
    """Stays in intensive care, by hospital; several stays may be of one patient."""
    path = Path(os.environ["FEDSADDLE_DATA"]) / "tables" / "eicu-demo-died.csv"
    table = fs.from_file(path, target="label", client="site", together="patient")
    return fs.federate(table, fs.splits.Natural("site"), seed, stratify=True), "patient"


def fashion(seed: int) -> tuple[Any, str]:
    """Fashion-MNIST-IH: half of the classes are positive, one row in ten; no class is at two of the five clients."""
    return fs.load("fashion-mnist", "imbalanced", clients=5, imratio=0.1, seed=seed), "row"


DATA: dict[str, Callable[[int], tuple[Any, str]]] = {"eicu": eicu, "fashion": fashion}


def algorithms(data: Any) -> dict[str, Any]:
    """FedAvg on the logistic loss, and CODA+ on the min-max AUC, both with a linear model of one score."""
    features = int(data.train.x[0].numel())
    share = float((data.train.y == 1).double().mean())
    plain = fs.Supervised(fs.models.logistic_regression(features, 1), fs.losses.Logistic())
    auc = fs.MinimaxAuc(model=fs.models.logistic_regression(features, 1), positive_share=share, sigmoid=True)
    return {
        "FedAvg": fs.FedAvg(problem=plain, primal_step=0.5, **LOCAL),
        "CODA+": fs.CodaPlus(problem=auc, primal_step=1.0, weighting="size", **LOCAL),
    }


def lines(names: list[str], seeds: int, rounds: int) -> list[dict[str, Any]]:
    found = []
    for name in names:
        drawn = [DATA[name](seed) for seed in range(seeds)]
        for method in ("FedAvg", "CODA+"):
            for epsilon in EPSILONS:
                began, areas, spent = time.process_time(), [], []
                for seed, (data, unit) in enumerate(drawn):
                    privacy = None if epsilon is None else fs.Privacy(epsilon=epsilon, unit=unit)
                    result = fs.run(
                        algorithms(data)[method], data, rounds, seed=seed, privacy=privacy, evaluate_every=rounds
                    )
                    areas.append(result.summary["pooled"]["auroc"])
                    spent.append(result.summary.get("privacy", {}).get("epsilon_spent"))
                sd = statistics.stdev(areas) if len(areas) > 1 else 0.0
                line = {"data": name, "method": method, "epsilon": epsilon, "unit": drawn[0][1], "spent": spent,
                        "auroc": statistics.mean(areas), "sd": sd, "seconds": time.process_time() - began}  # fmt: skip
                print(
                    f"{name:8} {method:7} ε = {epsilon or 'none':>4}  AUROC {line['auroc']:.4f} ± {sd:.4f}", flush=True
                )
                found.append(line)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--data", default="eicu,fashion")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = lines(given.data.split(","), given.seeds, given.rounds)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
