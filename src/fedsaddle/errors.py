"""Errors for users. Each names what is wrong, the value and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedsaddle.text import shortened, visible

LONGEST_SHOWN = 400  # characters of a value in a message
LONGEST_MESSAGE = 4000  # characters of a message


class FedSaddleError(Exception):
    """Base class of the errors that a user can put right; the command line prints one line, without a traceback.

    Args:
        message: One line; characters that cannot be printed are escaped.
    """

    exit_code = 2

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(visible(message), LONGEST_MESSAGE))


class BadInput(FedSaddleError):
    """An invalid value.

    Args:
        key: Name of the parameter, the config key or the cell.
        value: What it was.
        remedy: What to do about it.
    """

    def __init__(self, key: str, value: object, remedy: str) -> None:
        super().__init__(f"{shortened(key, LONGEST_SHOWN)} = {_shown(value)}: {remedy}")
        self.key, self.value, self.remedy = key, value, remedy


class NotGiven(BadInput):
    """A required value is missing.

    Args:
        key: Name of the parameter or of the config key.
        remedy: What to do about it.
    """

    def __init__(self, key: str, remedy: str) -> None:
        FedSaddleError.__init__(self, f"{key} is missing: {remedy}")
        self.key, self.value, self.remedy = key, None, remedy


def _shown(value: object) -> str:
    """The value in one line of limited length, even if its `repr` fails."""
    try:
        text = repr(value)
    except Exception:  # such as a whole number with too many digits
        return f"<{type(value).__name__}>"
    text = " ".join(text.split()) if "\n" in text else text
    return shortened(text, LONGEST_SHOWN)


@contextmanager
def within(section: str) -> Iterator[None]:
    """Prefix the keys of errors with a section of the config: `split.clients`.

    Other names are unchanged: a row and a column of a file, the label of a client, `x.shape`, an option `--set`.

    Args:
        section: Name of the section, such as "split".
    """
    try:
        yield
    except BadInput as error:
        if not error.key.isidentifier() or error.key == section:
            raise
        raise BadInput(f"{section}.{error.key}", error.value, error.remedy) from None


class MissingData(FedSaddleError):
    """A data set or a file is missing; the message is how to get it.

    Args:
        message: One line.
    """


def install(extra: str) -> str:
    """The command that installs an optional dependency of this package, which is not on a package index.

    Args:
        extra: Name of the extra, as in pyproject.toml.

    Examples:
        >>> print(install("excel"))
        run `pip install ".[excel]"` in the folder with FedSaddle's sources
    """
    return f'run `pip install ".[{extra}]"` in the folder with FedSaddle\'s sources'


class BadCheckpoint(FedSaddleError):
    """A checkpoint is corrupt, or belongs to another run.

    Args:
        message: One line.
    """


class CannotWrite(FedSaddleError):
    """The disk is full or fails; a run can be resumed when there is room.

    Args:
        path: Of the file.
        reason: What the operating system reported.
    """

    exit_code = 3

    def __init__(self, path: object, reason: OSError) -> None:
        self.cause = reason.strerror or "unknown error"
        super().__init__(f"{path}: cannot be written ({reason.strerror}); make room there, then resume the run")


NOBODY = -1  # in place of a client, for a value that comes from all of them


class NotFinite(BadInput):
    """Scores that are NaN or infinite, and so cannot be ranked.

    Args:
        key: Name of the parameter.
        value: The first such score.
        remedy: What to do about it.
    """


SMALLER_STEP = "try a smaller step, scale the features, or bound the model with a projection"


class Diverged(FedSaddleError):
    """A reply, or the scores of a model, contain NaN or infinity.

    Args:
        client: Number of the client; -1: all of them.
        field: Name of the field of the reply, or what the model computed.
        round: Number of the round; None (default): unknown.
    """

    exit_code = 3

    def __init__(self, client: int, field: str, round: int | None = None) -> None:
        self.client, self.field, self.round = client, field, round
        where = "" if round is None else f"round {round}: "
        what = f"the model has a '{field}'" if client == NOBODY else f"client {client} sent a '{field}'"
        super().__init__(f"{where}{what} that is not finite; {SMALLER_STEP}")


class NobodyAnswered(FedSaddleError):
    """No client of the cohort replied, so there is nothing to average.

    Args:
        message: One line.
    """

    exit_code = 3


class BadMessage(FedSaddleError):
    """A message from another site is malformed.

    Args:
        message: One line.
    """

    exit_code = 3


class TooFewAnswered(FedSaddleError):
    """Fewer sites than the run requires replied before its timeout.

    Args:
        message: One line.
    """

    exit_code = 3


class Refused(FedSaddleError):
    """A site declines to take part: its policy or its data do not allow the run.

    Args:
        message: One line.
    """

    exit_code = 3
