"""Checks of Python arguments: each returns the value as a plain Python one, or raises `BadInput` with its name.

Config files are checked by their schema; these checks are for those who call the library from Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from math import isfinite, isinf, isnan
from numbers import Integral, Real
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from fedsaddle.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_WHOLE = 2**63 - 1  # the largest whole number that numpy and torch can hold
MAX_ROUNDS = 1_000_000_000  # of a run
LARGEST_REAL = 3e38  # about the largest number of single precision
Value = TypeVar("Value")
P = ParamSpec("P")


def whole(key: str, value: object, least: int = 1, most: int = LARGEST_WHOLE) -> int:
    """A whole number from `least` to `most`; numpy integers are accepted, floats and bools are not.

    Examples:
        >>> whole("clients", 10)
        10
    """
    if not isinstance(value, bool) and isinstance(value, Integral) and least <= int(value) <= most:
        return int(value)
    limits = f"of at least {least}" if most == LARGEST_WHOLE else f"from {least} to {most}"
    raise BadInput(key, value, f"must be a whole number {limits}")


def number(
    key: str,
    value: object,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    below: float | None = None,
    infinite: bool = False,
    largest: float = LARGEST_REAL,
) -> float:
    """A number within the given limits: above < value < below, least <= value <= most.

    It must be finite, unless `infinite` is set, and at most `largest` in size, so that single precision can hold it.

    Examples:
        >>> number("step", 0.1, above=0)
        0.1
    """
    real = _real(value)
    if real is not None and isinf(real) and not infinite:
        real = None
    if real is not None and isfinite(real) and abs(real) > (LARGEST_WHOLE if isinstance(value, Integral) else largest):
        raise BadInput(key, value, f"is too large; give at most {largest:g}, or 2^63 for a whole number")
    if (
        real is not None
        and (above is None or real > above)
        and (least is None or real >= least)
        and (most is None or real <= most)
        and (below is None or real < below)
    ):
        return real
    if above == 0 and least is most is below is None:
        raise BadInput(key, value, "must be a positive number")
    words = (("above", above), ("of at least", least), ("of at most", most), ("below", below))
    limits = " and ".join(f"{word} {limit:g}" for word, limit in words if limit is not None)
    raise BadInput(key, value, f"must be a {'' if infinite else 'finite '}number {limits}".rstrip())


def share(key: str, value: object) -> float:
    """A number from 0 to 1.

    Examples:
        >>> share("test_share", 0.2)
        0.2
    """
    return number(key, value, least=0, most=1)


def choice(key: str, value: object, choices: Sequence[str]) -> str:
    """One of the choices.

    Examples:
        >>> choice("labels", "fine", ("fine", "coarse"))
        'fine'
    """
    if isinstance(value, str) and value in choices:
        return str(value)
    raise BadInput(key, value, f"{did_you_mean(value, choices)}choose one of {', '.join(map(repr, choices))}")


def flag(key: str, value: object) -> bool:
    """True or False; numpy bools are accepted, numbers are not.

    Examples:
        >>> flag("stratify", True)
        True
    """
    if isinstance(value, bool) or (type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_")):
        return bool(value)
    raise BadInput(key, value, "must be True or False")


def text(key: str, value: object, empty: bool = False) -> str:
    """A string, of at least one character unless it may be `empty`.

    Examples:
        >>> text("name", "adult")
        'adult'
    """
    if isinstance(value, str) and (value or empty):
        return value
    raise BadInput(key, value, "must be text")


def path(key: str, value: object) -> Path:
    """The path of a file or a folder, as text or a path object."""
    if isinstance(value, str | PathLike) and isinstance(fspath(value), str) and fspath(value):
        return Path(fspath(value))
    raise BadInput(key, value, "must be the path of a file, as text or a pathlib.Path")


def optional(check: Callable[[str, object], Value], key: str, value: object) -> Value | None:
    """None, or the checked value: `optional(share, "positives", value)`.

    Examples:
        >>> optional(share, "positives", None)
    """
    return None if value is None else check(key, value)


def instance(key: str, value: object, kind: type[Value], remedy: str) -> Value:
    """An object of a class; `remedy` is how to get one.

    Examples:
        >>> instance("name", "adult", str, "give the name of the data set")
        'adult'
    """
    if isinstance(value, kind):
        return value
    raise BadInput(key, value, remedy)


def function(key: str, value: object, takes: int | None = None) -> None:
    """A function, or another callable object, of `takes` arguments; classes are refused.

    Examples:
        >>> function("stop", lambda: False, takes=0)
    """
    if isinstance(value, type):
        raise BadInput(key, value.__name__, "is a class; must be a function, or an object that can be called")
    if not callable(value):
        raise BadInput(key, value, "must be a function")
    if takes is None:
        return
    try:
        signature(value).bind(*(None,) * takes)
    except TypeError:
        wanted = {0: "no arguments", 1: "one argument"}.get(takes, f"{takes} arguments")
        raise BadInput(key, value, f"must be a function of {wanted}") from None
    except ValueError:  # some built-in functions have no signature
        return


def tensor(key: str, value: object, axes: int | None = None, least_axes: int = 1) -> Tensor:
    """A dense torch tensor with exactly `axes` axes, or at least `least_axes`."""
    import torch

    if not isinstance(value, torch.Tensor):
        raise BadInput(key, type(value).__name__, "must be a torch tensor; use torch.as_tensor(...)")
    if value.layout != torch.strided:
        raise BadInput(key, str(value.layout), "must be a dense tensor; use .to_dense()")
    if axes is not None and value.ndim != axes:
        raise BadInput(f"{key}.shape", tuple(value.shape), f"must have {axes} {'axis' if axes == 1 else 'axes'}")
    if value.ndim < least_axes:
        needed = f"{least_axes} {'axis' if least_axes == 1 else 'axes'}"
        raise BadInput(f"{key}.shape", tuple(value.shape), f"must have at least {needed}")
    return value


def vector(key: str, value: object) -> Tensor:
    """A dense torch tensor of one axis, with one or more finite real numbers."""
    import torch

    checked = tensor(key, value, axes=1)
    if checked.is_complex() or checked.dtype == torch.bool or checked.is_quantized:
        raise BadInput(key, str(checked.dtype), "must be a tensor of real numbers, such as torch.zeros(3)")
    if not len(checked):
        raise BadInput(f"{key}.shape", (0,), "must have one number or more")
    if not torch.isfinite(checked).all():
        raise BadInput(key, checked[~torch.isfinite(checked)][0].item(), "must be finite")
    return checked


# Name of a parameter, an engine or a device here -> names in other libraries and papers.
OTHER_NAMES = {
    "primal_step": "lr learning_rate step_size step eta client_lr local_lr",
    "dual_step": "lr_dual dual_lr lr_lambda gamma",
    "server_step": "server_lr server_learning_rate global_lr",
    "local_steps": "local_epochs epochs num_epochs local_iterations tau",
    "sampled_clients": "clients_per_round cohort_size fraction_fit sample_clients",
    "proximal": "mu prox_mu proximal_mu",
    "local_optimiser": "optimizer optimiser local_optimizer",
    "server_optimiser": "server_optimizer",
    "server_momentum": "momentum",
    "l2": "weight_decay",
    "rounds": "num_rounds n_rounds global_rounds iterations max_iter",
    "seed": "random_state random_seed",
    "clients": "num_clients n_clients sites num_sites",
    "cuda": "gpu nvidia rocm",
    "mps": "metal apple",
    "processes": "multiprocessing mp process",
    "vectorised": "vmap default",
}
OURS = {other: ours for ours, others in OTHER_NAMES.items() for other in others.split()}


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The beginning of a remedy that suggests the most similar known name; empty if none is similar.

    Examples:
        >>> did_you_mean("lr", ["batch_size", "primal_step"]), did_you_mean("elephant", ["primal_step"])
        ("did you mean 'primal_step'? ", '')
    """
    names = {one.lower(): one for one in known}
    wrong = str(name).lower()
    near = [OURS[wrong]] if OURS.get(wrong) in names else get_close_matches(wrong, list(names), 1)
    if not near:
        return ""
    unit = " (it counts minibatches)" if "epoch" in wrong and near[0] == "local_steps" else ""
    return f"did you mean {names[near[0]]!r}{unit}? "


