"""How often the 95 % intervals of several classes, numbers, counts and survival, and of coefficients, hold the truth.

    python benchmarks/outcome_coverage.py [--draws 1000]

Figures are those of a fixed, imperfect model on test rows that are drawn anew, of patients with one or three rows each;
the truth is the figure of 400,000 rows (of 20,000 for the concordance). Coefficients are those of a logistic regression
with site intercepts and the penalty of a table study; their truth is drawn anew each time, with a standard deviation of
0.5 for one standard deviation of a column.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import fedsaddle as fs
from fedsaddle.metrics.outcomes import of_classes, of_counts, of_numbers
from fedsaddle.metrics.survival import concordance

SITES = 5


def rows(rng, n, patients):
    """A score, and what patients share."""
    shared = np.repeat(rng.normal(size=n // patients), patients)
    return rng.normal(size=n), 0.7 * shared if patients > 1 else np.zeros(n)


def classes(rng, n, patients):
    x, shared = rows(rng, n, patients)
    scores = np.stack([0 * x, x + shared, -1 - x], 1)
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    y = (rng.random((n, 1)) > p.cumsum(1)).sum(1).clip(0, 2)
    model = np.exp(0.7 * np.stack([0 * x, x, -1 - x], 1))
    return of_classes(model / model.sum(1, keepdims=True), y, ("a", "b", "c"))


def numbers(rng, n, patients):
    x, shared = rows(rng, n, patients)
    return of_numbers(0.8 * x, x + shared + rng.standard_t(5, size=n))


def counts(rng, n, patients):
    x, shared = rows(rng, n, patients)
    exposure = rng.uniform(0.5, 2, n)
    return of_counts(
        exposure * np.exp(0.3 * x), rng.poisson(exposure * np.exp(0.5 * x + shared - shared.var() / 2)), exposure
    )


def survival(rng, n, patients):
    x, shared = rows(rng, n, patients)
    time, end = rng.exponential(np.exp(-0.7 * x - shared)), rng.exponential(2.0, n)
    found = concordance(x, np.minimum(time, end), (time <= end).astype(float))
    return {} if found is None else {"concordance": found}


def of_figures(draws):
    for name, draw in {"classes": classes, "number": numbers, "count": counts, "survival": survival}.items():
        for patients in (1, 3):
            large = 20_000 if name == "survival" else 400_000
            truth = draw(np.random.default_rng(1), large // 3 * 3, patients)
            for n in (99, 300):
                hit = {key: [] for key in truth}
                for k in range(draws):
                    found = draw(np.random.default_rng([k, n]), n, patients)
                    units = None if patients == 1 else np.repeat(np.arange(n // patients), patients)
                    for key, figure in found.items():
                        own = figure.interval(units)
                        if own is not None:
                            hit[key].append(own.low <= truth[key].value <= own.high)
                said = ", ".join(f"{key} {np.mean(own):.3f}" for key, own in hit.items() if own)
                print(f"{name}, {n} rows, {patients} a patient: {said}", flush=True)


def of_coefficients(draws):
    for n, d in ((300, 5), (300, 20), (1000, 10)):
        plain, prior = [], []
        for k in range(draws):
            rng = np.random.default_rng([k, n, d])
            x, site = rng.normal(size=(n, d)), np.sort(rng.integers(0, SITES, n))
            true = rng.normal(size=d) / 2
            y = rng.random(n) < 1 / (1 + np.exp(1 - x @ true - rng.normal(size=SITES)[site] / 2))
            z = np.column_stack([x, np.eye(SITES)[site]]).astype(np.float32)
            ends = np.searchsorted(site, np.arange(SITES + 1)).astype(np.int64)
            own = fs.Stacked(torch.from_numpy(z), torch.from_numpy(y.astype(np.int64)), ends)
            problem = fs.Supervised(torch.nn.Linear(d + SITES, 1), fs.losses.Logistic(), l2=1 / n, l2_biases=False)
            result = fs.run(fs.Newton(problem=problem), own, rounds=12, evaluate_every=12)
            for found, made in ((plain, fs.inference(result)), (prior, fs.inference(result, prior=True))):
                low, high = made.interval[:d].T
                found.append(np.mean((low <= true) & (true <= high)))
        print(f"{d} coefficients, {n} rows: as it is {np.mean(plain):.3f}, with prior {np.mean(prior):.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000)
    options = parser.parse_args()
    of_figures(options.draws)
    of_coefficients(max(1, options.draws // 5))
