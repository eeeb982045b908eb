"""Handling of Ctrl-C and of terminate signals during a run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

TERMINATING = {"SIGTERM", "SIGHUP"}  # Windows has no SIGHUP


class Interruption:
    """A first Ctrl-C or terminate signal ends the run after the current round; a second one ends it at once."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt for a terminate signal or a closed terminal, so that clean-up code runs."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (s for s in signal.Signals if s.name in TERMINATING):
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores it
                before[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
