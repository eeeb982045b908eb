"""What the top of a report says."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from stored_by_hand import SEARCH_SUMMARY, digits, search

from fedsaddle.documents.summary import Figures, StoredFigure
from fedsaddle.report import front as pages
from fedsaddle.report.front import front_of_clients, interval_text, worst_client
from fedsaddle.report.sections.subgroups import groups
from fedsaddle.report.stored_run import HeldOut
from fedsaddle.report.tables import against_fedavg, choice_table
from summaries import search_summary


def front_of_search(run):
    return pages.front_of_search(run, run.search_summary)


def words(front):
    return " ".join(answer.words for answer in front.answers)


def test_a_search_says_what_was_asked_chosen_and_found():
    said = words(front_of_search(search()))
    assert "died = yes" in said
    assert "300 rows" in said  # 195 + 46 + 59
    assert "43 have it (14.3 of 100)" in said
    assert "FedAvgM, site intercepts" in said
    assert "in 82 of 100 pairs: AUROC 0.822 (95 % interval 0.639 to 0.924)" in said


def rows_of_two_sites(positives_per_site=(5, 5), **groups):
    """Twenty rows of two sites: eight of ten positives have a high probability, and no negative."""
    up = [*([1] * positives_per_site[0]), *([0] * (10 - positives_per_site[0]))]
    down = [*([1] * positives_per_site[1]), *([0] * (10 - positives_per_site[1]))]
    labels = np.array(up + down)
    p = np.where(labels == 1, 0.9, 0.1)
    p[[0, 10]] = 0.1
    return HeldOut(labels, np.array([0, 10, 20]), ("H1", "H2"), {"choice": p}, {"choice": p}, groups=groups)


def test_a_decision_is_told_in_rows_with_intervals():
    said = words(front_of_search(search(test=rows_of_two_sites(), roc={})))
    assert "of 100 rows with the outcome 80 (95 % interval" in said
    assert "There are only 8 alarms on the test rows, too few to estimate how many alarms are right." in said
    twice = rows_of_two_sites().reordered(np.tile([0, 1], 10), ("H1", "H2"))
    many = HeldOut(
        *(np.tile(side, 2) for side in (twice.labels, [0])), ("H1",), {"choice": np.tile(twice.scores["choice"], 2)},
        {"choice": np.tile(twice.scores["choice"], 2)},
    )  # fmt: skip
    said = words(front_of_search(search(test=replace(many, offsets=np.array([0, 40])), roc={})))
    assert "Of 100 alarms, 100 (95 % interval" in said
    found = rows_of_two_sites()
    found.probabilities["choice"][1:] *= 0.2
    found.probabilities["choice"][0] = 0.9
    said = words(front_of_search(search(test=found, roc={})))
    assert "There is only 1 alarm on the test rows, too few to estimate how many alarms are right." in said
    assert "Of 100 alarms" not in said


def test_the_worst_site_and_group_are_named_or_not():
    sex = np.repeat(["f", "m"], 10)
    said = words(front_of_search(search(test=rows_of_two_sites(sex=sex), roc={})))
    assert "The lowest AUROC is that of H" in said
    assert "Of the groups, sex " in said
    front = front_of_search(search(test=rows_of_two_sites(sex=sex, age=np.repeat(["old", "young"], [1, 19])), roc={}))
    assert "selection as the worst of 2 groups" in words(front)  # age old has one row: nothing to pick there
    assert any(line.endswith("how well the model ranks these groups: age old.") for line in front.cautions)
    unit = np.repeat(["a", "b"], 10)
    said = words(front_of_search(search(test=rows_of_two_sites(sex=sex, unit=unit), roc={})))
    assert "selection as the worst of 4 groups" in said
    said = words(front_of_search(search(test=rows_of_two_sites((10, 1)), roc={})))
    assert "No site can be named: of 2 sites none has 5 test rows of each class." in said
    few = front_of_search(search(test=rows_of_two_sites((10, 1)), roc={})).cautions
    assert any(line.startswith("All 2 sites have too few test rows") for line in few)
    few = front_of_search(search(test=rows_of_two_sites((5, 1)), roc={})).cautions
    assert any(line.startswith("1 of 2 sites has too few test rows") for line in few)


def test_a_group_that_is_seldom_found_is_named():
    """Women are found at 3 of 17, men at 8 of 16: that is no sign of no gap."""
    labels = np.array([1] * 33 + [0] * 60)
    sex = np.array(["Female"] * 17 + ["Male"] * 16 + ["Female", "Male"] * 30)
    p = np.where(labels == 1, 0.1, 0.05)
    p[[0, 1, 2, *range(17, 25)]] = 0.9
    test = HeldOut(labels, np.array([0, 93]), ("H1",), {"choice": p}, {"choice": p}, groups={"sex": sex})
    run = search(test=test, roc={})
    said = words(front_of_search(run))
    assert "sensitivity is 18 % in the group sex Female, against 50 % in Male (a gap of 32" in said
    assert "): not significant, with so few rows." in said
    section = " ".join(line for block in groups(run).blocks for line in getattr(block, "lines", ()))
    assert "18 % (Female) against 50 % (Male), a gap of 32 points (95 % interval 0 to " in section
    assert "do not show a gap" not in section


@pytest.mark.parametrize(
    ("ends", "within", "verdict"),
    [
        ([-0.1, 0.1], [-0.1, 0.1], "too few test rows to decide which is better, pooled or within sites"),
        ([-0.1, 0.1], None, "too few test rows to decide which is better, pooled"),
        ([0.01, 0.1], [0.01, 0.1], "significantly better on the pooled rows and within sites"),
        ([0.01, 0.1], None, "significantly better on the pooled rows"),
        (
            [0.01, 0.1],
            [-0.003, 0.026],
            "on the pooled rows only; within sites, where rows of the same site are compared",
        ),
        ([-0.1, 0.1], [0.01, 0.1], "better within sites; on the pooled rows it is undecided"),
        ([-0.1, -0.01], [-0.1, -0.01], "significantly worse on the pooled rows and within sites"),
        ([0.01, 0.1], [-0.1, -0.01], "significantly better on the pooled rows, but significantly worse within sites"),
    ],
)
def test_the_verdict_against_fedavg_says_where_it_holds(ends, within, verdict):
    gaps = {"auroc": ends, "within_site_auroc": within}
    found = {key: None if own is None else {"value": sum(own) / 2, "interval": own} for key, own in gaps.items()}
    pooled = {**SEARCH_SUMMARY["pooled"], "difference": found}
    assert verdict in words(front_of_search(search(summary={"pooled": pooled})))
    assert verdict in against_fedavg(Figures.model_validate(found))
    console = Console(file=io.StringIO(), width=200)
    console.print(choice_table(search_summary(**{**SEARCH_SUMMARY, "pooled": pooled})))
    assert " ".join(verdict.split()) in " ".join(console.file.getvalue().split())


def test_a_search_that_was_cut_is_the_first_caution():
    cut = {"cut": ["FedAvgM, MLP", "FedAvgM, then CODASCA"], "budget": 120.0}
    first = front_of_search(search(summary=cut)).cautions[0]
    assert first.startswith(
        "The time budget of 120 s ended the search before 2 candidates had all their trials (FedAvgM,"
    )
    assert "such as --budget 5m" in first
    assert "budget" not in " ".join(front_of_search(search()).cautions)


def test_sites_that_were_left_out_are_on_the_front_page():
    area = {"value": 0.78, "interval": [0.7, 0.85]}
    counts = {"positives": 9, "negatives": 9, "few": False}
    low = {"value": 0.6, "interval": [0.5, 0.7]}
    sites = [{"name": "H1", "auroc": area, **counts}, {"name": "H2", "auroc": low, **counts}]
    own = {"name": "pooled", "auroc": area, "within_site_auroc": area, **counts, "clients": sites}
    left = {
        search().summary.choice: own,
        "FedAvg": own,
        "difference": {"auroc": {"value": 0.01, "interval": [-0.1, 0.1]}},
    }
    said = words(front_of_search(search(summary={"leave_one_site_out": left})))
    assert "tested on the site that was left out: AUROC 0.780" in said
    assert "The lowest is H2 with 0.600" in said
    assert "left out" not in words(front_of_search(search()))


def test_fedavg_is_not_compared_with_itself():
    assert "Against FedAvg" not in words(front_of_search(search(summary={"choice": "FedAvg"})))


def test_cautions_name_what_is_wrong():
    said = front_of_search(search(summary={"cautions": ["site 'H3' is odd"]})).cautions
    assert any("only 9 positive test rows" in line for line in said)
    assert any("0.64 to 0.92" in line for line in said)
    assert any(line.startswith("3 of 4 sites") for line in said)
    assert any("lactate" in line and "age" not in line for line in said)
    assert "Site 'H3' is odd." in said


def test_many_positives_are_no_caution():
    pooled = {"choice": {"auroc": {"value": 0.8, "interval": [0.78, 0.82]}}}
    summary = {"rows": {"test": {"rows": 5000, "positives": 500}}, "pooled": pooled}
    said = front_of_search(search(summary=summary)).cautions
    assert not any("positive test rows" in line or "is uncertain" in line for line in said)


def test_a_summary_without_figures_still_has_a_front_page():
    none = {"choice": "FedAvg", "pooled": {"choice": {}}, "probabilities": {"slope": 1.0, "intercept": 0.0}, "rows": {}}
    front = front_of_search(search(summary=none, trials=[], roc={}))
    assert "FedAvg" in words(front)
    assert front.figures == []


@pytest.mark.parametrize(
    ("figure", "text"),
    [(None, ""), ({"value": 0.5}, "0.500"), ({"value": 0.5, "interval": [0.4, 0.6]}, "0.400 to 0.600")],
)
def test_figures_as_text(figure, text):
    text_of = interval_text(None if figure is None else StoredFigure.model_validate(figure))
    assert text_of.endswith(f"{text})" if "to" in text else text)


def test_a_run_of_clients_names_the_worst():
    front = front_of_clients(digits())
    said = words(front)
    assert "DRFA was run on the problem supervised with digits at 3 clients for 100 rounds." in said
    assert "88.0 of 100 rows of the mean client" in said
    assert "worst at b: 0.52, of 20 rows" in said
    assert any("b, has 20 rows" in line for line in front.cautions)
    assert worst_client(digits()) == ("b", 0.52, 20)


def test_the_worst_loss_is_the_largest():
    spread = {"mean": 0.4, "worst": 0.9, "std": 0.1}
    record = {"round": 1, "train": {"loss": spread}, "clients": {"train": {"loss": [0.2, 0.9, 0.3]}}}
    run = digits(summary={}, history=[record])
    assert worst_client(run)[0] == "b"
    said = front_of_clients(run)
    assert "has not finished" in words(said)
    assert any("on training rows" in line for line in said.cautions)


def test_measures_of_a_game_are_told():
    run = digits(
        summary={"algorithm": "LocalSGDA", "stopped": "finished", "pooled": {"duality_gap": 0.001234}},
        history=[{"round": 1}],
        split={},
    )
    assert "duality gap 0.001234" in words(front_of_clients(run))
