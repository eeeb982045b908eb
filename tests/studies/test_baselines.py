"""Pooled training and each site alone, as baselines of a simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from test_search import slope, table

from fedsaddle.errors import BadInput
from fedsaddle.metrics.ranking import rank
from fedsaddle.studies.baselines import baselines, one_client
from fedsaddle.studies.candidates import FEDAVG, Facts, candidates
from fedsaddle.studies.pool import Interrupted
from fedsaddle.studies.trial import Trial


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    data = table(600, slope)
    candidate = next(c for c in candidates(Facts.of(data), "auroc") if c.name == FEDAVG)
    trial = Trial(replace(candidate, rounds=40), 0.3, 40, 0, "auroc", tmp_path_factory.mktemp("trials"))
    exact = np.asarray(slope(data.test.x.numpy()[:, :3]), dtype=np.float64)  # as good as a model can be
    return data, trial, exact, baselines(trial, data, exact)


def test_pooled_training_ranks_as_a_regression_on_all_rows(found):
    data, _, exact, both = found
    model = LogisticRegression(max_iter=1000).fit(data.train.x.numpy(), data.train.y.numpy())
    y, ends = data.test.y.numpy(), data.test.offsets
    theirs = rank(model.decision_function(data.test.x.numpy()), y, ends, data.test_names)
    assert both.pooled.ranking.pooled.auroc.value == pytest.approx(theirs.pooled.auroc.value, abs=0.02)
    ours = rank(exact, y, ends, data.test_names).pooled.auroc.value
    gap = both.pooled.gain.auroc
    assert gap.value == pytest.approx(ours - both.pooled.ranking.pooled.auroc.value, abs=1e-12)
    assert gap.low < gap.value < gap.high


def test_each_site_alone_scores_its_own_rows(found):
    data, _, _, both = found
    y = data.test.y.numpy()
    for client, (name, figures) in enumerate(zip(data.names, both.alone.ranking.clients, strict=True)):
        train, rows = data.train.client(client), slice(*data.test.offsets[client : client + 2])
        model = LogisticRegression(max_iter=1000).fit(train[0].numpy(), train[1].numpy())
        theirs = rank(model.decision_function(data.test.x.numpy()[rows]), y[rows], [0, len(y[rows])], [name])
        assert figures.auroc.value == pytest.approx(theirs.pooled.auroc.value, abs=0.05)
    assert both.without == ()
    assert both.alone.gain.within_site_auroc.value > -0.02, "the true log odds rank at least as well"


def test_the_rows_of_some_clients_are_one_client_s(found):
    data, *_ = found
    one = one_client(data, [1, 3], "two")
    assert one.names == ("two",)
    assert one.train.sizes.tolist() == [int(data.train.sizes[[1, 3]].sum())]
    assert torch.equal(one.train.x, torch.cat([data.train.client(1)[0], data.train.client(3)[0]]))
    assert one.test is data.test


def test_baselines_want_test_rows_and_can_be_stopped(found):
    data, trial, exact, _ = found
    with pytest.raises(BadInput, match="compared on test rows"):
        baselines(trial, replace(data, test=None), exact)
    with pytest.raises(Interrupted):
        baselines(trial, data, exact, lambda: True)
    with pytest.raises(BadInput, match="step = 1e\\+38: diverges where all rows are in one place"):
        baselines(replace(trial, step=1e38), data, exact)
