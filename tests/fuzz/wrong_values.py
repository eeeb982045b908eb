"""Values that hardly any argument takes, and what becomes of a call with one of them."""

from __future__ import annotations

import inspect
import re
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from math import inf, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import fedsaddle as fs
from fedsaddle.errors import FedSaddleError

SECONDS = 20.0  # that a call and its two rounds may take

WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "empty text": lambda: "",
    "text": lambda: "x",
    "number as text": lambda: "1",
    "bytes": lambda: b"1",
    "empty list": list,
    "list of a number": lambda: [1],
    "list of text": lambda: ["a", "b"],
    "list of -1": lambda: [-1],
    "dict": lambda: {"a": 1},
    "empty dict": dict,
    "set": lambda: {1},
    "tuple": lambda: (1, 2),
    "range": lambda: range(3),
    "generator": lambda: (i for i in range(3)),
    "nan": lambda: nan,
    "inf": lambda: inf,
    "-inf": lambda: -inf,
    "-1": lambda: -1,
    "0": lambda: 0,
    "0.5": lambda: 0.5,
    "-0.5": lambda: -0.5,
    "1.5": lambda: 1.5,
    "7": lambda: 7,
    "2**70": lambda: 2**70,
    "-2**70": lambda: -(2**70),
    "10**12": lambda: 10**12,
    "10**5000": lambda: 10**5000,
    "1e300": lambda: 1e300,
    "1e-300": lambda: 1e-300,
    "1j": lambda: 1j,
    "np.nan": lambda: np.float64("nan"),
    "np.int64(-1)": lambda: np.int64(-1),
    "np.float32(0.5)": lambda: np.float32(0.5),
    "array": lambda: np.array([1.0, 2.0]),
    "array of nan": lambda: np.array(nan),
    "array of objects": lambda: np.array([None, "a"], dtype=object),
    "tensor of nothing": lambda: torch.zeros(0),
    "tensor of one number": lambda: torch.tensor(1.0),
    "tensor of nan": lambda: torch.tensor([nan, nan]),
    "tensor of two axes": lambda: torch.zeros(2, 3),
    "tensor of whole numbers": lambda: torch.tensor([1, 2]),
    "tensor of bools": lambda: torch.tensor([True, False]),
    "complex tensor": lambda: torch.zeros(4, dtype=torch.complex64),
    "sparse tensor": lambda: torch.eye(4).to_sparse(),
    "int": lambda: int,
    "a class": lambda: fs.FedAvg,
    "a class of modules": lambda: nn.Linear,
    "a class of losses": lambda: fs.losses.Square,
    "a class of projections": lambda: fs.projections.Ball,
    "a module": lambda: nn.Linear(1, 1),
    "a module without parameters": nn.ReLU,
    "a loss": fs.losses.Square,
    "a projection": lambda: fs.projections.Ball(1.0),
    "a schedule": lambda: fs.schedules.Geometric(0.1, 0.5),
    "an object": object,
    "a function of nothing": lambda: lambda: None,
    "a function that gives None": lambda: lambda *given: None,
    "a function that gives text": lambda: lambda *given: "x",
    "a function that gives a number": lambda: lambda *given: 1.0,
    "print": lambda: print,
    "a path": lambda: Path("nowhere") / "x",
    "a folder": lambda: Path(),
    "a module of Python": lambda: torch,
    "an exception": lambda: ValueError("x"),
    "Ellipsis": lambda: ...,
}


class Outcome(Enum):
    FINE = "accepted, and works"
    NAMED = "refused by the argument's name"
    LATER = "accepted, and refused in plain words when used"
    UNNAMED = "refused without the argument's name"
    OTHER = "another exception"
    HANG = "hangs"


BAD = (Outcome.UNNAMED, Outcome.OTHER, Outcome.HANG)


class Wrong(NamedTuple):
    """One call with one wrong value."""

    call: str
    argument: str
    value: str


class Judged(NamedTuple):
    outcome: Outcome
    said: str


class TooLong(BaseException):
    """Nothing in the library may catch it."""


def every_wrong_call(calls: dict[str, Any]) -> list[Wrong]:
    """Each value for each argument of each call; those of `**options` as far as the valid call names them."""
    found = []
    for name, call in calls.items():
        parameters = inspect.signature(call.target).parameters.values()
        named = [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        found += [Wrong(name, key, value) for key in dict.fromkeys([*named, *call.valid]) for value in WRONG]
    return found


def judge(calls: dict[str, Any], wrong: Wrong) -> Judged:
    """Make the call, use what it gives, and tell what became of it."""
    call = calls[wrong.call]
    arguments = {**call.arguments(), wrong.argument: WRONG[wrong.value]()}
    made: Any = None
    accepted = False
    try:
        with time_limit(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = call.target(**arguments)
            accepted = True
            call.use(made)
    except FedSaddleError as error:
        named = re.search(rf"\b{re.escape(wrong.argument)}\b", str(error)) is not None
        outcome = Outcome.NAMED if named else Outcome.LATER if accepted else Outcome.UNNAMED
        return Judged(outcome, f"{type(error).__name__}: {error}"[:300])
    except TooLong:
        return Judged(Outcome.HANG, "")
    except Exception as error:
        return Judged(Outcome.OTHER, f"{type(error).__name__}: {error}"[:300])
    return Judged(Outcome.FINE, "")


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
