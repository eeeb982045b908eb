"""Imports of a command's modules, torch among them, without the searches for garbage that cost a tenth of them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """While modules are imported, look for no garbage; what they made is never looked through again.

    Imports make many objects and hardly any cycles, but every so many new objects Python looks through all of them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
