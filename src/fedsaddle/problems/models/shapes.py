"""What the ready models need to know of the data: for each kind of model, its shapes or a plain complaint."""

from __future__ import annotations

from fedsaddle.errors import BadInput
from fedsaddle.problems.facts import DataFacts

Shapes = dict[str, int]


def linear(facts: DataFacts, scores: int) -> Shapes:
    """One linear map."""
    return {"inputs": _features(facts), "classes": scores}


def layers(facts: DataFacts, scores: int) -> Shapes:
    """Linear layers."""
    return {"inputs": _features(facts), "outputs": scores}


def picture(facts: DataFacts, scores: int) -> Shapes:
    """Convolutions, for pictures of any size."""
    _features(facts)
    if len(facts.shape) != 3:
        raise BadInput("model.name", facts.model, "needs pictures; say images = true under [data]")
    return {"channels": facts.shape[0], "classes": scores}


def sized_picture(facts: DataFacts, scores: int) -> Shapes:
    """Convolutions that must know the side of a picture."""
    return {**picture(facts, scores), "side": facts.shape[-1]}


def square_picture(facts: DataFacts, scores: int) -> Shapes:
    """Convolutions for square pictures that are halved twice."""
    shapes, (_, height, width) = sized_picture(facts, scores), facts.shape
    if height != width or width < 4:
        remedy = f"needs square pictures of 4 x 4 pixels or more, these are {height} x {width}; use mlp"
        raise BadInput("model.name", facts.model, remedy)
    return shapes


def text(facts: DataFacts, scores: int) -> Shapes:
    """A model of characters."""
    if not facts.text:
        raise BadInput("model.name", facts.model, "is the model for text, and for nothing else")
    return {"characters": len(facts.classes)}


def _features(facts: DataFacts) -> int:
    if facts.text:
        raise BadInput("model.name", facts.model, "these data are text: gru is the model for text")
    return facts.features
