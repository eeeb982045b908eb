"""Compare FedSaddle with other federated learning libraries on the same FedAvg work.

    python benchmarks/peers.py [--quick | --full] [--only NAME ...] [--cells W1x10 ...] [--json FILE]

Each implementation has its own virtual environment under benchmarks/.venvs, or where PEER_VENVS says, made on
first use, and each measurement is its own process. A measurement that fails is reported with its reason and the
rest goes on. The tables are printed and written to benchmarks/results/peers.{json,md}; run it on an
otherwise idle machine: a second busy process slows two-thread kernels by far more than its share.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))

import numpy as np  # noqa: E402
import tables  # noqa: E402
import venvs  # noqa: E402
import work  # noqa: E402

RESULTS = HERE / "results"
QUICK = ("W1x10", "W2x10", "W3x10")
USUAL = ("W1x10", "W1x100", "W2x10", "W2x100", "W3x10")
FULL = (*USUAL, "W3x100")
TOLERANCE = 1e-4  # of a weight, and at most 1% of the furthest that a weight of its array moved


def machine() -> dict:
    def line(path: str, start: str) -> str:
        lines = Path(path).read_text().splitlines()
        return next((x.partition(":")[2].strip() for x in lines if x.startswith(start)), "unknown")

    return {
        "cpu": line("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory_gb": int(line("/proc/meminfo", "MemTotal").split()[0]) / 2**20,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def busy(seconds: float = 0.5) -> float:
    """The share of all cores that is in use now."""

    def times() -> tuple[int, int]:
        fields = [int(v) for v in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    total, idle = times()
    time.sleep(seconds)
    later_total, later_idle = times()
    return 1.0 - (later_idle - idle) / max(1, later_total - total)


def wait_until_idle(patience: float) -> bool:
    """Wait for other work to end, at most `patience` seconds; True when the machine is idle."""
    end = time.monotonic() + patience
    while busy() > 0.15:
        if time.monotonic() > end:
            return False
    return True


def end_tree(process: subprocess.Popen) -> None:
    if process.poll() is not None:  # its number may be another process by now
        return
    for pid in (*reversed(work.descendants(process.pid)), process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def measure(peer: venvs.Peer, data: Path, cell: str, weights: Path, args: argparse.Namespace) -> dict:
    """Run one implementation on one cell in a process of its own."""
    workload, _, clients = cell.partition("x")
    launcher = [part.format(threads=args.threads) for part in peer.launcher]
    command = [str(venvs.python(peer.venv)), "-W", "ignore", *launcher, str(HERE / "peers" / peer.script)]
    command += ["--data", str(data), "--workload", workload, "--clients", clients, "--weights", str(weights)]
    command += ["--seconds", str(args.seconds), "--rounds", str(args.rounds), "--threads", str(args.threads)]
    command += ["--variant", peer.variant, "--started", str(time.time())]
    hidden = ("OMP_", "MKL_", "OPENBLAS_", "XLA_", "PYTHONPATH", "VIRTUAL_ENV")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        try:
            code = process.wait(args.timeout)
        except subprocess.TimeoutExpired:
            return {"failed": f"not done after {args.timeout:.0f} s"}
        finally:
            end_tree(process)
        out.seek(0)
        err.seek(0)
        lines = [line for line in out.read().splitlines() if line.startswith('{"rounds_per_second"')]
        if lines:
            return json.loads(lines[-1])
        errors = [line.strip() for line in err.read().splitlines() if line.strip()]
        named = [line for line in errors if "Error" in line or "Exception" in line] or errors
        return {"failed": (named[-1][:300] if named else "no result") + f" (exit code {code})"}


def compare(results: list[dict], files: dict[str, Path], data: Path, reference: str) -> None:
    """Say of each result of one cell whether its weights are those of the reference."""
    with np.load(data) as start:
        initial = {k: start[k] for k in start.files if k[0] in "wb" and k != "batches"}
    loaded = {}
    for name, path in files.items():
        if path.exists():
            with np.load(path) as arrays:
                loaded[name] = dict(arrays)
    for r in results:
        if r.get("limit"):
            continue
        mine, theirs = loaded.get(r["name"]), loaded.get(reference)
        if mine is None or theirs is None or mine.keys() != initial.keys():
            r["weights"] = "not comparable"
            continue
        difference = {k: float(np.abs(mine[k] - theirs[k]).max()) for k in initial}
        moved = {k: float(np.abs(theirs[k] - initial[k]).max()) for k in initial}
        r["weights_difference"] = max(difference.values())
        same = all(difference[k] <= min(TOLERANCE, 0.01 * moved[k]) for k in initial)
        r["weights"] = "same" if same else f"differ by {r['weights_difference']:.1e}"


def share_best_rate(results: list[dict]) -> None:
    """Give every cell's limit the fastest rate that was measured: it is the machine's, not the cell's."""
    limits = [r for r in results if "gflops" in r]
    best = max((r["gflops"] for r in limits), default=0.0)
    for r in limits:
        r["rounds_per_second"] *= best / r["gflops"]
        r["gflops"] = best


