"""Whatever is wrong with a config is said in one line, with the exit code 2, before anything is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_command import IRIS, fedsaddle, run

from fedsaddle.config.registry import ENGINES

ALGORITHMS = (
    "AAggFF-D, AAggFF-S, AFL, BoostedTrees, Centralised SGD, CODA, CODA+, CODASCA, Delta-FL, DRFA, DRFA-GA, DRFA-Prox"
)
SQUARE = ("data.name=diabetes", "problem.loss=square")
DIRICHLET = "split.name=dirichlet"

# --set, the key and value that must be named, and a part of the remedy
CASES = [
    # unknown keys
    ("run.roundz=5", "run.roundz = 5", "did you mean 'rounds'?"),
    ("bogus.x=1", "bogus = {'x': 1}", "known keys: data, split, noise, model, algorithm, problem, run, robust"),
    ("top=1", "top = 1", "unknown key"),
    ("data.images=true", "data.images = True", "unknown key"),
    ("split.client=3", "split.client = 3", "did you mean 'clients'?"),
    ("model.hidden=[5]", "model.hidden = [5]", "unknown key"),
    ("model.inputs=3", "model.inputs = 3", "unknown key"),
    ("algorithm.local_step=3", "algorithm.local_step = 3", "did you mean 'local_steps'?"),
    ("algorithm.problem=3", "algorithm.problem = 3", "unknown key"),
    ("problem.l1=3", "problem.l1 = 3", "known keys: loss, l2"),
    (
        "engine.threads=3",
        "engine.threads = 3",
        "known keys: name, chunk, workers, address, device, precision, ",
    ),
    (("algorithm.name=AFL", "algorithm.local_steps=5"), "algorithm.local_steps = 5", "AFL fixes local_steps = 1"),
    (("algorithm.name=FedAvg", "algorithm.dual_step=0.1"), "algorithm.dual_step = 0.1", "is a parameter of AFL, "),
    (("algorithm.name=FedAvg", "algorithm.lr=0.1"), "algorithm.lr = 0.1", "did you mean 'primal_step'?"),
    ("algorithm.local_epochs=1", "algorithm.local_epochs = 1", "did you mean 'local_steps' (it counts minibatches)?"),
    ("engine.name=vectorized", "engine.name = 'vectorized'", "did you mean 'vectorised'?"),
    ("engine.device=gpu", "device = 'gpu'", "did you mean 'cuda'? choose one of auto, cpu, cuda, cuda:1 or mps"),
    ("run.num_rounds=1", "run.num_rounds = 1", "did you mean 'rounds'?"),
    (("split.name=natural", "split.clients=3"), "split.clients = 3", "known keys: column"),
    # wrong types
    ("run=5", "run = 5", "write [run]"),
    ("split=iid", "split = 'iid'", "write [split]"),
    ("run.rounds=2.5", "run.rounds = 2.5", "integer"),
    ("run.rounds=many", "run.rounds = 'many'", "integer"),
    ("run.rounds=true", "run.rounds = True", "integer"),
    ("run.rounds=", "run.rounds = ''", "integer"),
    ("run.evaluate_train=1", "run.evaluate_train = 1", "boolean"),
    ("run.target=5", "run.target = 5", "string"),
    ("data.name=3", "data.name = 3", "string"),
    ("data.test_share=half", "data.test_share = 'half'", "number"),
    ("split.clients=2.0", "split.clients = 2.0", "integer"),
    ("algorithm.name=5", "algorithm.name = 5", "string"),
    ("algorithm.local_steps=1.5", "algorithm.local_steps = 1.5", "integer"),
    ("algorithm.primal_step=x", "algorithm.primal_step = 'x'", "number"),
    ("engine.compile=yes", "engine.compile = 'yes'", "boolean"),
    (("data.name=digits", "data.images=5"), "data.images = 5", "boolean"),
    (("model.name=mlp", "model.hidden=5"), "model.hidden = 5", "must be a list"),
    (("model.name=mlp", "model.hidden=[2.5]"), "model.hidden.0 = 2.5", "integer"),
    # required keys
    (DIRICHLET, "split.alpha = None", "is required"),
    ("model.name=mlp", "model.hidden = None", "is required"),
    ("data.name=file", "data.path = None", "is required"),
    # impossible values
    ("run.rounds=0", "run.rounds = 0", "greater than or equal to 1"),
    ("run.seed=-1", "run.seed = -1", "greater than or equal to 0"),
    (f"run.seed={2**64}", f"run.seed = {2**64}", "less than"),
    ("run.evaluate_every=0", "run.evaluate_every = 0", "greater than or equal to 1"),
    ("run.checkpoint_every=0", "run.checkpoint_every = 0", "greater than or equal to 1"),
    ("run.lost_replies=1", "run.lost_replies = 1", "less than 1"),
    ("run.lost_replies=nan", "run.lost_replies = nan", "less than 1"),
    ("run.dtype=float16", "run.dtype = 'float16'", "choose one of 'float32', 'float64'"),
    ("data.test_share=1", "data.test_share = 1", "less than 1"),
    ("data.test_share=-0.1", "data.test_share = -0.1", "greater than or equal to 0"),
    ("problem.l2=-1.0", "problem.l2 = -1.0", "at least 0"),
    ("problem.l2=inf", "problem.l2 = inf", "finite"),
    ("problem.name=fair", "problem.name = 'fair'", "class-fair"),
    ("problem={name='auc'}", "problem.name = 'auc'", "does not fit DRFA; use problem.name = supervised"),
    ("algorithm={name='Local SGDA'}", "problem.name = 'supervised'", "class-fair or group-fair or robust or auc"),
    ("engine.chunk=0", "engine.chunk = 0", "greater than or equal to 1"),
    ("engine.workers=0", "engine.workers = 0", "greater than or equal to 1"),
    ("algorithm.sampled_clients=6", "algorithm.sampled_clients = 6", "there are only 5 clients"),
    ("algorithm.sampled_clients=0", "algorithm.sampled_clients = 0", "at least 1"),
    ("algorithm.local_steps=0", "algorithm.local_steps = 0", "from 1 to 1000000"),
    ("algorithm.batch_size=0", "algorithm.batch_size = 0", "from 1 to 10000000"),
    ("algorithm.primal_step=-0.1", "algorithm.primal_step = -0.1", "positive"),
    ("algorithm.primal_step=nan", "algorithm.primal_step = nan", "positive"),
    ("algorithm.primal_step=inf", "algorithm.primal_step = inf", "positive"),
    ("algorithm.dual_step=0.0", "algorithm.dual_step = 0.0", "positive"),
    ("algorithm.dual_decay=2", "algorithm.dual_decay = 2.0", "at most 1"),
    ("algorithm.weighting=both", "algorithm.weighting = 'both'", "'sample', 'weight'"),
    ("algorithm.output=best", "algorithm.output = 'best'", "'last', 'average'"),
    (("algorithm.name=q-FedAvg", "algorithm.q=-1"), "algorithm.q = -1.0", "at least 0"),
    (("algorithm.name=q-FedAvg", "algorithm.q=inf"), "algorithm.q = inf", "at least 0"),
    (("algorithm.name=DRFA-GA", "algorithm.average_after=-1"), "algorithm.average_after = -1", "at least 0"),
    ("split.clients=0", "split.clients = 0", "at least 1"),
    ("split.clients=151", "split.clients = 151", "only 150 training rows"),
    (("split.name=by-class", "split.clients=2"), "split.clients = 2", "at least 3 clients"),
    (("split.name=by-class", "split.classes_per_client=9"), "split.classes_per_client = 9", "use 1 to 3"),
    ((DIRICHLET, "split.alpha=0.0"), "split.alpha = 0.0", "positive"),
    ((DIRICHLET, "split.alpha=1e-9", "split.clients=100"), "split.alpha = 1e-09", "use a larger alpha"),
    ((DIRICHLET, "split.alpha=1", "split.min_size=99"), "split.min_size = 99", "allow 1 to 30"),
    (("model.name=mlp", "model.hidden=[0]"), "model.hidden = [0]", "at least one unit"),
    (("model.name=mlp", "model.hidden=[5, -3]"), "model.hidden = [5, -3]", "at least one unit"),
    # unknown names
    ("algorithm.name=drfa", "algorithm.name = 'drfa'", f"did you mean 'DRFA'? choose one of {ALGORITHMS}"),
    ("algorithm.name=Adam", "algorithm.name = 'Adam'", ALGORITHMS),
    ("data.name=irs", "data.name = 'irs'", "did you mean 'iris'?"),
    ("split.name=random", "split.name = 'random'", "iid, by-class, dirichlet, imbalanced, sorted, by-column, natural"),
    ("model.name=resnet", "model.name = 'resnet'", "logistic, mlp, forest, gru, cnn"),
    ("problem.loss=hinge", "problem.loss = 'hinge'", "cross-entropy, logistic, focal"),
    ("engine.name=gpu", "engine.name = 'gpu'", "choose one of 'vectorised', 'processes', 'ray'"),
    # regularisers and projections
    ("algorithm.name=DRFA-Prox", "algorithm.regulariser = None", "{ name = 'kl', strength = 0.1 }"),
    ("algorithm.regulariser=kl", "algorithm.regulariser = 'kl'", "write a table with a name"),
    ("algorithm.regulariser={name=5}", "algorithm.regulariser = {'name': 5}", "write a table with a name"),
    ("algorithm.regulariser={name='l1'}", "algorithm.regulariser.name = 'l1'", "quadratic, kl"),
    ("algorithm.regulariser={name='kl'}", "algorithm.regulariser.strength = None", "is required"),
    ("algorithm.regulariser={name='kl', strength=-1}", "algorithm.regulariser.strength = -1.0", "at least 0"),
    ("algorithm.regulariser={name='kl', strength=inf}", "algorithm.regulariser.strength = inf", "finite"),
    ("algorithm.regulariser={name='kl', strength=1, mu=2}", "algorithm.regulariser.mu = 2", "known keys: strength"),
    ("algorithm.projection=ball", "algorithm.projection = 'ball'", "write a table with a name"),
    ("algorithm.projection={name='cube'}", "algorithm.projection.name = 'cube'", "ball, box"),
    ("algorithm.projection={name='ball'}", "algorithm.projection.radius = None", "is required"),
    ("algorithm.projection={name='ball', radius=0}", "algorithm.projection.radius = 0.0", "positive number"),
    ("algorithm.projection={name='ball', radius=inf}", "algorithm.projection.radius = inf", "positive number"),
    ("algorithm.projection={name='box', low=1, high=0}", "algorithm.projection.low = 1.0", "not exceed high = 0.0"),
    # a model, a loss or a split that does not fit the data
    ("model.name=cnn", "model.name = 'cnn'", "needs pictures; say images = true"),
    ("model.name=gru", "model.name = 'gru'", "the model for text"),
    ("problem.loss=square", "problem.loss = 'square'", "'cross-entropy'"),
    ("problem.loss=logistic", "problem.loss = 'logistic'", "needs two classes, the data have 3"),
    ("data.name=diabetes", "problem.loss = 'cross-entropy'", "'square'"),
    ((*SQUARE, "split.name=by-class"), "split = 'by-class'", "use iid or by-column"),
    ((*SQUARE, "run.target='worst accuracy >= 0.5'"), "target = 'worst accuracy >= 0.5'", "has the metrics loss only"),
    # targets
    ("run.target=soon", "run.target = 'soon'", 'write it like "worst accuracy >= 0.5"'),
    ("run.target='worst accuracy = 0.5'", "run.target = 'worst accuracy = 0.5'", "write it like"),
    ("run.target='median accuracy > 0.5'", "run.target = 'median accuracy > 0.5'", "global, mean, worst, best, std"),
    ("run.target='worst auc > 0.5'", "run.target = 'worst auc > 0.5'", "accuracy or loss"),
    ("run.target='accuracy > 0.5'", "run.target = 'accuracy > 0.5'", "say which client: global, mean, worst"),
    ("run.target='auroc > 0.5'", "target = 'auroc > 0.5'", "this problem has no pooled metrics"),
    ("run.target='worst loss < 1e'", "run.target = 'worst loss < 1e'", "'1e' is not a number"),
    # --set itself
    ("rounds", "--set = 'rounds'", "write it like algorithm.local_steps=5"),
    ("", "--set = ''", "write it like algorithm.local_steps=5"),
    ("=3", "--set = '=3'", "write it like algorithm.local_steps=5"),
    ("run..rounds=3", "--set = 'run..rounds=3'", "write it like algorithm.local_steps=5"),
    ("run.rounds.x=3", "--set = 'run.rounds.x=3'", "'rounds' is a value, not a section"),
]


def one_line(outcome, said, remedy, out):
    """Refused: one line that names key, value and remedy; nothing printed or written besides."""
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    assert outcome.err.startswith(f"error: {said}: "), outcome.err
    assert remedy in outcome.err
    assert not out.exists()


@pytest.mark.parametrize(("changes", "said", "remedy"), CASES, ids=[str(c[0]) for c in CASES])
def test_config(config, tmp_path, changes, said, remedy):
    changes = (changes,) if isinstance(changes, str) else changes
    one_line(run(config, *changes, out=tmp_path / "out"), said, remedy, tmp_path / "out")


ROWS = "".join(f"{i % 7},{i % 5},h{i % 3},{i % 2}\n" for i in range(60))
GOOD = "age,dose,hospital,ill\n" + ROWS
FILES = [
    ("inf", GOOD.replace("3,3,h0,1", "3,inf,h0,1", 1), (), "row 4, column 'dose' = inf", "--numeric 'dose'"),
    ("word", GOOD.replace("3,3,h0,1", "3,much,h0,1", 1), (), "column 'dose' = ['much']", "--categorical 'dose'"),
    ("nobody", GOOD.replace("3,3,h0,1", "3,3,,1", 1), (), "row 4, column 'hospital' = ''", "fill it in"),
    ("header", "age,dose,hospital,ill\n", (), "data.path = 'rows.csv'", "at least one row"),
    ("ragged", GOOD + "1,2\n", (), "cells in row 61 = 2", "mend the row"),
    ("alone", GOOD.replace("h1", "h0").replace("h2", "h0"), (), "clients in column 'hospital' = ['h0']", "client"),
    (
        "target",
        GOOD,
        ("data.target=sick",),
        "data.target = 'sick'",
        "the columns are: 'age', 'dose', 'hospital', 'ill'",
    ),
    ("client", GOOD, ("data.client=hospitals",), "data.client = 'hospitals'", "did you mean 'hospital'?"),
    ("column", GOOD, ("split.column=site",), "split.column = 'site'", "there are: hospital"),
    ("feature", GOOD, ("data.features=['aged']",), "data.features = 'aged'", "did you mean 'age'?"),
    ("list", GOOD, ("data.features=5",), "data.features = 5", "must be a list"),
    ("task", GOOD, ("data.task=rank",), "data.task = 'rank'", "choose one of 'auto', 'classes', 'regression'"),
    ("delimiter", GOOD, ("data.delimiter='::'",), "data.delimiter = '::'", "one character"),
    ("regression", GOOD, ("data.task=regression",), "problem.loss = 'cross-entropy'", "'square'"),
]


@pytest.mark.parametrize(("text", "changes", "said", "remedy"), [f[1:] for f in FILES], ids=[f[0] for f in FILES])
def test_csv(config, tmp_path, text, changes, said, remedy):
    Path("rows.csv").write_text(text)
    mine = (
        "data={name='file', path='rows.csv', target='ill', client='hospital'}",
        "split={name='natural', column='hospital'}",
    )
    one_line(run(config, *mine, *changes, out=tmp_path / "out"), said, remedy, tmp_path / "out")


@pytest.mark.parametrize("row", ["nan,3,h0,1", ",3,h0,1", "3,3,h0,?"])
def test_gaps_are_filled_and_rows_without_a_label_left_out(config, tmp_path, row):
    Path("rows.csv").write_text(GOOD.replace("3,3,h0,1", row, 1))
    mine = (
        "data={name='file', path='rows.csv', target='ill', client='hospital'}",
        "split={name='natural', column='hospital'}",
    )
    assert run(config, *mine, "run.rounds=1", out=tmp_path / "out").code == 0


def test_a_client_with_test_rows_only(config, tmp_path):
    Path("rows.csv").write_text(GOOD)
    Path("test.csv").write_text("age,dose,hospital,ill\n1,2,h9,0\n")
    data = "data={name='file', path='rows.csv', test_path='test.csv', target='ill', client='hospital'}"
    outcome = run(config, data, "split={name='natural', column='hospital'}", out=tmp_path / "out")
    one_line(outcome, "test client in 'hospital' = 'h9'", "no training rows", tmp_path / "out")


@pytest.mark.parametrize("path", ["none.csv", "none.npz", "none.parquet"])
def test_a_missing_data_file(config, tmp_path, path):
    outcome = run(config, "data.name=file", f"data.path={path}", out=tmp_path / "out")
    assert (outcome.code, outcome.err) == (2, f"error: {path} does not exist; check the path of the data file\n")
    assert not (tmp_path / "out").exists()


def test_a_missing_public_data_set(config, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSADDLE_DATA", str(tmp_path))
    outcome = run(config, "data.name=adult", out=tmp_path / "out")
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert "set FEDSADDLE_DATA" in outcome.err
    assert not (tmp_path / "out").exists()


NPZ = [
    ("nan", {"x": np.full((12, 2), np.nan)}, (), "x, row 1, feature 0 = nan", "fill it in"),
    ("short", {"y": np.arange(11) % 2}, (), "len(y) = 11", "x has 12 rows"),
    ("tall", {"x": np.zeros((12, 1, 6, 4))}, ("model.name=cnn",), "model.name = 'cnn'", "these are 6 x 4"),
    ("tiny", {"x": np.zeros((12, 1, 3, 3))}, ("model.name=cnn",), "model.name = 'cnn'", "these are 3 x 3"),
    ("text", {"x": np.array([["a"]] * 12)}, (), "x.dtype = '<U1'", "must be numbers"),
]


@pytest.mark.parametrize(("arrays", "changes", "said", "remedy"), [n[1:] for n in NPZ], ids=[n[0] for n in NPZ])
def test_npz(config, tmp_path, arrays, changes, said, remedy):
    np.savez("rows.npz", **{"x": np.zeros((12, 2)), "y": np.arange(12) % 2, "client": np.arange(12) % 3, **arrays})
    mine = ("data={name='file', path='rows.npz'}", "split={name='natural'}", *changes)
    one_line(run(config, *mine, out=tmp_path / "out"), said, remedy, tmp_path / "out")


TOML = [
    ("", "data = None", "is required"),
    ("[data\n", "config = 'bad.toml'", "is not valid TOML"),
    ("\x00", "config = 'bad.toml'", "is not valid TOML"),
    (IRIS + "rounds = 3\n", "config = 'bad.toml'", "is not valid TOML"),
    (IRIS + "[data]\n", "config = 'bad.toml'", "is not valid TOML"),
    (IRIS.replace('name = "DRFA"', ""), "algorithm.name = None", "is required"),
    (IRIS.replace("[model]\nname", "[modell]\nname"), "modell = {'name': 'logistic'}", "did you mean 'model'?"),
    (IRIS.replace("rounds = 6", "rounds = 2020-01-01"), "run.rounds = datetime.date(2020, 1, 1)", "integer"),
    (IRIS.replace("rounds = 6", "rounds = [6]"), "run.rounds = [6]", "integer"),
]


@pytest.mark.parametrize(("text", "said", "remedy"), TOML)
def test_toml(config, tmp_path, text, said, remedy):
    Path("bad.toml").write_text(text)
    one_line(run(Path("bad.toml"), out=tmp_path / "out"), said, remedy, tmp_path / "out")


def test_files_that_are_no_toml(config, tmp_path):
    Path("bad.toml").write_bytes(b"\xff\xfe")
    Path("folder").mkdir()
    out = tmp_path / "out"
    one_line(run(Path("none.toml"), out=out), "config = 'none.toml'", "`fedsaddle init` writes one", out)
    one_line(run(Path("bad.toml"), out=out), "config = 'bad.toml'", "is not valid TOML", out)
    one_line(run(Path("folder"), out=out), "config = 'folder'", "name a TOML file", out)
    one_line(run(Path("bad.toml/x"), out=out), "config = 'bad.toml/x'", "name a TOML file", out)


def test_a_folder_that_cannot_be(config):
    Path("taken").write_text("mine")
    for out in ("taken", "taken/below"):
        outcome = run(config, out=Path(out))
        assert outcome.code == 2
        assert outcome.err.startswith(f"error: out = '{out}': cannot write there ")
        assert outcome.err.count("\n") == 1
    assert Path("taken").read_text() == "mine"


def test_an_engine_that_is_none(config, tmp_path):
    outcome = fedsaddle("run", config, "--engine", "gpu", "--out", tmp_path / "out")
    one_line(
        outcome,
        "engine.name = 'gpu'",
        "choose one of 'vectorised', 'processes', 'ray', 'serial', 'nvflare'",
        tmp_path / "out",
    )


def test_the_first_of_several_faults_is_named(config, tmp_path):
    outcome = run(config, "run.rounds=0", "run.seed=-1", "algorithm.local_steps=0", out=tmp_path / "out")
    one_line(outcome, "run.rounds = 0", "greater", tmp_path / "out")


def test_another_run_is_not_written_over(config, tmp_path, quick):
    out = tmp_path / "out"
    assert run(config, out=out).code == 0
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    outcome = run(config, out=out)
    assert outcome.code == 2
    assert outcome.err == f"error: out = '{out}': holds a run already; resume it, or choose another folder\n"
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before


def test_nothing_to_resume(config, tmp_path):
    outcome = run(config, out=tmp_path / "out", resume=True)
    one_line(outcome, f"--out = '{tmp_path / 'out'}'", "leave out --resume", tmp_path / "out")


@pytest.mark.parametrize(
    "arguments", [["run"], ["run", "a.toml", "--rounds", "3"], ["compare"], ["train"], ["list", "a", "b"]]
)
def test_wrong_use_of_the_command_line(config, arguments):
    outcome = fedsaddle(*arguments)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith("error: ")
    assert "--help` " in outcome.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "FILE is missing: a config (`fedsaddle init` writes one), or your table; `fedsaddle run --"),
        (["run", "a.toml", "--rounds", "3"], "--rounds: there is no such option; did you mean `--set run.rounds=...`?"),
        (["run", "a.toml", "--resum"], "--resum: there is no such option; did you mean --resume? `fedsaddle run --"),
        (["run", "a.toml", "--zebra"], "--zebra: there is no such option; `fedsaddle run --help` lists all"),
        (["run", "a.toml", "--seed", "x"], "--seed = 'x': must be a whole number"),
        (["run", "a.toml", "--sensitivity", "x"], "--sensitivity = 'x': must be a number"),
        (["run", "a.toml", "--out"], "--out: needs a value"),
        (["run", "a.toml", "--resume=3"], "--resume: takes no value; leave out"),
        (["watch", "a", "--port", "70000"], "--port = '70000': must be at most 65535"),
        (["watch", "a", "--port", "9" * 5000], "--port = '9999"),
        (["rnu"], "'rnu': there is no such command; did you mean 'run'? `fedsaddle --help` lists all commands"),
        (["deploy", "prvision"], "'prvision': there is no such command; did you mean 'provision'? `fedsaddle deploy"),
        (["list", "a", "b"], "got unexpected extra argument"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_usage_errors_name_what_is_wrong_and_what_was_meant(config, arguments, said):
    outcome = fedsaddle(*arguments)
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {said}"), outcome.err
    assert outcome.err.count("\n") == 1
    assert len(outcome.err) < 1000


def test_what_the_generated_config_offers_is_valid(config, tmp_path):
    """Its comments name other algorithms, and lines that go with them."""
    assert fedsaddle("init", "example.toml").code == 0
    text = Path("example.toml").read_text()
    assert all(f'"{engine}"' in text for engine in ENGINES)
    lines = text.splitlines()
    offered = [('"DRFA-GA"', "")]
    for line in lines:
        before, without, names = line.partition("; without this line: ")
        offered += [(name, before.partition(" = ")[0]) for name in names.split(", ") if without]
    assert len(offered) == 5
    for name, removed in offered:
        made = [line for line in lines if not removed or not line.startswith(f"{removed} = ")]
        Path("other.toml").write_text("\n".join(made).replace('name = "DRFA" ', f"name = {name} "))
        assert fedsaddle("run", "other.toml", "--dry-run").code == 0
    prox = text.replace("# regulariser", "regulariser").replace("}     with", "} # with")
    Path("other.toml").write_text(prox.replace('name = "DRFA" ', 'name = "DRFA-Prox" '))
    assert fedsaddle("run", "other.toml", "--dry-run").code == 0


def test_another_algorithm_leaves_out_what_it_does_not_take(config, tmp_path, quick):
    Path("other.toml").write_text(IRIS.replace("local_steps = 3", "local_steps = 3\ndual_step = 0.01"))
    outcome = run(Path("other.toml"), "algorithm.name=FedAvg", out=tmp_path / "out")
    assert outcome.code == 0
    assert "note: algorithm.dual_step = 0.01 is left out: FedAvg does not take it\n" in outcome.err
    assert "dual_step" not in (tmp_path / "out" / "config.json").read_text()
    Path("other.toml").write_text(Path("other.toml").read_text().replace('"DRFA"', '"FedAvg"'))
    outcome = run(Path("other.toml"), out=tmp_path / "o2")
    one_line(outcome, "algorithm.dual_step = 0.01", "FedAvg has none: remove it", tmp_path / "o2")
    outcome = run(config, "algorithm.name=TERM", "algorithm.sampeld_clients=2", out=tmp_path / "o2")
    one_line(outcome, "algorithm.sampeld_clients = 2", "did you mean 'sampled_clients'?", tmp_path / "o2")
