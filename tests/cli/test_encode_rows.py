"""`encoded(row)` of load_model.py: exactly the features that the model was trained on, for raw cells of every kind."""

from __future__ import annotations

import csv
import json
import math
import os
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from table_runs import PATIENTS, lines, loaded, searched

from fedsaddle.config.build import build_algorithm
from fedsaddle.data.tables.parse import parse_dates, parse_numbers
from fedsaddle.metrics.calibration import Platt, Threshold
from fedsaddle.studies.candidates import BASE, Facts, candidates
from fedsaddle.studies.model_loader import write_loader
from fedsaddle.studies.table_config import TableConfig
from fedsaddle.studies.trial import features_of

COLUMNS = ["site", "lab", "dose", "seen", "clock", "us", "said", "flag", "sign", "mixed", "code", "skew", "ill"]


def odd_table(path: Path, delimiter: str = ";") -> Path:
    """Limits, decimal commas, thousands, dates in two orders, times, truth values, signs, gaps and rare words."""
    rng = np.random.default_rng(0)
    sites = ["none", "True", " North ", "S-1"]
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, delimiter=delimiter)
        out.writerow(COLUMNS)
        for i in range(400):
            day = datetime(2024, 1 + i % 12, 1 + i % 28, i % 24, i % 60)
            cells = [
                sites[i % 4],
                [f"{rng.normal(5, 2):.2f}", ">20", "< 0.5", "n/a", f"{i} mg"][min(4, i % 9)]
                if i % 9 < 5
                else f"{i % 7}",
                [f"{i % 13},{i % 10}", "1.234,5", "", "unknown"][min(3, i % 8)] if i % 8 < 4 else f"{i % 11},25",
                day.strftime(["%d.%m.%Y", "%Y-%m-%d %H:%M", "%d %b %Y", "%Y/%m/%d"][i % 4]) if i % 6 else "?",
                day.strftime(["%H:%M", "%H:%M:%S"][i % 2]) if i % 5 else "-",
                day.strftime(["%m/%d/%Y", "%m/%d/%Y %I:%M %p", "%B %d, %Y"][i % 3]),
                ["yes", "Yes ", "unknown", "NA", "rare"][min(4, i % 5)] if i % 5 < 4 or i < 20 else "no",
                ["TRUE", "false", "True", ""][i % 4],
                "+-"[i % 2],
                ["True", "maybe", "FALSE"][i % 3],
                f"c{i % 3}" if i % 50 else f"once{i}",
                f"{math.exp(rng.normal(2, 2)):.3f}".replace(".", ",") if i % 7 else ".",
                int(rng.random() < 0.4),
            ]
            out.writerow(cells)
    return path


def written(table: TableConfig, out: Path):
    """The loader of an untrained model, and the rows as the library encodes them."""
    data = table.federated(table.dataset())
    candidate = next(c for c in candidates(Facts.of(data), "auroc") if c.name == BASE)
    own = features_of(data, candidate) if out.name != "hinges" else data
    algorithm, model = build_algorithm(candidate.experiment(0.1, 0), own)
    out.mkdir()
    problem = algorithm.problem
    module = problem.module(torch.randn(problem.dimension, generator=torch.Generator().manual_seed(1)))
    from safetensors.torch import save_file

    save_file(module.state_dict(), out / "model.safetensors")
    write_loader(model, own, module, out, Platt(1.5, -0.5), Threshold(0.5, "made up"))
    parts = [(own.train, own.train_rows), (own.validation, own.validation_rows), (own.test, own.test_rows)]
    return loaded(out), np.concatenate([p.x.numpy() for p, _ in parts]), np.concatenate([n for _, n in parts])


@pytest.mark.filterwarnings("ignore:.*was not seen in training")  # values of held-out rows
@pytest.mark.parametrize("name", ["plain", "hinges"])
@pytest.mark.parametrize("path", ["patients", "odd"])
def test_rows_of_the_file_are_encoded_as_in_training(path, name, tmp_path):
    if path == "patients":
        table, delimiter = TableConfig(PATIENTS, "hospital", "died", patient="patient"), ","
    else:
        table, delimiter = TableConfig(odd_table(tmp_path / "odd.csv"), "site", "ill"), ";"
    made, x, numbers = written(table, tmp_path / name)
    with table.table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter=delimiter))
    kinds = {f["kind"] for f in made.FEATURES}
    assert kinds >= {"number", "missing", "category", "site"}
    assert ("hinge" in kinds) == (name == "hinges")
    ours = made.encoded([rows[number] for number in numbers], strict=path == "patients").numpy()
    for k, feature in enumerate(made.FEATURES):
        np.testing.assert_allclose(ours[:, k], x[:, k], rtol=0, atol=2e-6, err_msg=json.dumps(feature))


