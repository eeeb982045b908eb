"""Seconds for one exchange, in this process and over NVFlare or Flower with TLS on loopback, beside their empty calls.

    python benchmarks/deployment.py [--sites 3] [--times 10] [--poll 0.1] [--sizes 100000 10000000]

Every site gets so many float32 numbers and sends as many back; the codec's work at both ends is in the time. Server and
sites share the machine. Measures the engines that are installed: fedsaddle[nvflare] or, in an environment of its own,
fedsaddle[flower].
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

from deployment_work import echo, seconds, vector

from fedsaddle.commands.deploy import flower
from fedsaddle.commands.deploy_try import CONFIG, free_ports
from fedsaddle.deployment.courier import InProcess
from fedsaddle.deployment.nvflare import processes
from fedsaddle.deployment.nvflare.provision import KITS, provision
from fedsaddle.deployment.project import EXAMPLE, FILE, Project, read_project
from fedsaddle.federation.wire import unpack

HERE = Path(__file__).parent.resolve()
SIZES = [100_000, 10_000_000]


def in_process(sites: int, size: int, times: int) -> list[float]:
    transport = InProcess(dict.fromkeys(range(sites), echo))

    def once() -> None:
        for arrival in transport.exchange(range(sites), vector(size), sites, 60.0):
            unpack(arrival.content or b"", {})

    return seconds(once, times)


def allow(kit: Path) -> None:
    """A deployment allows FedSaddle's two classes only; this one is for the benchmark's own."""
    path = kit / "local" / "resources.json"
    resources = json.loads(path.read_text())
    resources["class_allow_list"] = ["deployment_echo.EchoController", "deployment_echo.EchoExecutor"]
    path.write_text(json.dumps(resources))


def write_job(path: Path, names: list[str], sizes: list[int], times: int, poll: float, out: Path) -> Path:
    app = path / "app" / "config"
    app.mkdir(parents=True)
    meta = {"name": "echo", "resource_spec": {}, "min_clients": len(names), "deploy_map": {"app": ["@ALL"]}}
    (path / "meta.json").write_text(json.dumps(meta))
    args = {"names": names, "sizes": sizes, "times": times, "out": str(out)}
    flow = {"id": "echo", "path": "deployment_echo.EchoController", "args": args}
    server = {"format_version": 2, "server": {"task_request_interval": poll}, "workflows": [flow], "components": []}
    executor = {"tasks": ["fedsaddle"], "executor": {"path": "deployment_echo.EchoExecutor", "args": {}}}
    (app / "config_fed_server.json").write_text(json.dumps(server))
    (app / "config_fed_client.json").write_text(
        json.dumps({"format_version": 2, "executors": [executor], "components": []})
    )
    return path


def write_project(folder: Path, sites: int) -> Project:
    (folder / "fedsaddle.toml").write_text(CONFIG.format(sites=sites))
    listed = "".join(f'[sites.site-{i + 1}]\ndata = "none.csv"\n' for i in range(sites))
    port, admin_port = free_ports(2)
    text = EXAMPLE.format(
        name="echo", server="localhost", port=port, admin_port=admin_port, minimum=sites, sites=listed
    )
    (folder / FILE).write_text(text)
    return read_project(folder)


def over_nvflare(sites: int, sizes: list[int], times: int, poll: float) -> dict[str, list[float]]:
    from fedsaddle.deployment.nvflare.session import NVFlareSession

    os.environ["PYTHONPATH"] = f"{HERE}:{os.environ.get('PYTHONPATH', '')}"
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        project = write_project(folder, sites)
        provision(project, folder)
        for participant in ("localhost", *project.names):
            kit = folder / KITS / participant
            allow(kit)
            stack.callback(processes.start(kit, kit / "process.log").wait)
            stack.callback(processes.stop, kit)
        out = folder / "times.json"
        with NVFlareSession(project.admin, folder / KITS / project.admin, 120.0) as session:
            while len(session.sites()) < sites:
                time.sleep(1.0)
            job = session.submit(write_job(folder / "echo", list(project.names), sizes, times, poll, out))
            while not session.status(job).startswith("FINISHED"):
                time.sleep(2.0)
        found: dict[str, list[float]] = json.loads(out.read_text())
        return found


def over_flower(sites: int, sizes: list[int], times: int) -> dict[str, list[float]]:
    sys.path.append(str(HERE.parent / "tests" / "deployment"))
    from flower_network import FlowerNetwork

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names, out = list(write_project(folder, sites).names), folder / "times.json"
        with redirect_stdout(StringIO()):
            flower(folder)
        app = folder / "flower" / "app"
        config = {"names": json.dumps(names), "sizes": json.dumps(sizes), "times": times, "out": str(out)}
        text = (app / "pyproject.toml").read_text().replace("fedsaddle.deployment.flower.app", "deployment_flower")
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items())
        (app / "pyproject.toml").write_text(
            text.partition("[tool.flwr.app.config]")[0] + f"[tool.flwr.app.config]\n{lines}"
        )
        with FlowerNetwork(folder / "flower", folder / "home", path=str(HERE)) as network:
            network.start(*names)
            network.flwr("run", app, "here")
            while not out.exists():
                time.sleep(1.0)
        found: dict[str, list[float]] = json.loads(out.read_text())
        return found


def line(name: str, size: int, sites: int, times: list[float], floor: list[float] | None = None) -> str:
    median = statistics.median(times)
    rate = 2 * 4 * size * sites / 1e6 / median
    beside = f" {median / statistics.median(floor):8.2f}" if floor else ""
    return f"{name:<22} {size:>12,} {median:10.3f} {min(times):8.3f} {rate:10.1f}{beside}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--poll", type=float, default=0.1)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    given = parser.parse_args()
    print(f"{given.sites} sites, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; medians of {given.times}")
    print(f"{'':<22} {'numbers':>12} {'seconds':>10} {'least':>8} {'MB/s':>10} {'x floor':>8}")
    for size in given.sizes:
        print(line("in process", size, given.sites, in_process(given.sites, size, given.times)))
    engines = {
        "NVFlare": ("nvflare", lambda: over_nvflare(given.sites, given.sizes, given.times, given.poll)),
        "Flower": ("flwr", lambda: over_flower(given.sites, given.sizes, given.times)),
    }
    for engine, (module, measure) in engines.items():
        found = {} if find_spec(module) is None else measure()
        for size in given.sizes if found else ():
            floor = found[f"floor beside {size}"]
            print(line(f"{engine}, empty call", 0, given.sites, floor))
            print(line(engine, size, given.sites, found[str(size)], floor))


if __name__ == "__main__":
    main()
