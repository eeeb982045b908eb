"""Ctrl-C that keeps the work."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

TERMINATING = {"SIGTERM", "SIGHUP"}  # Windows has no SIGHUP


class Interruption:
    """Lets a first Ctrl-C (or a terminate signal) end the run after the round; a second one ends it at once."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Let a terminate signal and a closed terminal end it as Ctrl-C does, so that what was begun is ended as well."""

    def asked(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (s for s in signal.Signals if s.name in TERMINATING):
            if signal.getsignal(number) != signal.SIG_IGN:  # as nohup leaves it
                before[number] = signal.signal(number, asked)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
