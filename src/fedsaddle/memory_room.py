"""How much memory there is, to refuse what cannot fit before it is tried."""

from __future__ import annotations

import os
from pathlib import Path

UNKNOWN = 64 << 30  # bytes to assume where the system does not tell


def available_memory() -> int:
    """Bytes that a program may still use: what is free or can be freed, as far as the system tells."""
    found = [_meminfo(), _control_group()]
    known = [size for size in found if size is not None]
    if known:
        return min(known)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return UNKNOWN


def _meminfo() -> int | None:
    """What Linux says is available."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def _control_group() -> int | None:
    """What a container leaves, on Linux."""
    here = Path("/sys/fs/cgroup")
    try:
        return int((here / "memory.max").read_text()) - int((here / "memory.current").read_text())
    except (OSError, ValueError):  # no container, or "max"
        return None
