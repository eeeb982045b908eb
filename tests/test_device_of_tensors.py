"""No tensor is made without a device: what clients compute may run anywhere, and a forgotten one shows only there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "fedsaddle"
FOLDERS = ("algorithms", "engines", "numerics", "problems")  # what runs at clients
MAKES = {
    "arange", "as_tensor", "empty", "eye", "full", "linspace", "logspace", "ones", "rand", "randint", "randn",
    "randperm", "tensor", "zeros",
}  # fmt: skip

HERE = {  # file -> function -> why its tensors are those of the CPU
    "numerics/mixtures.py": dict.fromkeys(("uniform", "dense", "at", "onto_simplex", "_few"), "λ is the server's"),
    "algorithms/fedx/scores.py": {"updated": "the server's buffers", "_empty": "the server's buffers"},
    "engines/site.py": dict.fromkeys(
        (
            "sizes",
            "minibatches",
            "_draw_labelled",
            "_draw_balanced",
            "everything",
            "labelled",
            "uniforms",
            "_keys",
            "_units",
        ),
        "rows that live here",
    ),
    "engines/simulated.py": {"_remember": "sizes for the memory's table"},
    "numerics/regularisers.py": {"prox": "λ is the server's"},
    "algorithms/aaggff.py": dict.fromkeys(("start", "_newton"), "p is the server's"),
    "algorithms/fedmgda.py": {"mixture_of_least_norm": "λ is the server's"},
    "algorithms/anderson.py": {"_mix": "mixed at the server"},
    "algorithms/newton.py": {"round": "who answered, which the server notes"},
    "algorithms/boosted_trees.py": dict.fromkeys(("_with_bins", "_grow_"), "bins and splits are the server's"),
    "algorithms/delta_fl.py": {"edges": "the server's"},
    "problems/rare_losses.py": {"with_counts": "a module with copies for devices"},
    "problems/fair.py": {"from_data": "counts, before the first round"},
    "problems/models/forest.py": {"__init__": "parameters"},
    "problems/known_games.py": {"_mean_row": "a measure", "initial": "the starting point", "saddle": "a measure"},
    "problems/groups.py": {"from_data": "counts, before the first round"},
    "problems/games.py": {"initial": "the starting point", "_client_weights": "a measure", "saddle": "a measure"},
    "problems/regression.py": dict.fromkeys(("contrasts", "redundant", "ridge"), "the server's, and a measure's"),
    "problems/supervised.py": {"ridge": "the server's, and a measure's"},
    "problems/pairwise.py": {"row_measures": "a measure"},
    "problems/losses.py": dict.fromkeys(("cross_entropy", "logistic"), "modules with copies for devices"),
    "numerics/flat.py": {"without_penalty": "a constant, which has copies for devices"},
    "algorithms/personal.py": {"_places": "a constant, which has copies for devices"},
    "engines/workers.py": {"read_answer": "numbers on their way"},
}


def makers(tree: ast.AST) -> list[tuple[str, int, str]]:
    """Function, line and name of each call that makes a tensor and names no device."""
    found = []

    def look(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef):
            function = node.name
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            inner = node.func.value
            sent = node.func.attr == "to" and "device" in "".join(
                map(ast.unparse, node.args)
            )  # torch.from_numpy(...).to(device)
            torch = isinstance(inner, ast.Name) and inner.id == "torch"
            named = any(k.arg in ("device", None) for k in node.keywords)
            if torch and node.func.attr in MAKES and not named:
                found.append((function, node.lineno, node.func.attr))
            elif torch and node.func.attr == "from_numpy":
                found.append((function, node.lineno, "from_numpy"))
            if sent and isinstance(inner, ast.Call) and getattr(inner.func, "attr", "") == "from_numpy":
                for child in [*inner.args, *node.args]:
                    look(child, function)
                return
        for child in ast.iter_child_nodes(node):
            look(child, function)

    look(tree, "")
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_tensors_are_made_on_a_device(folder):
    for path in sorted((SOURCE / folder).rglob("*.py")):
        allowed = HERE.get(path.relative_to(SOURCE).as_posix(), {})
        for function, line, name in makers(ast.parse(path.read_text(encoding="utf-8"))):
            assert function in allowed, f"{path}:{line}: torch.{name} in {function} names no device"


def test_every_exception_is_needed():
    for file, functions in HERE.items():
        used = {function for function, _, _ in makers(ast.parse((SOURCE / file).read_text(encoding="utf-8")))}
        assert functions.keys() <= used, f"{file}: {functions.keys() - used}"


def test_the_lint_sees_what_it_should():
    text = "def f(w):\n    torch.zeros(3)\n    torch.ones(2, device=w.device)\n    torch.from_numpy(a).to(w.device)\n"
    assert makers(ast.parse(text)) == [("f", 2, "zeros")]
    assert makers(ast.parse("def g():\n    return torch.from_numpy(a)[None]\n")) == [("g", 2, "from_numpy")]
