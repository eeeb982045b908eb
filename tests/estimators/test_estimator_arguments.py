"""Wrong parameters and rows: a ValueError that names the key, the value and the remedy."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from patients import patients

import fedsaddle as fs

X, Y = np.arange(24.0).reshape(8, 3) % 7, np.arange(8) % 2
SITES = ["a", "b"] * 4


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"algorithm": "CODASKA"}, r"algorithm = 'CODASKA': did you mean 'CODASCA'\?"),
        ({"algorithm": 3}, "algorithm = 3: give a name"),
        ({"model": "mpl"}, "model.name = 'mpl': did you mean 'mlp'"),
        ({"model": 3}, "model = 3: give a name"),
        ({"model": {}}, "model = {}: give a name"),
        ({"model": {"name": "mlp", "hiden": [3]}}, "model.hid"),
        ({"problem": "auc"}, "problem = 'auc': does not fit FedAvgM; choose supervised"),
        ({"problem": {"l3": 1.0}}, "problem.l3 = 1.0: unknown key; known keys: loss, l2"),
        ({"problem": 1}, "problem = 1: give a name"),
        ({"rounds": 0}, "rounds = 0: must be a whole number"),
        ({"local_steps": 1.5}, "local_steps = 1.5: must be a whole number"),
        ({"batch_size": "many"}, "batch_size = 'many': must be a whole number"),
        ({"primal_step": -1.0}, "primal_step = -1.0: must be a positive number"),
        ({"primal_step": "fast"}, "primal_step = 'fast': give a number"),
        ({"primal_step": {"name": "cosin"}}, "primal_step.name = 'cosin': did you mean 'cosine'"),
        ({"options": {"q": 1}}, "algorithm.q .*is a parameter of q-FedAvg; FedAvgM has none"),
        ({"options": [1]}, r"options = \[1\]: give a dictionary"),
        ({"clients": 0}, "clients = 0: must be a whole number"),
        ({"clients": 9}, "clients = 9"),
        ({"site_intercept": 1}, "site_intercept = 1: must be True or False"),
        ({"hinges": -1}, "hinges = -1: must be a whole number"),
        ({"numeric": "age"}, "numeric = 'age': must be a list of column names"),
        ({"categorical": ["age"]}, "categorical = 'age': there is no such column"),
        ({"validation_share": 1.0}, "validation_share = 1.0: must be"),
        ({"validation_share": 0.5, "select": "speed"}, "select = 'speed'"),
        ({"validation_share": 0.5, "patience": 0}, "patience = 0: must be a whole number"),
        ({"calibrate": "yes"}, "calibrate = 'yes': must be True, False"),
        ({"random_state": -1}, "random_state = -1: must be a whole number"),
        ({"verbose": 2.5}, "verbose = 2.5: must be a whole number"),
        ({"site": "hospital"}, "site = 'hospital': names a column of a DataFrame, but X is an array"),
        ({"algorithm": "DRFA-Prox"}, "algorithm.regulariser = None: DRFA-Prox needs a value"),
        ({"algorithm": "AFL", "options": {"local_steps": 3}}, "AFL fixes local_steps = 1"),
    ],
)
def test_parameters(parameters, said):
    with pytest.raises(ValueError, match=said) as error:
        fs.FederatedClassifier(**{"rounds": 1, **parameters}).fit(X, Y)
    assert isinstance(error.value, fs.BadInput)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sites": SITES[:3]}, r"len\(sites\) = 3: X has 8 rows"),
        ({"sites": "hospital"}, r"sites = 'hospital': .*site='hospital'"),
        ({"sites": 3}, "sites = 3: must be a list or an array"),
        ({"sites": [*SITES[:7], None]}, r"sites\[7\] = '': is missing"),
        ({"sites": np.eye(8)}, r"sites.shape = \(8, 8\): needs one entry"),
        ({"sites": pd.Series([["a"], ["b"]] * 4)}, r"sites\[0\] = \['a'\]: must be text or a whole number"),
        ({"sites": [["a"], ["a", "b"]] * 4}, "sites = 'list': cannot be an array"),
        ({"sites": [{"a": 1}] * 8}, r"sites\[0\] = \{'a': 1\}: must be text"),
        ({"patients": pd.Series([["a"]] * 8)}, r"patients\[0\] = \['a'\]: must be text"),
        ({"patients": [1, 2]}, r"len\(patients\) = 2"),
        ({"y": Y[:4]}, r"len\(y\) = 4: X has 8 rows"),
        ({"y": ["no", None] * 4}, r"y\[1\] = None: the label is missing"),
        ({"y": pd.array(["no", None] * 4, dtype="string")}, r"y\[1\] = None: the label is missing"),
        ({"y": np.array(["no", np.nan] * 4, dtype=object)}, r"y\[1\] = None: the label is missing"),
        ({"y": None}, "y = None: .*requires y"),
        ({"y": [1] * 8}, r"y = \[1\]: one class leaves nothing to learn"),
        ({"X": np.full((8, 3), np.inf)}, "infinity"),
    ],
)
def test_rows(given, said):
    with pytest.raises(ValueError, match=said):
        fs.FederatedClassifier(rounds=1).fit(**{"X": X, "y": Y, **given})


def test_ranking_is_for_two_classes():
    with pytest.raises(ValueError, match=r"y = '3 classes': Only binary classification is supported by 'CODASCA'"):
        fs.FederatedClassifier("CODASCA").fit(X, np.arange(8) % 3)
    with pytest.raises(ValueError, match="calibrate = True: is for two classes, y has 3"):
        fs.FederatedClassifier(calibrate=True, rounds=1).fit(X, np.arange(8) % 3)


def test_frames():
    frame, died = patients(40)
    with pytest.raises(ValueError, match="site = 'hospitl': there is no such column; did you mean 'hospital'"):
        fs.FederatedClassifier(site="hospitl").fit(frame, died)
    with pytest.raises(ValueError, match="sites = 'given': the column 'hospital' of X names the sites already"):
        fs.FederatedClassifier(site="hospital").fit(frame, died, sites=frame["hospital"])
    with pytest.raises(ValueError, match=r"row 3, column 'age'.*is not a finite number"):
        fs.FederatedClassifier().fit(frame.assign(age=[1.0, 2.0, np.inf] + [3.0] * 37), died)
    with pytest.raises(ValueError, match=r"sites\[0\] = ''"):
        fs.FederatedClassifier(site="hospital").fit(frame.assign(hospital=[None, *frame["hospital"][1:]]), died)
    with pytest.raises(ValueError, match="column name = 'age': stands twice"):
        fs.FederatedClassifier().fit(pd.concat([frame, frame[["age"]]], axis=1), died)
    with pytest.raises(ValueError, match=r"X.columns = \['age', 'sex', 'lactate', 3\]: must all be text"):
        fs.FederatedClassifier().fit(frame.set_axis(["age", "sex", "lactate", 3], axis=1), died)
    model = fs.FederatedClassifier(rounds=1).fit(frame, died)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.drop(columns="age"))
    with pytest.raises(ValueError, match=r"row 1, column 'age' = 'old': is not a number as in the rows of fit"):
        model.predict(frame.assign(age="old"))


def test_regression_targets():
    with pytest.raises(ValueError, match="y = 'no': must be numbers"):
        fs.FederatedRegressor().fit(X, ["no", "yes"] * 4)
    with pytest.raises(ValueError, match=r"y = '1000.*': must be numbers"):
        fs.FederatedRegressor().fit(X, [10**400] * 8)
    with pytest.raises(ValueError, match=r"y\[2\] = nan"):
        fs.FederatedRegressor().fit(X, [1, 2, np.nan, 4, 5, 6, 7, 8])


def test_hostile_names_are_escaped():
    frame = pd.DataFrame({"\x1b[31mage": np.arange(40.0) ** 2 / 3, "b": np.arange(40.0) % 3})
    model = fs.FederatedClassifier(rounds=1).fit(frame, np.arange(40) % 2, sites=["<b>", "\x1b[2J"] * 20)
    assert model.sites_ == ("\x1b[2J", "<b>")
    with pytest.raises(ValueError) as error:
        model.predict(frame.assign(**{"\x1b[31mage": "old"}))
    assert "\x1b" not in str(error.value)
