"""Probabilities from few validation positives: leave scores as they are, Platt's line, or Platt's line shrunk.

    FEDSADDLE_DATA=... python benchmarks/calibration.py [--seeds 3] [--tables eicu,lung] [--json FILE]

For each table, seed and number k of validation positives, about 4 k positives with their share of the negatives train,
k validate, and all other rows test. The candidates of `fedsaddle run TABLE` that minimise a log loss are trained with
their first step. Each way to get probabilities is fitted on the validation rows; log loss and Brier score are those of
the test rows, as the difference from scores taken as log odds (below 0: better), averaged over tables, seeds and
candidates. `spread N` shrinks the line towards the scores as they are, by a prior with standard deviation N of the
slope around 1 and of the shift around 0; the library has 0.5.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import fedsaddle as fs
from fedsaddle.metrics import calibration
from fedsaddle.metrics.calibration import Platt, calibration_figures
from fedsaddle.studies.candidates import BASE, Facts, candidates
from fedsaddle.studies.trial import Trial, ranked, run_trial

PATIENTS = ("eicu-demo-died", "randhie-admission")
POSITIVES = (6, 12, 18, 30, 60, 120)
SPREADS = (0.125, 0.25, 0.5, 1.0)


def ways(scores, labels):
    """The line of each way from scores to log odds."""
    yield "as they are", Platt(1.0, 0.0)
    yield "Platt", Platt.fit(scores, labels)
    for spread in SPREADS:
        with mock.patch.object(calibration, "SPREAD", spread):
            yield f"spread {spread:g}", Platt.fit(scores, labels, log_odds=True)


def one(job):
    """One table with one seed and one number of validation positives: a line for each candidate and way."""
    path, seed, positives = job
    warnings.simplefilter("ignore")
    name = path.name.split(".")[0]
    patient = "patient" if name in PATIENTS else None
    dataset = fs.from_file(
        path, target="label", client="site", together=patient, site_intercept=True, hinges=3, positive="1"
    )
    share = 5 * positives / int(dataset.train.y.sum())  # of the rows that train or validate
    if share > 0.8:
        return []
    data = fs.federate(dataset, fs.splits.Natural("site"), seed, 1 - share, stratify=True, validation_share=0.2 * share)
    found = []
    for candidate in candidates(Facts.of(data), "auroc"):
        if candidate.start is not None:
            continue
        with TemporaryDirectory() as folder:
            trial = Trial(candidate, candidate.steps[0], candidate.rounds, seed, "auroc", Path(folder))
            outcome = run_trial(trial, lambda progress: None, lambda: False, data=data)
        if outcome.model is None:
            continue
        setup = trial.setup(data)
        own = setup.data
        scores = ranked(setup.algorithm.problem, outcome.model, own.test.x)
        labels, y = own.test.y.numpy(), own.validation.y.numpy()
        base = {"table": name, "seed": seed, "k": positives, "found": int(y.sum()), "candidate": candidate.name}
        for way, platt in ways(outcome.scores, y):
            figures = calibration_figures(platt.probability(scores), labels)
            found.append({**base, "way": way, "slope": platt.slope, **figures})
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tables", default="")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = Path(os.environ["FEDSADDLE_DATA"]) / "tables"
    wanted = [w for w in options.tables.split(",") if w]
    paths = [p for p in sorted(folder.glob("*.csv*")) if not wanted or any(w in p.name for w in wanted)]
    jobs = [(p, seed, k) for seed in range(options.seeds) for p in paths for k in POSITIVES]
    results = []
    with ProcessPoolExecutor(options.processes) as pool:
        for found in pool.map(one, jobs):
            results += found
            if options.json:
                options.json.write_text(json.dumps(results, indent=1, default=float))
    show(results, "all candidates")
    show([r for r in results if r["candidate"] == BASE], BASE)


def show(results, title):
    """Means over tables of the means over seeds and candidates."""
    names = list(dict.fromkeys(r["way"] for r in results))
    for figure in ("log_loss", "brier_score"):
        print(f"\n{title}: {figure} of the test rows, minus that of the scores as they are\n")
        print(f"| validation positives | tables | Platt's slope, 5 % to 95 % | {' | '.join(names[1:])} |")
        print("| --- " * (len(names) + 2) + "|")
        for k in POSITIVES:
            own = [r for r in results if r["k"] == k]
            tables = sorted({r["table"] for r in own})
            if not tables:
                continue
            cells = []
            for way in names[1:]:
                gaps = [
                    np.mean([r[figure] for r in own if r["table"] == t and r["way"] == way])
                    - np.mean([r[figure] for r in own if r["table"] == t and r["way"] == names[0]])
                    for t in tables
                ]
                cells.append(f"{np.mean(gaps):+.4f}")
            low, high = np.quantile([r["slope"] for r in own if r["way"] == "Platt"], [0.05, 0.95])
            print(f"| {k} | {len(tables)} | {low:.2f} to {high:.2f} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
