"""The examples in docstrings are run."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import fedsaddle

WITHOUT = ("nvflare", "flower")  # packages that want NVFlare or Flower
MODULES = [
    "fedsaddle",
    *(
        module.name
        for module in pkgutil.walk_packages(fedsaddle.__path__, "fedsaddle.", onerror=print)
        if not any(part in WITHOUT for part in module.name.split("."))
    ),
]
FINDER = doctest.DocTestFinder(exclude_empty=True)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for case in FINDER.find(import_module(name), name):
        runner.run(case, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


def test_there_are_examples():
    examples = sum(len(case.examples) for name in MODULES for case in FINDER.find(import_module(name), name))
    assert examples > 50
