"""An estimator trains as the config that `fedsaddle init --csv` writes for the same algorithm."""

from __future__ import annotations

import tomllib

import pytest
from patients import patients

from fedsaddle.config.registry import ALGORITHMS
from fedsaddle.estimators.training import Wanted
from fedsaddle.studies.recipes import RANKERS, problem_for
from fedsaddle.studies.table_config import TableConfig

DEFAULTS = {"model": "linear", "problem": None, "rounds": 100, "local_steps": 8, "batch_size": 64}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "patients.csv"
    X, y = patients(60)
    X.assign(died=y).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_same_sections(table, name):
    written = tomllib.loads(TableConfig(table, "hospital", "died", algorithm=name).to_toml())
    options = {"snapshot_every": 4} if "snapshot_every" in ALGORITHMS[name].required else None
    wanted = Wanted(name, **DEFAULTS, primal_step="auto", options=options, classes=2, rows=60, seed=0).experiment()
    own = {key: value for key, value in wanted.algorithm.model_dump().items() if key != "snapshot_every"}
    assert own == written["algorithm"]
    assert wanted.model.model_dump() == written["model"]
    problem = problem_for(name, ALGORITHMS[name])
    if problem == written["problem"]["name"]:
        made, penalty = wanted.problem.model_dump(), written["problem"].pop("l2", 0.0)
        assert made.pop("l2", 0.0) == pytest.approx(penalty, rel=0.01)
        assert made == written["problem"]
    else:
        assert (problem, ALGORITHMS[name].kind) == ("class-fair", "minimax")
        assert name not in RANKERS
