"""Whether what the wheel brings suffices: a run with its report, a package of one's own, a page. `.ci/run` calls it."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import fedsaddle as fs

here = Path.cwd()
assert Path(fs.__file__).is_relative_to(here), fs.__file__
assert version("fedsaddle") == fs.__version__
data = fs.load("iris", split="iid", clients=3)
result = fs.run(fs.FedAvg(problem=fs.Supervised(fs.models.logistic_regression(4, 3))), data, rounds=2, out=here / "run")
assert "<svg" in (here / "run" / "report.html").read_text(encoding="utf-8")

from fedsaddle.cli import main  # noqa: E402

for line in (["init", "own.toml"], ["init", "--extension", "my-methods"], ["list", "--json"]):
    sys.argv = ["fedsaddle", *line]
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code, line
assert (here / "my-methods" / "pyproject.toml").is_file()
print("the wheel works")
