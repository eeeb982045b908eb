"""The release check on three planted models: an over-fitted network, a logistic regression, and private ones.

    python benchmarks/release_check.py [--seeds 20]

It ends with exit code 1 unless the network's attack has an AUROC of at least .7, the regression's intervals contain .5,
every private model stays below the bound of its epsilon, and no more than a tenth of attacks on strangers, of which
nobody was trained on, are called successful.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from fedsaddle.config.run_config import run_config
from fedsaddle.config.schema import validate_config
from fedsaddle.runs.folder import RunFolder
from fedsaddle.studies.release_check import attack_auroc, check_release, likelihood_ratio

MODELS = {"network": {"name": "mlp", "hidden": [256]}, "regression": {"name": "logistic"}}


def table(rows: int, columns: int, sites: int, seed: int) -> pd.DataFrame:
    """Rows with a linear signal."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, columns))
    odds = x @ draw.normal(size=columns) / np.sqrt(columns)
    found = pd.DataFrame(x, columns=[f"v{k}" for k in range(columns)])
    found["site"] = [f"s{i}" for i in draw.integers(0, sites, rows)]
    found["label"] = (draw.random(rows) < 1 / (1 + np.exp(-odds))).astype(int)
    return found


def trained(folder: Path, kind: str, rows: int, columns: int, rounds: int, seed: int, **privacy: float) -> Path:
    """A run on such rows."""
    csv = folder / f"{kind}-{seed}.csv"
    table(rows, columns, 2 if rows < 100 else 4, seed).to_csv(csv, index=False)
    config = validate_config(
        {
            "data": {"name": "file", "path": str(csv), "target": "label", "client": "site", "test_share": 0.35},
            "split": {"name": "natural", "column": "site"},
            "model": MODELS[kind],
            "problem": {"name": "supervised", "loss": "logistic"},
            "algorithm": {"name": "FedAvg", "local_steps": 8, "batch_size": 32, "primal_step": 0.3},
            "run": {"rounds": rounds, "seed": seed, "evaluate_every": rounds},
            **({"privacy": privacy} if privacy else {}),
        }
    )
    out = folder / f"{kind}-{seed}-run"
    run_config(config, out=out)
    RunFolder(out).write_config(config.model_dump(mode="json"))
    return out


def false_alarms(draws: int) -> float:
    """How often attacks on models that were trained on none of the rows are called successful."""
    alarms, draw = 0, np.random.default_rng(0)
    for _ in range(draws):
        rows = int(draw.integers(60, 400))
        level = draw.normal(size=rows)  # some rows are easier for all models
        models = level + draw.normal(size=(17, rows))
        members = draw.random(rows) < 0.64
        shadows = draw.random((16, rows)) < 0.64
        for statistic in (models[0], likelihood_ratio(models[0], models[1:], shadows)):
            alarms += attack_auroc(statistic, members).low > 0.5
    return alarms / (2 * draws)


def main() -> int:
    given = argparse.ArgumentParser()
    given.add_argument("--seeds", type=int, default=20)
    seeds = given.parse_args().seeds
    failures = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        began = time.monotonic()
        check = check_release(trained(folder, "network", 60, 20, 200, 0))
        print("network, 60 rows:", check.to_dict(), f"{time.monotonic() - began:.0f} s")
        if max(a.value for a in check.attacks.values()) < 0.7 or not check.successful:
            failures.append("network")
        began = time.monotonic()
        check = check_release(trained(folder, "regression", 5000, 20, 50, 0))
        print("regression, 5,000 rows:", check.to_dict(), f"{time.monotonic() - began:.0f} s")
        if check.successful:
            failures.append("regression")
        for seed in range(seeds):
            run = trained(folder, "regression", 400, 10, 20, 1 + seed, epsilon=1.0, delta=1e-4)
            check = check_release(run, shadows=8)
            assert check.privacy is not None
            highest = max(a.value for a in check.attacks.values())
            print(f"epsilon {check.privacy.epsilon:.2f}: {highest:.3f}, bound {check.privacy.auroc:.3f}")
            if highest > check.privacy.auroc:
                failures.append(f"epsilon, seed {seed}")
    share = false_alarms(400)
    print(f"false alarms: {share:.1%} of 800 attacks (2.5 % are expected)")
    if share > 0.05:
        failures.append("false alarms")
    print("failed:", ", ".join(failures) or "nothing")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
