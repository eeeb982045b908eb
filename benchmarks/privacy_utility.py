"""What privacy costs in AUROC: FedAvg and CODA+ against ε, on eICU and on imbalanced Fashion-MNIST.

    FEDSADDLE_DATA=... python benchmarks/privacy_utility.py [--seeds 5] [--rounds 10] [--data eicu] [--json FILE]

Each line is the mean and the standard deviation over seeds of the pooled AUROC on all test rows. ε is for each row, or
for each patient where the table names one; "none" is the same run without clipping and noise, and "alone" is the mean
over clients of models that each trains on its own rows with as many steps, without privacy. Rounds, steps and batches
are the same for every ε: every step is a release that noise must cover, so there are few. `--picture FILE` draws the
lines of a JSON file.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas

import fedsaddle as fs
from fedsaddle.files import write_atomically
from fedsaddle.numerics.roc import auroc

EPSILONS = (None, 8.0, 4.0, 2.0, 1.0)
METHODS = ("FedAvg", "CODA+")


def eicu(seed: int, sites: str = "site") -> tuple[Any, str]:
    """Stays in intensive care, 186 hospitals; several stays may be of one patient."""
    table = pandas.read_csv(Path(os.environ["FEDSADDLE_DATA"]) / "tables" / "eicu-demo-died.csv")
    with tempfile.TemporaryDirectory() as folder:
        table.dropna(subset=[sites]).to_csv(path := Path(folder) / "eicu.csv", index=False)
        read = fs.from_file(path, target="label", client=sites, together="patient")
    return fs.federate(read, fs.splits.Natural(sites), seed, stratify=True), "patient"


def regions(seed: int) -> tuple[Any, str]:
    """The same stays, as if all hospitals of a region were one site: four sites."""
    return eicu(seed, "region")


def fashion(seed: int) -> tuple[Any, str]:
    """Fashion-MNIST-IH: half of the classes are positive, one row in ten; no class is at two of the five clients."""
    return fs.load("fashion-mnist", split="imbalanced", clients=5, imratio=0.1, seed=seed), "row"


DATA: dict[str, Callable[[int], tuple[Any, str]]] = {"eicu": eicu, "eicu-regions": regions, "fashion": fashion}
ROUNDS = {"eicu": 10, "eicu-regions": 10, "fashion": 40}
STEPS = {"eicu": 1, "eicu-regions": 1, "fashion": 5}
CLIPS = {"eicu": 4.0, "eicu-regions": 4.0, "fashion": 1.0}
RATES = {"eicu": 1.0, "eicu-regions": 1.0, "fashion": 1.0}  # step sizes


def algorithm(method: str, name: str, data: Any) -> Any:
    """FedAvg on the logistic loss, or CODA+ on the min-max AUC, both with a linear model of one score."""
    features, share = int(data.train.x[0].numel()), float((data.train.y == 1).double().mean())
    how = {"local_steps": STEPS[name], "batch_size": 256, "primal_step": RATES[name]}
    if method == "FedAvg":
        return fs.FedAvg(problem=fs.Supervised(_model(features), fs.losses.Logistic()), **how)
    auc = fs.MinimaxAuc(model=_model(features), positive_share=share, sigmoid=True)
    return fs.CodaPlus(problem=auc, weighting="size", **how)


def _model(features: int) -> Any:
    return fs.models.logistic_regression(features, 1)


def alone(name: str, data: Any, rounds: int, seed: int) -> float:
    """The mean over clients of the AUROC on all test rows of a model of the client's own rows."""
    found = []
    for c in range(data.count):
        x, y = data.train.client(c)
        own = fs.Stacked(x, y, np.array([0, len(x)]))
        result = fs.run(algorithm("FedAvg", name, data), own, rounds, seed=seed, evaluate_every=rounds)
        scores = result.algorithm.problem.ranking(result.model, data.test.x)
        found.append(auroc(scores.double().numpy(), data.test.y.numpy()))
    return statistics.mean(found)


def lines(names: list[str], seeds: int, rounds: int | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def add(name: str, method: str, epsilon: float | str | None, areas: list[float], began: float, **more: Any) -> None:
        sd = statistics.stdev(areas) if len(areas) > 1 else 0.0
        mean, seconds = statistics.mean(areas), time.process_time() - began
        found.append({"data": name, "method": method, "epsilon": epsilon, "auroc": mean, "sd": sd, "areas": areas,
                      "seconds": seconds, **more})  # fmt: skip
        print(f"{name:13} {method:7} ε = {epsilon or 'none':>5}  AUROC {mean:.4f} ± {sd:.4f}", flush=True)

    for name in names:
        drawn, R = [DATA[name](seed) for seed in range(seeds)], rounds or ROUNDS[name]
        began = time.process_time()
        own = [alone(name, data, R, seed) for seed, (data, _) in enumerate(drawn)]
        add(name, "FedAvg", "alone", own, began, rounds=R)
        for method in METHODS:
            for epsilon in EPSILONS:
                began, areas, spent = time.process_time(), [], []
                for seed, (data, unit) in enumerate(drawn):
                    privacy = None if epsilon is None else fs.Privacy(epsilon=epsilon, unit=unit, clip=CLIPS[name])
                    made = algorithm(method, name, data)
                    result = fs.run(made, data, R, seed=seed, privacy=privacy, evaluate_every=R)
                    areas.append(result.summary["pooled"]["auroc"])
                    spent.append(result.summary.get("privacy", {}).get("epsilon_spent"))
                add(name, method, epsilon, areas, began, rounds=R, unit=drawn[0][1], spent=spent)
    return found


def picture(found: list[dict[str, Any]], path: Path) -> None:
    """AUROC against ε, a panel for each data set."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(line["data"] for line in found))
    figure, panels = plt.subplots(1, len(names), figsize=(3.4 * len(names), 3), sharey=True, squeeze=False)
    at = {1.0: 0, 2.0: 1, 4.0: 2, 8.0: 3, None: 4}
    for name, panel in zip(names, panels[0], strict=True):
        for method in METHODS:
            own = sorted((at[x["epsilon"]], x["auroc"], x["sd"]) for x in found
                         if x["data"] == name and x["method"] == method and x["epsilon"] in at)  # fmt: skip
            x, mean, sd = zip(*own, strict=True)
            panel.errorbar(x, mean, yerr=sd, marker="o", capsize=3, label=method)
        for line in found:
            if line["data"] == name and line["epsilon"] == "alone":
                panel.axhline(line["auroc"], color="grey", linestyle=":", label="a site alone")
        panel.set(title=name, xlabel="ε", xticks=range(5), xticklabels=["1", "2", "4", "8", "none"])
    panels[0][0].set_ylabel("AUROC, test rows")
    panels[0][-1].legend(loc="lower right", fontsize="small")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, help="for all data sets; by default 10, 10 and 40")
    parser.add_argument("--data", default="eicu,eicu-regions,fashion")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    if given.picture is not None and given.json is not None and given.json.exists():
        picture(json.loads(given.json.read_text()), given.picture)
        return
    found = lines(given.data.split(","), given.seeds, given.rounds)
    if given.json is not None:
        write_atomically(given.json, json.dumps(found, indent=1).encode())
    if given.picture is not None:
        picture(found, given.picture)


if __name__ == "__main__":
    main()
