"""version, list, init, compare and doctor; and that starting the command is cheap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_command import IRIS, fedsaddle, no_pictures, run

import fedsaddle as package
from fedsaddle.config import registry as catalogue
from fedsaddle.config.registry import find

STARTED = [sys.executable, "-c", "from fedsaddle.cli import main; main()"]


def test_version():
    outcome = fedsaddle("--version")
    assert (outcome.code, outcome.out) == (0, f"fedsaddle {package.__version__}\n")


def test_without_arguments_help_is_shown():
    outcome = fedsaddle()
    assert "Usage: fedsaddle" in outcome.out + outcome.err
    for command in ("run", "list", "compare", "doctor", "init"):
        assert command in outcome.out + outcome.err


ALGORITHMS = ["FedAvg", "FedAdam", "FedYogi", "FedAdagrad", "q-FedAvg", "AFL", "DRFA", "DRFA-Prox", "DRFA-GA"]
ALGORITHMS += ["Local SGDA", "Momentum Local SGDA", "Local SGDA+", "Momentum Local SGDA+"]
ALGORITHMS += ["FedSGDA-MB", "FedSGDA-STORM", "FedSGDA-SPIDER"]
LISTED = {
    "algorithms": ALGORITHMS,
    "problems": ["supervised", "class-fair", "robust", "auc", "pairwise", "nonconvex-pl"],
    "losses": ["cross-entropy", "logistic", "square"],
    "risks": ["auc", "partial-auc", "average-precision"],
    "pair-losses": ["squared-hinge", "sigmoid"],
    "models": ["logistic", "mlp", "gru", "cnn", "vgg11"],
    "schedules": ["power", "geometric", "cosine", "staged", "warmup"],
    "local-optimisers": ["momentum", "adam", "adamw"],
    "server-optimisers": ["adam", "yogi", "adagrad"],
    "datasets": ["digits", "wine", "iris", "diabetes", "fashion-mnist", "adult", "shakespeare", "file"],
    "splits": ["iid", "by-class", "dirichlet", "sorted", "by-column", "natural"],
    "measures": ["squared_gradient_of_phi", "gradient_of_envelope", "duality_gap", "worst_class_accuracy"],
    "engines": ["vectorised", "serial"],
}


def listed_as_json(*kind):
    return json.loads(fedsaddle("list", *kind, "--json").out)["names"]


def test_the_algorithms_by_name():
    listed = [entry["name"] for entry in listed_as_json("algorithms")["algorithms"]]
    assert set(ALGORITHMS) <= set(listed)
    assert listed == sorted(listed, key=str.lower)


@pytest.mark.parametrize(("kind", "names"), LISTED.items())
def test_list_names_what_there_is(kind, names):
    outcome = fedsaddle("list", kind)
    assert outcome.code == 0
    head, *lines = outcome.out.splitlines()
    assert head == kind
    listed = [line.strip().split("  ")[0] for line in lines]
    assert set(names) <= set(listed)
    said = listed_as_json(kind)[kind]
    assert [entry["name"] for entry in said] == listed
    assert all(entry["about"] for entry in said)


def test_list_without_a_kind_lists_all():
    said = listed_as_json()
    assert list(said) == list(LISTED)
    for kind in said:
        assert listed_as_json(kind) == {kind: said[kind]}
    text = fedsaddle("list").out
    assert all(kind in text.splitlines() for kind in LISTED)


def test_list_of_an_unknown_kind():
    outcome = fedsaddle("list", "layers")
    assert outcome.code == 2
    assert outcome.err == f"error: list = 'layers': choose one of {', '.join(LISTED)}\n"


def test_every_listed_thing_is_there():
    for table in (*catalogue.LISTED.values(), catalogue.REGULARISERS, catalogue.PROJECTIONS):
        for name in table:
            assert callable(find(table, "name", name))


def test_the_command_starts_without_the_heavy_parts():
    code = (
        "import sys; sys.argv = ['fedsaddle', 'list', '--json']\n"
        "from fedsaddle.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = ('torch', 'sklearn', 'scipy', 'matplotlib', 'numpy')\n"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert set(ALGORITHMS) <= {e["name"] for e in json.loads(done.stdout)["names"]["algorithms"]}


def test_a_fault_in_a_process_of_its_own(config):
    done = subprocess.run([*STARTED, "run", str(config), "--set", "run.rounds=0"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: run.rounds = 0: input should be greater than or equal to 1\n"
    assert [p.name for p in Path().iterdir()] == [config.name]


def test_init_writes_a_config_that_runs(tmp_path, monkeypatch, quick):
    monkeypatch.chdir(tmp_path)
    outcome = fedsaddle("init")
    assert (outcome.code, outcome.out) == (
        0,
        "written to fedsaddle.toml; run it with: fedsaddle run fedsaddle.toml\n",
    )
    outcome = fedsaddle("run", "fedsaddle.toml", "--set", "run.rounds=2")
    assert outcome.code == 0, outcome.err
    assert json.loads(Path("runs/fedsaddle/summary.json").read_text())["rounds"] == 2


def test_init_spares_what_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text("mine")
    for path, remedy in (
        ("mine.toml", "already exists; choose another name"),
        ("none/a.toml", "its folder does not exist; create it first"),
        ("mine.toml/a.toml", "its folder does not exist; create it first"),
    ):
        outcome = fedsaddle("init", path)
        assert (outcome.code, outcome.err) == (2, f"error: path = '{path}': {remedy}\n")
    assert Path("mine.toml").read_text() == "mine"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs to compare, one that stopped early, and one that diverged after some rounds."""
    home = tmp_path_factory.mktemp("runs")
    config = home / "small.toml"
    config.write_text(IRIS)
    with no_pictures():
        assert run(config, "run.rounds=3", out=home / "drfa").code == 0
        early = ("algorithm.name=FedAvg", "run.target='global accuracy >= 0'")
        assert run(config, *early, out=home / "fedavg").code == 0
        wild = ("data.name=diabetes", "problem.loss=square", "algorithm.primal_step=10", "algorithm.name=FedAvg")
        assert run(config, *wild, "run.rounds=50", out=home / "wild").code == 3
        square = ("data.name=diabetes", "problem.loss=square", "algorithm.primal_step=1e-3")
        assert run(config, *square, "run.rounds=2", out=home / "square").code == 0
    return home


