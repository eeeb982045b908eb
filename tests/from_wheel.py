"""Whether what the wheels bring suffices: a run with its report, a package of one's own, a page. `.ci/run` calls it."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import fedsaddle as fs
import fedsaddle_papers

here = Path.cwd()
assert Path(fs.__file__).is_relative_to(here), fs.__file__
assert version("fedsaddle") == fs.__version__
data = fs.load("iris", split="iid", clients=3)
result = fs.run(fs.FedAvg(problem=fs.Supervised(fs.models.logistic_regression(4, 3))), data, rounds=2, out=here / "run")
assert "<svg" in (here / "run" / "report.html").read_text(encoding="utf-8")

from fedsaddle.cli import main  # noqa: E402


def code_of(*line: str) -> object:
    """The exit code of a command."""
    sys.argv = ["fedsaddle", *line]
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


for line in (["init", "own.toml"], ["init", "--extension", "my-methods"], ["list", "--json"], ["reproduce"]):
    assert not code_of(*line), line
assert (here / "my-methods" / "pyproject.toml").is_file()
assert not any((Path(fs.__file__).parent / folder).exists() for folder in ("reproductions", "suites"))
assert Path(fedsaddle_papers.__file__).is_relative_to(here / "papers"), fedsaddle_papers.__file__
print("the wheels work")
