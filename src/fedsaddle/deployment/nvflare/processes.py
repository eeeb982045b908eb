"""Start and stop the processes of a server or a site; an environment variable marks all processes of a kit."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from fedsaddle.deployment.nvflare.provision import set_job_store, site_of
from fedsaddle.deployment.project import OTHERS
from fedsaddle.errors import BadInput, MissingData
from fedsaddle.processes import terminate_as_interrupt
from fedsaddle.runs.folder import FolderInUse, only_writer

MARK = "FEDSADDLE_KIT"  # in the environment of every process of a kit


def command(kit: Path) -> list[str]:
    """The command line that starts the participant of a kit."""
    side = "server" if (kit / "startup" / "fed_server.json").is_file() else "client"
    if not (kit / "startup" / f"fed_{side}.json").is_file():
        raise MissingData(f"{kit}: no start-up kit there; `fedsaddle deploy provision` makes the kits")
    set_job_store(kit)
    (kit / "transfer").mkdir(exist_ok=True)
    who = [f"uid={site_of(kit)}"] if side == "client" else []
    return [
        sys.executable, "-u", "-m", f"nvflare.private.fed.app.{side}.{side}_train", "-m", str(kit.resolve()),
        "-s", f"fed_{side}.json", "--set", "secure_train=true", *who, "org=fedsaddle", "config_folder=config",
    ]  # fmt: skip


def start(
    kit: Path, log: Path | None = None, before: tuple[str, ...] = (), threads: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a kit in the background, and stop its earlier processes; output goes to `log` or to the terminal.

    `before` is a prefix of the command, such as one that enters a network namespace; `threads` are torch's there.
    """
    line = [*before, *command(kit)]
    kill(kit)
    _check_ports(kit)
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "PYTHONUNBUFFERED": "1", MARK: str(kit.resolve())}
    environment |= {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    mask = OTHERS if os.name == "posix" else -1  # logs, jobs and memories are the owner's alone
    if log is None:
        return subprocess.Popen(line, env=environment, cwd=kit, start_new_session=True, umask=mask)
    with open(log, "ab") as out:
        return subprocess.Popen(
            line, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment, cwd=kit,
            start_new_session=True, umask=mask,
        )  # fmt: skip


def _check_ports(kit: Path) -> None:
    """Raise `BadInput` if a port of the server is in use; NVFlare would continue without it and never reach a site."""
    path = kit / "startup" / "fed_server.json"
    if path.is_file():
        server = json.loads(path.read_text())["servers"][0]
        for port in (int(server["service"]["target"].rpartition(":")[2]), int(server["admin_port"])):
            with socket.socket() as trial:
                if os.name == "posix":  # on Windows this option lets two programs share a port
                    trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    trial.bind(("", port))
                except OSError as reason:
                    remedy = "stop the program that uses it, or choose another in deployment.toml"
                    cause = (reason.strerror or "cannot be used").lower()
                    raise BadInput("port", port, f"{cause}; {remedy}") from None


def serve(kit: Path) -> int:
    """Run a kit in the foreground until it ends or is interrupted; then stop all its processes.

    Raises:
        BadInput: if the kit runs already, which it goes on to do, or if its certificate has ended.
    """
    process = None
    command(kit)  # fail first where there is no kit
    with terminate_as_interrupt(), _only_one(kit):
        try:
            process = start(kit)
            return process.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            stop(kit)
            if process is not None:
                process.wait()


@contextmanager
def _only_one(kit: Path) -> Iterator[None]:
    """Hold the kit's lock, which ends with this process whatever ends it."""
    try:
        with ExitStack() as stack:
            stack.enter_context(only_writer(kit))
            yield
    except FolderInUse:
        who = ", ".join(map(str, members(kit)[:1])) or "unknown"
        remedy = f"runs already (process {who}), and goes on; stop that one first to start it again"
        raise BadInput("kit", str(kit), remedy) from None


def stop(kit: Path, seconds: float = 8.0) -> None:
    """Terminate all processes of the kit, and kill those that remain."""
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for process in _processes(kit):
            with suppress(psutil.NoSuchProcess):
                end(process)
        until = time.monotonic() + seconds
        while members(kit):
            if time.monotonic() > until:
                break
            time.sleep(0.1)


def kill(kit: Path) -> None:
    """Kill all processes of the kit."""
    while processes := _processes(kit):
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.02)


def members(kit: Path) -> list[int]:
    """The process IDs of the kit."""
    return [process.pid for process in _processes(kit)]


def _processes(kit: Path) -> list[psutil.Process]:
    """The running processes whose environment names the kit."""
    mark, found = str(kit.resolve()), []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):  # it has ended, or belongs to another user
            continue
    return found