def hint_keywords(call: Callable[P, Value], moved: Mapping[str, str] | None = None) -> Callable[P, Value]:
    """Wrap a function so that an unknown keyword raises `BadInput` with the most similar parameter.

    `moved` has the remedies for keywords of earlier versions.
    """

    @wraps(call)
    def hinted(*args: P.args, **named: P.kwargs) -> Value:
        try:
            return call(*args, **named)
        except TypeError:
            known = signature(call).parameters
            if any(one.kind is one.VAR_KEYWORD for one in known.values()):
                raise
            for key, value in named.items():
                if key in (moved or {}):
                    raise BadInput(key, value, (moved or {})[key]) from None
                if key not in known:
                    names = [one for one in known if one != "self"]
                    what = call.__qualname__.removesuffix(".__init__")
                    hint = did_you_mean(key, names)
                    if not hint and "algorithm" in names and key in OURS:
                        hint = f"did you mean {OURS[key]!r} of the algorithm? "
                    remedy = f"{what} has no such parameter; {hint}it has {', '.join(names)}"
                    raise BadInput(key, value, remedy) from None
            raise

    return hinted


def hint_keywords_of(kind: type) -> None:
    """Apply `hint_keywords` to the constructor of a class of this library, once."""
    own = vars(kind).get("__init__")
    if own is not None and not hasattr(own, "__wrapped__"):
        setattr(kind, "__init__", hint_keywords(own))  # noqa: B010


@contextmanager
def renamed(keys: Mapping[str, str]) -> Iterator[None]:
    """Rename keys in errors to the names that the caller uses: `renamed({"client": "site"})`."""
    try:
        yield
    except BadInput as error:
        if error.key not in keys:
            raise
        raise BadInput(keys[error.key], error.value, error.remedy) from None


def _real(value: object) -> float | None:
    """The number as a float; None for NaN and for other types."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        real = float(value)
    except (OverflowError, ValueError):
        return None
    return None if isnan(real) else real
