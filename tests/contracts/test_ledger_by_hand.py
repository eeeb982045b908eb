"""Bills worked out on paper: logistic regression with d = 15 numbers of 8 bytes, 6 clients, 3 rounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from worlds import LOGISTIC
from wrappers import Witness

from fedsaddle import Drfa, DrfaGa, FedAvg, QFedAvg
from fedsaddle.engines.simulated import SerialEngine
from fedsaddle.federation.wrappers import Ledger, Metered
from small import SIZES, play, vectorised

LOCAL = {"local_steps": 3, "batch_size": 5, "sampled_clients": 4}
VECTOR = 15 * 8
engines = pytest.mark.parametrize("engine", [SerialEngine, vectorised])


def bill(algorithm, engine):
    metered = Metered(engine(LOGISTIC.rows()))
    witness = Witness(metered)
    play(algorithm, witness, 3)
    return metered.ledger, [len(np.unique(c)) for c in witness.asked]


@engines
def test_fedavg(engine):
    ledger, _ = bill(FedAvg(problem=LOGISTIC.problem(), **LOCAL), engine)
    assert ledger == Ledger(
        exchanges=3,
        bytes_down=3 * 4 * VECTOR,
        bytes_up=3 * 4 * VECTOR,
        asked=12,
        answered=12,
        samples=3 * 4 * 3 * 5,
        fields={"LocalModel.final": "averaged"},
    )


@engines
def test_the_average_costs_one_more_vector(engine):
    ledger, _ = bill(FedAvg(problem=LOGISTIC.problem(), output="average", **LOCAL), engine)
    assert ledger.bytes_up == 3 * 4 * 2 * VECTOR
    assert ledger.fields == {"LocalModel.final": "averaged", "LocalModel.path": "averaged"}


@engines
def test_qfedavg(engine):
    ledger, _ = bill(QFedAvg(problem=LOGISTIC.problem(), **(LOCAL | {"sampled_clients": None})), engine)
    assert ledger == Ledger(
        exchanges=3,
        bytes_down=3 * 6 * VECTOR,
        bytes_up=3 * 6 * (VECTOR + 8),
        asked=18,
        answered=18,
        samples=3 * (sum(SIZES) + 6 * 3 * 5),
        fields={"Update.delta": "averaged", "Update.h": "averaged"},
    )


@engines
def test_drfa(engine):
    ledger, asked = bill(Drfa(problem=LOGISTIC.problem(), dual_step=0.01, **LOCAL), engine)
    D, U = sum(asked[0::2]), sum(asked[1::2])  # different clients asked, over the rounds
    assert U == 12
    assert D < 12, "D has repeats, and a repeated client is paid for once"
    assert ledger == Ledger(
        exchanges=6,
        bytes_down=D * (VECTOR + 8) + U * VECTOR,
        bytes_up=D * 2 * VECTOR + U * 8,
        asked=D + U,
        answered=D + U,
        samples=D * 3 * 5 + U * 5,
        fields={"LocalModels.final": "averaged", "LocalModels.snapshot": "averaged", "LocalLoss.loss": "per client"},
    )


@engines
def test_drfa_ga(engine):
    ledger, asked = bill(DrfaGa(problem=LOGISTIC.problem(), dual_step=0.01, **LOCAL), engine)
    D = sum(asked[0::2])
    assert ledger == Ledger(
        exchanges=6,
        bytes_down=(D + 18) * VECTOR,
        bytes_up=D * VECTOR + 18 * 8,
        asked=D + 18,
        answered=D + 18,
        samples=D * 3 * 5 + 3 * sum(SIZES),
        fields={"LocalModel.final": "averaged", "LocalLoss.loss": "per client"},
    )


def test_for_json():
    ledger = Ledger(exchanges=1, fields={"A.b": "averaged"})
    assert ledger.to_dict()["fields"] == {"A.b": "averaged"}
    assert replace(ledger) == ledger
    assert set(ledger.to_dict()) == {"exchanges", "bytes_down", "bytes_up", "asked", "answered", "samples", "fields"}
