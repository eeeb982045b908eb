"""Hostile clients: what four attacks of 2 of 10 clients do to four algorithms, and what each setting holds.

python benchmarks/attacks.py [--honest] [--rounds 100] [--seeds 3] [--only FedAvg,DRFA] [--processes 2]

Prints the mean over seeds of the accuracy (FedAvg, DRFA: digits, 10 classes) or AUROC (CODASCA, FedX2: breast-cancer)
on the test rows of all clients, for data dealt at random ("iid") and by a Dirichlet draw ("unlike"). With `--honest`
nobody is hostile, and what is printed is the share of replies that the bounds of deployed runs would have touched, for
several factors; with FEDSADDLE_DATA, on Fashion-MNIST and on the 186 hospitals of the eICU demo as well.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedsaddle as fs
from fedsaddle.runs.callbacks import QUIET

ATTACKS = ("scale", "sign-flip", "flipped-labels", "inflated-loss")
HOSTILE, ALONE = 2, "alone"
SPLITS: dict[str, dict[str, Any]] = {"iid": {"split": "iid"}, "unlike": {"split": "dirichlet", "alpha": 1.0}}
SETTINGS: dict[str, fs.Robust | None] = {
    "none": None,
    "bounds": fs.Robust(bounds=True),
    "trimmed mean": fs.Robust(aggregation="trimmed-mean", trim=0.3, bounds=True),
    "median": fs.Robust(aggregation="median", bounds=True),
    "geometric median": fs.Robust(aggregation="geometric-median", bounds=True),
    "centred clipping": fs.Robust(aggregation="centred-clipping", bounds=True),
}
Make = Callable[[Any, bool], Any]  # data, whether it is to be robust -> the algorithm


def supervised(data: Any) -> fs.Supervised:
    """A linear model for all classes."""
    return fs.Supervised(fs.models.logistic_regression(data.train.x[0].numel(), len(data.classes)))


def scorer(data: Any) -> Any:
    """A small network with one score."""
    return fs.models.mlp(data.train.x[0].numel(), [16], 1)


def codasca(data: Any, robust: bool) -> Any:
    """CODASCA for AUROC."""
    share = float((data.train.y == 1).float().mean())
    step = 0.1 if len(data.train.offsets) < 100 else 0.02  # hospitals with a few rows each
    return fs.Codasca(problem=fs.MinimaxAuc(model=scorer(data), positive_share=share), primal_step=step)


ALGORITHMS: dict[str, tuple[str, Make]] = {
    "FedAvg": ("digits", lambda data, robust: fs.FedAvg(problem=supervised(data))),
    "DRFA": (
        "digits",
        lambda data, robust: fs.Drfa(
            problem=supervised(data), **({"mixture_ceiling": 1.5, "weighting": "weight"} if robust else {})
        ),
    ),
    "CODASCA": ("breast-cancer", codasca),
    "FedX2": (
        "breast-cancer",
        lambda data, robust: fs.FedX2(problem=fs.risks.partial_auc(scorer(data)), local_steps=8),
    ),
}


def figure(summary: dict[str, Any]) -> float:
    """The AUROC where there is one, else the accuracy."""
    pooled = summary.get("pooled", {})
    return float(pooled["auroc"] if "auroc" in pooled else summary["test"]["accuracy"]["global"])


def one(job: tuple[str, str, str, str | None, int, int]) -> float:
    """One run; NaN if it diverges."""
    torch.set_num_threads(1)
    name, split, setting, attack, seed, rounds = job
    source, make = ALGORITHMS[name]
    data = fs.load(source, clients=10, seed=seed, **SPLITS[split])
    if attack == ALONE:
        data, attack = without_hostile(data), None
    torch.manual_seed(seed)
    hostile = None if attack is None else fs.Attack(name=attack, clients=HOSTILE)
    algorithm = make(data, setting not in ("none", "bounds"))
    try:
        result = fs.run(
            algorithm,
            data,
            rounds,
            seed=seed,
            evaluate_every=rounds,
            robust=SETTINGS[setting],
            attack=hostile,
            callbacks=[QUIET],
        )
    except fs.Diverged:
        return float("nan")
    return figure(result.summary)


def without_hostile(data: Any) -> Any:
    """The honest clients alone train; the test rows are the same."""
    at, tests = data.train.offsets, data.test.offsets
    first = int(at[HOSTILE])
    train = replace(data.train, x=data.train.x[first:], y=data.train.y[first:], offsets=at[HOSTILE:] - first)
    test = replace(data.test, offsets=np.concatenate([[0], tests[HOSTILE + 1 :]]))
    return replace(data, train=train, test=test, names=data.names[HOSTILE:])


def attacks(names: Sequence[str], rounds: int, seeds: int, processes: int) -> None:
    """Print a table for each algorithm and split."""
    columns: tuple[str | None, ...] = (None, *ATTACKS)
    jobs = [
        (name, split, setting, attack, seed, rounds)
        for name in names for split in SPLITS for setting in SETTINGS for attack in columns for seed in range(seeds)
    ]  # fmt: skip
    jobs += [(name, split, "none", ALONE, seed, rounds) for name in names for split in SPLITS for seed in range(seeds)]
    with ProcessPoolExecutor(processes) as pool:
        found = dict(zip(jobs, pool.map(one, jobs), strict=True))

    def mean(name: str, split: str, setting: str, attack: str | None) -> float:
        return float(np.mean([found[name, split, setting, attack, seed, rounds] for seed in range(seeds)]))

    print("| algorithm | data | setting | honest | " + " | ".join(ATTACKS) + " |")
    print("| --- | --- | --- |" + " --- |" * len(columns))
    for name in names:
        for split in SPLITS:
            honest, alone = mean(name, split, "none", None), mean(name, split, "none", ALONE)
            print(f"| {name} | {split} | *the 8 honest clients alone* | {cell(alone, honest)} |" + " |" * len(ATTACKS))
            for setting in SETTINGS:
                cells = [cell(mean(name, split, setting, attack), honest) for attack in columns]
                print(f"| {name} | {split} | {setting} | {' | '.join(cells)} |")


def cell(value: float, honest: float) -> str:
    """A figure, in bold where it is within two points of the honest run."""
    said = "diverged" if np.isnan(value) else f"{value:.3f}"
    return f"**{said}**" if value >= honest - 0.02 else said


def honest_cases() -> dict[str, tuple[Callable[[], Any], tuple[str, ...]]]:
    """Data of unlike sites, and the algorithms to run on them."""
    cases: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
        "digits, Dirichlet 0.1": (
            lambda: fs.load("digits", split="dirichlet", alpha=0.1, clients=10), ("FedAvg", "DRFA"),
        ),
        "digits, a class a client": (lambda: fs.load("digits", split="by-class", clients=10), ("FedAvg", "DRFA")),
        "digits, one scanner upside down": (
            lambda: fs.load("scanned-digits", split="natural", column="site"), ("FedAvg", "DRFA"),
        ),
        "breast-cancer, Dirichlet 0.3": (
            lambda: fs.load("breast-cancer", split="dirichlet", alpha=0.3, clients=10), tuple(ALGORITHMS),
        ),
    }  # fmt: skip
    if "FEDSADDLE_DATA" in os.environ:
        path = str(Path(os.environ["FEDSADDLE_DATA"]) / "tables" / "eicu-demo-died.csv")
        cases["eICU demo, 186 hospitals"] = (
            lambda: fs.federate(fs.from_file(path, "label", "site", together="patient"), fs.splits.Natural("site")),
            tuple(ALGORITHMS),
        )
        cases["Fashion-MNIST, a class a client"] = (
            lambda: fs.load("fashion-mnist", split="by-class", clients=10), ("FedAvg", "DRFA"),
        )  # fmt: skip
    return cases


def honest(rounds: int) -> None:
    """Print how many honest replies each factor would have touched, and whether the model stayed the same."""
    factors = (2.0, 3.0, 5.0, 10.0)
    print("| data | algorithm | replies | " + " | ".join(f"{f:g} x" for f in factors) + " | same bits at 10 x |")
    print("| --- | --- | --- |" + " --- |" * len(factors) + " --- |")
    for title, (load, names) in honest_cases().items():
        data = load()
        for name in names:
            counts = []
            for factor in (None, *factors):  # the last one is that of deployed runs
                torch.manual_seed(0)
                robust = None if factor is None else fs.Robust(bounds=True, norm_factor=factor, loss_factor=factor)
                result = fs.run(ALGORITHMS[name][1](data, False), data, rounds, evaluate_every=rounds, robust=robust)
                if robust is None:
                    plain, replies = result.model, result.summary["ledger"]["answered"]
                else:
                    touched = result.summary["robust"]["bounded"].values()
                    counts.append(sum(max(fields.values()) for fields in touched))
            same = "yes" if torch.equal(plain, result.model) else "no"
            print(f"| {title} | {name} | {replies} | {' | '.join(map(str, counts))} | {same} |", flush=True)


def main() -> None:
    """Parse the command line and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--honest", action="store_true")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default=",".join(ALGORITHMS))
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.honest:
        honest(given.rounds)
    else:
        attacks(given.only.split(","), given.rounds, given.seeds, given.processes)


if __name__ == "__main__":
    main()
