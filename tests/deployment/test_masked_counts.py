"""Score counts that are added up behind masks: exact figures at small sites, and nothing that tells of one site."""

from __future__ import annotations

import json
import logging

import numpy as np
import pandas as pd
import pytest
import torch
from in_process import config
from test_secure_runs import Tampering

from fedsaddle.config.schema import validate_config
from fedsaddle.deployment.audit import read_audit
from fedsaddle.deployment.courier import InProcess, Patience
from fedsaddle.deployment.messages import Request
from fedsaddle.deployment.secure_site import read_identity, write_site_keys
from fedsaddle.deployment.server import DeployedRun
from fedsaddle.deployment.site import SiteService, SiteSettings
from fedsaddle.deployment.site_policy import SitePolicy
from fedsaddle.documents.summary import read_summary
from fedsaddle.federation.wire import Message, about, pack, unpack
from fedsaddle.metrics.calibration import at_threshold
from fedsaddle.metrics.ranking import rank
from fedsaddle.metrics.score_sums import bins_of
from fedsaddle.report.run_report import page_of
from fedsaddle.report.sections.score_counts import score_counts
from fedsaddle.report.stored_run import read_run
from fedsaddle.report.tables import one_run

NAMES = tuple("abcd")


def table(seed: int, positives: int, rows: int = 240) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    y = np.zeros(rows, dtype=int)
    y[:positives] = 1
    x = chance.normal(size=(rows, 3)) + 0.9 * y[:, None]
    return pd.DataFrame({"x1": x[:, 0], "x2": x[:, 1], "x3": x[:, 2], "who": np.arange(rows) // 2, "y": y})


def given(together: bool = False, secure: bool = True, **run):
    data = {"name": "file", "target": "y", "features": ["x1", "x2", "x3"], "test_share": 0.3, "validation_share": 0.2}
    stored = config({"name": "FedAvg", "local_steps": 5}, rounds=4, evaluate_every=2, **run).model_dump(mode="json")
    stored |= {"data": data | ({"together": "who"} if together else {}), "split": {"name": "natural"}}
    return validate_config({**stored, "privacy": {"secure_aggregation": secure}})


def made(config, home, tables, policy: SitePolicy | None = None) -> dict[int, SiteService]:
    """Sites with files, keys and the policy that they have by default."""
    services, kits = {}, {name: home / f"kit-{name}" for name in NAMES[: len(tables)]}
    write_site_keys(kits, list(kits))
    for i, (name, rows) in enumerate(zip(kits, tables, strict=True)):
        rows.to_csv(path := home / f"{name}.csv", index=False)
        settings = SiteSettings(name, path, home / f"disk-{name}")
        services[i] = SiteService(config, settings, policy or SitePolicy(), read_identity(kits[name], name))
    return services


def go(config, services, out, transport=None, **patience):
    names = tuple(services[i].settings.name for i in sorted(services))
    transport = transport or InProcess({i: site.answer for i, site in services.items()})
    return DeployedRun(config, "trial", names, out, Patience(**patience)).go(transport)


def test_rows(services, result):
    """The exact scores, labels, offsets and patients of all test rows, as the sites have them."""
    runs = [next(iter(site._runs.values())) for site in services.values()]
    own = [run.rows["test"] for run in runs]
    problem = runs[0].worker.algorithm.problem
    scores = np.concatenate([problem.ranking(result.model, one.x).double().numpy() for one in own])
    y, ends = np.concatenate([one.y.numpy() for one in own]), np.cumsum([0, *(len(one.x) for one in own)])
    units = [np.arange(len(o.x)) if o.unit_numbers(0) is None else o.unit_numbers(0) for o in own]
    return scores, y, ends, np.concatenate([own + 10_000 * i for i, own in enumerate(units)])


test_rows.__test__ = False


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Four sites with six test positives each, too few for counts of their own; two rows a patient."""
    home, cfg = tmp_path_factory.mktemp("masked"), given(together=True)
    services = made(cfg, home, [table(i, 20) for i in range(4)])
    transport = Tampering(services)
    result = go(cfg, services, home / "out", transport)
    return home / "out", result, services, transport.view


def test_the_sum_gives_the_figures_of_the_rows(finished):
    out, result, services, _ = finished
    scores, y, ends, units = test_rows(services, result)
    exact, found = rank(scores, y, ends, NAMES, units=units), json.loads((out / "summary.json").read_text())["scores"]
    assert (found["summed"], found["least"], found["patients"], found["sides"]) == (
        True,
        5,
        True,
        [y.sum(), sum(y < 1)],
    )
    area = exact.pooled.auroc
    assert found["pooled"]["auroc"]["value"] == pytest.approx(area.value, abs=0.005)
    assert found["pooled"]["auroc"]["interval"] == pytest.approx([area.low, area.high], abs=0.005)
    assert found["pooled"]["auroc_bounds"][0] <= area.value <= found["pooled"]["auroc_bounds"][1]
    for own in exact.clients:
        told = found["sites"][own.name]
        assert told.get("auroc") == (None if own.positives < 5 else own.auroc.to_dict())
    pooled = result.summary["pooled"]
    assert abs(pooled["auroc"] - area.value) <= pooled["auroc_error"] + 1e-12


def test_thresholds_are_exact_or_hold_the_exact_share(finished):
    out, result, services, _ = finished
    scores, y, _, units = test_rows(services, result)
    found, exact_ones = json.loads((out / "summary.json").read_text())["scores"]["thresholds"], 0
    for at in found:
        exact = at_threshold(bins_of(scores).astype(float), y, round(at["score"] * 1000), units)
        for name in ("sensitivity", "specificity", "alarms"):
            low, high = at[name]
            assert low - 1e-12 <= getattr(exact, name).value <= high + 1e-12
            if f"{name}_interval" in at:
                exact_ones += 1
                interval = getattr(exact, name)
                assert at[f"{name}_interval"] == pytest.approx([interval.low, interval.high], abs=1e-9)
    assert exact_ones >= 9
    assert "threshold" in json.loads((out / "summary.json").read_text()), "chosen on the summed validation counts"


def test_the_page_says_so_and_has_no_small_count(finished):
    out, *_ = finished
    stored = json.loads((out / "summary.json").read_text())["scores"]
    assert all(n == 0 or n >= 5 for n in [*stored["positives"], *stored["negatives"]])
    words = " ".join(getattr(block, "words", "") for block in score_counts(read_run(out)).blocks)
    assert "summed by secure aggregation" in words
    assert "There are no curves" in words
    told = one_run(read_summary(out / "summary.json"))
    assert "only bounds are known" not in f"{told.caption}{told.columns}"
    assert {"score-counts"} <= {section.key for section in page_of(read_run(out)).sections}


def test_counts_leave_a_site_as_sums_only(finished):
    _, _, services, view = finished
    entries = read_audit(services[0].settings.folder)
    seen = {(e.request, e.field.split(".")[0]): e.visibility for e in entries if e.request in ("measure", "spread")}
    assert seen["measure", "sums"] == seen["spread", "sums"] == "sum only"
    assert not {field for _, field in seen} & {"scores", "groups"}
    answers = [unpack(a.content, {}).record for sent, a in view if about(sent).get("do") == "measure"]
    sums = json.loads((finished[0] / "summary.json").read_text())["secure_aggregation"]["sums"]
    assert {"BinCounts.positives", "SquareSums.squares", "SquareSums.within"} <= set(sums)
    told = [one for one in answers if isinstance(one, dict) and "sums" in one]
    assert len(told) >= 8
    for one in told:
        assert isinstance(one["sums"], torch.Tensor)
        assert one["sums"].dtype == torch.uint8
        assert len(set(one["sums"].tolist())) > 200, "masked words look random"


def test_bounds_alone_where_too_few_sites_have_positives(tmp_path, caplog):
    cfg = given()
    services = made(cfg, tmp_path, [table(0, 30), table(1, 30), table(2, 0), table(3, 0)])
    with caplog.at_level(logging.WARNING, "fedsaddle.server"):
        result = go(cfg, services, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "summary.json").read_text())["scores"]
    assert "summed" not in found
    assert "test: only 2 sites have positives; score counts are not summed" in caplog.text
    scores, y, ends, _ = test_rows(services, result)
    exact = rank(scores, y, ends, NAMES)
    low, high = found["pooled"]["auroc_bounds"]
    assert low <= exact.pooled.auroc.value <= high
    assert high - low > 0.02
    assert "auroc" not in found["pooled"], "no point as if it were data"
    assert found["sites"]["a"]["auroc"] == exact.clients[0].auroc.to_dict()
    assert found["sites"]["c"]["positives"] == 0


def test_a_site_without_test_rows_is_not_in_the_sum(tmp_path):
    cfg = given()
    services = made(cfg, tmp_path, [table(0, 30), table(1, 30), table(2, 30), table(3, 10, 40)])
    result = go(cfg, services, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "summary.json").read_text())["scores"]
    assert found["summed"]
    assert set(found["sites"]) == {"a", "b", "c"}
    assert found["sides"][0] == 28
    assert result.summary["test"]


def test_three_sites_go_on_when_the_fourth_is_lost(tmp_path):
    cfg = given()
    services = made(cfg, tmp_path, [table(i, 30) for i in range(4)])

    def arrived(arrival, content):
        return None if arrival.client == 3 and about(content).get("do") in ("measure", "unmask") else arrival

    go(cfg, services, tmp_path / "out", Tampering(services, arrived=arrived), minimum=3, patience=0.0, timeout=1.0)
    found = json.loads((tmp_path / "out" / "summary.json").read_text())["scores"]
    assert found["summed"]
    assert (found["without_counts"], set(found["sites"]), found["sides"][0]) == (["d"], {"a", "b", "c"}, 28)


def test_a_site_opens_its_masks_for_one_sum_of_a_model(tmp_path):
    """Two sums of the same counts over other sites would tell those of one by their difference."""
    cfg = given()
    services = made(cfg, tmp_path, [table(i, 30) for i in range(4)])
    lost: list[int] = []

    def arrived(arrival, content):
        return None if arrival.client in lost and about(content).get("do") in ("measure", "unmask") else arrival

    transport = Tampering(services, arrived=arrived)
    patience = {"minimum": 3, "patience": 0.0, "timeout": 1.0}
    first = go(cfg, services, tmp_path / "out", transport, **patience)
    assert first.summary["scores"]["sides"][0] == 38
    (tmp_path / "out" / "summary.json").unlink()
    lost.append(3)
    again = go(cfg, services, tmp_path / "out", transport, **patience)
    assert "summed" not in again.summary["scores"], "refused; counts of each site, small ones merged, remain"
    assert "the difference of the two would reveal one site" in (tmp_path / "out" / "log.txt").read_text()


@pytest.mark.parametrize(
    "change",
    [
        lambda own: {**own, "auroc": [2.0, 0.1, 0.9, 0.1]},
        lambda own: {**own, "positives": 10_000},
        lambda own: {**own, "alarms": []},
        lambda own: {**own, "more": 1},
        lambda own: [1],
    ],
)
def test_own_figures_that_cannot_be_are_a_fault_of_the_site(change, tmp_path):
    from fedsaddle.deployment.evaluation import check_measurements
    from fedsaddle.errors import BadMessage

    own = {"positives": 20, "negatives": 30, "auroc": [0.8, 0.7, 0.9, 0.01], "alarms": [[5, 6]]}
    reply = {"rows": 50, "means": {"loss": 0.5}, "least": 5, "own": own}
    assert check_measurements(0, reply, {"loss"}, 50, 1)["own"] == own
    with pytest.raises(BadMessage):
        check_measurements(0, {**reply, "own": change(own)}, {"loss"}, 50, 1)


def test_agreed_groups_have_the_figures_of_their_rows(tmp_path):
    """A group that one site alone has is not summed, and a group with few rows has no figures."""
    tables = [table(i, 60) for i in range(3)]
    for k, rows in enumerate(tables):
        rows["sex"] = np.where(np.arange(len(rows)) % 5 < 2, "F", "M")
        rows.loc[np.arange(len(rows)) % 2 == 0, "sex"] = "other" if k == 0 else "M"
    stored = given(together=True).model_dump(mode="json")
    stored["data"] |= {"groups": ["sex"], "categories": {"sex": ["F", "M", "other"]}, "stratify": True}
    cfg = validate_config(stored)
    services = made(cfg, tmp_path, tables)
    result = go(cfg, services, tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert set(summary["scores"]["groups"]) == {"sex"}
    found = {one["group"]: one for one in summary["scores"]["groups"]["sex"]}
    assert set(found) == {"F", "M"}, "the third is at one site"
    scores, y, _, units = test_rows(services, result)
    words = np.concatenate([site._rows().groups[0]["sex"][site._rows().parts["test"][1]] for site in services.values()])
    for name, own in found.items():
        rows = words == name
        exact = rank(scores[rows], y[rows], [0, rows.sum()], ["own"], units=units[rows]).clients[0]
        assert (own["positives"], own["negatives"]) == (exact.positives, exact.negatives)
        assert own["auroc"]["value"] == pytest.approx(exact.auroc.value, abs=0.01)
        assert own["auroc"]["interval"] == pytest.approx([exact.auroc.low, exact.auroc.high], abs=0.01)
    blocks = score_counts(read_run(tmp_path / "out")).blocks
    shown = next(block for block in blocks if getattr(block, "heads", [""])[0] == "column")
    assert [row[1] for row in shown.rows] == ["F", "M"]
    sums = summary["secure_aggregation"]["sums"]
    assert "BinCounts.positives" in sums


def test_the_best_round_is_chosen_by_the_summed_counts(tmp_path):
    cfg = given(select="auroc")
    services = made(cfg, tmp_path, [table(i, 30) for i in range(3)])
    summary = go(cfg, services, tmp_path / "out").summary
    history = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    best = max(history, key=lambda record: record["pooled_validation"]["auroc"])
    assert summary["selected_round"] == best["round"]
    assert summary["scores"]["summed"]


def asked_alone(services, result, do: str, shares: dict[str, float]) -> str:
    """What the first site answers to a question about the run's model, made up by a server; the reason of a refusal."""
    worker = next(iter(services[0]._runs.values())).worker
    measured = next(iter(services[0]._runs.values())).questions._measurements
    cuts = next(cuts for model, cuts in measured.items() if model.part == "test")
    payload = {"w": result.model, "dual": None, "part": "test", "rounds": 4, "cuts": cuts, "secure": {"shares": shares}}
    if do == "spread":
        payload |= dict.fromkeys(("positives", "negatives"), torch.ones(1, 1000, dtype=torch.float64))
    header = Request(do=do, run="trial", fingerprint=worker.fingerprint, nonce="made").to_dict()
    answer = unpack(services[0].answer(pack(Message(header, payload))), {})
    return (answer.about["failure"] or {}).get("detail", "")


def test_without_masks_there_are_bounds_and_no_sums(tmp_path):
    cfg = given(secure=False)
    services = made(cfg, tmp_path, [table(i, 30) for i in range(4)])
    result = go(cfg, services, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "summary.json").read_text())["scores"]
    assert "summed" not in found
    assert "interval" not in json.dumps(found["pooled"])
    assert all(own["auroc"]["interval"] for own in found["sites"].values()), "each site's own figure is exact"
    thirds = dict.fromkeys("012", 1 / 3)
    for do in ("measure", "spread"):
        assert "has no masks in this run" in asked_alone(services, result, do, thirds)


def test_a_sum_that_would_not_hide_a_site_is_refused(finished):
    _, result, services, _ = finished
    assert "at least 3" in asked_alone(services, result, "measure", {"0": 0.5, "1": 0.5})
    unequal = {"0": 0.9, "1": 0.05, "2": 0.05}
    assert "unequal shares" in asked_alone(services, result, "spread", unequal)
    assert "not at all" in asked_alone(services, result, "measure", dict.fromkeys("123", 1 / 3))
