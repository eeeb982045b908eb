"""Tables and the progress bar, as text."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from stored_by_hand import stored

from fedsaddle.commands.progress import RoundProgress
from fedsaddle.report.paired import side_by_side
from fedsaddle.report.tables import console, megabytes, of_sites, one_run, several_runs
from summaries import run_summary

FIGURES = {"global": 0.5, "mean": 0.4, "worst": 0.125, "best": 0.9, "std": 0.2, "bottom10": 0.25}
LEDGER = {"exchanges": 1234, "bytes_down": 5_600_000, "bytes_up": 123_456_789, "samples": 99_999}
SUMMARY = {
    "algorithm": "DRFA",
    "stopped": "finished",
    "rounds": 7,
    "target": None,
    "target_round": None,
    "test": {"loss": FIGURES, "accuracy": {**FIGURES, "worst": 0.75}},
    "train": {"loss": FIGURES},
    "seconds": 1.26,
    "ledger": LEDGER,
}


def shown(table, width=120):
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return out.getvalue()


def cells(text, start):
    line = next(line for line in text.splitlines() if start in line)
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_pooled_figures_stand_with_their_bounds():
    pooled = {"auroc": 0.98765, "auroc_error": 0.00123, "worst_site_auroc": 0.9, "model_error": 0.5}
    text = shown(one_run(run_summary(**SUMMARY, pooled=pooled)))
    assert "auroc 0.9877 ± 0.0013, worst_site_auroc 0.9, model_error 0.5" in " ".join(text.split())


def test_a_run_site_by_site():
    sites = {
        "north": {"answered": 8, "left_out": {}, "bytes_down": 1_500_000, "bytes_up": 20_000},
        "south": {"answered": 5, "left_out": {"sent noise": 2, "is [red]": 1}, "bytes_down": 0, "bytes_up": 0},
    }
    fields = {"LocalLoss.loss": "each", "LocalModels.final": "averaged"}
    text = shown(of_sites(run_summary(**{**SUMMARY, "ledger": {**LEDGER, "fields": fields}, "sites": sites})))
    assert cells(text, "north") == ["north", "8", "0", "1.50 MB", "0.02 MB", ""]
    assert cells(text, "south")[:3] == ["south", "5", "3"]
    assert cells(text, "south")[-1] == "sent noise (2); is [red] (1)"
    assert "Visible to the server per site: LocalLoss.loss;" in text


def test_one_run():
    text = shown(one_run(run_summary(**SUMMARY)))
    assert text.splitlines()[0].strip() == "DRFA: 7 rounds, finished"
    assert cells(text, "test accuracy") == ["test accuracy", "0.5000", "0.4000", "0.7500", "0.9000", "0.2000", "0.2500"]
    assert cells(text, "train loss")[3] == "0.1250"
    assert "1,234 exchanges, 5.60 MB down, 123 MB up, 99,999 samples, 1.3 s" in text


def test_the_round_of_the_target():
    reached = {**SUMMARY, "stopped": "target", "target": "worst accuracy >= 0.5", "target_round": 7}
    assert "DRFA: 7 rounds, target (worst accuracy >= 0.5 in round 7)" in shown(one_run(run_summary(**reached)))


def compared(**summaries):
    return side_by_side({name: stored(name, summary=summary) for name, summary in summaries.items()})


def together(**summaries):
    return several_runs({name: run_summary(**own) for name, own in summaries.items()}, compared(**summaries))


def test_several_runs():
    early = {**SUMMARY, "target": "x", "target_round": 5}
    text = shown(together(**{"one": SUMMARY, "two [/b]": early}))
    assert cells(text, "one") == ["one", "0.7500", "0.2500", "0.4000", "0.2000", "7", "", "1,234", "123 MB", "1.3"]
    assert cells(text, "two [/b]")[6] == "round 5"
    assert "worst accuracy" in text


def test_a_regression():
    only = {**SUMMARY, "test": {"loss": FIGURES}}
    text = shown(together(one=only))
    assert "worst loss" in text
    assert cells(text, "one")[1] == "0.1250"


def test_losses_of_different_problems_are_not_side_by_side():
    only = {**SUMMARY, "test": {"loss": FIGURES}}
    both = {"one": {**only, "problem": "Supervised(loss=Logistic())"}, "two": {**only, "problem": "MinimaxAuc()"}}
    text = shown(together(**both))
    assert "worst loss" not in text
    assert compared(**both).notes == ("losses are not compared: the runs have different problems or losses",)
    assert cells(text, "one") == ["one", "7", "", "1,234", "123 MB", "1.3"]
    for unknown in ({}, {"problem": "MinimaxAuc()"}):
        assert "worst loss" not in shown(together(one=only, two=only | unknown))


@pytest.mark.parametrize(
    ("n", "said"), [(0, "0.00 MB"), (1_234_567, "1.23 MB"), (100_000_000, "100 MB"), (12_345_678_901, "12,346 MB")]
)
def test_megabytes(n, said):
    assert megabytes(n) == said


def test_standard_output_is_wide_where_no_terminal_says_how_wide(capsys):
    assert console().width == 120


RECORD = {"round": 1, "test": {"loss": FIGURES, "accuracy": FIGURES}}


def watched(**options):
    out = io.StringIO()
    with RoundProgress(3, "DRFA", Console(file=out, width=100, **options), quiet=False) as progress:
        progress.say("ten clients [/b]")
        for done in (1, 2, 3):
            progress(done, RECORD if done != 2 else None)
        progress.warn("the checkpoint [x] is damaged")
    return out.getvalue()


def test_the_bar_is_silent_where_nobody_looks():
    assert watched() == "ten clients [/b]\nwarning: the checkpoint [x] is damaged\n"


def test_the_bar_on_a_terminal():
    text = watched(force_terminal=True)
    assert "DRFA" in text
    assert "worst accuracy 0.125" in text
    assert "3/3" in text
    assert "warning: the checkpoint [x] is damaged" in text


def test_the_bar_of_a_regression():
    out = io.StringIO()
    with RoundProgress(1, "FedAvg", Console(file=out, width=100, force_terminal=True), quiet=False) as progress:
        progress(1, {"train": {"loss": FIGURES}})
    assert "worst loss 0.125" in out.getvalue()
