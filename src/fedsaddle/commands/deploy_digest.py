"""`fedsaddle deploy digest`: the lines of a site's policy that allow code of others."""

from __future__ import annotations

import sys

from fedsaddle.config.code_names import OURS, is_module
from fedsaddle.config.module_digest import digest_of, places_of
from fedsaddle.errors import BadInput
from fedsaddle.shown import visible


def digest(modules: list[str]) -> None:
    """Print `[modules]` with the digest of each installed module or package; nothing is imported."""
    lines = []
    for given in modules:
        module = given.partition(":")[0]
        if not is_module(module):
            raise BadInput("module", given, "write the name of a module or package, such as my_package")
        if module.partition(".")[0] == OURS:
            raise BadInput("module", given, "is the library itself, which needs no line in a policy")
        lines.append(f'"{module}" = "{digest_of(module)}"')
        for place in places_of(module):
            print(f"{module}: {visible(place)}", file=sys.stderr)
    print("\n".join(["[modules]", *dict.fromkeys(lines)]))
