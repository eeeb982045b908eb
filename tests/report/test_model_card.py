"""MODEL_CARD.md: it says what the report says, and names stay text."""

from __future__ import annotations

import dataclasses

from stored_by_hand import changed, search

from fedsaddle.report.front import front_of_search
from fedsaddle.report.page.parts import Page, PageTable, Section
from fedsaddle.report.run_report import card, escaped, markdown


def page(run):
    front = front_of_search(run, run.search_summary)
    return Page("died = yes", "A simulation", front.answers, front.figures, front.cautions)


def test_the_card_has_every_part_and_the_figures():
    table = {"file": "p.csv", "sha256": "ab12"}
    made = {"finished": "2026", "command": None, "machine": "m", "versions": {"torch": "2.13.0"}, "table": table}
    run = changed(search(), provenance=made)
    said = card(run, page(run))
    for head in ("Intended use", "Data", "Figures", "Groups", "Limits", "Privacy", "Versions"):
        assert f"\n## {head}\n" in said
    assert "0.822" in said
    assert "test: 59 rows, 9 positive" in said
    assert "torch 2.13.0" in said
    assert "ab12" in said
    assert "9 positive test rows" in said
    assert "--groups" in said  # none were named


def test_groups_of_the_page_are_in_the_card():
    table = PageTable(("group", "AUROC"), [("female", "0.81"), ("male", "0.79")])
    run = search()
    said = card(run, dataclasses.replace(page(run), sections=[Section("groups", "Groups", [table])]))
    assert "| female | 0.81 |" in said


def test_names_stay_text():
    assert escaped("<b>*x*</b>\n# y|z") == r"\<b\>\*x\*\</b\>\\n\# y\|z"
    assert markdown(PageTable(("a|b",), [("`c`",)])) == "| a\\|b |\n| --- |\n| \\`c\\` |"
