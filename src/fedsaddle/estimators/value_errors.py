"""Errors as users of scikit-learn expect them: a wrong value is a `ValueError` too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedsaddle.errors import BadInput


class BadValue(BadInput, ValueError):
    """A value that cannot be: names the key, the value and the remedy."""


@contextmanager
def value_errors() -> Iterator[None]:
    """Raise a `BadInput` of what is called as one that is a `ValueError` as well."""
    try:
        yield
    except BadValue:
        raise
    except BadInput as error:
        raise BadValue(error.key, error.value, error.remedy) from None
