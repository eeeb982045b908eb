"""Double precision on one core for the tests that compare numbers; every other test keeps torch's defaults."""

from collections.abc import Iterator

import pytest
import torch

EXACT = {"oracles", "contracts", "identities", "numerics", "federation", "problems", "engines", "algorithms"}


@pytest.fixture(autouse=True)
def double_precision(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.path.parent.name not in EXACT:
        yield
        return
    before, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)  # tensors of a few numbers only wait for each other
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)
    torch.set_num_threads(threads)
