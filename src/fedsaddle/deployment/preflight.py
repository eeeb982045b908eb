"""Checks before a deployment: NVFlare is installed, and the config uses only what a deployment can do."""

from __future__ import annotations

from importlib.util import find_spec

from fedsaddle.config.schema import Config, NoiseSection
from fedsaddle.errors import BadInput, MissingData


def require_nvflare() -> None:
    """Raise `MissingData` if NVFlare is not installed."""
    if find_spec("nvflare") is None:
        raise MissingData("NVFlare is not installed: pip install 'fedsaddle[nvflare]'")


def require_deployable(config: Config) -> None:
    """Raise `BadInput` if a config uses a feature that only simulations have.

    Noise is drawn over all rows at once. For a named data set that happens before the rows are assigned to sites.
    """
    if config.run.measures:
        raise BadInput(
            "run.measures",
            config.run.measures,
            "work in simulations only, because they need all rows in one place; leave them out",
        )
    if config.attack.name != "none":
        remedy = "is for simulations only: the sites of a deployment are what they are; leave [attack] out"
        raise BadInput("attack.name", config.attack.name, remedy)
    if config.data.test_clients:
        remedy = "works in simulations only: every site of a deployment trains; leave it out"
        raise BadInput("data.test_clients", config.data.test_clients, remedy)
    if config.data.name == "file" and config.noise != NoiseSection():
        noise = {k: v for k, v in config.noise.model_dump().items() if v}
        raise BadInput(
            "noise", noise, "works in simulations only, because it needs all rows in one place; leave it out"
        )