@pytest.mark.filterwarnings("ignore:column")
def test_cells_that_the_file_has_not(tmp_path):
    made, _, _ = written(TableConfig(odd_table(tmp_path / "odd.csv"), "site", "ill"), tmp_path / "out")
    columns = {f["column"] for f in made.FEATURES}
    assert columns == set(COLUMNS) - {"ill"}
    names = [(f["column"], f["kind"], f.get("category")) for f in made.FEATURES]

    def one(**cells):
        return dict(zip(names, made.encoded(cells, strict=False)[0].tolist(), strict=True))

    nothing = one()
    assert nothing == one(**dict.fromkeys(columns)) == one(**dict.fromkeys(columns, "")) == one(lab=float("nan"))
    for f in made.FEATURES:
        if f["kind"] == "missing":
            assert nothing[(f["column"], "missing", None)] == 1
        if f["kind"] == "site":
            assert nothing[("site", "site", f["category"])] == pytest.approx(f["unknown"])
        if f["kind"] == "category":
            assert nothing[(f["column"], "category", f["category"])] == 0
    assert one(code="never seen")[("code", "other", None)] == 1
    assert one(code="c1")[("code", "other", None)] == 0
    assert one(site="none") == one(site=" none ")
    assert one(site="none")[("site", "site", "none")] == 1
    assert one(site="True")[("site", "site", "True")] == 1
    assert one(site="elsewhere") == nothing
    assert one(lab=">20") == one(lab=20) == one(lab="20 mg") == one(lab=20.0)
    assert one(dose="1,5") == one(dose=1.5)
    assert one(seen="03.02.2024") == one(seen="2024-02-03") == one(seen=datetime(2024, 2, 3)) == one(seen="3 Feb 2024")
    assert one(us="02/03/2024") == one(us="February 3, 2024") == one(us=datetime(2024, 2, 3))
    assert one(clock="06:30") == one(clock=6.5)
    for odd in ("06:30:99", "noon", "1:2:3:4", "inf", "1_000", "1e999", "--", "2024-13-40"):
        assert one(clock=odd) == one(lab=odd) == one(seen=odd) == nothing, odd


def good_rows(made) -> dict[str, object]:
    return {"site": "S-1", "lab": "5", "dose": "1,5", "seen": "03.02.2024", "clock": "06:30", "us": "02/03/2024",
            "said": "yes", "flag": "TRUE", "sign": "-", "mixed": "maybe", "code": "c1", "skew": ""}  # fmt: skip


WRONG = {
    "column 'lab' is not there: did you misspell it as 'lba'": {"lab": None, "lba": 5},
    "column 'lab' is not there: add it": {"lab": None},
    "column 'site' is not there: add it; its cell may be empty at a site": {"site": None},
    "column 'more': the training table has no such column; leave it out": {"more": 1},
    "column 'lab' = 'seventy': is not a number; correct it, or leave the cell empty": {"lab": "seventy"},
    "column 'lab' = inf: is not a number": {"lab": math.inf},
    "column 'seen' = '2024-13-40': is not a date": {"seen": "2024-13-40"},
    "column 'clock' = 'noon': is not a time": {"clock": "noon"},
    "column 'mixed' = 'Maybe': was not seen in training; did you mean 'maybe'? use one of": {"mixed": "Maybe"},
    "column 'said' = 'none': was not seen in training": {"said": "none"},
    "column 'code' = 'c9': was not seen in training; use one of 'c0', 'c1', 'c2', or": {"code": "c9"},
    "column 'flag' = 'maybe': was not seen in training": {"flag": "maybe"},
    "column 'site' = 's-1': the site is written 'S-1' in training; write it so": {"site": "s-1"},
}


