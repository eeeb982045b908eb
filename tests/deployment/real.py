"""A deployment of real processes on this machine: server, sites, kits and TLS, for tests that kill parts of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import fedsaddle as fs
from fedsaddle.commands.deploy_try import OPEN_POLICY, write_site_files
from fedsaddle.config.build import build
from fedsaddle.config.schema import Config, read_config
from fedsaddle.deployment.nvflare import processes
from fedsaddle.deployment.project import EXAMPLE, FILE, Project, read_project
from fedsaddle.runs.run import run

CONFIG = """
[data]
name = "{data}"
[split]
name = "iid"
clients = {sites}
[model]
name = "logistic"
[problem]
name = "{problem}"
[algorithm]
{algorithm}
[run]
rounds = {rounds}
checkpoint_every = 2
dtype = "float64"
"""

DRFA = 'name = "DRFA"\nlocal_steps = 3\nbatch_size = 4'
ALGORITHMS = {  # algorithm, data, problem
    "DRFA": (DRFA, "iris", "supervised"),
    "FedSGDA-STORM": ('name = "FedSGDA-STORM"\nlocal_steps = 3\nbatch_size = 4', "breast-cancer", "auc"),
    "CODASCA": ('name = "CODASCA"', "breast-cancer", "auc"),  # batches of 4 blow up at one site, and are bounded
    "FedX2": ('name = "FedX2"', "breast-cancer", "pairwise"),
    "Local SGDA+, memory": ('name = "Local SGDA+"\nlocal_steps = 3\nsnapshot_every = 2', "iris", "class-fair"),
}
MEMORY = ALGORITHMS["Local SGDA+, memory"]


def free_ports(count: int) -> list[int]:
    from fedsaddle.commands.deploy_try import free_ports as found

    return found(count)


def fedsaddle(*arguments: object, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    line = [*before, sys.executable, "-c", "from fedsaddle.cli import main; main()", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


@dataclass
class Federation:
    """Its project's folder, and what runs."""

    folder: Path
    sites: int = 3
    started: list[Path] = field(default_factory=list)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    submitted: list[subprocess.Popen[str]] = field(default_factory=list)

    def make(self, *given: Any, **settings: Any) -> Project:
        """Write config and project, deal out the rows, make the kits."""
        self.prepare(*given, **settings)
        done = fedsaddle("deploy", "provision", self.folder)
        said, _ = done.communicate(timeout=300)
        assert done.returncode == 0, said
        for i in range(self.sites):  # iris has few rows
            (self.kit(f"site-{i + 1}") / "site-policy.toml").write_text(OPEN_POLICY + "most_rounds = 1000\n")
        return read_project(self.folder)

    def prepare(
        self, algorithm: str, rounds: int, data: str = "iris", problem: str = "supervised", **settings: Any
    ) -> None:
        """Write config and project, deal out the rows."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write(algorithm, rounds, data, problem)
        files = write_site_files(build(self.config).data, self.folder / "data")
        listed = "".join(f'[sites.{file.stem}]\ndata = "{file.as_posix()}"\n' for file in files)
        port, admin_port = free_ports(2)
        text = EXAMPLE.format(
            name="trial", server='"localhost"', port=port, admin_port=admin_port, minimum=2, sites=listed
        )
        for key, value in settings.items():
            lines = [line for line in text.splitlines() if not line.startswith(f"{key} = ")]
            lines.insert(lines.index("[deployment]") + 1, f"{key} = {value}")
            text = "\n".join(lines)
        (self.folder / FILE).write_text(text)

    def write(self, algorithm: str, rounds: int, data: str = "iris", problem: str = "supervised") -> None:
        text = CONFIG.format(data=data, sites=self.sites, algorithm=algorithm, rounds=rounds, problem=problem)
        (self.folder / "fedsaddle.toml").write_text(text)

    @property
    def config(self) -> Config:
        return read_config(self.folder / "fedsaddle.toml")

    def kit(self, name: str) -> Path:
        return self.folder / "kits" / name

    def start(self, *names: str, before: tuple[str, ...] = ()) -> None:
        for name in names or ("localhost", *(f"site-{i + 1}" for i in range(self.sites))):
            self.started.append(self.kit(name))
            self.processes.append(processes.start(self.kit(name), self.kit(name) / "process.log", before))

    def kill(self, name: str) -> None:
        """-9, parent and job process alike."""
        processes.kill(self.kit(name))

    def stop(self) -> None:
        for submitted in self.submitted:
            if submitted.poll() is None:
                submitted.kill()
                submitted.communicate()
            elif submitted.stdout is not None:
                submitted.stdout.close()
        for kit in dict.fromkeys(self.started):
            processes.stop(kit)
        for process in self.processes:
            process.wait()

    def submit(self, out: str = "out", before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        config, folder = self.folder / "fedsaddle.toml", self.folder / out
        self.submitted.append(fedsaddle("run", config, "--engine", "nvflare", "--out", folder, before=before))
        return self.submitted[-1]

    def rounds(self, out: str = "out") -> int:
        """Rounds that the one who submitted has heard of."""
        path = self.folder / out / "metrics.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def log(self, name: str) -> str:
        return (self.kit(name) / "process.log").read_text(errors="replace")

    def summary(self, out: str = "out") -> dict[str, Any]:
        return dict(json.loads((self.folder / out / "summary.json").read_text()))

    def simulated(self, threads: int | None = None) -> Any:
        """The simulation, with as many threads as the sites have: sums are rounded by threads."""
        built, settings, before = build(self.config), self.config.run, torch.get_num_threads()
        torch.set_num_threads(threads or before)
        try:
            privacy = fs.Privacy(secure_aggregation=True) if self.config.privacy.secure_aggregation else None
            return run(
                built.algorithm,
                built.data,
                settings.rounds,
                seed=settings.seed,
                engine="serial",
                privacy=privacy,
            )
        finally:
            torch.set_num_threads(before)


def wait(until: Callable[[], bool], seconds: float, process: subprocess.Popen[str] | None = None) -> None:
    """Until it is so; fails where it takes too long, or where the process has ended."""
    end = time.monotonic() + seconds
    while not until():
        if process is not None and process.poll() is not None:
            raise AssertionError(f"ended with {process.returncode}: {process.stdout.read() if process.stdout else ''}")
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.2)


def ends(process: subprocess.Popen[str], code: int = 0, seconds: float = 1200) -> str:
    """What it said, once it has ended with that exit code."""
    said, _ = process.communicate(timeout=seconds)
    assert process.returncode == code, said
    return said


def same_model(federation: Federation, out: str = "out", threads: int | None = None) -> None:
    """The model in that folder is the simulation's, to the bit."""
    found = load_file(federation.folder / out / "model.safetensors")
    for name, value in federation.simulated(threads).state_dict().items():
        assert torch.equal(found[name], value), name
