"""Settings, versions, and the commands to repeat a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from fedsaddle.report.page.parts import Block, Bullets, Code, Section, Table, Text
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.shown import shortened, visible

MOST_CHARACTERS = 200  # of a value


def settings_section(run: StoredRun) -> Section | None:
    """How to repeat the run, every setting, and the versions."""
    blocks: list[Block] = [Text("The commands to repeat it:"), Code("\n".join(commands(run)))]
    blocks += _provenance(run)
    rows = [(visible(key), shortened(visible(value), MOST_CHARACTERS)) for key, value in flat(run.config)]
    if rows:
        blocks.append(Table(("setting", "value"), rows, caption="Every setting, defaults included", folded=True))
    if run.damage:
        blocks += [Text("Some files of this run could not be read:", "caution"), Bullets([*map(visible, run.damage)])]
    return Section("settings", "Settings, versions, and how to repeat it", blocks)


def commands(run: StoredRun) -> list[str]:
    """The commands that make this run and this page again."""
    given = run.provenance.get("command")
    first = given if isinstance(given, str) and given else _from_search(run.search)
    if first is None:
        first = "fedsaddle run CONFIG.toml    # with the settings below"
    return [visible(first), visible(shlex.join(["fedsaddle", "report", str(run.folder)]))]


def _from_search(search: Mapping[str, Any]) -> str | None:
    """The command of a search on a table, from what it was asked for."""
    if "table" not in search:
        return None
    words = ["fedsaddle", "run", str(search["table"])]
    names = {"test_sites": "test-site"}
    for key, value in search.items():
        if key == "table" or value is None or value == []:
            continue
        for one in value if isinstance(value, list) else [value]:
            words += [f"--{names.get(key, key)}", str(one)]
    return shlex.join(words)


def _provenance(run: StoredRun) -> list[Block]:
    found, blocks = run.provenance, list[Block]()
    versions = found.get("versions")
    if isinstance(versions, dict) and versions:
        rows = [(visible(name), visible(number)) for name, number in versions.items()]
        when, where = visible(found.get("finished", "at an unknown time")), visible(found.get("machine", "?"))
        caption = f"Finished {when} on {where}, with fedsaddle {visible(versions.get('fedsaddle', '?'))}."
        blocks += [Text(caption), Table(("package", "version"), rows, caption="Versions", folded=True)]
    table = found.get("table")
    if isinstance(table, dict) and table.get("sha256"):
        blocks.append(Text(f"The table: {visible(table.get('file'))}, SHA-256 {visible(table['sha256'])}."))
    if run.summary.get("fingerprint"):
        blocks.append(Text(f"Fingerprint of algorithm, data and seed: {visible(run.summary['fingerprint'])}."))
    return blocks


def flat(settings: Mapping[str, Any], head: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as pairs such as ("run.seed", "0")."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{head}{key}.")
        else:
            yield f"{head}{key}", "" if value is None else str(value)