@pytest.fixture(scope="module")
def odd_loader(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    return written(TableConfig(odd_table(folder / "odd.csv"), "site", "ill"), folder / "out")[0]


@pytest.mark.parametrize("said", WRONG)
def test_rows_that_are_not_like_the_training_rows_are_refused(odd_loader, said):
    good = good_rows(odd_loader)
    assert 0 < odd_loader.predict(good) < 1
    wrong = {**good, **WRONG[said]}
    wrong = {name: cell for name, cell in wrong.items() if name in ("skew", "more") or cell is not None}
    with pytest.raises(ValueError, match="strict=False") as error:
        odd_loader.predict(wrong)
    assert str(error.value).startswith(said.replace("is not there: ", "is not there; "))
    assert "\n" not in str(error.value)
    with pytest.warns(UserWarning, match="it is (taken|ignored)"):
        assert 0 < odd_loader.predict(wrong, strict=False) < 1
    with pytest.raises(ValueError, match="row 2, column"):
        odd_loader.predict([good, wrong])


def test_predict_takes_one_row_several_or_a_frame(odd_loader):
    import pandas as pd

    good = good_rows(odd_loader)
    one = odd_loader.predict(good)
    score = odd_loader.model(odd_loader.encoded(good))
    assert one == pytest.approx(odd_loader.probability(score).item())
    assert odd_loader.predict([good, good]) == [one, one]
    assert odd_loader.predict([]) == []
    frame = pd.DataFrame([{**good, "ill": 0}, {**good, "lab": 5.0, "dose": 1.5, "flag": True, "skew": None}])
    assert odd_loader.predict(frame) == odd_loader.predict(frame.convert_dtypes()) == [one, one]
    assert odd_loader.predict({**good, "skew": pd.NA, "seen": pd.NaT, "said": pd.NA}) != one
    with pytest.warns(UserWarning, match="it is taken as 'maybe'"):
        assert odd_loader.predict({**good, "mixed": "mayBE"}, strict=False) == one
    for odd in (5, "age", [5], None):
        with pytest.raises(ValueError, match="must be a dictionary"):
            odd_loader.predict(odd)
    with pytest.raises(ValueError, match="column 'lab' is there twice"):
        odd_loader.predict(pd.concat([frame, frame[["lab"]]], axis=1))


def test_rare_values_are_known_but_not_named(odd_loader):
    text = Path(odd_loader.__file__).read_text()
    assert "once50" not in text
    odd_loader.predict({**good_rows(odd_loader), "code": "once50"})  # as "other"


def test_names_that_look_like_places_of_the_template(tmp_path):
    path = tmp_path / "t.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(
            [["s", "@MISSING@", "@DATES@'", "y"]]
            + [["AB"[i % 2], ["@CELL@", '"'][i // 2 % 2], i % 7, i % 3 % 2] for i in range(90)]
        )
    made = written(TableConfig(path, "s", "y"), tmp_path / "out")[0]
    assert 0 < made.predict({"s": "A", "@MISSING@": "@CELL@", "@DATES@'": 3}) < 1


CLOCK = r"([T ][0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9])?)?( ?[ap]m)?)?"
texts = st.one_of(
    st.from_regex(r"[<>≥ ]?[+-]?[0-9.,' ]{1,8}(e[0-9])?( ?mg| kg/m2|\+| zz)?", fullmatch=True),
    st.from_regex(r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}" + CLOCK, fullmatch=True),
    st.from_regex(r"[0-9]{1,2} (Jan|may|Foo) [0-9]{4}( [0-9]{2}:[0-9]{2}[+-][0-9]{2}:?[0-9]{2})?", fullmatch=True),
    st.text(max_size=6),
)  # fmt: skip


@pytest.fixture(scope="module")
def loader(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loader")
    return written(TableConfig(PATIENTS, "hospital", "died"), folder / "out")[0]


@settings(max_examples=150, deadline=None)
@example(text="1 Jan 0001 00:00-2400")
@given(text=texts)
def test_any_cell_is_read_as_the_reader_of_tables_reads_it(loader, text):
    text = text.strip()
    if text.lower() in loader.MISSING_NUMBER:
        return
    for comma in (False, True):  # beside a cell that says which it is
        beside = ["1.234,5", "2.345.678,25"] if comma else ["1,234.5", "2,345,678.25"]
        read = parse_numbers([*beside, text], "surely" if comma else "no")
        if read.decimal_comma == comma:
            theirs = read.values[-1] if abs(read.values[-1]) <= loader.LARGEST else math.nan
            assert loader.number(text, "decimal comma" if comma else "") == pytest.approx(theirs, nan_ok=True)
    for written, others in (("day first", ["31.01.2024"] * 3), ("month first", ["01/31/2024"] * 3)):
        dates = parse_dates([*others, text])
        if dates is not None and not dates.problem and dates.written == written:
            assert loader.number(text, written) == pytest.approx(dates.values[-1], nan_ok=True, abs=1e-9)
    hours = parse_dates(["12:30", "13:45", text])
    if hours is not None and hours.written == "hours":
        assert loader.number(text, "hours") == pytest.approx(hours.values[-1], nan_ok=True)


@pytest.mark.parametrize("label", ['"""', "a\\", "{x}", "\x1b[2J", "'''\n", "ü\u202e"])
def test_a_label_cannot_break_the_file(label, tmp_path):
    path = tmp_path / "t.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(
            [["s", "a", "y"], *(["AB"[i % 2], i % 7, label if i % 3 else "no"] for i in range(90))]
        )
    made, _, _ = written(TableConfig(path, "s", "y", positive=label.strip()), tmp_path / "out")
    assert made.probability(torch.zeros(1)).item() == pytest.approx(1 / (1 + math.exp(0.5)))
    assert (tmp_path / "out" / "load_model.py").read_text().isascii()


@pytest.mark.data
@pytest.mark.filterwarnings("ignore:.*was not seen in training")
@pytest.mark.parametrize("name", ["eicu-demo-died", "uci-heart-disease"])
def test_real_tables(name, tmp_path):
    """A search on a real table: every held-out row of the file has the probability that load_model.py gives."""
    path = Path(os.environ["FEDSADDLE_DATA"]) / "tables" / f"{name}.csv"
    said = searched(path, tmp_path / "out", "--budget", "0.001s", roles=("--site", "site", "--label", "label"))
    assert said.code == 0, said.err
    made, file = loaded(tmp_path / "out"), lines(path)
    for row in lines(tmp_path / "out" / "predictions.csv"):
        found = made.predict(file[int(row["row"])], strict=False)
        assert found == pytest.approx(float(row["probability"]), abs=1e-5)
