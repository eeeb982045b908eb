"""The exchange of keys before the first round of a run with secure aggregation; once in a run."""

from __future__ import annotations

from typing import Any

from fedsaddle.atomic import write_json
from fedsaddle.config.schema import Config
from fedsaddle.deployment.agreement import digests
from fedsaddle.deployment.courier import Courier
from fedsaddle.deployment.payloads import KeyTold, read_payload
from fedsaddle.errors import BadCheckpoint, BadInput, BadMessage
from fedsaddle.runs.folder import RunFolder
from fedsaddle.secure.fixed_point import LEAST_SITES
from fedsaddle.secure.keys import require_cryptography
from fedsaddle.stored import read_object

FILE = "keys.json"  # in the run's folder: public keys only


def require_secure(names: tuple[str, ...], algorithm: object) -> None:
    """Raise `BadInput` if the sums of a run would be of fewer than three sites."""
    require_cryptography()
    remedy = f"secure aggregation needs at least {LEAST_SITES} in each sum"
    if len(names) < LEAST_SITES:
        raise BadInput("sites", len(names), remedy)
    sampled = getattr(algorithm, "sampled_clients", None)
    if isinstance(sampled, int) and sampled < LEAST_SITES:
        raise BadInput("algorithm.sampled_clients", sampled, remedy)


def collect_keys(courier: Courier, config: Config, run: str, folder: RunFolder) -> dict[str, Any]:
    """The signed keys of all sites, as the sites check them; a resumed run uses the stored ones."""
    path, names = folder.path / FILE, courier.names
    if path.exists():
        try:
            stored = read_object(path)
            return {name: read_payload(KeyTold, stored[name]).model_dump() for name in names}
        except (ValueError, KeyError, BadMessage) as reason:
            raise BadCheckpoint(f"{path} is damaged ({reason}); start a new run") from None
    payload = {"config": digests(config), "names": list(names)}
    told = courier.request(
        "keys", run, payload, everyone=True, check=lambda _, __, record: read_payload(KeyTold, record)
    )
    keys = {name: told[i].model_dump() for i, name in enumerate(names)}
    folder.path.mkdir(parents=True, exist_ok=True)
    write_json(path, keys)
    return keys
