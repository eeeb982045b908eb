"""`fedsaddle init --extension`: the package that it writes passes its own tests, and its names are found."""

from __future__ import annotations

import importlib.util
import json
import sys
import tomllib
from pathlib import Path

import pytest
from cli_command import fedsaddle

from fedsaddle import own_code
from fedsaddle.config.build import build
from fedsaddle.config.registry import ALGORITHMS, entry
from fedsaddle.config.schema import read_config
from fedsaddle.errors import BadInput


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("extension") / "my-methods"
    outcome = fedsaddle("init", "--extension", "my-methods", "--out", str(folder))
    assert outcome.code == 0
    assert outcome.out.startswith(f"written to {folder}; install it with: pip install -e ")
    return folder


@pytest.fixture
def installed(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As pip does it: the sources on the path, and beside them a dist-info with the entry points."""
    project = tomllib.loads((written / "pyproject.toml").read_text())["project"]
    write_dist(tmp_path, project["name"], project["entry-points"])
    monkeypatch.syspath_prepend(str(written / "src"))
    monkeypatch.syspath_prepend(str(tmp_path))
    own_code.forget()
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_methods"]:
        del sys.modules[name]
    own_code.forget()


def write_dist(folder: Path, name: str, groups: dict[str, dict[str, str]]) -> None:
    info = folder / f"{name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    lines = (f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in names.items()) for group, names in groups.items())
    (info / "entry_points.txt").write_text("\n".join(lines))


def test_its_own_tests_pass(written, installed, monkeypatch):
    spec = importlib.util.spec_from_file_location("test_of_the_package", written / "tests" / "test_proximal.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = module.rows.__wrapped__()
    for engine in ("serial", "vectorised"):
        for pull in (0.0, 0.5):
            module.test_it_is_what_the_oracle_says(rows, engine, pull)
    module.test_by_name_in_python()
    module.test_a_pull_that_cannot_be()
    right = module.oracle
    monkeypatch.setattr(module, "oracle", lambda rows, pull: right(rows, pull + 0.01))
    with pytest.raises(AssertionError):
        module.test_it_is_what_the_oracle_says(rows, "serial", 0.5)


def test_its_names_are_plain_ones(written, installed):
    made = build(read_config(written / "example.toml", ["data.name=iris", "split={name='iid', clients=3}"]))
    assert type(made.algorithm).__name__ == "Proximal"
    assert made.model.arguments == {"inputs": 4, "outputs": 3, "width": 20}
    listed = json.loads(fedsaddle("list", "algorithms", "--json").out)["names"]["algorithms"]
    assert listed[-1] == {
        "name": "my-methods-proximal", "about": "my_methods.proximal:Proximal", "source": "my-methods 0.1.0",
    }  # fmt: skip
    text = fedsaddle("list", "models").out
    assert "my-methods-tanh  my_methods.networks:TanhNet  (my-methods 0.1.0)" in text
    with pytest.raises(BadInput, match=r"did you mean 'my-methods-proximal'\? choose one of .*, my-methods-proximal$"):
        entry(ALGORITHMS, "algorithm.name", "my-method-proximal")


def test_names_that_clash_and_names_that_are_broken(written, installed):
    groups = {"fedsaddle.algorithms": {"FedAvg": "other:A", "my-methods-proximal": "other:B", "Gone": "nobody_has:C",
                                       "Odd": "no colon"}}  # fmt: skip
    write_dist(installed, "other-package", groups)
    write_dist(installed, "damaged", {})
    (installed / "damaged-0.1.0.dist-info" / "entry_points.txt").write_bytes(b"[fedsaddle.algorithms]\nno equals\n\xff")
    own_code.forget()
    assert entry(ALGORITHMS, "name", "FedAvg") is ALGORITHMS["FedAvg"]
    with pytest.raises(
        BadInput, match=r"two things: my-methods 0.1.0 \(my_methods.proximal:Proximal\) and other-package"
    ):
        entry(ALGORITHMS, "algorithm.name", "my-methods-proximal")
    with pytest.raises(
        BadInput, match=r"name = 'Gone': other-package 0.1.0 brings it as 'nobody_has:C': there is no module"
    ):
        entry(ALGORITHMS, "name", "Gone")
    with pytest.raises(BadInput, match=r"name = 'Odd': other-package 0.1.0 brings it as 'no colon': write module:name"):
        entry(ALGORITHMS, "name", "Odd")
    outcome = fedsaddle("list", "algorithms")
    assert outcome.code == 0
    assert "warning: other-package 0.1.0 brings algorithms 'FedAvg', as fedsaddle does: ours counts" in outcome.err
    assert "my-methods 0.1.0 and other-package 0.1.0 both bring algorithms 'my-methods-proximal'" in outcome.err
    assert outcome.out.count("  FedAvg  ") == 1


BAD = ["My Package", "../up", "", "fedsaddle", "random", "a" * 80, "my--package", "class"]


@pytest.mark.parametrize("name", BAD)
def test_names_that_no_package_has(tmp_path, name):
    outcome = fedsaddle("init", "--extension", name, "--out", str(tmp_path / "new"))
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: --extension = {name!r}: ")
    assert not (tmp_path / "new").exists()


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "mine.txt").write_text("here")
    outcome = fedsaddle("init", "--extension", "my-methods", "--out", str(tmp_path))
    assert (outcome.code, "already exists; choose another folder" in outcome.err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    outcome = fedsaddle("init", str(tmp_path / "c.toml"), "--out", str(tmp_path))
    assert outcome.err == f"error: --out = {Path(tmp_path)!r}: is for --extension; leave it out\n"