def test_compare_puts_runs_side_by_side(runs, tmp_path):
    picture = tmp_path / "deep" / "both.png"
    outcome = fedsaddle("compare", runs / "drfa", runs / "fedavg", "--out", picture)
    assert outcome.code == 0
    drfa, fedavg = (line for line in outcome.out.splitlines() if "drfa" in line or "fedavg" in line)
    said = json.loads((runs / "drfa" / "summary.json").read_text())
    cells = [cell.strip() for cell in drfa.strip("│").split("│")]
    assert cells[:5] == ["drfa", *(f"{said['test']['accuracy'][s]:.4f}" for s in ("worst", "bottom10", "mean", "std"))]
    assert cells[5:8] == ["3", "", "6"]
    assert "round 1" in fedavg
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("option", ["--out", "--html"])
def test_compare_writes_a_page(runs, tmp_path, option):
    page = tmp_path / "deep" / "both.html"
    outcome = fedsaddle("compare", runs / "fedavg", runs / "drfa", option, page)
    assert outcome.code == 0, outcome.err
    assert outcome.out.endswith(f"report: {page}\n")
    html = page.read_text()
    assert "2 runs compared" in html
    assert "drfa against fedavg: difference in mean accuracy of 5 clients" in html
    assert "algorithm.name" in html


def test_a_page_needs_two_runs_and_a_file(runs, tmp_path):
    outcome = fedsaddle("compare", runs / "drfa", "--html", tmp_path / "a.html")
    assert (outcome.code, outcome.err) == (
        2,
        "error: folders = 1: a page compares at least two runs; name another folder\n",
    )
    outcome = fedsaddle("compare", runs / "drfa", runs / "fedavg", "--html", tmp_path)
    assert outcome.code == 2
    assert "is a folder; name a file in it" in outcome.err


