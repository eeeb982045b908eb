"""Runs configs in processes that are killed over and over, or told to stop, and resumed until they come to their end.

    python killing.py CONFIG.toml ...

Of each config it leaves three folders: CONFIG-whole, a run in peace; CONFIG-killed, by SIGKILL at random moments; and
CONFIG-stopped, once by SIGTERM or, for every other config, by SIGHUP. The processes are forked from this one, after the
slow imports. Prints, as JSON, how many records each killed process left behind, and how the stopped one ended.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from cli_command import no_pictures

import fedsaddle.commands.simulation as command
from fedsaddle.cli import main
from fedsaddle.config.build import build


def forked(config: str, out: Path) -> int:
    """The process that runs, or goes on with, the config."""
    child = os.fork()
    if child:
        return child
    resume = ["--resume"] if (out / "metrics.jsonl").exists() else []
    sys.argv = ["fedsaddle", "run", config, "--out", str(out), *resume]
    try:
        with no_pictures():
            main()
    except SystemExit as end:
        os._exit(int(end.code or 0))
    os._exit(70)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def records(out: Path) -> int:
    metrics = out / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def wait_for(child: int, out: Path, many: float) -> None:
    """Until it has written so many records, or has ended."""
    while records(out) < many and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(0.004)


def killed(config: str, out: Path, whole: int, times: int = 5) -> list[int]:
    """Kill it, from its very start to near its end, then let it end; how far it was at each kill."""
    chance, left = random.Random(whole), []
    for k in range(times):
        child = forked(config, out)
        wait_for(child, out, whole * k / times)
        time.sleep(chance.uniform(0, 0.01))
        os.kill(child, signal.SIGKILL)
        code = ended(child)
        assert code in (0, -signal.SIGKILL), f"a run failed with {code}"
        if code:
            left.append(records(out))
    assert ended(forked(config, out)) == 0, "the last run failed"
    return left


def stopped(config: str, out: Path, whole: int, how: signal.Signals) -> int:
    """Tell it to stop on its way, then let it end; the exit code of the first process."""
    child = forked(config, out)
    wait_for(child, out, whole / 4)
    os.kill(child, how)
    code = ended(child)
    assert ended(forked(config, out)) == 0, "the resumed run failed"
    return code


if __name__ == "__main__":
    torch.set_num_threads(1)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also under nohup
    said = {}
    for number, config in enumerate(sys.argv[1:]):
        given = command.read_config(Path(config), ["run.rounds=1", "engine.workers=1"])
        command.simulate_config(given, build(given))  # imports what the processes will need
        name = Path(config).stem
        assert ended(forked(config, Path(f"{name}-whole"))) == 0
        whole = records(Path(f"{name}-whole"))
        left = killed(config, Path(f"{name}-killed"), whole)
        code = stopped(config, Path(f"{name}-stopped"), whole, (signal.SIGTERM, signal.SIGHUP)[number % 2])
        said[name] = {"left": left, "code": code}
    print(json.dumps(said))
