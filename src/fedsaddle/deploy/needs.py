"""What a deployment needs beside FedSaddle itself."""

from __future__ import annotations

from importlib.util import find_spec

from fedsaddle.errors import MissingData


def need_nvflare() -> None:
    """One line where NVFlare is not installed."""
    if find_spec("nvflare") is None:
        raise MissingData("NVFlare is not installed: pip install 'fedsaddle[nvflare]'")
