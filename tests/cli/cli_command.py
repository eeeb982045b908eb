"""The command `fedsaddle`, run inside the test's own process: starting Python costs seconds, this costs nothing."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from fedsaddle.cli import main

IRIS = """
[data]
name = "iris"
[split]
name = "iid"
clients = 5
[model]
name = "logistic"
[algorithm]
name = "DRFA"
sampled_clients = 3
local_steps = 3
batch_size = 10
[run]
rounds = 6
checkpoint_every = 2
"""


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def fedsaddle(*arguments: object) -> Outcome:
    """What the command prints and how it ends; an exception that would be a traceback is raised."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["fedsaddle", *map(str, arguments)]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return Outcome(code, out.getvalue(), err.getvalue())


def run(config: Path, *changes: str, out: Path, resume: bool = False) -> Outcome:
    """`fedsaddle run` with `--set` for each change."""
    settings = [word for change in changes for word in ("--set", change)]
    return fedsaddle("run", config, *settings, "--out", out, *(["--resume"] if resume else []))


@contextmanager
def no_pictures() -> Iterator[None]:
    """Drawing takes longer than all the rest."""
    with (
        mock.patch("fedsaddle.commands.simulation.Simulation._draw"),
        mock.patch("fedsaddle.data.describe.SplitReport.plot"),
    ):
        yield
