"""The table, files and picture of ROC curves: few sites and many, odd names, one model and two."""

from __future__ import annotations

import csv
import io
import json

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from fedsaddle.metrics.ranking import rank
from fedsaddle.report import plots
from fedsaddle.report.plots import label
from fedsaddle.text import visible

ODD = "North\n\x1b[31m[red] $1"


def ranked(sites=4, rows=60, names=None, seed=0, noise=0.0):
    rng = np.random.default_rng(seed)
    y = (rng.random(sites * rows) < 0.3).astype(int)
    y[:rows] = np.arange(rows) < 2  # the first site has two positives
    s = rng.normal(size=len(y)) + y + noise * np.random.default_rng(9).normal(size=len(y))
    return rank(s, y, np.arange(sites + 1) * rows, names or [f"site {i}" for i in range(sites)])


def text_of(rankings):
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(plots.table(rankings, "test"))
    return console.export_text()


def test_the_table_shows_sites_within_pooled_and_the_difference():
    ours, theirs = ranked(), ranked(noise=1.0)
    text = text_of({"A": ours, "B": theirs})
    assert text.count("fewer than 5 positives") == 3  # a cell for each model, and the caption
    assert str(ours.clients[1].auroc) in text
    assert str(theirs.pooled.auroc) in text
    assert str(ours.within_site_auroc) in text
    assert "1 of 4 sites have fewer than 5 positives or negatives and are not ranked" in text
    assert "AUROC pooled, A minus B: +" in text
    assert "AUROC within sites, A minus B: +" in text
    assert "minus" not in text_of({"A": ours})


def test_the_table_ends_at_twenty_sites():
    text = text_of({"A": ranked(51)})
    assert "... 31 more in roc.csv" in text
    assert "site 19" in text
    assert "site 20" not in text


def test_names_are_shown_and_not_obeyed():
    text = text_of({"A": ranked(names=[ODD, "b", "c", "d"])})
    assert "North\\n\\x1b[31m[red] $1" in text
    assert "\x1b" not in text
    assert visible(ODD) == "North\\n\\x1b[31m[red] $1"
    assert visible("Zürich, 北") == "Zürich, 北"
    assert label(ODD) == "North\\n\\x1b[31m[red] \\$1"


def test_the_files(tmp_path):
    names = ["=2+2", "+b", "c", "@d"]
    ours, theirs = ranked(names=names), ranked(names=names, noise=1.0)
    brief = plots.write({"A": ours, "-B": theirs}, "test", tmp_path)
    rows = list(csv.DictReader((tmp_path / "roc.csv").read_text().splitlines()))
    assert [row["site"] for row in rows] == ["'=2+2", "'+b", "c", "'@d", "pooled", "within sites"]
    assert rows[0]["note"] == "fewer than 5 positives"
    assert rows[0]["A AUROC"] == rows[0]["A AUROC low"] == ""
    assert float(rows[1]["A average precision high"]) == pytest.approx(ours.clients[1].average_precision.high, abs=1e-6)
    assert float(rows[4]["'-B partial AUROC"]) == pytest.approx(theirs.pooled.partial_auroc.value, abs=1e-6)
    assert float(rows[5]["A AUROC low"]) == pytest.approx(ours.within_site_auroc.low, abs=1e-6)
    said = json.loads((tmp_path / "roc.json").read_text())
    assert said["models"]["A"]["pooled"]["auroc"] == ours.pooled.auroc.to_dict() == brief["A"]["auroc"]
    assert said["difference"]["within_site_auroc"] == brief["difference"]["within_site_auroc"]
    assert len(said["difference"]["clients"]) == 4
    assert (brief["few_clients"], brief["single_class_clients"]) == (1, 0)
    assert plots.write({"A": ours}, "test", tmp_path)["difference"] is None


@pytest.mark.parametrize("sites", [1, 4, 8, 9, 51])
def test_the_picture(sites, tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(plots, "Figure", lambda **options: figures.append(Figure(**options)) or figures[-1])
    found = ranked(sites)
    path = plots.draw({"A": found, "B $": ranked(sites, noise=1.0)}, "test", tmp_path / "roc.png")
    assert matplotlib.image.imread(path)[..., :3].std() > 0.02
    axes, lines = figures[0].axes, [line.get_label() for line in figures[0].axes[0].get_lines()]
    assert any(str(text).startswith("pooled") for text in lines)
    if sites <= 8:
        assert len(axes) == 2
        assert len(lines) == sites + 1  # the diagonal, the pool, and all sites but the one with two positives
    else:
        assert len(axes) == 4
        assert len(lines) == 2, "no curve for each of many sites"
        assert len(axes[0].collections) == 2
        assert len(axes[2].get_lines()[0].get_xdata()) == sites - 1
        assert f"AUROC of {sites - 1} sites; 1 sites with fewer than 5" in axes[2].get_title()


def test_rows_of_one_class_have_a_picture_too(tmp_path):
    for sites in (1, 9):
        found = rank(
            np.arange(9.0), np.ones(9), np.linspace(0, 9, sites + 1).astype(int), [str(i) for i in range(sites)]
        )
        assert plots.draw({"A": found}, "test", tmp_path / f"{sites}.png").exists()
        assert "one class only" in text_of({"A": found})
        assert "no pairs" in text_of({"A": found})
