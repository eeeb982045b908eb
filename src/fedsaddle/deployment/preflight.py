"""What a deployment needs beside FedSaddle itself, and what it cannot do."""

from __future__ import annotations

from importlib.util import find_spec

from fedsaddle.config.schema import Config, NoiseSection
from fedsaddle.errors import BadInput, MissingData


def require_nvflare() -> None:
    """One line where NVFlare is not installed."""
    if find_spec("nvflare") is None:
        raise MissingData("NVFlare is not installed: pip install 'fedsaddle[nvflare]'")


def require_deployable(config: Config) -> None:
    """One line where a config asks for what only a simulation can do.

    Noise is drawn over all rows at once. Those of a named data set had it before they were dealt out to sites.
    """
    if config.run.measures:
        raise BadInput("run.measures", config.run.measures, "need all rows in one place; leave them out")
    if config.data.name == "file" and config.noise != NoiseSection():
        asked = {k: v for k, v in config.noise.model_dump().items() if v}
        raise BadInput("noise", asked, "is for simulations, where all rows are in one place; leave it out")
