"""The implementations, and a virtual environment for each, made once with pinned versions.

They lie in benchmarks/.venvs, or in the folder that PEER_VENVS names. An environment that needs another Python than the
one that runs this finds it on PATH, among pyenv's, or where PEER_PYTHON_3_12 (for Python 3.12) says.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parent.parent
VENVS = Path(os.environ.get("PEER_VENVS") or BENCHMARKS / ".venvs")
# Exactly this torch and numpy everywhere, so that the kernels are the same. Installed before the
# rest and named again with it, so that no package brings another build in.
TORCH = ("torch==2.13.0", "numpy==2.4.6")


@dataclass(frozen=True)
class Peer:
    title: str
    script: str
    venv: str
    variant: str = ""
    launcher: tuple[str, ...] = ()  # arguments of Python before the script


PEERS = {
    "ours": Peer("FedSaddle", "ours.py", "ours"),
    "limit": Peer("the machine's arithmetic limit", "limit.py", "plain"),
    "plain": Peer("torch loop, DataLoader", "plain.py", "plain"),
    "plain-slices": Peer("torch loop, slices", "plain.py", "plain", variant="slices"),
    "pfl": Peer("pfl-research, 1 process", "pfl_research.py", "pfl"),
    "pfl-processes": Peer(
        "pfl-research, a process per core",
        "pfl_research.py",
        "pfl",
        launcher=("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "{threads}"),
    ),
    "flower": Peer("Flower simulation, an actor per core", "flower_simulation.py", "flower"),
    "flower-one": Peer("Flower simulation, 1 actor", "flower_simulation.py", "flower", variant="one-actor"),
    "fedlab": Peer("FedLab standalone", "fedlab_standalone.py", "fedlab"),
    "fedjax": Peer("FedJAX, jit", "fedjax_fedavg.py", "fedjax"),
    "fedjax-devices": Peer("FedJAX, pmap, a device per core", "fedjax_fedavg.py", "fedjax", variant="devices"),
    "blazefl": Peer("BlazeFL, 1 thread of Python", "blazefl_fedavg.py", "blazefl"),
    "blazefl-threads": Peer("BlazeFL, a thread per core", "blazefl_fedavg.py", "blazefl", variant="threads"),
    "blazefl-processes": Peer("BlazeFL, a process per core", "blazefl_fedavg.py", "blazefl", variant="processes"),
}

# The pip commands of each environment, in order. FedLab goes in without its dependencies: it asks
# for torchvision, which PyPI only has for another build of torch, and needs it for data sets alone.
FEDLAB_NEEDS = ("pandas==3.1.1", "scikit-learn==1.9.1", "pynvml==13.0.1", "tqdm==4.70.1", "munch==4.0.0")
INSTALL: dict[str, tuple[tuple[str, ...], ...]] = {
    "ours": (TORCH,),
    "plain": (TORCH,),
    "pfl": (TORCH, (*TORCH, "pfl==0.6.0")),
    "flower": (TORCH, (*TORCH, "flwr[simulation]==1.41.0", "ray==2.55.1")),
    "fedlab": (TORCH, (*TORCH, *FEDLAB_NEEDS, "pillow==13.0.0"), ("--no-deps", "fedlab==1.3.0")),
    "blazefl": (TORCH, (*TORCH, "blazefl==2.0.3", "tqdm==4.70.1")),
    "fedjax": (("fedjax==0.0.17", "jax==0.10.2", "jaxlib==0.10.2", "dm-haiku==0.0.17", "optax==0.2.8", TORCH[1]),),
}
PYTHON = {"blazefl": "3.12"}  # the least that BlazeFL 2 runs on; the others have the Python that runs this


def python(venv: str) -> Path:
    return VENVS / venv / "bin" / "python"


def base_python(venv: str) -> str:
    """The Python that makes an environment."""
    wanted = PYTHON.get(venv)
    if wanted is None:
        return sys.executable
    named = os.environ.get(f"PEER_PYTHON_{wanted.replace('.', '_')}")
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{wanted}.*/bin/python"))
    for found in [named] if named else [sys.executable, f"python{wanted}", *map(str, pyenv)]:
        if _is_version(found, wanted):
            return found
    raise RuntimeError(f"Python {wanted} was not found; name it with PEER_PYTHON_{wanted.replace('.', '_')}")


def _is_version(command: str, wanted: str) -> bool:
    ask = [command, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        return subprocess.run(ask, capture_output=True, text=True).stdout.strip() == wanted
    except OSError:
        return False


def pip(venv: str, *arguments: str) -> None:
    command = [str(python(venv)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "ERROR" in line] or [done.stderr[-300:]]
        raise RuntimeError("pip install failed: " + errors[-1])


def ensure(venv: str) -> None:
    """Make the environment unless it is there with the same pins; ours gets the present source each time."""
    ready, pins = VENVS / venv / "ready.txt", repr(INSTALL[venv])
    if not ready.exists() or ready.read_text() != pins:
        shutil.rmtree(VENVS / venv, ignore_errors=True)
        print(f"making the environment {venv} ...", file=sys.stderr, flush=True)
        subprocess.run([base_python(venv), "-m", "venv", str(VENVS / venv)], check=True)
        for arguments in INSTALL[venv]:
            pip(venv, *arguments)
        ready.write_text(pins)
    if venv == "ours":
        root = BENCHMARKS.parent
        constraints = root / "constraints.txt"
        pip(venv, *(("-c", str(constraints)) if constraints.exists() else ()), *TORCH, str(root))
        pip(venv, "--no-deps", "--force-reinstall", str(root))
