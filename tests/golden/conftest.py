"""Golden folders are made on one core, and with the helpers of the tests of the command line and of deployments."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

# At the end: a helper of the same name in the test's own folder comes first.
sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("cli", "deployment")]


@pytest.fixture(autouse=True)
def one_core() -> Iterator[None]:
    """Sums are rounded by the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
