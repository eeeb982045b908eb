"""Deployed runs choose their best round on the sites' validation rows, as a simulation does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from in_process import OPEN, config, deployed, simulated, sites

from fedsaddle.config.schema import validate_config
from fedsaddle.deployment.courier import InProcess
from fedsaddle.deployment.project import require_deployable
from fedsaddle.deployment.site import SiteService, SiteSettings
from fedsaddle.errors import BadInput
from fedsaddle.federation.wire import about, unpack

HELD = {"validation_share": 0.2, "stratify": True}
LONG_STEP = {"name": "DRFA", "sampled_clients": 3, "local_steps": 3, "primal_step": 3.0}
CASES = {
    "worst loss": config(LONG_STEP, held_out=HELD, select="worst loss", rounds=12),
    "patience": config(LONG_STEP, held_out=HELD, select="worst loss", patience=2, rounds=30, evaluate_every=2),
    "memory": config(
        {"name": "Local SGDA+", "local_steps": 3, "snapshot_every": 2},
        problem={"name": "class-fair"},
        held_out=HELD,
        select="mean loss",
    ),
    "CODASCA": config(
        {"name": "CODASCA"}, "breast-cancer", {"name": "auc"}, held_out=HELD, select="worst loss", rounds=8
    ),
}


class Noted(InProcess):
    """Notes which part of the rows each request for measurements is about, and may break down."""

    def __init__(self, made, breaks_after=None):
        super().__init__({i: site.answer for i, site in made.items()})
        self.parts, self.left = [], breaks_after

    def exchange(self, clients, content, least, timeout):
        if about(content).get("do") == "measure":
            self.parts.append(unpack(content, {}).record["part"])
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise KeyboardInterrupt
        return super().exchange(clients, content, least, timeout)


@pytest.mark.parametrize("given", CASES.values(), ids=CASES)
def test_a_deployed_run_chooses_as_the_simulated_one(given, tmp_path):
    made = sites(given, tmp_path)
    transport = Noted(made)
    found, expected = deployed(given, made, tmp_path / "out", transport), simulated(given)
    for key in ("stopped", "rounds", "select", "selected_round"):
        assert found.summary[key] == expected.summary[key], key
    assert found.summary["selected"] == pytest.approx(expected.summary["selected"], abs=1e-9)
    assert torch.equal(found.model, expected.model)
    for part in ("validation", "test", "train"):
        for measure, figures in expected.summary[part].items():
            assert found.summary[part][measure] == pytest.approx(figures, abs=1e-9)
    assert transport.parts.count("test") == 1, "the test rows are measured once"
    assert "test" not in transport.parts[: -len(found.summary.keys() & {"validation", "test", "train"})]
    assert all("validation" in r and "test" not in r for r in found.history)


def test_the_cases_choose_a_round_before_the_last_and_run_out_of_patience():
    results = [simulated(given) for given in CASES.values()]
    assert any(r.summary["selected_round"] < r.summary["rounds"] for r in results)
    assert results[1].summary["stopped"] == "patience"


@pytest.mark.parametrize(
    ("name", "breaks_after"),
    [
        pytest.param("worst loss", 1, marks=pytest.mark.slow),
        ("worst loss", 4),
        pytest.param("worst loss", 7, marks=pytest.mark.slow),
        ("memory", 4),
        pytest.param("patience", 4, marks=pytest.mark.slow),
    ],
)
def test_a_server_that_was_interrupted_chooses_the_same(name, breaks_after, tmp_path):
    given = CASES[name]
    made = sites(given, tmp_path)
    whole = deployed(given, made, tmp_path / "whole")
    fresh = sites(given, tmp_path / "again")
    with pytest.raises(KeyboardInterrupt):
        deployed(given, fresh, tmp_path / "parts", Noted(fresh, breaks_after))
    found = deployed(given, fresh, tmp_path / "parts")
    assert torch.equal(found.model, whole.model)
    assert found.summary["selected_round"] == whole.summary["selected_round"]
    assert found.summary["test"] == whole.summary["test"]
    untimed = [[{k: v for k, v in r.items() if k != "seconds"} for r in result.history] for result in (found, whole)]
    assert untimed[0] == untimed[1]


def test_the_auroc_of_the_validation_rows_chooses(tmp_path):
    algorithm = {"name": "FedAvg", "local_steps": 3, "primal_step": 2.0}
    given = config(algorithm, "breast-cancer", {"loss": "logistic"}, held_out=HELD, select="auroc", rounds=8)
    found, exact = deployed(given, sites(given, tmp_path), tmp_path / "out"), simulated(given)
    areas = [r["pooled_validation"]["auroc"] for r in found.history]
    assert found.summary["selected_round"] == 1 + areas.index(max(areas))
    assert found.summary["selected"] == max(areas)
    assert found.summary["probabilities"]["slope"] > 0
    for ours, theirs in zip(found.history, exact.history, strict=True):
        near, true = ours["pooled_validation"], theirs["pooled_validation"]
        assert abs(near["auroc"] - true["auroc"]) <= near["auroc_error"] + 1e-12
    assert {"auroc", "auroc_error"} <= found.summary["pooled"].keys()


def test_a_target_watches_the_validation_rows(tmp_path):
    given = config(
        {"name": "FedAvg", "local_steps": 3}, held_out={"validation_share": 0.2}, target="mean accuracy >= 0.5"
    )
    made = sites(given, tmp_path)
    transport = Noted(made)
    found = deployed(given, made, tmp_path / "out", transport)
    assert found.summary["stopped"] == "target"
    assert found.summary["rounds"] == simulated(given).summary["rounds"]
    assert transport.parts.count("test") == 1


def test_sites_hold_out_rows_of_their_own_tables(tmp_path):
    """Each site parts its patients by itself; what it tells of its rows adds up."""
    chance = np.random.default_rng(0)
    given = validate_config(
        {
            "data": {
                "name": "file",
                "path": "x.csv",
                "target": "ill",
                "together": "patient",
                "features": ["age"],
                **HELD,
            },
            "split": {"name": "natural"},
            "model": {"name": "logistic"},
            "algorithm": {"name": "FedAvg", "batch_size": 4},
            "run": {"rounds": 4, "select": "worst loss"},
        }
    )
    made = {}
    for i in range(3):
        patient = np.arange(60) // 2
        rows = [f"{a:.3f},{p},{'yes' if p % 3 else 'no'}" for a, p in zip(chance.normal(size=60), patient, strict=True)]
        path = tmp_path / f"{i}.csv"
        path.write_text("age,patient,ill\n" + "\n".join(rows) + "\n")
        made[i] = SiteService(given, SiteSettings(f"site-{i + 1}", path, tmp_path / f"disk-{i}"), OPEN)
    found = deployed(given, made, tmp_path / "out")
    assert found.summary["selected_round"] in range(1, 5)
    for site in made.values():
        raw = site._rows()
        patients = [set((part // 2).tolist()) for _, part in raw.parts.values()]
        assert sum(map(len, patients)) == len(set.union(*patients)) == 30
        assert raw.count("validation") == pytest.approx(12, abs=4)
    assert len({tuple(site._rows().parts["validation"][1].tolist()) for site in made.values()}) > 1


def test_clients_for_the_test_only_are_for_simulations():
    given = config({"name": "FedAvg"}, held_out={"test_clients": ["client 1"]})
    with pytest.raises(BadInput, match=r"data.test_clients = \['client 1'\]: works in simulations only"):
        require_deployable(given)
