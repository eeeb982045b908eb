"""The defaults of algorithms, problems and privacy: who changes one changes the results of all who do not give it."""

from dataclasses import MISSING, fields
from inspect import signature

import pytest

import fedsaddle as fs
from fedsaddle import losses, outers, pair_losses, regularisers
from fedsaddle.config.registry import PROBLEMS

PARTS = {"losses": losses, "outers": outers, "pair_losses": pair_losses, "regularisers": regularisers}
DEFAULTS = {
    "AaggFf": {
        "batch_size": 50,
        "local_steps": 10,
        "primal_step": 0.1,
        "response": "weibull",
        "server_step": 1.0,
        "trimmed": 0.0,
        "update": "newton",
    },
    "Anderson": {"exact": True, "growth": 2.0, "memory": 10, "ridge": 1e-20},
    "Attack": {"clients": 1},
    "ClassFair": {"l2": 0.0, "l2_biases": True, "penalty": 0.1},
    "Coda": {"batch_size": 32, "local_steps": 8, "output": "last", "proximal": 0.002, "weighting": "uniform"},
    "CodaPlus": {"batch_size": 32, "local_steps": 8, "output": "last", "proximal": 0.002, "weighting": "uniform"},
    "Codasca": {
        "batch_size": 32,
        "global_step": 1.0,
        "local_steps": 8,
        "momentum": 0.0,
        "output": "last",
        "proximal": 0.002,
        "weighting": "uniform",
    },
    "CompositionalAuc": {"inner_step": 0.1, "inner_weight": 1.0, "l2": 0.0, "l2_biases": True, "sigmoid": False},
    "DeltaFl": {
        "batch_size": 50,
        "boundary": "whole",
        "local_steps": 10,
        "primal_step": 0.1,
        "tail": 0.5,
        "threshold": "losses",
        "trimmed": 0.0,
        "weighting": "size",
    },
    "Drfa": {
        "batch_size": 50,
        "dual_decay": 1.0,
        "dual_step": 0.008,
        "local_steps": 10,
        "output": "last",
        "primal_step": 0.1,
        "trimmed": 0.0,
    },
    "DrfaGa": {
        "average_after": 0,
        "batch_size": 50,
        "dual_step": 0.008,
        "local_steps": 10,
        "output": "last",
        "primal_step": 0.1,
    },
    "ExponentialDro": {
        "batch_size": 20,
        "inner_averaging": 0.2,
        "local_steps": 5,
        "momentum_averaging": 0.1,
        "primal_step": 0.1,
        "temperature": 1.0,
    },
    "Extragradient": {"dual_step": 0.1, "output": "last", "primal_step": 0.1},
    "FedAvg": {
        "batch_size": 50,
        "local_steps": 10,
        "nesterov": False,
        "output": "last",
        "primal_step": 0.1,
        "proximal": 0.0,
        "server_momentum": 0.0,
        "weighting": "size",
    },
    "FedGdaGt": {"dual_step": 0.1, "local_steps": 10, "primal_step": 0.1},
    "FedMgda": {"batch_size": 50, "freedom": 0.1, "local_steps": 10, "primal_step": 0.1, "server_step": 1.0},
    "FedNova": {"batch_size": 50, "epochs": 1.0, "normalised": True, "primal_step": 0.1},
    "FedSgda": {"batch_size": 5, "dual_step": 0.001, "local_steps": 10, "output": "last", "primal_step": 0.001},
    "FedSgdaPlus": {
        "batch_size": 100,
        "dual_step": 0.0001,
        "local_steps": 10,
        "output": "last",
        "primal_step": 0.001,
        "server_step": 1.0,
        "snapshot_rounds": 1,
    },
    "FedX1": {
        "batch_size": 32,
        "buffer_rounds": 1,
        "guard": 2.0,
        "local_steps": 32,
        "primal_step": 0.03,
        "sharing": "all",
    },
    "FedX2": {
        "averaging": 0.1,
        "batch_size": 32,
        "buffer_rounds": 1,
        "guard": 2.0,
        "local_steps": 32,
        "normalised_weights": False,
        "primal_step": 0.03,
        "sharing": "all",
    },
    "FessGda": {
        "batch_size": 32,
        "dual_step": 0.016,
        "local_steps": 10,
        "output": "last",
        "primal_step": 0.02,
        "server_dual_step": 1.0,
        "server_primal_step": 1.0,
        "smoothing": 1.0,
        "trailing": 0.5,
    },
    "LocalExtragradient": {"control_variates": False, "dual_step": 0.02, "local_steps": 10, "primal_step": 0.02},
    "LocalPair": {"batch_size": 32, "centralised": False, "local_steps": 32, "primal_step": 0.03, "tracking": 0.9},
    "LocalSgda": {
        "ascent": "local",
        "batch_size": 32,
        "dual_step": 0.016,
        "local_steps": 10,
        "output": "last",
        "primal_step": 0.02,
        "weighting": "uniform",
    },
    "MinimaxAuc": {"l2": 0.0, "l2_biases": True, "sigmoid": False},
    "MomentumLocalSgda": {
        "alpha": 1.0,
        "batch_size": 32,
        "dual_beta": 0.9,
        "dual_step": 0.016,
        "local_steps": 10,
        "momentum_at_sync": "average",
        "output": "last",
        "primal_beta": 0.9,
        "primal_step": 0.02,
    },
    "NonconvexPl": {"dimension": 100, "mu": 1.0, "nu": 1.0},
    "PairwiseRisk": {"first": 1, "l2": 0.0, "l2_biases": True, "second": 0},
    "Privacy": {
        "clip": 1.0,
        "delta": 1e-05,
        "epsilon": float("inf"),
        "loss_bound": 5.0,
        "secure_aggregation": False,
        "unit": "row",
    },
    "PropFair": {
        "batch_size": 50,
        "ceiling": 5.0,
        "extended": False,
        "local_steps": 10,
        "near": 0.2,
        "primal_step": 0.1,
        "weighting": "size",
    },
    "ProxSkip": {"chance": 0.1, "dual_step": 0.1, "primal_step": 0.1},
    "QFedAvg": {"batch_size": 50, "local_steps": 10, "primal_step": 0.1, "q": 0.2, "sampling": "uniform"},
    "QuadraticGame": {"dimension": 100, "mu": 1.0, "nu": 1.0},
    "Robust": {"aggregation": "mean", "iterations": 3, "loss_factor": 10.0, "norm_factor": 10.0, "trim": 0.25},
    "RobustTraining": {
        "attack_step": 0.5,
        "attack_steps": 10,
        "l2": 0.0,
        "l2_biases": True,
        "norm": "l2",
        "radius": 1.0,
    },
    "Scaffold": {"batch_size": 50, "global_step": 1.0, "local_steps": 10, "primal_step": 0.1, "weighting": "uniform"},
    "Spider": {"period": 10},
    "Supervised": {"compiled": False, "hardest": 1.0, "l2": 0.0, "l2_biases": True, "trimmed": 0.0},
    "Term": {
        "averaging": 0.5,
        "batch_size": 50,
        "local_steps": 10,
        "normaliser": "batch",
        "primal_step": 0.1,
        "sampling": "uniform",
        "tilt": 1.0,
        "trimmed": 0.0,
    },
    "outers.Kl": {"temperature": 1.0},
    "outers.LogPower": {"power": 1.0, "temperature": 1.0},
    "outers.Ratio": {"floor": 1e-08},
    "outers.SmoothLog": {"temperature": 1.0},
    "pair_losses.BarrierHinge": {"first_is_higher": True, "slope_outside": 200.0, "width": 50.0},
    "pair_losses.Contrastive": {"margin": 1.0},
    "pair_losses.CustomPairLoss": {"labels": False, "parts": 1},
    "pair_losses.Difference": {"first_is_higher": True},
    "pair_losses.Hinge": {"first_is_higher": True, "margin": 1.0},
    "pair_losses.LogisticMargin": {"first_is_higher": True, "steepness": 1.0},
    "pair_losses.MarginLoss": {"first_is_higher": True},
    "pair_losses.Sigmoid": {"first_is_higher": True},
    "pair_losses.SquaredMargin": {"first_is_higher": True, "margin": 1.0},
    "pair_losses.SquaredHinge": {"first_is_higher": True, "margin": 1.0},
    "regularisers.Concave": {"most_steps": 10000, "tolerance": 1e-10},
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_as_they_were(name):
    """Change the table with the default, the docs that name it, and the changelog."""
    where, _, short = name.rpartition(".")
    kind = getattr(PARTS[where] if where else fs, short)
    given = {f.name: f.default for f in fields(kind) if f.init and isinstance(f.default, int | float | str)}
    assert given == DEFAULTS[name]


@pytest.mark.parametrize("name", sorted(set(PROBLEMS) - {"pairwise"}))  # its risks are functions of their own
def test_a_config_has_the_defaults_of_the_class(name):
    kind = PROBLEMS[name].load()
    of_class = {f.name: f.default for f in fields(kind) if f.init and f.default is not MISSING}
    of_config = {p.name: p.default for p in signature(kind.from_data).parameters.values() if p.default is not p.empty}
    assert of_config, "a config can set something"
    common = of_class.keys() & of_config.keys()
    assert {key: of_config[key] for key in common} == {key: of_class[key] for key in common}
