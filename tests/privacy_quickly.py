"""The accountant with a coarse grid, for tests in which the last digits of ε do not matter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fedsaddle.privacy import accountant


@pytest.fixture(autouse=True, scope="module")
def coarse_accountant() -> Iterator[None]:
    """Ten times as quick; still never below the true ε."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accountant, "INTERVAL", 0.03)
        _forget()
        yield
    _forget()


def _forget() -> None:
    accountant.epsilon_of.cache_clear()
    accountant.noise_for.cache_clear()
