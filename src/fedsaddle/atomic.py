"""Files that are written whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_atomically(path: Path, content: bytes) -> None:
    """The file appears with all of its content, or not at all, even if the power fails."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(draft, "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    os.replace(draft, path)


def write_json(path: Path, content: Any) -> None:
    """JSON, atomically."""
    write_atomically(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
