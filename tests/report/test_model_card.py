"""MODEL_CARD.md: it says what the report says, and names stay text."""

from __future__ import annotations

import dataclasses

import pytest
from stored_by_hand import search

from fedsaddle.report.front import front_of_search
from fedsaddle.report.page.parts import Page, PageTable, Section
from fedsaddle.report.run_report import card, escaped, markdown


def page(run):
    front = front_of_search(run)
    return Page("died = yes", "A simulation", front.answers, front.figures, front.cautions)


def test_the_card_has_every_part_and_the_figures():
    run = dataclasses.replace(
        search(), provenance={"versions": {"torch": "2.13.0"}, "table": {"file": "p.csv", "sha256": "ab12"}}
    )
    said = card(run, page(run))
    for head in ("Intended use", "Data", "Figures", "Groups", "Limits", "Privacy", "Versions"):
        assert f"\n## {head}\n" in said
    assert "0.822" in said
    assert "test: 59 rows, 9 positive" in said
    assert "torch 2.13.0" in said
    assert "ab12" in said
    assert "9 positive test rows" in said
    assert "--groups" in said  # none were named


@pytest.mark.parametrize("damaged", [None, 3, -1.5, "x", [], [None], ["x", 3], {"x": 3}, True])
def test_damaged_files_leave_a_line_in_the_card(damaged):
    run, plain = search(), page(search())
    for changed in (
        *(dataclasses.replace(run, split={key: damaged}, summary={}) for key in ("train_sizes", "clients")),
        *(dataclasses.replace(run, provenance={key: damaged}) for key in ("versions", "table")),
        *(dataclasses.replace(run, summary=run.summary | {key: damaged}) for key in ("privacy", "rows")),
    ):
        said = card(changed, plain)
        assert "\n## Versions\n" in said
    said = card(dataclasses.replace(run, split={"train_sizes": -1.5}, summary={}), plain)
    assert "Left out, because a file of the run holds something unexpected." in said


def test_groups_of_the_page_are_in_the_card():
    table = PageTable(("group", "AUROC"), [("female", "0.81"), ("male", "0.79")])
    run = search()
    said = card(run, dataclasses.replace(page(run), sections=[Section("groups", "Groups", [table])]))
    assert "| female | 0.81 |" in said


def test_names_stay_text():
    assert escaped("<b>*x*</b>\n# y|z") == r"\<b\>\*x\*\</b\>\\n\# y\|z"
    assert markdown(PageTable(("a|b",), [("`c`",)])) == "| a\\|b |\n| --- |\n| \\`c\\` |"
