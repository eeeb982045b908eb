"""Frames between a driver and a worker process: one letter, the length and the content."""

from __future__ import annotations

import os
import queue
import struct
import threading
from collections.abc import Callable
from typing import BinaryIO

from fedsaddle.engines.block_messages import pack_failure
from fedsaddle.engines.worker import Worker, one_thread
from fedsaddle.errors import FedSaddleError

_HEAD = struct.Struct("<cQ")
RECIPE, SENT, BLOCK, READY, ANSWER = b"R", b"S", b"B", b"K", b"A"


class WorkerLost(Exception):
    """A worker process that ended, or a broken pipe to it."""


def write_frame(to: BinaryIO, kind: bytes, content: bytes) -> None:
    """Send one frame."""
    try:
        to.write(_HEAD.pack(kind, len(content)))
        to.write(content)
        to.flush()
    except (OSError, ValueError) as reason:  # ValueError: it was closed
        raise WorkerLost(str(reason)) from None


def read_frame(source: BinaryIO) -> tuple[bytes, bytes]:
    """Receive one frame."""
    kind, length = _HEAD.unpack(_exactly(source, _HEAD.size))
    return kind, _exactly(source, length)


def _exactly(source: BinaryIO, size: int) -> bytes:
    try:
        found = source.read(size)
    except (OSError, ValueError) as reason:
        raise WorkerLost(str(reason)) from None
    if len(found) < size:
        raise WorkerLost("its pipe was closed")
    return found


def serve(source: BinaryIO, to: BinaryIO, make: Callable[[bytes], Worker], recipe: bytes | None = None) -> None:
    """Be a worker until the driver ends or closes the pipe; `make` builds the worker from the recipe."""
    one_thread()
    arrived: queue.SimpleQueue[tuple[bytes, bytes]] = queue.SimpleQueue()
    threading.Thread(target=_follow, args=(source, arrived), daemon=True).start()
    try:
        worker = make(arrived.get()[1] if recipe is None else recipe)
    except (FedSaddleError, OSError, ImportError, MemoryError) as reason:
        write_frame(to, ANSWER, pack_failure(reason))
        return
    write_frame(to, READY, b"")
    sent = b""
    while True:
        kind, content = arrived.get()
        if kind == SENT:
            sent = content
        else:
            write_frame(to, ANSWER, worker.answer(sent, content))


def _follow(source: BinaryIO, arrived: queue.SimpleQueue[tuple[bytes, bytes]]) -> None:
    """Read what the driver sends; when it is gone, end this process in the middle of whatever it does."""
    try:
        while True:
            arrived.put(read_frame(source))
    except WorkerLost:
        os._exit(0)
