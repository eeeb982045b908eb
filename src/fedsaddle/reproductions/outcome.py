"""What a reproduction leaves behind: results.json, plot.png, a table and JSON lines."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.table import Table

from fedsaddle import __version__
from fedsaddle.atomic import write_atomically
from fedsaddle.reproductions.claims import Claim
from fedsaddle.reproductions.figure import Figure
from fedsaddle.reproductions.picture import draw
from fedsaddle.reproductions.tracks import Tracks


def write(name: str, figure: Figure, tracks: Tracks, claims: list[Claim], seconds: float, folder: Path) -> None:
    """Write all figures of all seeds, and the plot."""
    folder.mkdir(parents=True, exist_ok=True)
    content = results(name, figure, tracks, claims, seconds)
    write_atomically(folder / "results.json", json.dumps(content, ensure_ascii=False).encode())
    draw(figure, tracks, folder / "plot.png")


def results(name: str, figure: Figure, tracks: Tracks, claims: list[Claim], seconds: float) -> dict[str, Any]:
    """Everything about the reproduction as plain JSON."""
    return {
        "name": name,
        "title": figure.title,
        "source": figure.source,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {"cores": os.cpu_count(), "system": platform.system(), "processor": platform.machine()},
        "versions": {
            "fedsaddle": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in ("torch", "numpy", "scipy")},
        },
        "seconds": round(seconds, 1),
        "setting": asdict(figure.setting),
        "lines": [asdict(line) for line in figure.lines],
        "claims": [claim.to_dict() for claim in claims],
        "runs": [
            {"label": label, "seed": track.seed, "columns": track.columns, "diverged": track.diverged}
            for label, seeds in tracks.by_label.items()
            for track in seeds
        ],
    }


def json_lines(claims: list[Claim]) -> str:
    """One line a claim."""
    return "\n".join(json.dumps(claim.to_dict(), ensure_ascii=False) for claim in claims)


def table(figure: Figure, claims: list[Claim]) -> Table:
    """The claims side by side with what was measured."""
    shown = Table(title=f"{figure.title}\n{figure.source}", title_justify="left", show_lines=True)
    for head in ("claim", "paper", "measured", "holds"):
        shown.add_column(head, overflow="fold")
    for claim in claims:
        shown.add_row(claim.claim, claim.paper, claim.measured, "yes" if claim.holds else "no")
    return shown