def test_compare_as_json(runs):
    outcome = fedsaddle("compare", runs / "drfa", runs / "fedavg", "--json")
    said = json.loads(outcome.out)["runs"]
    assert list(said) == ["drfa", "fedavg"]
    assert said["drfa"] == json.loads((runs / "drfa" / "summary.json").read_text())
    assert said["fedavg"]["target_round"] == 1


def test_compare_names_the_folder_it_stands_in(runs, monkeypatch):
    monkeypatch.chdir(runs / "drfa")
    assert list(json.loads(fedsaddle("compare", ".", "--json").out)["runs"]) == ["drfa"]


@pytest.mark.parametrize(
    ("folders", "said"),
    [
        (["none"], "'none': holds no finished run (no summary.json or metrics.jsonl)"),
        (["drfa", "wild"], "'wild': holds no finished run (it diverged)"),
        (
            ["drfa", "square"],
            "folders = ['drfa', 'square']: have different measures; compare runs of one problem",
        ),
        (["drfa", "broken"], "folders = 'broken': has a damaged summary.json"),
        (
            ["drfa", "--out", "a.xyz"],
            "path = 'a.xyz': has an unknown picture format; end the name in .png, .svg or .pdf",
        ),
    ],
)
def test_compare_refuses(runs, monkeypatch, folders, said):
    monkeypatch.chdir(runs)
    Path("broken").mkdir(exist_ok=True)
    Path("broken/summary.json").write_text("{")
    Path("broken/metrics.jsonl").write_text(Path("drfa/metrics.jsonl").read_text())
    outcome = fedsaddle("compare", *folders)
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {said}")
    assert outcome.err.count("\n") == 1
    assert not Path("a.xyz").exists()


def test_doctor(tmp_path, monkeypatch):
    (tmp_path / "adult").mkdir()
    monkeypatch.setenv("FEDSADDLE_DATA", str(tmp_path))
    outcome = fedsaddle("doctor")
    assert outcome.code == 0
    assert f"fedsaddle {package.__version__}" in outcome.out
    assert "torch" in outcome.out
    assert "adult" in outcome.out
    assert "workers: processes" in outcome.out
    assert "Ray" in outcome.out
    assert "engines differ by" in outcome.out.replace("\n", " ")
    assert ": good" in outcome.out.replace("\n", " ")


def test_doctor_says_when_the_engines_disagree(monkeypatch):
    monkeypatch.setattr("fedsaddle.commands.info.TOLERANCE", -1.0)
    outcome = fedsaddle("doctor")
    assert outcome.code == 1
    assert "NOT GOOD" in outcome.out


NOTEBOOK = "module://matplotlib_inline.backend_inline"  # not installed here; IPython sets it for what `!` starts


@pytest.mark.parametrize("columns", ["0", "1", "-5", "abc", ""])
def test_any_width_shows_errors_and_results(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERMINAL_WIDTH", columns)
    assert fedsaddle("run", "--bogus").err.startswith("error: --bogus: there is no such option; ")
    assert "Usage: fedsaddle list [OPTIONS]" in fedsaddle("list", "--help").out
    assert "COLUMNS" not in os.environ


@pytest.mark.parametrize("module", ["fedsaddle", "fedsaddle.cli"])
def test_as_a_module_in_a_notebook_with_a_reader_that_goes_away(config, module):
    """The run ends as it would otherwise, with all its files."""
    environment = os.environ | {"MPLBACKEND": NOTEBOOK, "COLUMNS": "0"}
    command = [sys.executable, "-m", module, "run", str(config), "--set", "run.rounds=1", "--out", "out"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 0, err
    assert err.startswith("iris: 5 clients, 120 training and 30 test rows\n")
    assert Path("out/report.html").exists()


def test_a_script_that_a_notebook_starts(config):
    code = "import os, fedsaddle.report.plots; print(os.environ['MPLBACKEND'])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"MPLBACKEND": NOTEBOOK}
    )
    assert (done.stdout, done.stderr) == ("agg\n", "")
