from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

from fedsaddle.config.registry import DATASETS, SPLITS, Entry


def _load(entry: Entry) -> object:
    module, name = entry.target.split(":")
    return getattr(importlib.import_module(module), name)


def test_the_names_are_those_promised() -> None:
    assert list(DATASETS) == [
        *("digits", "scanned-digits", "breast-cancer", "wine", "iris", "diabetes"),
        *("fashion-mnist", "cifar10", "cifar100", "pneumoniamnist", "breastmnist", "adult", "shakespeare"),
        *("nonconvex-pl", "file", "pictures"),
    ]
    assert list(SPLITS) == ["iid", "by-class", "dirichlet", "imbalanced", "sorted", "by-column", "natural"]


def test_every_entry_leads_to_something_callable() -> None:
    for entry in DATASETS.values():
        assert inspect.isfunction(_load(entry))
        assert entry.about
        assert entry.source
    for entry in SPLITS.values():
        assert inspect.isclass(_load(entry))
        assert entry.about


def test_reading_the_tables_imports_neither_torch_nor_numpy() -> None:
    code = "import sys, fedsaddle.config.registry; sys.exit(bool({'torch', 'numpy', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
