from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_command import IRIS, no_pictures


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small config in a folder of its own, where the test then works."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.toml"
    path.write_text(IRIS)
    return path


@pytest.fixture
def quick() -> Iterator[None]:
    with no_pictures():
        yield
