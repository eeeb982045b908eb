"""Files of fitted estimators: the same predictions bit for bit, and plain errors for anything else."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
import torch
from patients import patients
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.exceptions import NotFittedError

import fedsaddle as fs

QUICK = {"rounds": 2, "local_steps": 2}


@cache
def default() -> fs.FederatedClassifier:
    return fitted()


def fitted(**settings) -> fs.FederatedClassifier:
    X, y = patients()
    return fs.FederatedClassifier(site="hospital", **QUICK, **settings).fit(X, y)


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": "CODASCA", "model": "mlp", "numeric": ("age",)},
        {"algorithm": "DRFA", "options": {"dual_step": 0.1}},
    ],
    ids=["CODASCA", "DRFA"],
)
def test_predictions_are_the_same_bits(tmp_path, settings):
    X, _ = patients()
    model = fitted(**settings)
    again = fs.FederatedClassifier.load(model.save(tmp_path / "model.safetensors"))
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.get_params() == model.get_params()
    assert again.classes_.dtype == model.classes_.dtype
    for name in ("sites_", "n_iter_", "columns_", "notes_", "config_", "selected_round_", "n_features_in_"):
        assert getattr(again, name) == getattr(model, name), name
    assert np.array_equal(again.feature_names_in_, model.feature_names_in_)
    assert again.save(tmp_path / "twice").read_bytes() == (tmp_path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("labels", [[True, False], [3, 1], [1.5, 2.5], ["yes", "no"]])
def test_labels_of_every_kind(tmp_path, labels):
    y = np.array(labels * 4) if labels != [1.5, 2.5] else np.array([1.0, 2.0] * 4)
    model = fs.FederatedClassifier(**QUICK).fit(np.arange(16.0).reshape(8, 2) ** 2, y)
    again = fs.FederatedClassifier.load(model.save(tmp_path / "model"))
    assert again.classes_.dtype == model.classes_.dtype
    assert again.classes_.tolist() == model.classes_.tolist()


def test_a_regressor_too(tmp_path):
    X, _ = patients()
    model = fs.FederatedRegressor(**QUICK).fit(X.drop(columns="age"), X["age"])
    again = fs.FederatedRegressor.load(model.save(tmp_path / "model"))
    assert np.array_equal(again.predict(X.drop(columns="age")), model.predict(X.drop(columns="age")))


def test_not_before_fit(tmp_path):
    with pytest.raises(NotFittedError):
        fs.FederatedClassifier().save(tmp_path / "model")
    with pytest.raises(NotFittedError):
        fs.FederatedClassifier().predict(np.eye(2))


def test_what_cannot_be_written_is_named(tmp_path):
    model = fitted(random_state=np.random.RandomState(0))
    with pytest.raises(fs.BadInput, match=r"random_state = .*cannot be saved"):
        model.save(tmp_path / "model")
    with pytest.raises(fs.BadInput, match=r"path = .*is a folder; name a file"):
        default().save(tmp_path)


def test_files_of_others(tmp_path):
    path = tmp_path / "model"
    with pytest.raises(fs.MissingData, match="does not exist"):
        fs.FederatedClassifier.load(path)
    with pytest.raises(fs.BadInput, match="is no file"):
        fs.FederatedClassifier.load(tmp_path)
    save_file({"w": torch.zeros(2)}, path)
    with pytest.raises(fs.BadInput, match="is no estimator that `save` wrote"):
        fs.FederatedClassifier.load(path)
    default().save(path)
    with pytest.raises(fs.BadInput, match="holds a 'FederatedClassifier'"):
        fs.FederatedRegressor.load(path)
    content = path.read_bytes()
    for cut in (0, 7, 100, len(content) - 5):
        path.write_bytes(content[:cut])
        with pytest.raises(fs.BadInput, match="damaged"):
            fs.FederatedClassifier.load(path)


def changed(path, change) -> None:
    """The file with its header changed."""
    with safe_open(str(path), framework="pt") as file:
        head = json.loads(file.metadata()["fedsaddle"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(head)
    save_file(tensors, path, {"fedsaddle": json.dumps(head)})


@pytest.mark.parametrize(
    "change",
    [
        lambda head: head["fitted"].pop("encoder"),
        lambda head: head["fitted"].pop("classes"),
        lambda head: head["fitted"]["encoder"]["encoding"].append({"column": "x", "odd": 1}),
        lambda head: head["fitted"]["network"].update(name="os.system"),
        lambda head: head["fitted"]["network"]["arguments"].update(inputs=9_999_999),
        lambda head: head["fitted"]["classes"].update(dtype="M8[s]"),
        lambda head: head["parameters"].update(unknown=1),
        lambda head: head["fitted"]["encoder"]["encoding"].pop(),
        lambda head: head["fitted"]["encoder"]["columns"].pop(),
        lambda head: head["fitted"]["columns"].remove("age"),
        lambda head: head.update(fitted=[]),
        lambda head: head.update(parameters=None),
    ],
)
def test_headers_that_were_changed(tmp_path, change):
    path = default().save(tmp_path / "model")
    changed(path, change)
    with pytest.raises(fs.BadInput, match="damaged"):
        fs.FederatedClassifier.load(path)


def test_a_newer_format(tmp_path):
    path = default().save(tmp_path / "model")
    changed(path, lambda head: head.update(format=99))
    with pytest.raises(fs.BadInput, match="has the format 99, this version reads 1"):
        fs.FederatedClassifier.load(path)
