"""The pages of verdicts, from stored results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedsaddle.reproductions import stored
from fedsaddle.reproductions.hypotheses_of_papers import papers
from fedsaddle.reproductions.publish import publish


def test_pages_show_what_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "PACKAGED", tmp_path / "package")
    first = papers()["DRFA"][0]
    sentence = {"key": first.key, "verdict": "refuted", "measured": "0.97 times | as many", "seeds": 5}
    summary = {
        "sentences": [sentence],
        "claims": [{"claim": "another", "paper": "", "measured": "+1", "verdict": "undecided"}],
        "title": "A figure",
        "date": "2026-11-17",
        "machine": {"cores": 2, "system": "Linux"},
        "versions": {"torch": "2"},
        "seeds": 5,
        "processor_minutes": 1.5,
        "notes": ["one diverged"],
    }
    folder = tmp_path / "out" / first.figure
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "plot.png").write_bytes(b"picture")
    docs = tmp_path / "docs"
    written = publish(tmp_path / "out", docs, tmp_path / "package", tmp_path / "logs")
    assert tmp_path / "package" / f"{first.figure}.json" in written
    assert (docs / f"verdicts-{first.figure}.png").read_bytes() == b"picture"
    page = (docs / "verdicts-drfa.md").read_text()
    assert "**refuted**" in page
    assert "0.97 times \\| as many" in page
    assert "- one diverged" in page
    front = (docs / "verdicts.md").read_text()
    assert front.splitlines()[2].startswith("**0 hold, 1 refuted, 0 undecided, 0 no data, of 43 sentences")
    assert "| [Local SGDA](verdicts-local-sgda.md) | 4 | 0 | 0 | 0 | 0 | 4 |" in front
    again = stored.headline(stored.counts(tmp_path / "nowhere"))  # from the package now
    assert again in front


def test_a_quick_run_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "PACKAGED", tmp_path / "package")
    (tmp_path / "drfa-fig1").mkdir()
    (tmp_path / "drfa-fig1" / "summary.json").write_text(json.dumps({"sentences": [], "quick": True}))
    assert stored.summary_of("drfa-fig1", tmp_path) is None
