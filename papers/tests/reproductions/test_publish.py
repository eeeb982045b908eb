"""What is published of the final runs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from PIL import Image

from fedsaddle_papers.reproductions import stored
from fedsaddle_papers.reproductions.publish import publish


def test_what_was_run_goes_into_the_package_and_the_pictures_into_the_docs(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "drfa-fig1"
    (tmp_path / "out" / "tuning").mkdir(parents=True)
    folder.mkdir()
    (folder / "summary.json").write_text(json.dumps({"sentences": [], "seeds": 5}))
    Image.radial_gradient("L").convert("RGB").save(folder / "plot.png")
    (tmp_path / "out" / "tuning" / "drfa-fig2.json").write_text("{}")
    docs, package, logs = (tmp_path / name for name in ("docs", "package", "logs"))
    written = publish(tmp_path / "out", docs, package, logs)
    assert set(written) == {package / "drfa-fig1.json", docs / "drfa-fig1.png", logs / "drfa-fig2.json"}
    assert json.loads((package / "drfa-fig1.json").read_text())["seeds"] == 5
    drawn, shown = Image.open(folder / "plot.png"), Image.open(io.BytesIO((docs / "drfa-fig1.png").read_bytes()))
    assert (shown.size, shown.mode) == (drawn.size, "P")
    far = max(abs(a - b) for a, b in zip(drawn.tobytes(), shown.convert("RGB").tobytes(), strict=True))
    assert far <= 8  # of 255


def test_a_quick_run_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "PACKAGED", tmp_path / "package")
    (tmp_path / "drfa-fig1").mkdir()
    (tmp_path / "drfa-fig1" / "summary.json").write_text(json.dumps({"sentences": [], "quick": True}))
    assert stored.summary_of("drfa-fig1", tmp_path) is None
