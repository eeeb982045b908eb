"""Missing cells by site from the facts that sites told."""

from __future__ import annotations

import json

from test_masked_counts import given, go, made, table

from fedsaddle.report.run_report import page_of
from fedsaddle.report.stored_run import read_run


def test_missing_cells_are_those_of_the_training_rows(tmp_path):
    tables = [table(i, 30) for i in range(3)]
    tables[0].loc[tables[0].index % 3 == 0, "x1"] = None
    tables[1]["x2"] = None
    tables[2].loc[:1, "x3"] = None  # too few to be told
    cfg = given()
    services = made(cfg, tmp_path, tables)
    go(cfg, services, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "summary.json").read_text())["missing"]
    rows = [services[i]._rows().count("train") for i in range(3)]
    gaps = services[0]._rows().sources[0].features
    train = services[0]._rows().train
    first = next(column for column in gaps.columns if column.name == "x1").missing[train].sum()
    assert found["x1"]["sites"] == {"a": round(first / rows[0], 4)}
    assert abs(found["x1"]["share"] - first / sum(rows)) < 1e-12
    assert found["x2"] == {"share": rows[1] / sum(rows), "sites": {"b": 1.0}}
    assert set(found) == {"x1", "x2"}
    assert "missing" in [section.key for section in page_of(read_run(tmp_path / "out")).sections]
