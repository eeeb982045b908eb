"""Workers on Ray, on a cluster of two nodes on this machine: `pytest -m slow tests/engines/test_ray.py`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from contextlib import closing
from pathlib import Path

import pytest
import torch

import fedsaddle as fs
from fedsaddle.algorithms.fedavg import FedAvg
from fedsaddle.config.build import build
from fedsaddle.config.schema import validate_config
from fedsaddle.engines import ray_workers
from fedsaddle.engines.ray_workers import RayWorkers, connect
from fedsaddle.engines.simulated import VectorisedEngine
from fedsaddle.engines.workers import Distributed, Worker, WorkersFailed
from fedsaddle.errors import BadInput
from fedsaddle.federation.records import same
from fedsaddle.runs.run import run
from small import classes, play

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
HERE = Path(__file__).parent
CONFIG = {
    "data": {"name": "iris"},
    "split": {"name": "iid", "clients": 6},
    "model": {"name": "logistic"},
    "algorithm": {"name": "DRFA", "sampled_clients": 4, "local_steps": 3, "batch_size": 8},
}


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with a CPU each."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent), before])  # workers import this file
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    found.second = found.add_node(num_cpus=1)
    found.wait_for_nodes()
    ray.init(address=found.address, log_to_driver=False, logging_level="ERROR")
    yield found
    ray.shutdown()
    found.shutdown()
    os.environ["PYTHONPATH"] = before


def problem():
    from test_worker_processes import problem as small

    return small()


class Killed(Worker):
    """Kills its process at client 3, once for each file that is missing in the folder."""

    folder = Path()

    def answer(self, sent, content):
        marks = len(list(self.folder.iterdir()))
        if marks < 1:
            (self.folder / str(marks)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().answer(sent, content)


def fedavg():
    return FedAvg(problem=problem(), local_steps=2, batch_size=3)


def plain(recipe):
    return Worker(fedavg(), classes())


def slow(recipe):
    """Waits for half a second before each answer."""

    class Slow(Worker):
        def answer(self, sent, content):
            time.sleep(0.5)
            return super().answer(sent, content)

    return Slow(fedavg(), classes())


def killed(recipe):
    worker = Killed(fedavg(), classes())
    worker.folder = Path(recipe)
    return worker


def workers(build=f"{__name__}:plain", recipe="", count=2, told=None):
    warn = print if told is None else told.append
    carrier = RayWorkers(build, recipe, "auto", count, warn)
    return Distributed(classes(), carrier=carrier, name="ray", chunk=2)


def expected(rounds):
    return play(fedavg(), VectorisedEngine(classes(), chunk=2, workers=2), rounds)


def test_a_run_on_two_nodes_is_a_run_on_one_machine(cluster, tmp_path):
    import ray

    built = build(validate_config(CONFIG))
    options = {"options": fs.RunOptions(report=False)}
    here = run(built.algorithm, built.data, 4, engine=fs.Vectorised(chunk=2, workers=2), **options)
    run(built.algorithm, built.data, 2, out=tmp_path, engine=fs.Vectorised(chunk=2, workers=2), **options)
    there = run(
        built.algorithm,
        built.data,
        4,
        out=tmp_path,
        resume=True,
        engine=fs.Ray(chunk=2, workers=2, factory=CONFIG),
        **options,
    )
    assert torch.equal(here.model, there.model)
    assert there.summary["engine"] == {"name": "ray", "chunk": 2}
    assert ray.is_initialized(), "what the caller has connected stays connected"


def test_a_worker_killed_in_the_middle_of_an_ask_changes_nothing(cluster, tmp_path):
    told = []
    with closing(workers(f"{__name__}:killed", str(tmp_path), told=told)) as clients:
        assert same(play(fedavg(), clients, 3)[-1], expected(3)[-1])
        assert clients.carrier.lost >= 1
    assert any("its clients are asked again" in text for text in told)


def test_a_worker_that_cannot_begin_ends_the_run(cluster):
    built = build(validate_config(CONFIG))
    other = {**CONFIG, "split": {"name": "iid", "clients": 5}}
    with pytest.raises(WorkersFailed, match=r"a worker on .* cannot begin: its algorithm or rows differ"):
        run(built.algorithm, built.data, 2, engine=fs.Ray(workers=1, factory=other))
    with pytest.raises(BadInput, match="factory = None: the engine 'ray' needs one"):
        run(built.algorithm, built.data, 2, engine=fs.Ray(workers=1))


def test_what_a_terminate_signal_does_is_kept(monkeypatch):
    before = signal.getsignal(signal.SIGTERM)

    class Rude:
        @staticmethod
        def is_initialized():
            return False

        @staticmethod
        def init(**options):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    monkeypatch.setitem(sys.modules, "ray", Rude)
    assert connect("auto", 1) == (Rude, True)
    assert signal.getsignal(signal.SIGTERM) == before


def begun(carrier):
    """Wait until every worker has begun."""
    for _ in range(60):
        if not carrier._starting:
            return
        carrier._wait(deque(), {})
    raise AssertionError("a worker did not begin")


def test_a_node_that_goes_and_one_that_comes(cluster):
    """The second node dies in the middle of an ask, and another joins later."""
    import threading

    states, told = expected(3), []
    with closing(workers(f"{__name__}:slow", told=told)) as clients:
        state = play(fedavg(), clients, 1)[-1]
        assert same(state, states[1])
        begun(clients.carrier)
        leaving = threading.Timer(0.3, cluster.remove_node, (cluster.second,), {"allow_graceful": False})
        leaving.start()
        state = play(fedavg(), clients, 1, state=state, first=1)[-1]
        leaving.join()
        assert same(state, states[2])
        assert clients.carrier.lost >= 1
        cluster.second = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        assert same(play(fedavg(), clients, 1, state=state, first=2)[-1], states[3])


def test_a_node_that_joins_later_gets_workers_of_its_own(cluster, monkeypatch):
    """Without a number of workers: one for each CPU, also of a machine that was not there at the start."""
    monkeypatch.setattr(ray_workers, "LOOK", 0.2)
    states = expected(4)
    if cluster.second in cluster.worker_nodes:
        cluster.remove_node(cluster.second)
    with closing(workers(f"{__name__}:slow", count=None)) as clients:
        state = play(fedavg(), clients, 1)[-1]
        assert clients.carrier.count == 1
        cluster.second = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        state = play(fedavg(), clients, 1, state=state, first=1)[-1]
        assert clients.carrier.count == 2
        begun(clients.carrier)
        state = play(fedavg(), clients, 1, state=state, first=2)[-1]
        cluster.remove_node(cluster.second, allow_graceful=False)
        assert same(play(fedavg(), clients, 1, state=state, first=3)[-1], states[4])
        assert clients.carrier.lost >= 1, "the worker of the second node was there"
    cluster.second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()


def test_workers_ask_for_a_gpu_each(cluster):
    """A node that claims to have a GPU gets a worker; one that has to use it says that there is none."""
    node = cluster.add_node(num_cpus=1, num_gpus=1)
    cluster.wait_for_nodes()
    try:
        carrier = RayWorkers(f"{__name__}:plain", "", "auto", None, print, gpus=True)
        with closing(Distributed(classes(), carrier=carrier, name="ray", chunk=2)) as clients:
            assert same(play(fedavg(), clients, 1)[-1], expected(1)[-1])
            assert carrier.count == 1, "three CPUs, but one GPU"
        if not torch.cuda.is_available():
            built = build(validate_config(CONFIG))
            told = r"a worker on .* cannot begin: device = 'cuda:0': cannot be used here"
            with pytest.raises(WorkersFailed, match=told):
                run(built.algorithm, built.data, 1, engine=fs.Ray(device="cuda", factory=CONFIG))
    finally:
        cluster.remove_node(node)
