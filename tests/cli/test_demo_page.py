"""The page of the demo says what its table says."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsaddle.commands.demo import demo_algorithms, mean_history
from fedsaddle.report.comparison import write_demo_page

SITES = ["site 01", "<i>02</i>", "site 03"]


def history(rng: np.random.Generator, lift: float) -> list[dict[str, Any]]:
    records = []
    for done in (1, 2, 3):
        own = np.clip(rng.normal(0.6 + lift, 0.05, 3), 0, 1)
        spread = {"mean": own.mean(), "worst": own.min(), "best": own.max(), "std": own.std(), "global": own.mean()}
        spread["bottom10"] = own.min()
        records.append({"round": done, "test": {"accuracy": spread}, "clients": {"test": {"accuracy": own.tolist()}}})
    return records


def test_the_best_worst_site_is_named(tmp_path):
    rng = np.random.default_rng(0)
    seeds = {name: [history(rng, 0.3 * (name == "AFL")) for _ in range(3)] for name in demo_algorithms()}
    means = {name: mean_history(own) for name, own in seeds.items()}
    page = write_demo_page(tmp_path / "report.html", seeds, means, SITES, 12.0).read_text()
    worst = means["AFL"][-1]["test"]["accuracy"]["worst"]
    assert f"AFL has the best worst site: {100 * worst:.1f} % there" in page
    assert "&lt;i&gt;02&lt;/i&gt;" in page
    assert "<i>02" not in page
    assert all(f"worst site, {name}" in page for name in demo_algorithms())
