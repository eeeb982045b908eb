"""Runs on tables for the tests: short searches, and what they leave."""

from __future__ import annotations

import csv
import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from cli_command import Outcome, fedsaddle

from fedsaddle.studies import search

PATIENTS = Path(__file__).parents[1] / "data" / "patients.csv"
ROLES = ("--site", "hospital", "--label", "died", "--patient", "patient")


@contextmanager
def short(rounds: int = 6, steps: tuple[float, ...] = (0.3,)) -> Iterator[None]:
    """Candidates with few rounds and one step, and no pictures."""
    real = search.candidates
    with (
        mock.patch.object(search, "candidates", lambda *a: [replace(c, rounds=rounds, steps=steps) for c in real(*a)]),
        mock.patch("fedsaddle.studies.table_study.Finished._draw"),
    ):
        yield


def searched(table: Path, out: Path, *words: object, roles: tuple[str, ...] = ROLES) -> Outcome:
    """A short search on a table."""
    with short():
        return fedsaddle(
            "run", table, *roles, "--out", out, *(() if "--budget" in words else ("--budget", "9s")), *words
        )


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def summary(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return found


def loaded(out: Path) -> ModuleType:
    """load_model.py of a folder, as a module of its own."""
    spec = importlib.util.spec_from_file_location("load_model", out / "load_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
