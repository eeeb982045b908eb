"""Own code by name: `module:name` in configs, on the command line and in Python."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import fedsaddle as fs
from fedsaddle import own_code as code_module
from fedsaddle.config.build import build, check_keys
from fedsaddle.config.problem import ASKED
from fedsaddle.config.registry import GROUPS, entry
from fedsaddle.config.schema import read_config, validate_config
from fedsaddle.errors import BadInput
from own_package import ALGORITHMS, PARTS, own_code


@pytest.fixture
def mine(tmp_path):
    with own_code(tmp_path, own_algs=ALGORITHMS, own_parts=PARTS) as folder:
        yield folder


def config(**sections):
    given = {
        "data": {"name": "iris"},
        "split": {"name": "iid", "clients": 3},
        "model": {"name": "logistic"},
        "algorithm": {"name": "own_algs:FedProx"},
        "run": {"rounds": 2},
    }
    return validate_config({key: {**given.get(key, {}), **sections.get(key, {})} for key in given | sections})


def test_an_own_algorithm_does_what_fedavg_does(mine):
    options = {"local_steps": 2, "batch_size": 4, "primal_step": 0.1}
    ours, theirs = (
        fs.run(one.algorithm, one.data, 3, engine="serial").model
        for one in (
            build(config(algorithm={"name": "FedAvg", **options})),
            build(config(algorithm={"name": "own_algs:FedProx", **options})),
        )
    )
    assert torch.allclose(ours, theirs, atol=1e-6)
    pulled = build(config(algorithm={"pull": 5.0, **options}))
    assert not torch.allclose(fs.run(pulled.algorithm, pulled.data, 3, engine="serial").model, ours, atol=1e-3)


def test_every_part_can_be_own(mine):
    given = config(
        data={"name": "own_parts:table", "rows": 30},
        split={"name": "own_parts:Halves", "parts": 3, "clients": None},
        model={"name": "own_parts:Net", "width": 5},
        problem={"name": "supervised", "loss": "own_parts:Huber"},
        run={"measures": ["own_parts:Ones", "worst_class_accuracy"]},
    )
    del given.split.model_extra["clients"]
    check_keys(given)
    made = build(given)
    assert made.data.names == ("part 0", "part 1", "part 2")
    assert made.model.arguments == {"inputs": 3, "outputs": 1, "width": 5}
    assert type(made.algorithm.problem.loss).__name__ == "Huber"
    result = fs.run(made.algorithm, made.data, 2, measures=made.measures)
    assert result.history[-1]["pooled"]["ones"] == 1.0


@pytest.mark.parametrize(
    ("problem", "data"),
    [({"name": "own_parts:Quantile", "level": 0.5}, "diabetes"), ({"name": "own_parts:OverModel"}, "iris")],
    ids=lambda case: str(case),
)
def test_own_problems(mine, problem, data):
    given = config(problem=problem, data={"name": data})
    check_keys(given)
    made = build(given)
    assert f"own_parts:{type(made.algorithm.problem).__name__}" == problem["name"]
    assert fs.run(made.algorithm, made.data, 2).history


def test_in_python(mine):
    data = fs.load("own_parts:table", split="own_parts:Halves", options={"rows": 20}, parts=4)
    assert data.count == 4
    problem = fs.Supervised(torch.nn.Linear(3, 2))
    found = fs.algorithm("own_algs:FedProx", problem=problem, pull=0.5)
    assert found.pull == 0.5
    result = fs.run(found, data, 1, measures=[{"name": "own_parts:Ones", "times": 2.0}])
    assert result.history[-1]["pooled"]["ones"] == 2.0
    with pytest.raises(BadInput, match=r"options.puls = 0.5: unknown key; did you mean 'pull'\?"):
        fs.algorithm("own_algs:FedProx", problem=problem, puls=0.5)


def test_shapes_go_where_the_signature_asks_for_them(mine):
    made = build(config(model={"name": "own_parts:net", "anything": 2.0}))
    assert made.model.arguments == {"shape": (4,), "classes": 3, "anything": 2.0}
    given = build(config(model={"name": "own_parts:Net", "inputs": 4}))
    assert given.model.arguments == {"outputs": 3, "inputs": 4}, "what the config gives counts"
    with pytest.raises(
        BadInput, match=r"model.name = 'own_parts:Picture': asks for `channels` of pictures; say images"
    ):
        build(config(model={"name": "own_parts:Picture"}))
    pictures = config(model={"name": "own_parts:Picture"}, data={"name": "digits", "images": True})
    with pytest.raises(BadInput):  # it has no parameters: shapes were there, the problem complains
        build(pictures)


def test_signatures_that_are_hard_to_check(mine):
    made = build(config(model={"name": "own_parts:Odd", "copy": 5, "model_size": 6}))
    assert made.algorithm.problem.model.given == (5, 6, 3)
    with pytest.raises(BadInput, match=r"model._hidden = 4: unknown key"):
        build(config(model={"name": "own_parts:Odd", "_hidden": 4}))


BAD = {
    "raises in a library": ("model.name", "own_parts:Broken", r"raised TypeError: .* \(.*own_parts.py, line \d+"),
    "no module": (
        "algorithm.name",
        "own_algz:FedProx",
        r"did you mean own_algs:FedProx\? there is no module 'own_algz'",
    ),
    "no attribute": (
        "algorithm.name",
        "own_algs:FedProks",
        r"did you mean own_algs:FedProx\? there is no FedProks in ",
    ),
    "no such module in it": ("algorithm.name", "own_algs.x:FedProx", "cannot be imported|there is no module"),
    "no algorithm": ("algorithm.name", "own_algs:NotOne", "is no algorithm: it has no method round and no model"),
    "a function": ("algorithm.name", "own_algs:function", "is the function function; it must be a class with"),
    "a number": ("algorithm.name", "own_algs:number", "is an object of type int; it must be a class"),
    "no kind": ("algorithm.name", "own_algs:Silent", r"does not say which problems it solves \(its annotations cannot"),
    "a wrong kind": (
        "algorithm.name",
        "own_algs:Wrong",
        "does not say which problems it solves; write problem: fs.Min",
    ),
    "raises when made": (
        "algorithm.name",
        "own_algs:Fails",
        r"raised RuntimeError: no luck today \(.*own_algs.py, line \d+",
    ),
    "raises at import": (
        "algorithm.name",
        "own_bad:X",
        r"cannot be imported: ValueError: not today \(.*own_bad.py, line 2",
    ),
    "leaves at import": ("algorithm.name", "own_exit:X", r"cannot be imported: SystemExit: 3 \(.*own_exit.py, line 2"),
    "no Python": ("algorithm.name", "own_syntax:X", r"cannot be imported: SyntaxError: .*own_syntax.py, line 1\)"),
    "imports what is not there": (
        "algorithm.name",
        "own_needs:X",
        "own_needs imports nobody_has_this, which is not inst",
    ),
    "an empty attribute": ("algorithm.name", "own_algs:", "write module:name, such as my_package.fedprox:FedProx"),
    "a path": ("algorithm.name", "../own_algs:X", "write module:name"),
    "a hidden attribute": ("algorithm.name", "own_algs:__builtins__", "write module:name"),
    "two colons": ("algorithm.name", "own_algs:a:b", "write module:name"),
    "a keyword": ("algorithm.name", "own_algs.class:X", "write module:name"),
    "odd letters": ("algorithm.name", "öwn:X", "write module:name"),
    "very long": ("algorithm.name", "a" * 300 + ":X", "write module:name"),
    "Python's own": ("model.name", "os:system", "os is a module of Python itself; if it is yours, rename it"),
    "ours": ("algorithm.name", "fedsaddle.errors:BadInput", "is code of the library itself; use a plain name"),
    "a model without annotation": (
        "model.name",
        "own_parts:no_annotation",
        "is the function no_annotation; it must be a cl",
    ),
    "a model that is none": (
        "model.name",
        "own_parts:lies",
        "made an object of type int; it must be a class that inherits",
    ),
    "no problem": ("problem.name", "own_parts:Net", "is no problem: inherit from fs.MinimisationProblem"),
    "no data": ("data.name", "own_parts:Net", "is the class Net; it must be a function with `-> fs.Dataset`"),
    "no split": (
        "split.name",
        "own_parts:Net",
        "is the class Net; it must be a class with the methods assign and names",
    ),
    "no loss": (
        "problem.loss",
        "own_parts:Net",
        "is the class Net; it must be a class with the methods value and slope",
    ),
    "a class that is no measure": (
        "run.measures",
        ["own_parts:Halves"],
        "is the class Halves; it must be a class with a n",
    ),
    "no measure": ("run.measures", ["own_parts:table"], "is the function table; it must be a class with a name"),
}


@pytest.mark.parametrize(("key", "value", "remedy"), BAD.values(), ids=BAD)
def test_each_mistake_in_one_line(mine, key, value, remedy):
    for name, text in {"bad": "\nraise ValueError('not\\ntoday')", "exit": "\nraise SystemExit(3)", "syntax": "a b",
                       "needs": "import nobody_has_this"}.items():  # fmt: skip
        (mine / f"own_{name}.py").write_text(text)
    section, _, field = key.partition(".")
    given = config(**{section: {field: value}})
    if section == "split":
        given.split.model_extra.clear()
    with pytest.raises(BadInput, match=remedy) as caught:
        build(given)
    said = str(caught.value)
    shown = value[0] if isinstance(value, list) else value
    assert said.startswith(f"{key} = {shown[:150]!r}"[:160])
    assert "\n" not in said


def test_options_are_checked_against_the_signature(mine):
    with pytest.raises(BadInput, match=r"algorithm.pul = 1.0: unknown key; did you mean 'pull'\?"):
        check_keys(config(algorithm={"pul": 1.0}))
    with pytest.raises(BadInput, match=r"algorithm.pull = 'much': input should be a valid number"):
        check_keys(config(algorithm={"pull": "much"}))
    with pytest.raises(BadInput, match=r"model.widht = 3: unknown key; did you mean 'width'\?"):
        check_keys(config(model={"name": "own_parts:Net", "widht": 3}))
    with pytest.raises(BadInput, match=r"problem.levle = 0.5: unknown key; did you mean 'level'\?"):
        check_keys(config(problem={"name": "own_parts:Quantile", "levle": 0.5}))
    with pytest.raises(BadInput, match=r"problem.sharp = 0.5: unknown key; did you mean 'sharpness'\?"):
        check_keys(config(problem={"name": "own_parts:OverModel", "sharp": 0.5}))


def test_the_kind_must_fit_the_problem(mine):
    with pytest.raises(
        BadInput, match=r"problem.name = 'auc': does not fit own_algs:FedProx; use problem.name = superv"
    ):
        build(config(problem={"name": "auc"}))
    for name in ("Said", "Other"):
        assert entry(GROUPS["algorithms"], "name", f"own_algs:{name}").kind == "minimisation"


def test_a_module_that_hides_the_one_beside_the_config_is_refused(mine, tmp_path):
    entry(GROUPS["algorithms"], "algorithm.name", "own_algs:FedProx")
    other = tmp_path / "other"
    other.mkdir()
    (other / "own_algs.py").write_text("raise SystemExit")
    code_module._FOLDERS.insert(0, other)
    with pytest.raises(
        BadInput, match=r"other/own_algs.py is hidden by another module of that name, .*own_algs.py; ren"
    ):
        entry(GROUPS["algorithms"], "algorithm.name", "own_algs:FedProx")


def test_the_folder_of_the_config_and_the_current_one_are_searched(tmp_path, monkeypatch):
    with own_code(tmp_path):
        (tmp_path / "here").mkdir()
        (tmp_path / "there").mkdir()
        (tmp_path / "here" / "in_current.py").write_text(PARTS)
        (tmp_path / "there" / "in_config.py").write_text(PARTS)
        (tmp_path / "there" / "c.toml").write_text(
            '[data]\nname = "in_config:table"\n[split]\nname = "in_current:Halves"\n'
            '[model]\nname = "logistic"\n[algorithm]\nname = "FedAvg"\n'
        )
        monkeypatch.chdir(tmp_path / "here")
        before = list(sys.path)
        read = read_config(Path("../there/c.toml"))
        assert sys.path == before, "reading alone opens nothing"
        assert build(read).data.count == 2
        assert sys.path[: len(before)] == before, "what is installed comes first"


def test_parts_of_algorithms_can_be_own(mine):
    given = config(algorithm={"name": "FedAvg", "primal_step": {"name": "own_parts:Halving", "first": 0.5}})
    assert type(build(given).algorithm.primal_step).__name__ == "Halving"
    wrong = config(algorithm={"name": "FedAvg", "primal_step": {"name": "own_parts:Net"}})
    with pytest.raises(
        BadInput, match=r"algorithm.primal_step.name = 'own_parts:Net': .* it must be a class with the meth"
    ):
        build(wrong)


def test_names_of_ours_read_no_entry_points(monkeypatch):
    def never(*_, **__):
        raise AssertionError

    code_module.forget()
    monkeypatch.setattr("importlib.metadata.distributions", never)
    for table in GROUPS.values():
        for name in table:
            entry(table, "name", name)
    with pytest.raises(AssertionError):
        entry(GROUPS["splits"], "name", "nobody's")


def test_the_documentation_names_every_group_and_every_shape():
    text = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
    assert [group for group in (*GROUPS, "figures") if f"`fedsaddle.{group}`" not in text] == []
    assert [name for name in ASKED if f"`{name}`" not in text] == []
