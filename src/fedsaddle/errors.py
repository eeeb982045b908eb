"""The errors a user can meet. Each says what is wrong, which value, and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedsaddle.shown import shortened, visible

LONGEST_SHOWN = 400  # characters of a value in a message
LONGEST_MESSAGE = 4000  # characters of a message


class FedSaddleError(Exception):
    """Anything the user can put right; the command line prints it in one line, without a traceback.

    The message is one line: what cannot be printed in the names it quotes is escaped.
    """

    exit_code = 2

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(visible(message), LONGEST_MESSAGE))


class BadInput(FedSaddleError):
    """A value that cannot be: names the key, the value and the remedy."""

    def __init__(self, key: str, value: object, remedy: str) -> None:
        super().__init__(f"{shortened(key, LONGEST_SHOWN)} = {_shown(value)}: {remedy}")
        self.key, self.value, self.remedy = key, value, remedy


class NotGiven(BadInput):
    """A value that must be given and was not: names the key and the remedy."""

    def __init__(self, key: str, remedy: str) -> None:
        FedSaddleError.__init__(self, f"{key} is missing: {remedy}")
        self.key, self.value, self.remedy = key, None, remedy


def _shown(value: object) -> str:
    """The value in one line that is not too long, whatever its `repr` does."""
    try:
        said = repr(value)
    except Exception:  # such as a whole number with too many digits
        return f"<{type(value).__name__}>"
    said = " ".join(said.split()) if "\n" in said else said
    return shortened(said, LONGEST_SHOWN)


@contextmanager
def within(section: str) -> Iterator[None]:
    """Name the section of the config in complaints about a key of it: `split.clients`.

    What is no key stays as it is: a row and a column of a file, the label of a client, `x.shape`, an option `--set`.
    """
    try:
        yield
    except BadInput as error:
        if not error.key.isidentifier() or error.key == section:
            raise
        raise BadInput(f"{section}.{error.key}", error.value, error.remedy) from None


class MissingData(FedSaddleError):
    """A data set or a file that is not there, with the way to get it."""


def install(extra: str) -> str:
    """How to install an optional part of this package, which is not on a package index.

    >>> print(install("excel"))
    run `pip install ".[excel]"` in the folder with FedSaddle's sources
    """
    return f'run `pip install ".[{extra}]"` in the folder with FedSaddle\'s sources'


class BadCheckpoint(FedSaddleError):
    """A checkpoint that is corrupt, or that belongs to another run."""


class CannotWrite(FedSaddleError):
    """A file that cannot be written because the disk is full or fails; a run can be resumed when there is room."""

    exit_code = 3

    def __init__(self, path: object, reason: OSError) -> None:
        self.cause = reason.strerror or "unknown error"
        super().__init__(f"{path}: cannot be written ({reason.strerror}); make room there, then resume the run")


NOBODY = -1  # in place of a client, where all of them have a part in it


class NotFinite(BadInput):
    """Scores with NaN or infinity among them, which have no order."""


SMALLER_STEP = "try a smaller step, scale the features, or bound the model with a projection"


class Diverged(FedSaddleError):
    """A reply, or the scores of a model, with NaN or infinity in it."""

    exit_code = 3

    def __init__(self, client: int, field: str, round: int | None = None) -> None:
        self.client, self.field, self.round = client, field, round
        where = "" if round is None else f"round {round}: "
        what = f"the model has a '{field}'" if client == NOBODY else f"client {client} sent a '{field}'"
        super().__init__(f"{where}{what} that is not finite; {SMALLER_STEP}")


class NobodyAnswered(FedSaddleError):
    """No client of the cohort answered, so that there is nothing to average."""

    exit_code = 3


class BadMessage(FedSaddleError):
    """Bytes from another site that are not what they should be."""

    exit_code = 3


class TooFewAnswered(FedSaddleError):
    """Fewer sites answered than the run needs, for longer than it waits."""

    exit_code = 3


class Refused(FedSaddleError):
    """A site that will not take part: it is configured for something else."""

    exit_code = 3
