"""Which algorithm for what: small cases on data that scikit-learn ships, every method tuned alike.

OMP_NUM_THREADS=1 python benchmarks/choosing.py [case ...] [--seeds 10]

A seed draws the split, the starting point and every batch. Each method takes its step from the same grid: the one with
the best mean validation figure over the tuning seeds 100 and 101. Then it runs once with that step on fresh seeds, and
the test rows are looked at; where a run diverges, all of them take the next smaller step. What is printed is the mean
over these seeds and the paired difference from the first method, with a 95 % t interval over seeds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from scipy import stats

import fedsaddle as fs

TUNING, GRID = (100, 101), (0.03, 0.1, 0.3, 1.0)
Make = Callable[[Any, float], Any]  # data and step to an algorithm


@dataclass(frozen=True)
class Case:
    """A question, its data, and the methods that answer it; the first one is the comparison."""

    question: str
    data: Callable[[int], Any]
    methods: dict[str, Make]
    choose: str  # the figure of the validation rows that chooses the step, such as "worst loss"
    show: tuple[str, ...]  # figures of the test rows
    rounds: int
    grid: tuple[float, ...] = GRID
    options: dict[str, dict[str, Any]] = field(default_factory=dict)  # of `fs.run`, by method; "*" for all


def figure(result: Any, name: str, part: str) -> float:
    """`"worst loss"` is a statistic over clients, `"auroc"` a pooled measure."""
    pooled = "pooled" if part == "test" else "pooled_validation"
    if " " not in name:
        return float(result.summary[pooled][name])
    statistic, measure = name.split(" ")
    return float(result.summary[part][measure][statistic])


def quiet(text: str) -> None:
    """Replies that are not finite are left out; the step that makes them is not chosen."""


def run(case: Case, method: str, step: float, seed: int) -> Any:
    """One run, or None where it diverges."""
    data = case.data(seed)
    torch.manual_seed(seed)
    options = case.options.get("*", {}) | case.options.get(method, {})
    try:
        how = case.methods[method](data, step)
        return fs.run(
            how,
            data,
            rounds=case.rounds,
            seed=seed,
            evaluate_every=case.rounds,
            callbacks=[fs.LambdaCallback(on_warning=quiet)],
            **options,
        )
    except fs.Diverged:
        return None


def tuned(case: Case, method: str) -> float:
    """The step of the grid with the best mean validation figure; a step that diverges once is out."""
    sign, best, found = (-1 if case.choose.endswith("loss") else 1), -np.inf, case.grid[0]
    for step in case.grid:
        results = [run(case, method, step, seed) for seed in TUNING]
        if any(result is None for result in results):
            continue
        mean = sign * float(np.mean([figure(result, case.choose, "validation") for result in results]))
        if mean > best:
            best, found = mean, step
    return found


def interval(differences: Sequence[float]) -> str:
    """The mean and its t interval."""
    d = np.asarray(differences)
    half = stats.t.ppf(0.975, len(d) - 1) * d.std(ddof=1) / np.sqrt(len(d))
    return f"{d.mean():+.3f} [{d.mean() - half:+.3f}, {d.mean() + half:+.3f}]"


def sites(name: str, **split: Any) -> Callable[[int], Any]:
    """Data with a fifth for the test and a fifth of the rest for validation."""
    return cache(lambda seed: fs.load(name, seed=seed, validation_share=0.2, **split))


def share(data: Any) -> float:
    """Of positives among the training rows."""
    return float(data.train.y.double().mean())


def digits() -> Any:
    """Cross-entropy of a linear model of the digits."""
    return fs.Supervised(fs.models.logistic_regression(64, 10))


def logistic(model: Any) -> Any:
    """Cross-entropy with one score."""
    return fs.Supervised(model, loss=fs.losses.Logistic())


def shares_of_classes(data: Any) -> torch.Tensor:
    """Of all clients' training rows."""
    counts = torch.bincount(data.train.y.long(), minlength=10).double()
    return counts / counts.sum()


def fair(data: Any) -> Any:
    """The worst mixture of the ten digits."""
    return fs.ClassFair(
        model=fs.models.logistic_regression(64, 10), classes=10, penalty=0.01, class_shares=shares_of_classes(data)
    )


