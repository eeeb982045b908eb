"""The sections on two classes: their figures are those of the rows, and what is missing is left out."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from stored_runs import SEARCH, SUMMARY, held_out, roc_of, run_of

from fedsaddle.metrics.calibration import Threshold
from fedsaddle.metrics.ranking import rank
from fedsaddle.report.page.parts import Bullets, Chart, PageTable, Text, ThresholdSlider
from fedsaddle.report.page.render import render
from fedsaddle.report.run_report import page_of
from fedsaddle.report.sections.decisions import calibration, decision, slider_thresholds, thresholds
from fedsaddle.report.sections.ranking import discrimination, two_classes
from fedsaddle.report.sections.subgroups import groups, headline, sites, worst_group, worst_site

EVERY = (discrimination, sites, calibration, thresholds, decision)


def words(section):
    found = [block.words for block in section.blocks if isinstance(block, Text)]
    return " ".join(found + [line for b in section.blocks if isinstance(b, Bullets) for line in b.lines])


def charts(section):
    return [block for block in section.blocks if isinstance(block, Chart)]


def test_every_section_is_there_and_the_page_is_made():
    sex = np.array(["f", "m", "=x"])[np.arange(240) % 3]
    run = run_of(held_out(groups={"sex": sex}))
    keys = [section.key for section in page_of(run).sections]
    assert {"discrimination", "sites", "groups", "calibration", "thresholds", "decision-curve"} <= set(keys)
    html = render(page_of(run))
    assert "died = yes" in html
    for section in page_of(run).sections:
        for chart in charts(section):
            assert chart.description
            assert chart.note
            assert "nan" not in chart.svg


def test_discrimination_says_the_aurocs_and_their_difference():
    test = held_out()
    found = discrimination(run_of(test))
    area = roc_auc_score(test.labels, test.scores["choice"])
    theirs = roc_auc_score(test.labels, test.scores["FedAvg"])
    assert f"{area:.3f}" in words(found)
    assert f"{theirs:.3f}" in words(found)
    assert f"{area - theirs:+.3f}" in words(found)
    assert "ranks significantly better than FedAvg" in words(found)
    curve, precision = charts(found)
    assert f"{area:.3f}" in curve.description
    assert [row[0] for row in curve.table.rows] == ["5.0 %", "10 %", "20 %", "30 %", "50 %"]
    assert len(precision.table.heads) == 3


def test_two_models_that_are_alike_are_not_decided():
    test = held_out((10, 10))
    rng = np.random.default_rng(3)
    close = replace(
        test, scores={"choice": test.scores["choice"], "FedAvg": test.scores["choice"] + 0.2 * rng.normal(size=20)}
    )
    assert "too few rows to decide which" in words(discrimination(run_of(close)))
    same = replace(test, scores={"choice": test.scores["choice"], "FedAvg": test.scores["choice"]})
    assert two_classes(run_of(same)).other is None
    assert "FedAvg," not in words(discrimination(run_of(same)))


@pytest.mark.parametrize(("count", "lines", "band"), [(12, 12, False), (45, 0, True)])
def test_many_sites_are_a_band(count, lines, band, monkeypatch):
    drawn = []
    name = "fedsaddle.report.sections.ranking.line_chart"
    monkeypatch.setattr(name, lambda given, *_, **__: drawn.append(given) or "")
    discrimination(run_of(held_out((60,) * count)))
    for given in drawn:  # ROC and precision-recall
        assert sum(line.style == "faint" for line in given) == lines
        assert any(line.name == f"middle 80 % of {count} sites" for line in given) is band


def test_sites_tell_pooled_from_within_and_count_those_without_a_figure():
    test = held_out((60, 80, 3, 100))
    found = sites(run_of(test))
    assert "1 of 4 sites has no AUROC of its own" in words(found)
    table = charts(found)[0].table
    own = slice(0, 60)
    assert table.rows[0][0] == "H0"
    assert table.rows[0][3].startswith(f"{roc_auc_score(test.labels[own], test.scores['choice'][own]):.3f} (")
    assert [row[0] for row in table.rows[-2:]] == ["within sites", "all sites together"]
    assert table.totals == 2
    assert "only rows of the same site" in words(found)
    assert sites(run_of(held_out((100,)))) is None


def test_the_drawing_of_many_sites_has_those_with_a_figure_only(monkeypatch):
    drawn = []
    monkeypatch.setattr("fedsaddle.report.sections.subgroups.forest", lambda rows, *_, **__: drawn.extend(rows) or "")
    found = sites(run_of(held_out((60, 4) * 30)))
    assert len(drawn) == 30 + 2
    values = [row.value for row in drawn[:-2]]
    assert values == sorted(values)
    assert all(row.second is not None for row in drawn)
    assert charts(found)[0].scrolls
    assert len(charts(found)[0].table.rows) == 60 + 2


def test_the_worst_site_is_told_from_chance():
    rng = np.random.default_rng(0)
    test = held_out((150, 150, 150), signal=2.0)
    bad = test.scores["choice"].copy()
    bad[:150] = rng.normal(size=150)
    found = worst_site(run_of(replace(test, scores={"choice": bad})))
    assert (found.name, found.ranked, found.groups) == ("H0", 3, 3)
    assert found.distinguishable
    assert "ranks significantly worse there" in words(sites(run_of(replace(test, scores={"choice": bad}))))
    even = run_of(held_out((60, 60, 60)))
    assert not worst_site(even).distinguishable
    assert "too few rows to decide whether the model ranks worse there" in words(sites(even))
    assert worst_site(run_of(held_out((60, 4)))) is None


def test_groups_name_the_worst_and_those_that_are_not_ranked():
    sex = np.array(["f", "m"])[(np.arange(240) % 3 == 0).astype(int)]
    race = np.where(np.arange(240) < 4, "rare", "common")
    run = run_of(held_out(groups={"sex": sex, "race": race}))
    found = groups(run)
    assert [chart.title for chart in charts(found)] == ["AUROC by sex", "AUROC by race"]
    assert "Not ranked, with fewer than 5 rows of a class: rare." in words(found)
    assert "selection as the worst of" in words(found)
    worst = worst_group(run)
    assert worst.column == "sex"
    test = run.test
    aurocs = {g: roc_auc_score(test.labels[sex == g], test.scores["choice"][sex == g]) for g in "fm"}
    assert worst.found.name == min(aurocs, key=aurocs.get)
    assert worst.found.auroc.value == pytest.approx(min(aurocs.values()))
    tables = [block for block in found.blocks if isinstance(block, PageTable)]
    p, y = test.probabilities["choice"][sex == "f"], test.labels[sex == "f"]
    share = Threshold(0.3, "").figures(p, y)["sensitivity"]
    assert tables[0].rows[0][4].startswith(f"{100 * share:.0f} (")


def test_groups_stand_in_the_order_of_their_numbers():
    names = ["(missing)", "9 to 20", "up to 8", "101 or more", "21 to 100"]
    run = run_of(held_out(groups={"age": np.array(names)[np.arange(240) % 5]}))
    table = next(block for block in groups(run).blocks if isinstance(block, PageTable))
    assert [row[0] for row in table.rows] == ["up to 8", "9 to 20", "21 to 100", "101 or more", "(missing)"]


def test_calibration_says_expected_and_observed():
    test = held_out()
    found = calibration(run_of(test))
    expected = test.probabilities["choice"].sum()
    assert f"predicts {expected:.1f} with died = yes; {test.labels.sum()} are observed" in words(found)
    chart = charts(found)[0]
    assert sum(int(row[1]) for row in chart.table.rows) == 240
    high = replace(test, probabilities={"choice": np.clip(2 * test.probabilities["choice"], 0, 0.99)})
    assert "are too high on average" in words(calibration(run_of(high)))
    small = held_out((10, 8))
    assert charts(calibration(run_of(small))) == []


def test_the_slider_counts_the_rows():
    test = held_out()
    found = thresholds(run_of(test))
    slider = next(block for block in found.blocks if isinstance(block, ThresholdSlider))
    p, y = test.probabilities["choice"], test.labels > 0
    assert len(slider.thresholds) <= 201
    assert 0.3 in slider.thresholds
    assert slider.chosen == 0.3
    for t, tp, fp in zip(slider.thresholds, slider.true_positives, slider.false_positives, strict=True):
        assert (tp, fp) == (int((y & (p >= t)).sum()), int((~y & (p >= t)).sum()))
    assert (slider.positives, slider.negatives) == (y.sum(), (~y).sum())
    assert any(row[0] == "30.0 %, of the run" for row in slider.table.rows)


@pytest.mark.parametrize(("top", "chosen"), [(1.0, 0.5), (0.04, 0.0123), (1e-9, 1e-10), (0.5, 0.9)])
def test_thresholds_of_the_slider_are_few_and_ascend(top, chosen):
    found = slider_thresholds(np.linspace(0, top, 50), chosen)
    assert len(found) <= 201
    assert (np.diff(found) > 0).all()
    assert chosen in found
    assert found[0] == 0
    assert 0 <= found[-1] <= 1


def test_the_threshold_is_rounded_as_the_probabilities_are():
    p = 0.123456789123
    test = replace(held_out(), probabilities={"choice": np.full(240, float(f"{p:.8g}"))})
    run = run_of(test, summary={**SUMMARY, "threshold": {"probability": p, "reason": ""}})
    assert {f.name: f.value for f in headline(run)}["Alarms in 100 rows"] == "100"


def test_without_a_threshold_the_validation_rows_choose_one():
    summary = {"algorithm": "FedAvgM"}
    run = run_of(held_out(), summary=summary, validation=held_out(seed=1))
    held = held_out(seed=1)
    assert two_classes(run).threshold == Threshold.for_best_f1(held.probabilities["choice"], held.labels).probability
    assert two_classes(run_of(held_out(), summary=summary)).threshold is None
    assert thresholds(run_of(held_out(), summary=summary)) is None
    assert decision(run_of(held_out(), summary=summary)) is not None


def test_the_decision_curve_speaks_of_both_simple_ways():
    found = decision(run_of(held_out((400, 400), signal=2.5)))
    assert "significantly better than alarms for everybody" in words(found)
    assert re.search(r"at thresholds of \d", words(found))
    noise = decision(run_of(held_out((60, 60), signal=0.0)))
    assert "At no threshold" in words(noise)


def test_the_headline_has_the_figures_of_the_threshold():
    test = held_out()
    found = {figure.name: figure for figure in headline(run_of(test))}
    named = Threshold(0.3, "").figures(test.probabilities["choice"], test.labels)
    assert found["AUROC"].value == f"{roc_auc_score(test.labels, test.scores['choice']):.2f}"
    assert found["Of 100 with died = yes, found"].value == f"{100 * named['sensitivity']:.0f}"
    assert "95 % interval" in found["AUROC"].detail


def test_a_run_without_scores_has_curves_and_sites_from_its_file(tmp_path):
    test = held_out()
    stored = roc_of(test, tmp_path)
    run = run_of(None, roc=stored)
    with_rows = run_of(test)
    assert words(discrimination(run)) == words(discrimination(with_rows))
    assert charts(sites(run))[0].table == charts(sites(with_rows))[0].table
    assert len(charts(discrimination(run))) == 1
    for section in (calibration, thresholds, decision, groups):
        assert section(run) is None
    assert worst_site(run) is None
    assert [figure.name for figure in headline(run)] == ["AUROC", "AUROC minus FedAvg's"]
    page_of(run)


def test_sites_without_rows_are_taken_from_the_file(tmp_path):
    test = held_out((60, 80, 0, 100))
    stored = roc_of(test, tmp_path)
    with_rows = np.array([0, 1, 3])
    bare = replace(test, names=tuple(test.names[k] for k in with_rows), offsets=np.array([0, 60, 140, 240]))
    found = two_classes(run_of(bare, roc=stored))
    assert found.other is not None
    assert [site.name for site in found.choice.sites] == list(test.names)
    assert "1 has no test rows" in words(sites(run_of(bare, roc=stored)))


def test_rankings_in_memory_are_not_computed_again(monkeypatch):
    test = held_out()
    known = {m: rank(s, test.labels, test.offsets, test.names) for m, s in test.scores.items()}
    expected = words(discrimination(run_of(test)))
    monkeypatch.setattr("fedsaddle.report.sections.ranking.rank", None)
    run = run_of(test, rankings=known)
    assert words(discrimination(run)) == expected
    assert two_classes(run).choice.ranking is known["choice"]


def test_rankings_of_other_rows_are_not_used():
    test = held_out()
    flipped = {m: rank(s, 1 - test.labels, test.offsets, test.names) for m, s in test.scores.items()}
    assert words(discrimination(run_of(test, rankings=flipped))) == words(discrimination(run_of(test)))


def test_a_run_without_a_threshold_has_the_other_sections():
    run = run_of(held_out(), summary={}, search={}, config={"data": 5})
    assert all(section(run) is not None for section in (discrimination, sites, calibration, decision))
    assert len(headline(run)) >= 1


def test_one_class_and_scores_alone_are_fine():
    test = held_out()
    one = replace(test, labels=np.zeros(240, dtype=np.int64))
    for section in (discrimination, sites, decision):
        assert section(run_of(one)) is None
    page_of(run_of(one))
    bare = run_of(held_out(probabilities=False))
    assert discrimination(bare) is not None
    assert calibration(bare) is None


def test_names_are_shown_with_their_escapes():
    test = replace(held_out(), names=("<b>", "a\x1b[2J", "c"))
    html = render(page_of(run_of(test, search={**SEARCH, "label": "d\x07"})))
    assert "\x1b" not in html
    assert "\x07" not in html
    assert "<b>" not in html.split("<main", 1)[-1].split("<script", 1)[0]
