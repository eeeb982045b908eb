"""What trackers call, with stand-ins for the packages; and what is said without the packages."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest
from tracked_runs import crashed_and_resumed, small_run

import fedsaddle as fs
from fedsaddle.config.run_config import trackers_of
from fedsaddle.config.schema import validate_config
from fedsaddle.errors import BadInput, MissingData
from fedsaddle.files import read_object


@pytest.fixture
def stand_in(monkeypatch):
    """Put a module in the place of a package."""

    def put(name, **content):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        module.__path__ = []
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)

    return put


class Writer:
    made: ClassVar[list] = []

    def __init__(self, folder, purge_step):
        self.folder, self.purge_step, self.scalars, self.texts, self.closed = folder, purge_step, [], [], False
        Writer.made.append(self)

    def add_scalar(self, key, value, step):
        self.scalars.append((step, key, value))

    def add_text(self, key, text):
        self.texts.append((key, text))

    def flush(self):
        pass

    def close(self):
        self.closed = True


def test_tensorboard_replaces_the_points_after_the_checkpoint(tmp_path, stand_in):
    Writer.made = []
    stand_in("tensorboard")
    stand_in("torch.utils.tensorboard")
    stand_in("torch.utils.tensorboard.writer", SummaryWriter=Writer)
    crashed_and_resumed(tmp_path, fs.trackers.TensorBoard())
    first, second = Writer.made
    assert first.folder == second.folder == str(tmp_path / "tensorboard")
    assert (first.purge_step, second.purge_step) == (None, 7)
    assert [step for step, key, _ in first.scalars if key == "cost/seconds"] == [1, 2, 3, 4, 5, 6, 7]
    assert [step for step, key, _ in second.scalars if key == "cost/seconds"] == [7, 8]
    assert "| run.rounds | 8 |" in first.texts[0][1]
    assert not second.texts
    assert first.closed
    assert second.closed


class Client:
    """A store of MLflow."""

    runs: ClassVar[dict] = {}

    def __init__(self, tracking_uri):
        assert tracking_uri == "http://store"

    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id="1") if self.runs else None

    def create_experiment(self, name):
        return "1"

    def create_run(self, experiment, run_name):
        self.runs[run_name] = SimpleNamespace(params={}, metrics=[], files=[], status="RUNNING")
        return SimpleNamespace(info=SimpleNamespace(run_id=run_name))

    def update_run(self, run, status):
        self.runs[run].status = status

    def get_metric_history(self, run, key):
        return [m for m in self.runs[run].metrics if m.key == key]

    def log_batch(self, run, metrics=(), params=()):
        assert len(metrics) <= 1000
        assert len(params) <= 100
        self.runs[run].metrics += metrics
        self.runs[run].params |= {p.key: p.value for p in params}

    def log_artifact(self, run, path):
        self.runs[run].files.append(path.rpartition("/")[2])

    def set_terminated(self, run, status):
        self.runs[run].status = status


def test_mlflow_continues_its_run(tmp_path, stand_in, monkeypatch):
    Client.runs = {}
    for key in ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_DISABLE_TELEMETRY"):
        monkeypatch.setenv(key, "1")  # what the tracker sets is undone
    entity = lambda *names: lambda *values: SimpleNamespace(**dict(zip(names, values, strict=True)))  # noqa: E731
    stand_in("mlflow")
    stand_in("mlflow.tracking", MlflowClient=Client)
    stand_in("mlflow.entities", Metric=entity("key", "value", "at", "step"), Param=entity("key", "value"))
    crashed_and_resumed(tmp_path / "out", fs.trackers.MLflow("http://store"))
    (found,) = Client.runs.values()
    steps = [m.step for m in found.metrics if m.key == "test/loss/mean"]
    assert steps == list(range(1, 9))
    assert found.params["run.rounds"] == "8"
    assert found.files == ["model.safetensors", "summary.json"]
    assert found.status == "FINISHED"


def test_wandb_continues_its_run(tmp_path, stand_in):
    begun, logged, ends = [], [], []

    def init(**options):
        begun.append(options)
        return SimpleNamespace(
            define_metric=lambda *a, **k: None, log=logged.append, log_artifact=lambda a: logged.append({"model": a}),
            finish=lambda exit_code: ends.append(exit_code),
        )  # fmt: skip

    artifact = lambda name, type: SimpleNamespace(type=type, add_file=lambda path: None)  # noqa: E731
    stand_in("wandb", init=init, Settings=lambda **options: options, Artifact=artifact)
    crashed_and_resumed(tmp_path, fs.trackers.Wandb("hospitals"))
    assert [line["round"] for line in logged if "round" in line] == list(range(1, 9))
    assert "model" in logged[-1]
    assert begun[0]["id"] == begun[1]["id"]
    assert begun[0]["settings"]["x_disable_stats"]
    assert begun[0]["config"]["run.rounds"] == 8
    assert ends == [1, 0]
    assert read_object(tmp_path / "track.json")["wandb"]["last"] == 8


CONFIG = {
    "data": {"name": "iris"},
    "split": {"name": "iid", "clients": 3},
    "model": {"name": "logistic"},
    "algorithm": {"name": "FedAvg"},
}


def test_trackers_of_a_config(stand_in):
    for name in ("tensorboard", "mlflow", "wandb"):
        stand_in(name)
    assert trackers_of(validate_config(CONFIG)) == []
    track = {"tensorboard": True, "mlflow": "http://store", "wandb": "hospitals"}
    found = trackers_of(validate_config({**CONFIG, "track": track}))
    assert [type(one).__name__ for one in found] == ["TensorBoard", "MLflow", "Wandb"]
    assert all(one.parameters["data"]["name"] == "iris" for one in found)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("fedsaddle.tracking.trackers.find_spec", lambda name: None)
    for make, extra in (
        (fs.trackers.TensorBoard, "tensorboard"),
        (lambda: fs.trackers.MLflow("http://store"), "mlflow"),
        (lambda: fs.trackers.Wandb("hospitals"), "wandb"),
    ):
        with pytest.raises(MissingData, match=rf'pip install "\.\[{extra}\]"'):
            make()


@pytest.mark.parametrize(
    ("track", "said"),
    [
        ({"tensorbord": True}, "did you mean 'tensorboard'"),
        ({"tensorboard": "yes"}, "track.tensorboard"),
        ({"mlflow": ""}, "track.mlflow"),
        ({"wandb": 3}, "track.wandb"),
    ],
)
def test_bad_settings_are_refused(track, said):
    with pytest.raises(BadInput, match=said):
        validate_config({**CONFIG, "track": track})


def test_bad_arguments_are_refused(stand_in):
    for name in ("tensorboard", "mlflow", "wandb"):
        stand_in(name)
    for make in (
        lambda: fs.trackers.TensorBoard(3),
        lambda: fs.trackers.TensorBoard(parameters=[1]),
        lambda: fs.trackers.MLflow(""),
        lambda: fs.trackers.Wandb("a", mode="sometimes"),
    ):
        with pytest.raises(BadInput):
            make()


def test_without_a_folder_tensorboard_needs_one(stand_in):
    stand_in("tensorboard")
    stand_in("torch.utils.tensorboard")
    stand_in("torch.utils.tensorboard.writer", SummaryWriter=Writer)
    said = []
    small_run(callbacks=[fs.trackers.TensorBoard(), fs.LambdaCallback(on_warning=said.append)])
    assert "name a folder for the events" in said[0]
