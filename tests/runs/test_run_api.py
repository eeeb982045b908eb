"""`run(...)` as a Python user meets it."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from run_cases import drfa, fedavg, files, iris, problem, same_result, timeless, unequal
from torch import nn

import fedsaddle as fs
from fedsaddle.algorithms.fedavg import FedAvg
from fedsaddle.data.federated import FederatedData, federate
from fedsaddle.data.splits import Iid
from fedsaddle.data.store import Stacked
from fedsaddle.data.table import Dataset, Table
from fedsaddle.engines.choose import chunk_and_workers, make_engine
from fedsaddle.errors import BadInput, Diverged
from fedsaddle.federation.randomness import server_generator
from fedsaddle.problems.losses import Square
from fedsaddle.problems.models.networks import logistic_regression
from fedsaddle.problems.supervised import Supervised
from fedsaddle.runs.run import run
from small import seeded


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(drfa(), iris(), 3)
    assert list(tmp_path.iterdir()) == []
    assert [r["round"] for r in result.history] == [1, 2, 3]
    assert result.summary["stopped"] == "finished"


def test_the_loop_is_the_algorithm_round_by_round():
    algorithm, data = drfa(), iris()
    result = run(algorithm, data, 4, seed=7, engine="serial")
    clients = make_engine("serial", algorithm.problem, data.train, 7)
    server = algorithm.start(clients)
    for r in range(4):
        clients.begin(r)
        server = algorithm.round(server, clients, server_generator(7, r))
        clients.commit()
    assert torch.equal(result.model, server.w)
    assert torch.equal(result.mixture, server.lam)
    assert result.history[-1]["mixture"] == server.lam.tolist()
    assert result.history[-1]["samples"] == clients.samples


def test_the_same_seed_gives_the_same_run():
    a, b, c = (run(drfa(), iris(), 3, seed=s) for s in (1, 1, 2))
    assert same_result(a, b)
    assert not torch.equal(a.model, c.model)


def test_a_folder_changes_nothing(tmp_path):
    assert same_result(run(drfa(), iris(), 3), run(drfa(), iris(), 3, out=tmp_path / "a"))
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [
        "MODEL_CARD.md",
        "checkpoints",
        "metrics.csv",
        "metrics.jsonl",
        "model.safetensors",
        "progress.json",
        "provenance.json",
        "report.html",
        "split.json",
        "summary.json",
    ]


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"rounds": 0}, "rounds"),
        ({"rounds": -5}, "rounds"),
        ({"rounds": 2.5}, "rounds"),
        ({"rounds": "5"}, "rounds"),
        ({"evaluate_every": 0}, "evaluate_every"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"seed": 0.5}, "seed"),
        ({"engine": "gpu"}, "engine"),
        ({"options": {"report": False}}, "options"),
        ({"chunk": 10}, "chunk"),
        ({"watch": print}, "watch"),
        ({"secure_aggregation": True}, "secure_aggregation"),
        ({"lost_replies": 1.0}, "lost_replies"),
        ({"lost_replies": -0.1}, "lost_replies"),
        ({"lost_replies": float("nan")}, "lost_replies"),
        ({"target": "soon"}, "target"),
    ],
)
def test_refused(tmp_path, options, key):
    with pytest.raises(BadInput) as caught:
        run(drfa(), iris(), **{"rounds": 2, "out": tmp_path / "out", **options})
    assert caught.value.key == key
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("chunk", 10, "engine=fs.Vectorised(chunk=...)"),
        ("address", "auto", "engine=fs.Ray(address=...)"),
        ("factory", "a:b", "engine=fs.Processes(factory=...)"),
        ("report", False, "options=fs.RunOptions(report=...)"),
        ("secure_aggregation", True, "privacy=fs.Privacy(secure_aggregation=True)"),
        ("watch", print, "callbacks=[fs.LambdaCallback(on_round=...)]"),
        ("warn", print, "callbacks=[fs.LambdaCallback(on_warning=...)]"),
    ],
)
def test_the_new_way_of_an_earlier_keyword(key, value, remedy):
    with pytest.raises(BadInput, match=re.escape(remedy)):
        run(drfa(), iris(), 2, **{key: value})


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: fs.Vectorised(chunk=0), "chunk"),
        (lambda: fs.Processes(workers=0), "workers"),
        (lambda: fs.RunOptions(checkpoint_every=0), "checkpoint_every"),
        (lambda: fs.RunOptions(report=3), "report"),
        (lambda: fs.Serial(deterministic=1), "deterministic"),
    ],
)
def test_settings_are_checked_where_they_are_made(make, key):
    with pytest.raises(BadInput) as caught:
        make()
    assert caught.value.key == key


def test_more_clients_than_there_are(tmp_path):
    with pytest.raises(BadInput, match=r"algorithm.sampled_clients = 9: there are only 4 clients"):
        run(drfa(sampled_clients=9), iris(), 2, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_resume_needs_a_folder():
    with pytest.raises(BadInput, match="resume = True: name the folder to resume with `out`"):
        run(drfa(), iris(), 2, resume=True)


def test_an_existing_run_is_not_written_over(tmp_path):
    run(drfa(), iris(), 2, out=tmp_path)
    before = files(tmp_path)
    with pytest.raises(BadInput, match="holds a run already; resume it, or choose another folder"):
        run(drfa(), iris(), 2, out=tmp_path)
    assert files(tmp_path) == before


def test_numbers_of_numpy_will_do(tmp_path):
    one = run(drfa(), iris(), np.int64(2), seed=np.int64(3), out=tmp_path)
    assert same_result(one, run(drfa(), iris(), 2, seed=3))
    assert same_result(one, run(drfa(), iris(), 2, seed=3, out=tmp_path, resume=True))


def test_an_empty_client_and_labels_out_of_range():
    with pytest.raises(BadInput, match="rows of client 1 = 0: a client needs rows; leave it out"):
        Stacked(torch.zeros(4, 2), torch.zeros(4), np.array([0, 2, 2, 4]))
    table = Table(np.zeros((3, 2), np.float32), np.array([0, 1, 5]), classes=("a", "b"))
    with pytest.raises(BadInput, match=r"y\[2\] = 5: the labels of 2 classes run from 0 to 1"):
        federate(Dataset("mine", table, None, "", ""), Iid(2))


def test_rows_of_ones_own_are_judged_on_themselves():
    result = run(fedavg(), unequal(), 3)
    assert set(result.history[-1]) >= {"train", "clients"}
    assert "test" not in result.history[-1]
    assert result.final("loss", "mean") == result.summary["train"]["loss"]["mean"]


def test_evaluation_on_the_training_rows_when_asked():
    with_train = run(fedavg(), iris(), 4, evaluate_every=3, options=fs.RunOptions(evaluate_train=True))
    assert [r["round"] for r in with_train.history] == [3, 4]
    assert all({"test", "train"} <= set(r) for r in with_train.history)
    assert with_train.history[-1]["train"] == with_train.summary["train"]
    assert "train" not in run(fedavg(), iris(), 1).history[0]


def test_the_result(tmp_path):
    result = run(drfa(), iris(), 3)
    module, test = result.module(), iris().test
    assert isinstance(module, nn.Module)
    assert torch.equal(torch.cat([p.flatten() for p in module.parameters()]), result.model)
    right = float((module(test.x).argmax(1) == test.y).double().mean())
    assert result.final(statistic="global") == pytest.approx(right)
    assert result.final() == result.summary["test"]["accuracy"]["worst"]
    assert result.final("loss", "best") == result.history[-1]["test"]["loss"]["best"]
    path = result.plot(tmp_path / "deep" / "run.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(BadInput, match="has an unknown picture format"):
        result.plot(tmp_path / "run.txt")
    assert run(fedavg(), iris(), 1).mixture is None


def test_training_leaves_the_users_module_alone():
    mine = logistic_regression(4, 3)
    result = run(drfa(), iris(), 2)
    assert all(not p.any() for p in mine.parameters())
    assert result.module() is not result.algorithm.problem.model


def test_watch_sees_every_round():
    seen = []
    result = run(
        fedavg(),
        iris(),
        5,
        evaluate_every=2,
        callbacks=[fs.LambdaCallback(on_round=lambda done, record: seen.append((done, record)))],
    )
    assert [done for done, _ in seen] == [1, 2, 3, 4, 5]
    assert [r for _, r in seen] == [None, result.history[0], None, result.history[1], result.history[2]]


def test_begun_is_called_once_the_folder_is_there(tmp_path):
    seen = []
    run(
        fedavg(),
        iris(),
        1,
        out=tmp_path / "a",
        callbacks=[fs.LambdaCallback(on_begin=lambda _: seen.append((tmp_path / "a").exists()))],
    )
    assert seen == [True]


def test_many_clients_are_not_listed_one_by_one():
    data = unequal((1,) * 201)
    record = run(drfa(sampled_clients=5), data, 1).history[0]
    assert record["clients"] == {}
    assert "mixture" not in record
    fewer = run(drfa(sampled_clients=5), unequal((1,) * 200), 1).history[0]
    assert len(fewer["clients"]["train"]["loss"]) == len(fewer["mixture"]) == 200


def test_a_client_without_test_rows_has_no_figures():
    train = unequal()
    test = Stacked(train.x[:5], train.y[:5], np.array([0, 2, 2, 4, 5]), allow_empty=True)
    data = FederatedData("mine", train, test, ("a", "b", "c", "d"), ("0", "1", "2"), ())
    record = run(fedavg(), data, 1).history[0]
    values = record["clients"]["test"]["loss"]
    assert values[1] is None
    assert record["test"]["loss"]["mean"] == pytest.approx(np.mean([values[0], values[2], values[3]]))


def test_regression_has_no_accuracy():
    data = Stacked(torch.randn(8, 4), torch.randn(8), np.array([0, 4, 8]))
    square = FedAvg(problem=Supervised(nn.Linear(4, 1), Square()), local_steps=2)
    result = run(square, data, 2, target="worst loss < 0")
    assert set(result.summary["train"]) == {"loss"}
    with pytest.raises(BadInput, match="this problem has the metrics loss only"):
        run(square, data, 2, target="worst accuracy > 0.5")


def test_a_client_that_is_not_finite_is_left_out_and_named_once():
    data = unequal()
    data.x[data.offsets[1]] = 1e25
    square = FedAvg(problem=Supervised(nn.Linear(4, 1), Square()), primal_step=0.01)
    rows, told = Stacked(data.x, data.y.float(), data.offsets), []
    result = run(square, rows, 5, callbacks=[fs.LambdaCallback(on_warning=told.append)])
    assert told == [
        "round 1: client 1 sent a 'final' that is not finite; such replies are left out, and the run goes on",
        "round 1: client 1 is left out of the train figures: its loss is not finite",
    ]
    assert result.summary["left_out"] == {"1": {"sent a 'final' that is not finite": 5}}
    assert result.summary["stopped"] == "finished"
    assert result.history[-1]["clients"]["train"]["loss"][1] is None
    assert np.isfinite(result.summary["train"]["loss"]["worst"])
    assert "left_out" not in run(fedavg(), iris(), 1).summary


def test_counts_of_clients_left_out_survive_a_resume(tmp_path):
    data = unequal()
    data.x[data.offsets[1]] = 1e25
    rows = Stacked(data.x, data.y.float(), data.offsets)

    def go(rounds, **more):
        square = FedAvg(problem=Supervised(seeded(lambda: nn.Linear(4, 1)).float(), Square()), primal_step=0.01)
        return run(square, rows, rounds, callbacks=[fs.LambdaCallback(on_warning=lambda text: None)], **more)

    go(2, out=tmp_path / "a")
    again = go(5, out=tmp_path / "a", resume=True)
    assert again.summary["left_out"] == {"1": {"sent a 'final' that is not finite": 5}}
    assert torch.equal(again.model, go(5).model)


def test_divergence_names_round_and_client():
    data = unequal()
    data.x.fill_(1e25)
    wild = FedAvg(problem=Supervised(nn.Linear(4, 1), Square()), primal_step=1.0)
    rows = Stacked(data.x, data.y.float(), data.offsets)
    with pytest.raises(Diverged) as caught:
        run(wild, rows, 5)
    assert (caught.value.round, caught.value.client, caught.value.exit_code) == (1, 0, 3)
    assert "round 1: client 0 sent a 'final' that is not finite; try a smaller step" in str(caught.value)


def test_a_model_that_is_finite_and_its_loss_not():
    """Seen in the evaluation: the client is left out whose loss it is; if it is everybody's, the run has diverged."""
    train = unequal()
    test = Stacked(train.x.clone(), train.y, train.offsets)
    test.x[int(test.offsets[2])] = 3e38
    start = logistic_regression(4, 3)
    nn.init.constant_(start[1].weight[0], 30.0)
    data = FederatedData("mine", train, test, ("a", "b", "c", "d"), ("0", "1", "2"), ())
    told = []
    result = run(FedAvg(problem=Supervised(start)), data, 1, callbacks=[fs.LambdaCallback(on_warning=told.append)])
    assert told == ["round 1: client 2 is left out of the test figures: its loss is not finite"]
    assert [v is None for v in result.history[0]["clients"]["test"]["loss"]] == [False, False, True, False]
    test.x.fill_(3e38)
    with pytest.raises(Diverged, match="round 1: client 0 sent a 'loss'"):
        run(FedAvg(problem=Supervised(start)), data, 1)


