"""What a folder of results holds, reduced to what must not change, and its comparison with what was recorded.

A recording holds the names of the files, the tensors of the model (values and SHA-256), the metrics of each round and
the summary. `DROPPED` lists what differs from one run to the next and is left out.

How close a folder has to be depends on the machine, since processors and versions of torch round differently:

- on the machine of the recording (`machine()` is the same): the model to the bit, all other numbers to 1e-12
- elsewhere: all numbers to the tolerance of the test, 1e-9 for runs in double precision; digests are not compared

After a change that is meant to change results, write the recordings again and look at the difference::

    FEDSADDLE_WRITE_GOLDEN=1 pytest tests/golden
    FEDSADDLE_WRITE_GOLDEN=1 pytest -m slow tests/golden
    git diff tests/golden
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

HERE = Path(__file__).parent
WRITE = "FEDSADDLE_WRITE_GOLDEN"
SAME = 1e-12  # on the machine of the recording
DOUBLE = 1e-9  # elsewhere, for runs in double precision
SINGLE = 1e-3  # elsewhere, for runs in single precision

DROPPED = (  # keys of documents, by their path; * stands for any part of it
    "*seconds",  # times
    "*sites.*.bytes_down",  # of whole messages, which name versions and times
    "*sites.*.bytes_up",
)
DIGESTS = ("*sha256", "*fingerprint")  # of bits, which agree on the machine of the recording only


def machine() -> dict[str, str]:
    """What decides how numbers are rounded: the processor, and the packages that compute."""
    found = {"processor": _processor(), "instructions": torch.backends.cpu.get_cpu_capability()}
    return found | {name: version(name) for name in ("torch", "numpy", "scipy", "scikit-learn")}


def _processor() -> str:
    """Name, family and model: a virtual machine may tell the name of a whole series only."""
    cpu = Path("/proc/cpuinfo")
    first = cpu.read_text().partition("\n\n")[0] if cpu.exists() else ""
    told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    parts = [told[key] for key in ("model name", "cpu family", "model", "stepping") if key in told]
    return " ".join([platform.machine(), *(parts or [platform.processor()])])


def folder(out: Path) -> dict[str, Any]:
    """Files, model, metrics and summary of a run."""
    return {
        "files": files(out),
        "model": model(out),
        "metrics": metrics(out / "metrics.jsonl"),
        "summary": document(out / "summary.json"),
    }


def files(out: Path) -> list[str]:
    """All files below a folder."""
    return sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())


def model(out: Path) -> dict[str, Any]:
    """The tensors of model.safetensors, and a digest of the names, types, shapes and bytes of all."""
    whole, tensors = hashlib.sha256(), {}
    for name, value in sorted(load_file(out / "model.safetensors").items()):
        kind, shape = str(value.dtype).removeprefix("torch."), list(value.shape)
        whole.update(f"{name} {kind} {shape}".encode() + value.contiguous().numpy().tobytes())
        tensors[name] = {"dtype": kind, "shape": shape, "values": value.flatten().tolist()}
    return {"tensors": tensors, "sha256": whole.hexdigest()}


def metrics(path: Path) -> list[Any]:
    """The rounds of a metrics.jsonl."""
    return [kept(json.loads(line)) for line in path.read_text().splitlines()]


def document(path: Path) -> Any:
    """A JSON document."""
    return kept(json.loads(path.read_text()))


def table(path: Path) -> dict[str, list[Any]]:
    """The columns of a CSV file; cells that are numbers as numbers."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: [_cell(row[name]) for row in rows] for name in rows[0] if not _is(name, DROPPED)}


def _cell(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def kept(value: Any, path: str = "") -> Any:
    """A document without what is dropped."""
    if isinstance(value, dict):
        places = {key: f"{path}.{key}".lstrip(".") for key in value}
        return {key: kept(value[key], place) for key, place in places.items() if not _is(place, DROPPED)}
    return [kept(each, path) for each in value] if isinstance(value, list) else value


def _is(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def check(name: str, found: dict[str, Any], elsewhere: float = DOUBLE, write: bool = True) -> None:
    """Compare with the recording of that name, or write it if `FEDSADDLE_WRITE_GOLDEN` is set.

    `elsewhere` is the tolerance on other machines. With `write=False` the recording belongs to another test.
    """
    path = HERE / f"{name}.json"
    if os.environ.get(WRITE):
        if write:
            path.write_text(as_text({"machine": machine(), **found}))
        pytest.skip(f"{path.name} was {'written' if write else 'left to another test'}")
    recorded = json.loads(path.read_text())
    here = recorded.pop("machine") == machine()
    wrong = list(differences(recorded, found, SAME if here else elsewhere, digests=here))
    assert not wrong, f"{len(wrong)} differences from {path.name}:\n" + "\n".join(wrong[:40])


def differences(
    recorded: Any, found: Any, tolerance: float, digests: bool = True, path: str = "", scale: float | None = None
) -> Iterator[str]:
    """What differs, one line each.

    Numbers may differ by `tolerance` times their size or the largest of their list; without `digests`, which is on
    another machine, also times 1, as differences of nearly equal numbers are rounding errors there.
    """
    if scale is None:
        scale = 0.0 if digests else 1.0
    if not digests and _is(path, DIGESTS):
        return
    if isinstance(recorded, dict) and isinstance(found, dict):
        for key in recorded | found:
            place = f"{path}.{key}".lstrip(".")
            if key not in found:
                yield f"{place}: is gone"
            elif key not in recorded:
                yield f"{place}: is new"
            else:
                yield from differences(recorded[key], found[key], tolerance, digests, place)
    elif isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        largest = max((abs(value) for value in recorded if isinstance(value, float) and isfinite(value)), default=0.0)
        for i, (one, other) in enumerate(zip(recorded, found, strict=True)):
            yield from differences(one, other, tolerance, digests, f"{path}[{i}]", max(scale, largest))
    elif isinstance(recorded, list) and isinstance(found, list):
        gone = [f"{value!r} is gone" for value in recorded if isinstance(value, str) and value not in found]
        new = [f"{value!r} is new" for value in found if isinstance(value, str) and value not in recorded]
        yield f"{path}: {', '.join([f'{len(found)} entries, not {len(recorded)}', *gone, *new])}"
    elif not _same(recorded, found, tolerance, scale):
        yield f"{path}: {found!r}, not {recorded!r}"


def _same(recorded: Any, found: Any, tolerance: float, scale: float) -> bool:
    if type(recorded) is not type(found):
        return False
    if not isinstance(recorded, float) or not isfinite(recorded) or not isfinite(found):
        return repr(recorded) == repr(found)  # also of nan
    return bool(abs(recorded - found) <= tolerance * max(abs(recorded), scale))


def as_text(found: Any) -> str:
    """JSON with a line for each key, and one for a list of plain values."""
    text = json.dumps(found, indent=1)
    return re.sub(r"\[\n\s*([^][{}]*?)\n\s*\]", _on_one_line, text) + "\n"


def _on_one_line(found: re.Match[str]) -> str:
    return f"[{' '.join(line.strip() for line in found[1].splitlines())}]"
