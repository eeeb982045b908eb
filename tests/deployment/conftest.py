"""Tests that start servers and sites take minutes each: they run only where slow ones are asked for."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "slow" in (config.option.markexpr or ""):
        return
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="starts real processes: run with -m slow"))
