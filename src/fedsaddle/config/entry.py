"""What a name of a config stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from fedsaddle.errors import BadInput

KINDS = ("minimisation", "minimax", "pairwise")  # of problems


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One name: the class or function, and the arguments that it fixes, in the form of a config."""

    target: str = field(kw_only=False)  # the class or function, "module:name"
    about: str = field(kw_only=False)
    source: str = field(default="", kw_only=False)  # the paper, or for data the source and the licence
    kind: str = ""  # of the problem, or of the problem that the algorithm solves: one of KINDS
    fixed: Mapping[str, Any] = field(default_factory=dict)  # arguments that the name fixes
    defaults: Mapping[str, Any] = field(default_factory=dict)  # arguments that a user may change
    required: Mapping[str, str] = field(default_factory=dict)  # arguments that must be given -> an example
    shapes: str = ""  # of a model: the function that takes its shapes from the data, "module:name"
    own: str = ""  # the package or module that brings it; empty: it is ours

    def load(self) -> Any:
        """Import the class or function."""
        module, _, attribute = self.target.partition(":")
        return getattr(import_module(module), attribute)

    def bind(self, key: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Merge the given and the fixed arguments; errors begin with `key`."""
        for argument, value in self.fixed.items():
            if argument in given:
                remedy = f"{name} fixes {argument} = {value!r}; leave it out, or choose another name"
                raise BadInput(f"{key}.{argument}", given[argument], remedy)
        for argument, example in self.required.items():
            if argument not in given:
                raise BadInput(f"{key}.{argument}", None, f"{name} needs a value, such as {example}")
        return {**self.defaults, **given, **self.fixed}
