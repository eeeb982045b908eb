"""Handling of Ctrl-C and of terminate signals during a run."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

TERMINATING = {"SIGTERM", "SIGHUP"}  # Windows has no SIGHUP


class Interruption:
    """A first Ctrl-C or terminate signal ends the run after the current round; a second one ends it at once.

    A closed terminal (SIGHUP) ends it after the current round as well, however often the signal comes.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, Any] = {}
        self._terminals: list[int] = []

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._terminals = _terminals()
            for number in _handled(TERMINATING | {"SIGINT"}):
                self._before[number] = signal.signal(number, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        hung_up = signal.Signals(number).name == "SIGHUP"
        if hung_up:
            _write_nowhere(self._terminals)
        elif self.requested:
            raise KeyboardInterrupt
        self.requested = True


def _handled(names: set[str]) -> list[signal.Signals]:
    """The signals of those names; nohup ignores SIGHUP, and so do we then."""
    known = [s for s in signal.Signals if s.name in names]
    return [s for s in known if s.name != "SIGHUP" or signal.getsignal(s) != signal.SIG_IGN]


def _terminals() -> list[int]:
    """Which of standard output and standard error are terminals."""
    return [number for number in (1, 2) if os.isatty(number)]


def _write_nowhere(terminals: list[int]) -> None:
    """Drop what is written to a terminal that has been closed: writing would fail, and the run with it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in terminals:
        os.dup2(nowhere, number)
    os.close(nowhere)


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt for a terminate signal or a closed terminal, so that clean-up code runs."""

    terminals = _terminals()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if signal.Signals(number).name == "SIGHUP":
            _write_nowhere(terminals)
        raise KeyboardInterrupt

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in _handled(TERMINATING):
            before[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
