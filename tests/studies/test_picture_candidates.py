"""The candidates of a search on pictures: what they cost follows the number of pictures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedsaddle as fs
from fedsaddle.data.splits import Natural
from fedsaddle.data.table import Dataset, Table
from fedsaddle.studies import search as module
from fedsaddle.studies.aims import Rows
from fedsaddle.studies.candidates import BASE_PICTURES, FEDAVG, PICTURE_BATCH, PICTURE_ROUNDS, Facts, candidates


def facts(rows: int, clients: int = 4, shape: tuple[int, ...] = (1, 28, 28)) -> Facts:
    return Facts(rows, rows // 4, {"number": int(np.prod(shape))}, True, clients, 256, shape)


def bright(n: int = 60) -> fs.FederatedData:
    """Two sites with pictures that are brighter where the label is 1."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3 == 0
    x = rng.normal(size=(n, 1, 8, 8)).astype(np.float32) + 1.5 * y[:, None, None, None]
    made = Table.of(x, y.astype(np.int64), {"site": np.array(list("AB"))[np.arange(n) % 2]}, ("0", "1"))
    return fs.federate(Dataset("bright", made, None, "made up", "none"), Natural("site"), 0, 0.2, True, 0.2)


@pytest.mark.parametrize("aim", ["auroc", "average-precision", "worst-site", "accuracy"])
def test_few_pictures_cost_little(aim):
    few = candidates(facts(400), aim)
    assert [c.name for c in few[:2]] == [FEDAVG, BASE_PICTURES]
    for candidate in few:
        assert candidate.model == {"name": "small-cnn"}
        assert candidate.options["batch_size"] <= PICTURE_BATCH
        assert PICTURE_ROUNDS[0] <= candidate.rounds <= 25
        assert candidate.steps == few[0].steps  # tuned alike
        assert candidate.patience is not None
        assert candidate.patience < candidate.evaluations <= candidate.rounds


def test_rounds_and_network_grow_with_the_pictures():
    rounds = [candidates(facts(rows), "auroc")[1].rounds for rows in (40, 400, 600, 800, 100_000)]
    assert rounds == sorted(rounds)
    assert (rounds[0], rounds[-1]) == PICTURE_ROUNDS
    assert len(set(rounds)) > 2
    assert candidates(facts(400, clients=40), "auroc")[1].rounds == PICTURE_ROUNDS[0]  # ten at each site
    many = candidates(facts(5000), "auroc")
    assert {c.model["name"] for c in many} == {"small-cnn"}
    assert (
        fs.models.SmallCnn().hidden.in_features
        < fs.models.SmallCnn(filters=many[1].model["filters"]).hidden.in_features
    )


def test_pictures_that_are_not_square_have_no_convolutions():
    assert {c.model["name"] for c in candidates(facts(400, shape=(1, 20, 28)), "auroc")} == {"mlp"}


def test_a_search_on_pictures_learns_and_stops_early(monkeypatch):
    real, fewer = module.candidates, {"steps": (0.1,), "rounds": 8, "evaluations": 8, "patience": 2}
    monkeypatch.setattr(module, "candidates", lambda *a: [replace(c, **fewer) for c in real(*a)])
    choice = fs.search(data := bright(), workers=1)
    rows = Rows.of(data.validation.y.numpy(), data.validation.offsets)
    assert module.aim_of("auroc").value(choice.chosen.scores, rows) > 0.9
    ran = {r.candidate: r.rounds for r in choice.trials if r.selected_round}
    assert set(ran) == {FEDAVG, BASE_PICTURES, f"{BASE_PICTURES}, then CODASCA", f"{BASE_PICTURES}, then FedX1"}
    assert min(ran.values()) < 8  # every row is in order soon
