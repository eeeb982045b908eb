"""What the loop tells others while it runs: callbacks, and progress.json."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedsaddle.errors import Diverged
from fedsaddle.runs.progress_file import ProgressFile
from fedsaddle.tracking.callbacks import Beginning
from fedsaddle.tracking.told import Told

if TYPE_CHECKING:
    from fedsaddle.runs.loop import Loop
    from fedsaddle.runs.result import Result

_ENDS = {KeyboardInterrupt: "interrupted", Diverged: "diverged"}


def run_and_tell(loop: Loop, told: Told) -> Result:
    """Run the loop; callbacks are told how it begins and ends, whatever the end is."""
    told.begin(
        Beginning(
            name=loop.name,
            rounds=loop.settings.rounds,
            done=loop.done,
            resumed=loop.resumed,
            folder=None if loop.folder is None else loop.folder.path,
            clients=loop.clients_named,
            parameters=loop.parameters,
        )
    )
    try:
        result = loop.run()
    except BaseException as reason:
        stopped = next((word for kind, word in _ENDS.items() if isinstance(reason, kind)), "failed")
        told.end({"algorithm": loop.name, "stopped": stopped, "rounds": loop.done, "reason": str(reason)})
        raise
    told.end(result.summary)
    return result


def progress_of(loop: Loop) -> ProgressFile | None:
    """Where the loop writes its progress; None without a folder."""
    if loop.folder is None:
        return None
    sites = getattr(loop.given_engine, "standing", None)  # real sites are up or lost
    return ProgressFile(loop.folder.progress, loop.settings.rounds, loop.done, loop.resumed, sites)
