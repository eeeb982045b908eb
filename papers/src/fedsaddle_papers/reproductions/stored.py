"""Stored verdicts: of figures that were run here, else those that come with the package; without heavy imports."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from fedsaddle_papers.reproductions.hypotheses_of_papers import papers

PACKAGED = Path(__file__).parent / "results"
SUMMARY = "summary.json"
NOT_RUN = "not run"
VERDICTS = ("holds", "refuted", "undecided", "no data")
_WORDS = {"holds": "hold", "refuted": "refuted", "undecided": "undecided", "no data": "no data"}


def summary_of(name: str, out: Path) -> dict[str, Any] | None:
    """The stored summary of a figure, from `out` or from the package; None if there is none, or it cannot be read."""
    for file in (out / name / SUMMARY, PACKAGED / f"{name}.json"):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(content, dict) and isinstance(content.get("sentences"), list) and not content.get("quick"):
            return content
    return None


def stored_verdicts(out: Path) -> dict[str, dict[str, Any]]:
    """What is stored on each sentence, by its key; sentences that were not run have the verdict "not run"."""
    found: dict[str, dict[str, Any]] = {}
    summaries: dict[str, dict[str, Any]] = {}
    for hypotheses in papers().values():
        for h in hypotheses:
            if h.figure not in summaries:
                summaries[h.figure] = summary_of(h.figure, out) or {"sentences": []}
            own = [s for s in summaries[h.figure]["sentences"] if isinstance(s, dict) and s.get("key") == h.key]
            found[h.key] = own[0] if own and own[0].get("verdict") in VERDICTS else {"verdict": NOT_RUN}
    return found


def counts(out: Path) -> dict[str, int]:
    """How many sentences have each verdict."""
    counted = Counter(s["verdict"] for s in stored_verdicts(out).values())
    return {verdict: counted.get(verdict, 0) for verdict in (*VERDICTS, NOT_RUN)}


def headline(counted: dict[str, int]) -> str:
    """The verdicts in one line.

    Examples:
        >>> headline({"holds": 3, "refuted": 1, "undecided": 2, "no data": 0, "not run": 4})
        '3 hold, 1 refuted, 2 undecided, 0 no data, of 10 sentences of the papers; 4 not run'
    """
    said = ", ".join(f"{counted[verdict]} {_WORDS[verdict]}" for verdict in VERDICTS)
    missing = f"; {counted[NOT_RUN]} not run" if counted[NOT_RUN] else ""
    return f"{said}, of {sum(counted.values())} sentences of the papers{missing}"
