"""Real tables: what `fedsaddle run TABLE` chooses, beside what its user could do otherwise, on the same rows.

    FEDSADDLE_DATA=... python benchmarks/tables.py [--for auroc] [--seeds 5] [--tables eicu,lung] [--json FILE]

For each table and seed, 64 % of the rows train, 16 % choose and 20 % test, by site, class and patient. Beside the
choice stand FedAvg tuned alike, scikit-learn's logistic regression on the pooled training rows with site columns (same
features, C = 1), and a logistic regression of each site alone. Figures are of the test rows, which nothing else sees.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score

import fedsaddle as fs

PATIENTS = ("eicu-demo-died", "randhie-admission")
SMALL = 2000  # rows, below which a table may lose .02 instead of .003


def within(scores, labels, offsets):
    """The AUROC within sites, weighed by pairs."""
    total = pairs = 0.0
    for a, b in pairwise(offsets):
        up = int(labels[a:b].sum())
        n = up * (b - a - up)
        if n:
            total, pairs = total + n * roc_auc_score(labels[a:b], scores[a:b]), pairs + n
    return total / pairs if pairs else float("nan")


def worst_loss(scores, labels, offsets, least=10):
    """The largest mean log loss of a site with at least `least` test rows."""
    loss = np.logaddexp(0, np.where(labels > 0, -scores, scores))
    found = [loss[a:b].mean() for a, b in pairwise(offsets) if b - a >= least]
    return max(found) if found else float(loss.mean())


def figures(scores, test):
    labels = test.y.numpy()
    return {
        "auroc": roc_auc_score(labels, scores),
        "within": within(scores, labels, test.offsets),
        "ap": average_precision_score(labels, scores),
        "worst_loss": worst_loss(scores, labels, test.offsets),
    }


def alone(data):
    """A logistic regression of each site on its own rows; its base rate, drawn in, where it has one class."""
    x, y, test = data.train.x.numpy(), data.train.y.numpy(), data.test.x.numpy()
    overall, scores = y.mean(), np.zeros(len(test))
    for i in range(data.count):
        own, at = slice(*data.train.offsets[i : i + 2]), slice(*data.test.offsets[i : i + 2])
        if at.start == at.stop:
            continue
        if len(np.unique(y[own])) == 2:
            model = LogisticRegression(max_iter=2000).fit(x[own], y[own])
            scores[at] = model.decision_function(test[at])
        else:
            share = (y[own].sum() + overall) / (len(y[own]) + 1)
            scores[at] = np.log(share / (1 - share))
    return scores


def one(job):
    """One table with one seed."""
    path, seed, aim, budget = job
    warnings.simplefilter("ignore")
    name = path.name.split(".")[0]
    patient = "patient" if name in PATIENTS else None
    dataset = fs.from_file(
        path, target="label", client="site", together=patient, site_intercept=True, hinges=3, positive="1"
    )
    data = fs.federate(dataset, fs.splits.Natural("site"), seed, stratify=True, validation_share=0.16)
    began = time.perf_counter()
    choice = fs.search(data, aim, seed=seed, budget=budget, workers=1)
    seconds = time.perf_counter() - began
    linear = data.with_features([feature.kind != "hinge" for feature in data.encoding])
    plain = data.with_features([feature.kind not in ("hinge", "site") for feature in data.encoding])
    pooled = LogisticRegression(max_iter=2000).fit(linear.train.x.numpy(), linear.train.y.numpy())
    found = {
        "choice": figures(choice.chosen.rank(choice.chosen.data.test.x), data.test),
        "FedAvg": figures(choice.fedavg.rank(choice.fedavg.data.test.x), data.test),
        "pooled": figures(pooled.decision_function(linear.test.x.numpy()), data.test),
        "alone": figures(alone(plain), data.test),
    }
    return {"table": name, "seed": seed, "rows": len(dataset.train), "chosen": choice.name, "seconds": seconds, **found}


def line(name, rows, key):
    """A table's means over seeds."""
    mean = {who: np.mean([r[who][key] for r in rows]) for who in ("choice", "FedAvg", "pooled", "alone")}
    gap = mean["choice"] - mean["FedAvg"]
    chosen = sorted({r["chosen"] for r in rows}, key=[r["chosen"] for r in rows].count)[-1]
    inside = f"{np.mean([r['choice']['within'] for r in rows]) - np.mean([r['FedAvg']['within'] for r in rows]):+.4f}"
    cells = [f"{mean[who]:.4f}" for who in ("choice", "FedAvg", "pooled", "alone")]
    seconds = f"{np.mean([r['seconds'] for r in rows]):.0f}"
    return mean, f"| {name} | {' | '.join(cells)} | {gap:+.4f} | {inside} | {chosen} | {seconds} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--for", dest="aim", default="auroc")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tables", default="")
    parser.add_argument("--budget", type=float, default=None, help="seconds a search")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = Path(os.environ["FEDSADDLE_DATA"]) / "tables"
    wanted = [w for w in options.tables.split(",") if w]
    paths = [p for p in sorted(folder.glob("*.csv*")) if not wanted or any(w in p.name for w in wanted)]
    jobs = [(p, seed, options.aim, options.budget) for p in paths for seed in range(options.seeds)]
    with ProcessPoolExecutor(options.processes) as pool:
        results = []
        for result in pool.map(one, jobs):
            results.append(result)
            print(f"{result['table']} {result['seed']} {result['chosen']}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1, default=float))
    key = {"average-precision": "ap", "worst-site": "worst_loss"}.get(options.aim, "auroc")
    print(f"\n{key} of the test rows, mean over {options.seeds} seeds; searched for {options.aim}\n")
    print("| table | choice | FedAvg | pooled | alone | choice - FedAvg | within sites | chosen most often | s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    gaps, to_pooled = [], []
    for name in dict.fromkeys(r["table"] for r in results):
        mean, text = line(name, [r for r in results if r["table"] == name], key)
        print(text)
        gaps.append(mean["choice"] - mean["FedAvg"])
        to_pooled.append(mean["choice"] - mean["pooled"])
    for what, values in (("choice - FedAvg", gaps), ("choice - pooled", to_pooled)):
        half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values) if len(values) > 1 else float("nan")
        mean = np.mean(values)
        interval = f"[{mean - half:+.4f}, {mean + half:+.4f}]"
        print(f"\n{what}: {mean:+.4f} {interval} over {len(values)} tables, least {min(values):+.4f}")


if __name__ == "__main__":
    main()
