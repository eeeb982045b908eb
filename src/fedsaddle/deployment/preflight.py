"""Checks before a deployment: NVFlare is installed, and the config uses only what a deployment can do."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from fedsaddle.config.check_keys import check_keys
from fedsaddle.config.schema import Config, NoiseSection
from fedsaddle.errors import BadInput, MissingData, install


def require_nvflare() -> None:
    """Raise `MissingData` if NVFlare is not installed."""
    if find_spec("nvflare") is None:
        raise MissingData(f"NVFlare is not installed; {install('nvflare')}")


def require_deployable(config: Config) -> None:
    """Raise `BadInput` if a config uses a feature that only simulations have.

    Noise is drawn over all rows at once. For a named data set that happens before the rows are assigned to sites.
    """
    check_keys(config)
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


def require_named_columns(config: Config, files: Iterable[Path]) -> None:
    """Raise `BadInput` if sites with these files would have to read columns that nobody has named."""
    options = config.data.options()
    named = any(options.get(key) for key in ("features", "numeric", "categorical", "categories"))
    if config.data.name == "file" and not named and any(path.suffix.lower() != ".npz" for path in files):
        remedy = (
            'name the columns that sites may read: features = ["age", "sex"] in [data]; '
            "`fedsaddle deploy init --sample TABLE` writes them from a table"
        )
        raise BadInput("data.features", options.get("features"), remedy)