def run(args: argparse.Namespace) -> dict:
    names = list(args.only or venvs.PEERS)
    reference = next((n for n in ("plain", *names) if n in names and n != "limit"), names[0])
    report = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": machine(),
        "workloads": {k: f"{w.title}, batch {w.batch}" for k, w in work.WORKLOADS.items()},
        "titles": {n: venvs.PEERS[n].title for n in names},
        "settings": {"steps": work.STEPS, "samples": work.SAMPLES, "threads": args.threads},
        "checked_round": work.CHECKED_ROUND,
        "reference": venvs.PEERS[reference].title,
        "results": [],
    }
    broken: dict[str, str] = {}
    for venv in dict.fromkeys(venvs.PEERS[n].venv for n in names):
        try:
            venvs.ensure(venv)
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            broken[venv] = str(error)
    for cell in args.cells:
        with tempfile.TemporaryDirectory(prefix="peers-") as folder:
            data, results = Path(folder) / "cell.npz", []
            workload, _, clients = cell.partition("x")
            work.make(data, workload, int(clients))
            files = {n: Path(folder) / f"{n}.npz" for n in names}
            for name in names:
                peer = venvs.PEERS[name]
                if peer.venv in broken:
                    result = {"failed": broken[peer.venv]}
                else:
                    idle = wait_until_idle(args.patience)
                    result = measure(peer, data, cell, files[name], args)
                    result["noisy"] = not idle or busy() > 0.15
                results.append({"name": name, "cell": cell, **result})
                speed = result.get("failed") or f"{result['rounds_per_second']:.3g} rounds/s"
                print(f"{cell:7} {peer.title:37} {speed}", file=sys.stderr, flush=True)
            compare(results, files, data, reference)
            report["results"] += results
        share_best_rate(report["results"])
        write(report, args.json)
    return report


def write(report: dict, extra: str | None) -> None:
    RESULTS.mkdir(exist_ok=True)
    for path in (RESULTS / "peers.json", *([Path(extra)] if extra else [])):
        path.write_text(json.dumps(report, indent=1) + "\n")
    (RESULTS / "peers.md").write_text(tables.render(report, tables.markdown, "## "))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="10 clients only and 2 s for each measurement")
    size.add_argument("--full", action="store_true", help="also the CNN with 100 clients")
    parser.add_argument("--only", nargs="+", choices=venvs.PEERS, metavar="NAME", help=", ".join(venvs.PEERS))
    parser.add_argument("--cells", nargs="+", choices=FULL, metavar="CELL", help=", ".join(FULL))
    parser.add_argument("--json", metavar="FILE", help="also write the results here")
    parser.add_argument("--seconds", type=float, help="timed work for each measurement (15)")
    parser.add_argument("--rounds", type=int, default=1000, help="rounds of a measurement at most")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds until a measurement is given up")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds to wait for an idle machine")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that what it started ends too
    args.cells = args.cells or (QUICK if args.quick else FULL if args.full else USUAL)
    args.seconds = (2.0 if args.quick else 15.0) if args.seconds is None else args.seconds
    print(tables.render(run(args), tables.text, ""))


if __name__ == "__main__":
    main()
