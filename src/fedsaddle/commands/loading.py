"""Imports of a command's modules, torch among them, without the searches for garbage that cost a tenth of them."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """While torch is imported, look for no garbage; what was made by then is never looked through again.

    Imports make many objects and hardly any cycles, but every so many new objects Python looks through all of them.
    Where torch is there already, nothing is changed: what is garbage by then must not be kept.

    Ctrl-C ends the process at once meanwhile: nothing is written yet, and an exception in the middle of an import gets
    lost, or makes torch abort.
    """
    was_on, first = gc.isenabled(), "torch" not in sys.modules
    if first:
        gc.disable()
    handled = threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if handled:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if handled:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if first:
            gc.freeze()
            if was_on:
                gc.enable()
