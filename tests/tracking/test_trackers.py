"""Trackers with the real packages, offline: what is written is read back. Each is skipped without its package."""

from __future__ import annotations

import json

import pytest
from tracked_runs import crashed_and_resumed, small_run

import fedsaddle as fs
from fedsaddle.runs.figures import flat_figures

IGNORED = ("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::PendingDeprecationWarning",
           "ignore::UserWarning", "ignore::ResourceWarning")  # fmt: skip
pytestmark = [pytest.mark.filterwarnings(text) for text in IGNORED]


def picture(folder):
    from PIL import Image

    folder.mkdir(exist_ok=True)
    Image.new("RGB", (8, 6), (255, 0, 0)).save(folder / "progress.png")


def expected(result, key):
    return [(r["round"], flat_figures(r, ())[key]) for r in result.history]


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    picture(tmp_path)
    result = crashed_and_resumed(tmp_path, fs.trackers.TensorBoard(parameters={"data": {"name": "iris|x"}}))
    events = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"scalars": 0, "images": 0}).Reload()
    for key in ("test/loss/worst", "cost/bytes_up"):
        assert [(e.step, e.value) for e in events.Scalars(key)] == [
            (step, pytest.approx(value, rel=1e-6)) for step, value in expected(result, key)
        ]
    clients = [tag for tag in events.Tags()["scalars"] if tag.startswith("clients/test/loss/")]
    assert len(clients) == 4
    assert events.Tags()["images"] == ["pictures/progress"]
    assert "iris" in str(events.Tensors("parameters/text_summary")[0].tensor_proto)


@pytest.mark.parametrize("store", ["sqlite", "file"])
def test_mlflow(tmp_path, monkeypatch, store):
    pytest.importorskip("mlflow")
    if store == "sqlite":
        pytest.importorskip("sqlalchemy")
        pytest.importorskip("alembic")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path}/mlflow.db" if store == "sqlite" else f"file://{tmp_path}/mlruns"
    out = tmp_path / "out"
    picture(out)
    result = crashed_and_resumed(out, fs.trackers.MLflow(uri, parameters={"data": {"name": "iris"}}))
    client = MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("fedsaddle").experiment_id])
    assert found.info.run_id == json.loads((out / "track.json").read_text())["mlflow"]["run"]
    assert (found.info.status, found.info.run_name) == ("FINISHED", "out")
    assert found.data.params["data.name"] == "iris"
    assert found.data.params["run.rounds"] == "8"
    for key in ("test/loss/worst", "cost/bytes_up"):
        history = client.get_metric_history(found.info.run_id, key)
        assert [(m.step, m.value) for m in history] == expected(result, key)
    assert len([key for key in found.data.metrics if key.startswith("clients/test/loss/")]) == 4
    stored = {file.path for file in client.list_artifacts(found.info.run_id)}
    assert {"progress.png", "model.safetensors", "summary.json"} <= stored


def test_a_server_that_is_down_does_not_end_the_run(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    said = []
    result = small_run(callbacks=[fs.trackers.MLflow("http://127.0.0.1:9"), fs.LambdaCallback(on_warning=said.append)])
    assert result.summary["rounds"] == 8
    assert [text.split(" failed")[0] for text in said] == ["MLflow.on_begin"]


def log_records(content):
    """The records of a file of W&B: a header of 7 bytes, then LevelDB's log format."""
    at, whole = 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        size, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        if left < 7 or kind == 0:
            at += left
            continue
        whole += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


def test_wandb_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    out = tmp_path / "out"
    picture(out)
    result = crashed_and_resumed(out, fs.trackers.Wandb("hospitals", mode="offline", parameters={"a": {"b": 1}}))
    wandb.teardown()
    rounds, names, files = [], set(), sorted((out / "wandb").glob("offline-run-*/*.wandb"))
    for file in files:
        for content in log_records(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(content)
            if record.WhichOneof("record_type") == "run":
                names.add(record.run.run_id)
            items = {"/".join(i.nested_key) or i.key: i.value_json for i in record.history.item}
            if "test/loss/worst" in items:
                rounds.append((json.loads(items["round"]), json.loads(items["test/loss/worst"])))
    assert len(files) == 2, "the run and its resumption"
    assert names == {json.loads((out / "track.json").read_text())["wandb"]["run"]}
    assert rounds == [(step, pytest.approx(value)) for step, value in expected(result, "test/loss/worst")]
