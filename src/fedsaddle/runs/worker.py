"""`python -m fedsaddle.runs.worker`: a worker process of `engine = "processes"`, started by the driver."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import torch

from fedsaddle.algorithms.protocols import AnyAlgorithm
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.store import Lazy, Stacked
from fedsaddle.engines.choose import keep_freed_memory
from fedsaddle.engines.device import CPU, be_deterministic, find_device
from fedsaddle.engines.workers import Worker, WorkersFailed, one_thread
from fedsaddle.errors import BadInput, FedSaddleError, within
from fedsaddle.federation.tasks import AnyTask
from fedsaddle.files import Json, JsonObject
from fedsaddle.robust.attacks import Attack, hostile_task, with_flipped_labels
from fedsaddle.runs.checkpoints import fingerprint

FROM_CONFIG = "fedsaddle.config.run_config"  # makes what a config describes; imported by name, as factories are
FACTORY = 'give "module:function", which returns the algorithm and the data, or a config as a dictionary'
DATA = "FEDSADDLE_DATA"


@dataclass(frozen=True)
class WorkerRecipe:
    """What a worker needs to make what the driver has; it compares the fingerprints."""

    factory: str | Mapping[str, Json]
    seed: int
    lost_replies: float
    fingerprint: str
    attack: Mapping[str, Json] | None = None
    device: str = "cpu"  # where its tasks run
    precision: str = "full"
    deterministic: bool = False

    def to_json(self) -> str:
        """For a worker; also the folder and the number type that the driver works with."""
        own = {"folder": os.getcwd(), "data": os.environ.get(DATA), "dtype": str(torch.get_default_dtype())}
        return json.dumps({**vars(self), **own})


def check_factory(factory: object) -> None:
    """Refuse what is neither a config nor the name of a function."""
    if isinstance(factory, Mapping) and all(isinstance(key, str) for key in factory):
        with within("factory"):
            import_module(FROM_CONFIG).check_factory(factory)
    elif not isinstance(factory, str) or not all(part.strip() for part in factory.partition(":")):
        raise BadInput("factory", factory, FACTORY)


def build_worker(text: str | bytes) -> Worker:
    """The worker of a recipe; its errors name the machine."""
    try:
        return _build(json.loads(text))
    except FedSaddleError as reason:
        failed = WorkersFailed(f"a worker on {platform.node()} cannot begin: {reason}")
        failed.exit_code = reason.exit_code
        raise failed from None


def _build(given: JsonObject) -> Worker:
    one_thread()
    keep_freed_memory()
    if given["deterministic"]:
        be_deterministic()
    if Path(given["folder"]).is_dir():  # relative paths of a config are meant from there
        os.chdir(given["folder"])
    if given["data"]:
        os.environ.setdefault(DATA, given["data"])
    torch.set_default_dtype(getattr(torch, given["dtype"].removeprefix("torch.")))
    algorithm, rows = _made(given["factory"])
    device = find_device(given["device"])
    found = fingerprint(algorithm, rows, given["seed"], given["lost_replies"])
    if found != given["fingerprint"]:
        told = f"its algorithm or rows differ from the driver's (fingerprint {found}, not {given['fingerprint']})"
        raise WorkersFailed(f"{told}; give every machine the same data, code and versions")
    attack = None if given["attack"] is None else Attack(**given["attack"])
    return attacked_worker(algorithm, rows, attack, device, given["precision"])


def _made(factory: str | JsonObject) -> tuple[AnyAlgorithm, Stacked | Lazy]:
    if not isinstance(factory, str):
        made: tuple[AnyAlgorithm, Stacked | Lazy] = import_module(FROM_CONFIG).make(factory)
        return made
    module, _, name = factory.partition(":")
    try:
        algorithm, data = getattr(import_module(module), name)()
    except (ImportError, AttributeError, TypeError, ValueError) as reason:
        raise BadInput("factory", factory, f"{FACTORY} ({type(reason).__name__}: {reason})") from reason
    return algorithm, data.train if isinstance(data, FederatedData) else data


def attacked_worker(
    algorithm: AnyAlgorithm,
    rows: Stacked | Lazy,
    attack: Attack | None,
    device: torch.device = CPU,
    precision: str = "full",
) -> Worker:
    """A worker whose hostile clients, if there are any, carry out the attack."""
    if attack is None:
        return Worker(algorithm, rows, device=device, precision=precision)
    hostile = attack.hostile(rows.count)
    change: Callable[[AnyTask], AnyTask] = lambda task: hostile_task(attack, hostile, task)  # noqa: E731
    trained = with_flipped_labels(rows, hostile) if attack.flips_labels else rows
    return Worker(algorithm, trained, change, device, precision)


def main() -> None:
    """Answer blocks from standard input on standard output; what is printed goes to standard error."""
    source, to = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    from fedsaddle.engines.processes import serve

    serve(source, to, build_worker)


if __name__ == "__main__":
    main()
    sys.exit(1)  # it could not begin, and has printed the reason
