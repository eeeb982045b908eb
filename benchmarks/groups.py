"""Does training for the worst group of rows pay? `group-fair` beside FedAvg, tuned alike, where groups cross sites.

FEDSADDLE_DATA=... OMP_NUM_THREADS=1 python benchmarks/groups.py [--seeds 5] [--cases adult,planted]

Linear models. Either method takes the step of its grid with the smallest worst-group loss on validation rows. Printed
are, of the test rows, the worst group's mean log loss, the smallest sensitivity of a group where one row in five is
called positive (groups of ten rows, and of ten positives), and the loss of all rows: means over seeds, each with its
own split, and paired differences with 95 % t intervals.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import fedsaddle as fs
from fedsaddle.data.federated import crossed
from fedsaddle.data.sets.adult import adult as adult_rows
from fedsaddle.metrics.intervals import t_interval

STEPS, ROUNDS, LOCAL, LEAST = (0.03, 0.1, 0.3, 1.0), 60, {"local_steps": 8, "batch_size": 64}, 10
NAMES = ("worst loss", "worst sensitivity", "loss")


def adult(seed: int) -> fs.FederatedData:
    """Ten unlike clients; sex by race, where the three small races are one."""
    rows = adult_rows("onehot", groups=("sex", "race"))
    data = fs.federate(rows, fs.splits.Dirichlet(10, 0.5), seed, validation_share=0.2)
    return merged(data, "race", 2)


def eicu(column: str) -> Callable[[int], fs.FederatedData]:
    """186 wards; deaths of patients."""

    def load(seed: int) -> fs.FederatedData:
        path = Path(os.environ["FEDSADDLE_DATA"], "tables", "eicu-demo-died.csv")
        rows = fs.from_file(path, target="label", client="site", together="patient", positive="1", groups=[column])
        data = fs.federate(rows, fs.splits.Natural("site"), seed, stratify=True, validation_share=0.2)
        return merged(data, column, 3)

    return load


def planted(seed: int) -> fs.FederatedData:
    """Four sites; the first feature points the other way for a seventh of the rows, at all sites."""
    rng, n = np.random.default_rng([seed, 5]), 4000
    x, weak = rng.normal(size=(n, 4)), rng.random(n) < 0.15
    s = np.where(weak, -0.6 * x[:, 0] + x[:, 1], x[:, 0]) + 0.5 * x[:, 2] + 0.5 * rng.normal(size=n)
    columns = {f"x{k}": x[:, k] for k in range(4)} | {"group": np.where(weak, "weak", "others")}
    table = pd.DataFrame(columns | {"site": rng.choice(list("abcd"), n), "label": (s > 0.5).astype(int)})
    rows = fs.from_frame(table, site="site", label="label", groups=["group"], task="classes")
    return fs.federate(rows, fs.splits.Natural("site"), seed, stratify=True, validation_share=0.2)


CASES: dict[str, Callable[[int], fs.FederatedData]] = {
    "adult": adult,
    "eicu-ethnicity": eicu("ethnicity"),
    "eicu-age": eicu("age"),
    "planted": planted,
}


def merged(data: fs.FederatedData, column: str, most: int) -> fs.FederatedData:
    """The largest values of a column, and one group of the others."""
    values, counts = np.unique(data.train_groups[column], return_counts=True)
    kept = set(values[np.argsort(-counts, kind="stable")[:most]]) if column != "age" else set(values)

    def few(groups: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {k: np.array([v if v in kept or k != column else "other" for v in g]) for k, g in groups.items()}

    train, validation, test = (few(dict(g)) for g in (data.train_groups, data.validation_groups, data.test_groups))
    return replace(data, train_groups=train, validation_groups=validation, test_groups=test)


def measured(scores: np.ndarray, cut: float, labels: np.ndarray, names: np.ndarray) -> tuple[float, float, float]:
    """The worst group's loss and sensitivity, and the loss of all rows."""
    loss = np.logaddexp(0.0, np.where(labels > 0, -scores, scores))
    groups = [names == name for name in np.unique(names)]
    losses = [loss[own].mean() for own in groups if own.sum() >= LEAST]
    found = [(scores[own & (labels > 0)] > cut).mean() for own in groups if (own & (labels > 0)).sum() >= LEAST]
    return max(losses), min(found, default=np.nan), float(loss.mean())


def run(data: fs.FederatedData, fair: bool, step: float, seed: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The figures on validation and on test rows."""
    torch.manual_seed(seed)
    model, loss = fs.models.logistic_regression(data.train.x.shape[1], 1), fs.losses.Logistic()
    l2 = 1 / len(data.train.y)
    if fair:
        rows = data.with_groups()
        shares = torch.bincount(rows.train.y[:, 1]).double() / len(rows.train.y)
        problem = fs.GroupFair(model=model, groups=rows.group_names, group_shares=shares, loss=loss, l2=l2)
        server = {"weighting": "size", "ascent": "server", "dual_step": 0.03}
        algorithm = fs.LocalSgda(problem=problem, primal_step=step, **server, **LOCAL)
    else:
        rows, algorithm = data, fs.FedAvg(problem=fs.Supervised(model, loss, l2), primal_step=step, **LOCAL)
    found = fs.run(algorithm, rows.train, rounds=ROUNDS, seed=seed, evaluate_every=ROUNDS).model
    parts = ((data.validation, data.validation_groups), (data.test, data.test_groups))
    scores = [algorithm.problem.ranking(found, part.x).double().numpy() for part, _ in parts]
    cut = float(np.quantile(scores[0], 0.8))
    both = [
        measured(s, cut, part.y.numpy(), crossed(groups, tuple(groups)))
        for s, (part, groups) in zip(scores, parts, strict=True)
    ]
    return both[0], both[1]


def main() -> None:
    """Run the cases, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cases", default=",".join(CASES))
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| case | figure of the test rows | FedAvg | group-fair | difference |\n| --- | --- | ---: | ---: | --- |")
    for name in given.cases.split(","):
        figures: dict[bool, list[tuple[float, ...]]] = {False: [], True: []}
        for seed in range(given.seeds):
            data = CASES[name](seed)
            for fair in figures:
                best = min((run(data, fair, step, seed) for step in STEPS), key=lambda both: both[0][0])
                figures[fair].append(best[1])
        base, ours = np.array(figures[False]), np.array(figures[True])
        for k, figure in enumerate(NAMES):
            gap = "{:+.4f} [{:+.4f}, {:+.4f}]".format(*t_interval(ours[:, k] - base[:, k]))
            print(f"| {name} | {figure} | {base[:, k].mean():.4f} | {ours[:, k].mean():.4f} | {gap} |", flush=True)


if __name__ == "__main__":
    main()
