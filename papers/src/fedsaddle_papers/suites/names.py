"""The suites that `fedsaddle benchmark` runs, as a plain table without heavy imports."""

from __future__ import annotations

from fedsaddle.config.registry import Entry

SUITES: dict[str, Entry] = {
    "worst-client": Entry(
        "fedsaddle_papers.suites.worst_client:SUITE", "which method serves the worst client best, with unlike clients?"
    ),
    "rare-positives": Entry(
        "fedsaddle_papers.suites.rare_positives:SUITE", "which method ranks rows best where positives are rare?"
    ),
    "games": Entry("fedsaddle_papers.suites.games:SUITE", "which method solves min-max games in the fewest exchanges?"),
}
