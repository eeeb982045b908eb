"""Arguments that own models and problems get from the data, because their signature asks for them by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any

from fedsaddle.errors import BadInput
from fedsaddle.problems.facts import DataFacts

# Name of an argument -> what it gets.
ASKED: dict[str, str] = {
    "inputs": "numbers in one row",
    "features": "the same",
    "outputs": "scores that the problem wants of a row",
    "classes": "the same; of a problem: classes of the data, 0 for regression",
    "shape": "the shape of one row, a tuple",
    "channels": "channels of a picture",
    "height": "rows of pixels",
    "width": "pixels in a row",
    "side": "either of them, if pictures are square",
    "size": "the same",
    "characters": "size of the alphabet, for text",
}
ALWAYS = ("inputs", "outputs", "classes")


def asked_shapes(
    make: Callable[..., Any], key: str, name: str, facts: DataFacts, scores: int, given: Collection[str] = ()
) -> dict[str, Any]:
    """The arguments in `ASKED` that the signature of `make` has and the config does not give.

    Those in `ALWAYS` even where they have a default; of the others a default counts.
    """
    asked = {name: p for name, p in inspect.signature(make).parameters.items() if name in ASKED and name not in given}
    wanted = [name for name, p in asked.items() if name in ALWAYS or p.default is p.empty]
    return {parameter: _shape(parameter, key, name, facts, scores) for parameter in wanted}


def _shape(parameter: str, key: str, name: str, facts: DataFacts, scores: int) -> Any:
    simple = {"inputs": facts.features, "features": facts.features, "shape": facts.shape}
    simple |= {"outputs": scores, "classes": scores}
    if parameter in simple:
        return simple[parameter]
    if parameter == "characters":
        if not facts.text:
            raise BadInput(
                key, name, "asks for `characters`, and these data are no text; give it as an option, or rename it"
            )
        return len(facts.classes)
    if len(facts.shape) != 3:
        remedy = f"asks for `{parameter}` of pictures; say images = true under [data], or give it as an option"
        raise BadInput(key, name, remedy)
    channels, height, width = facts.shape
    if parameter in ("side", "size") and height != width:
        raise BadInput(
            key, name, f"asks for `{parameter}` of square pictures, these are {height} x {width}; take height and width"
        )
    return {"channels": channels, "height": height}.get(parameter, width)
