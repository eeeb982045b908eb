"""What a run has stored, read again with care: files may be cut off, damaged or written by others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedsaddle.shown import shortened

Record = dict[str, Any]
LARGEST = 1 << 30  # bytes of a file that is read


def read_object(path: Path) -> Record:
    """The JSON object in a file.

    Raises:
        ValueError: if there is none; says why.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError("the file is too large")
        return _object(path.read_bytes())
    except OSError as reason:
        raise ValueError(reason.strerror or str(reason)) from None


def read_records(path: Path) -> tuple[list[Record], list[str]]:
    """The records of a metrics.jsonl, in the order of their rounds, and for each line that is none where and why."""
    records: list[Record] = []
    damage: list[str] = []
    if not path.exists():
        return records, damage
    lines = path.read_bytes().split(b"\n")
    last = len(lines)
    for number, line in enumerate(lines, 1):
        if not line and number == last:
            continue
        try:
            record = _object(line)
            _check_round(record, records)
        except ValueError as reason:
            cut = number == last  # without a line break at its end
            damage.append(f"line {number} of {path} is {'incomplete' if cut else 'damaged'} ({reason})")
        else:
            records.append(record)
    return records, damage


def _check_round(record: Record, before: list[Record]) -> None:
    done = record.get("round")
    if isinstance(done, bool) or not isinstance(done, int) or done < 0:
        raise ValueError("it has no round")
    if before and done <= before[-1]["round"]:
        raise ValueError(f"its round {done} is not after {before[-1]['round']}")


def _object(content: bytes) -> Record:
    try:
        found: object = json.loads(content.decode("utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    except ValueError as reason:
        raise ValueError(shortened(str(reason), 200)) from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    return found