def network() -> Any:
    """A network of 64 units for the digits."""
    return fs.models.mlp(64, [64], 10)


def robust() -> Any:
    """One perturbation of length 1.5 or less, the same for all pictures (whose mean length is about 3)."""
    return fs.RobustTraining(model=network(), shape=(64,), radius=1.5)


def stages(step: float, rounds: int) -> dict[str, Any]:
    """Two stages, the second with a third of the step."""
    return {"primal_step": fs.schedules.Geometric(step, 1 / 3), "stage_rounds": rounds // 2}


def halves(step: float, rounds: int) -> Any:
    """The same for FedAvg and FedX."""
    return fs.schedules.Staged([(rounds // 2, step), (rounds // 2, step / 3)])


ROBUST_MEASURE = {"measures": [fs.measures.RobustAccuracy(radius=1.5)]}
CLASS_MEASURE = {"measures": ["worst_class_accuracy"]}
HOSTILE = {"attack": fs.Attack(name="sign-flip", clients=2)}


def worst_clients(problem: Callable[[Any], Any]) -> dict[str, Make]:
    """FedAvg and those who care for the worst client, with the default dual step."""
    return {
        "FedAvg": lambda data, step: fs.FedAvg(problem=problem(data), primal_step=step),
        "q-FedAvg, q = 1": lambda data, step: fs.QFedAvg(problem=problem(data), q=1.0, primal_step=step),
        "AFL": lambda data, step: fs.Drfa(problem=problem(data), local_steps=1, primal_step=step),
        "DRFA": lambda data, step: fs.Drfa(problem=problem(data), primal_step=step),
    }


def tumours(data: Any) -> Any:
    """A linear model of the tumours."""
    return logistic(fs.models.logistic_regression(30, 1))


def ranked(features: int, hidden: list[int], rounds: int) -> dict[str, Make]:
    """Cross-entropy, and three objectives for the order of the rows."""

    def net() -> Any:
        return fs.models.mlp(features, hidden, 1) if hidden else fs.models.logistic_regression(features, 1)

    def auc(data: Any) -> Any:
        return fs.MinimaxAuc(model=net(), positive_share=share(data), sigmoid=not hidden)

    local: dict[str, Any] = {"local_steps": 16, "batch_size": 32}
    return {
        "FedAvg": lambda data, step: fs.FedAvg(problem=logistic(net()), primal_step=halves(step, rounds), **local),
        "CODA+": lambda data, step: fs.CodaPlus(problem=auc(data), **stages(step, rounds), **local),
        "CODASCA": lambda data, step: fs.Codasca(problem=auc(data), **stages(step, rounds), **local),
        "FedX2, partial AUC": lambda data, step: fs.FedX2(
            problem=fs.risks.partial_auc(net()), primal_step=halves(step, rounds), **local
        ),
        "FedX2, average precision": lambda data, step: fs.FedX2(
            problem=fs.risks.average_precision(net()), primal_step=halves(step, rounds), **local
        ),
    }


CASES = {
    "average": Case(
        "a good model on average, unlike sites, few rounds",
        sites("digits", split="dirichlet", clients=10, alpha=0.3),
        {
            "FedAvg": lambda data, step: fs.FedAvg(problem=digits(), primal_step=step),
            "FedAvgM": lambda data, step: fs.FedAvg(
                problem=digits(), primal_step=step, server_momentum=0.9, nesterov=True
            ),
        },
        "global loss",
        ("global accuracy", "global loss"),
        20,
        (0.1, 0.3, 1.0, 3.0),
    ),
    "worst-client": Case(
        "the worst of ten sites, one of which is unlike",
        sites("scanned-digits", split="natural", column="site"),
        worst_clients(lambda data: digits()),
        "worst loss",
        ("worst accuracy", "mean accuracy"),
        60,
    ),
    "alike": Case(
        "the worst of eight sites that are alike",
        sites("breast-cancer", split="iid", clients=8),
        worst_clients(tumours),
        "worst loss",
        ("worst accuracy", "mean accuracy"),
        60,
    ),
    "worst-class": Case(
        "the worst class",
        sites("digits", split="dirichlet", clients=10, alpha=1.0),
        {
            "FedAvg": lambda data, step: fs.FedAvg(problem=digits(), primal_step=step),
            "Local SGDA, class-fair": lambda data, step: fs.LocalSgda(
                problem=fair(data), primal_step=step, dual_step=0.05
            ),
        },
        "worst_class_accuracy",
        ("worst_class_accuracy", "global accuracy"),
        60,
        options={"*": CLASS_MEASURE},
    ),
    "perturbed": Case(
        "inputs that are all shifted in the same way, 64 units",
        sites("digits", split="dirichlet", clients=10, alpha=1.0),
        {
            "FedAvg": lambda data, step: fs.FedAvg(problem=fs.Supervised(network()), primal_step=step),
            "Local SGDA, robust": lambda data, step: fs.LocalSgda(problem=robust(), primal_step=step, dual_step=2.0),
            "Local SGDA+, robust": lambda data, step: fs.LocalSgda(
                problem=robust(), primal_step=step, dual_step=2.0, snapshot_every=25
            ),
        },
        "robust_accuracy",
        ("robust_accuracy", "global accuracy"),
        60,
        options={"*": ROBUST_MEASURE},
    ),
    "rare": Case(
        "5 % positives at five sites that share no class, 32 units",
        sites("digits", split="imbalanced", clients=5, imratio=0.05),
        ranked(64, [32], 60),
        "auroc",
        ("auroc", "partial_auroc_30", "average_precision"),
        60,
    ),
    "linear": Case(
        "the order of the rows by a linear model, 37 % positives",
        sites("breast-cancer", split="dirichlet", clients=8, alpha=0.3),
        ranked(30, [], 60),
        "auroc",
        ("auroc", "partial_auroc_30", "average_precision"),
        60,
    ),
    "hostile": Case(
        "two of ten sites send updates of the wrong sign",
        sites("digits", split="iid", clients=10),
        {
            name: lambda data, step: fs.FedAvg(problem=digits(), primal_step=step, weighting="uniform")
            for name in ("mean", "trimmed mean", "median", "nobody hostile, mean")
        },
        "global loss",
        ("global accuracy", "global loss"),
        60,
        options={
            "mean": HOSTILE,
            "trimmed mean": HOSTILE | {"robust": fs.Robust(aggregation="trimmed-mean")},
            "median": HOSTILE | {"robust": fs.Robust(aggregation="median")},
        },
    ),
}


def table(name: str, seeds: int) -> str:
    """The Markdown table of one case."""
    case, rows, first = CASES[name], [], {}
    for method in case.methods:
        step = tuned(case, method)
        results = [run(case, method, step, seed) for seed in range(seeds)]
        while None in results and step > case.grid[0]:
            step = case.grid[case.grid.index(step) - 1]
            results = [run(case, method, step, seed) for seed in range(seeds)]
        cells = [method, f"{step:g}"]
        for shown in case.show:
            values = [float("nan") if r is None else figure(r, shown, "test") for r in results]
            apart = "" if shown not in first else interval(np.subtract(values, first[shown]))
            first.setdefault(shown, values)
            cells += [f"{np.mean(values):.3f}", apart]
        ledger = next(r for r in results if r is not None).summary["ledger"]
        cells += [str(ledger["exchanges"]), f"{(ledger['bytes_up'] + ledger['bytes_down']) / 1e6:.2f}"]
        rows.append("| " + " | ".join(cells) + " |")
    heads = ["method", "step", *(part for shown in case.show for part in (shown, "difference")), "exchanges", "MB"]
    line = "| " + " | ".join(["---"] * len(heads)) + " |"
    return "\n".join(["| " + " | ".join(heads) + " |", line, *rows])


def main() -> None:
    """Print a table for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="case", help=", ".join(CASES))
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.cases:
        if name not in CASES:
            parser.error(f"{name}: choose one of {', '.join(CASES)}")
        begun = time.monotonic()
        print(f"\n{name}: {CASES[name].question}; {CASES[name].rounds} rounds, {given.seeds} seeds\n")
        print(table(name, given.seeds))
        print(f"\n{time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
