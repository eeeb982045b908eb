"""Double precision on one core for the tests that compare numbers; every other test keeps torch's defaults."""

import os
import sys
from collections.abc import Iterator

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as many workers as cores: one thread each

import pytest
import torch
from hypothesis import settings

settings.register_profile("any machine", deadline=None)  # a busy one is no reason to fail
settings.load_profile("any machine")

EXACT = {"oracles", "contracts", "identities", "numerics", "federation", "problems", "engines", "algorithms"}


@pytest.fixture(autouse=True)
def double_precision(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.path.parent.name not in EXACT:
        yield
        if commands := sys.modules.get("fedsaddle.commands.output"):
            commands.output.begin()  # a command of the test before does not say how the next one prints
        return
    before, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)  # tensors of a few numbers only wait for each other
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)
    torch.set_num_threads(threads)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the public data sets run only where the files are."""
    if os.environ.get("FEDSADDLE_DATA"):
        return
    for item in items:
        if item.get_closest_marker("data"):
            item.add_marker(pytest.mark.skip(reason="set FEDSADDLE_DATA to the folder of the data sets"))