def test_a_run_in_a_thread_leaves_the_signals_alone():
    results = []
    thread = threading.Thread(target=lambda: results.append(run(fedavg(), iris(), 2)))
    thread.start()
    thread.join()
    assert same_result(results[0], run(fedavg(), iris(), 2))


def test_threads_and_chunks_are_a_matter_of_speed():
    plain, threaded, again = (run(drfa(), iris(), 3, engine=fs.Vectorised(chunk=2, workers=w)) for w in (1, 2, 3))
    torch.testing.assert_close(plain.model, threaded.model)
    assert torch.equal(again.model, threaded.model)
    assert timeless(again.history) == timeless(threaded.history)
    assert threaded.summary["engine"] == {"name": "vectorised", "chunk": 2}


def test_the_rule_for_chunks():
    rows = iris().train
    assert chunk_and_workers(problem(), rows)[0] == 64
    wide = Supervised(nn.Linear(4, 300_000))
    assert chunk_and_workers(wide, rows)[0] == 5  # 6 MB a model, 32 MiB in all
    pictures = Supervised(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)))
    assert chunk_and_workers(pictures, rows)[0] == 1


def test_the_names_of_the_package():
    import fedsaddle

    for name in fedsaddle.__all__:
        assert getattr(fedsaddle, name) is not None
    assert fedsaddle.run is run
    assert set(fedsaddle.__all__) <= set(dir(fedsaddle))
    with pytest.raises(AttributeError, match="no attribute 'sprint'"):
        fedsaddle.sprint  # noqa: B018
    assert Path(fedsaddle.__file__).name == "__init__.py"


def test_a_model_whose_scores_overflow_has_diverged():
    """Through a sigmoid the loss of an infinite score is finite, and replies are; the order of the rows is lost."""

    class Steep(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.full((4,), 1e30))

        def forward(self, x):
            return ((1 + x.abs()) * 1e30 * self.w).sum(-1, keepdim=True)

    y = torch.arange(12) % 2
    rows = fs.Stacked(torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), y, np.array([0, 6, 12]))
    problem = fs.MinimaxAuc(model=Steep(), positive_share=0.5, sigmoid=True)
    with pytest.raises(fs.Diverged, match="round 1: the model has a 'score' that is not finite; try a smaller step"):
        fs.run(fs.LocalSgda(problem=problem, local_steps=1, batch_size=2), rows, 2)
