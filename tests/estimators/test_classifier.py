"""The classifier: what `fs.run` gives, in the clothes of scikit-learn."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from patients import patients
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import fedsaddle as fs
from fedsaddle.config.build import build_algorithm
from fedsaddle.config.schema import validate_config

QUICK = {"rounds": 3, "local_steps": 4}


def numbers(rows: int = 60, seed: int = 0, classes: int = 2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 4))
    y = np.argmax(X[:, :classes] + 0.3 * rng.normal(size=(rows, classes)), axis=1)
    return X, y, np.array(["a", "b", "c"])[np.arange(rows) % 3]


class TestItIsFsRun:
    def test_fedavgm_by_hand(self):
        X, y, sites = numbers()
        model = fs.FederatedClassifier(**QUICK, random_state=5).fit(X, y, sites=sites)

        rows = fs.from_arrays(X, y, sites, site_intercept=True)
        data = fs.federate(rows, fs.splits.Natural("site"), seed=5, test_share=0.0)
        linear = fs.models.logistic_regression(7, 1)
        linear[1].bias.data.fill_(math.log(y.sum() / (len(y) - y.sum())))
        problem = fs.Supervised(linear, loss=fs.losses.Logistic(), l2=1 / len(y), l2_biases=False)
        step = {"name": "cosine", "first": 0.3, "rounds": 3}
        algorithm = fs.algorithm("FedAvgM", problem=problem, local_steps=4, batch_size=64, primal_step=step)
        result = fs.run(algorithm, data, rounds=3, seed=5)

        own = torch.cat([p.flatten() for p in model.module_.parameters()])
        assert torch.equal(own.float(), result.model)
        at = np.argsort(sites, kind="stable")
        encoded = model.encoder_.encode(X[at], model.columns_, sites[at])
        assert np.array_equal(encoded, data.train.x.numpy())
        scores = problem.ranking(result.model, data.train.x).numpy()
        assert np.allclose(model.decision_function(X[at], sites=sites[at]), scores, atol=1e-5)

    @pytest.mark.parametrize("algorithm", ["CODASCA", "FedX2", "DRFA", "Local SGDA", "SOX"])
    def test_any_algorithm_with_its_config(self, algorithm):
        X, y, sites = numbers()
        model = fs.FederatedClassifier(algorithm, "mlp", **QUICK, validation_share=0.2).fit(X, y, sites=sites)

        rows = fs.from_arrays(X, y, sites, site_intercept=True)
        data = fs.federate(rows, fs.splits.Natural("site"), 0, 0.0, True, 0.2)
        data = data.pooled() if algorithm == "SOX" else data
        config = validate_config({"data": {"name": "file"}, "split": {"name": "natural"}, **model.config_})
        select = {"DRFA": "worst loss", "Local SGDA": "worst_class_accuracy"}.get(algorithm, "auroc")
        result = fs.run(build_algorithm(config, data)[0], data, rounds=3, select=select)
        for own, other in zip(model.module_.parameters(), result.module().parameters(), strict=True):
            assert torch.equal(own.float(), other)
        assert model.selected_round_ == result.summary["selected_round"]
        assert (model.mixture_ is not None) == (algorithm == "DRFA")

    def test_the_global_generator_is_left_alone(self):
        X, y, _ = numbers()
        torch.manual_seed(1)
        expected = torch.rand(1)
        torch.manual_seed(1)
        fs.FederatedClassifier(model="mlp", **QUICK).fit(X, y)
        assert torch.equal(torch.rand(1), expected)


class TestTables:
    def test_gaps_and_words(self):
        X, y = patients()
        model = fs.FederatedClassifier(site="hospital", rounds=20).fit(X, y)
        assert model.sites_ == ("north", "south", "west")
        assert list(model.classes_) == ["no", "yes"]
        assert {f.kind for f in model.encoder_.encoding} == {"number", "missing", "category", "site"}
        assert roc_auc_score(y, model.predict_proba(X)[:, 1]) > 0.8
        assert model.n_features_in_ == 4
        assert list(model.feature_names_in_) == list(X.columns)

    def test_sites_beside_the_frame_or_in_it(self):
        X, y = patients()
        inside = fs.FederatedClassifier(site="hospital", **QUICK).fit(X, y)
        beside = fs.FederatedClassifier(**QUICK).fit(X.drop(columns="hospital"), y, sites=X["hospital"])
        own = beside.decision_function(X.drop(columns="hospital"), sites=X["hospital"])
        assert np.array_equal(inside.decision_function(X), own)

    def test_a_new_site_has_the_mean_intercept(self):
        X, y = patients()
        model = fs.FederatedClassifier(site="hospital", rounds=20).fit(X, y)
        one = X.iloc[[0] * 3].assign(hospital=["north", "south", "west"])
        each = model.decision_function(one)
        share = X["hospital"].value_counts(normalize=True).sort_index().to_numpy()
        assert len(set(each)) == 3
        for name in ("a new one", None):
            new = model.decision_function(one.iloc[:1].assign(hospital=name))
            assert np.allclose(new, share @ each)

    def test_later_rows_of_one_kind_only(self):
        X, y = patients()
        model = fs.FederatedClassifier(site="hospital", **QUICK).fit(X, y)
        every = model.predict_proba(X)
        for at in range(5):
            assert np.allclose(model.predict_proba(X.iloc[[at]]), every[at])
        odd = X.iloc[[0]].assign(sex="unheard of", lactate=None)
        with pytest.warns(UserWarning, match=r"column 'sex': no row of fit has 'unheard of'"):
            assert np.isfinite(model.predict_proba(odd)).all()

    def test_later_cells_that_cannot_be_read_are_refused(self):
        X, y = patients()
        X = X.assign(sex=X["sex"].fillna("m"))
        model = fs.FederatedClassifier(site="hospital", **QUICK).fit(X, y)
        with pytest.raises(ValueError, match=r"row 1, column 'age' = 'seventy': is not a number as in the rows of fit"):
            model.predict(X.iloc[[0]].assign(age="seventy"))
        with pytest.raises(ValueError, match=r"row 2, column 'age' = inf: is not a number"):
            model.predict(X.iloc[:2].assign(age=[50, np.inf]))
        other = X["sex"].iloc[0].swapcase()
        with pytest.raises(ValueError, match=rf"column 'sex' = '{other}': is written '{X['sex'].iloc[0]}' in the rows"):
            model.predict(X.iloc[[0]].assign(sex=other))
        model.predict(X.iloc[[0]].assign(age="unknown"))
        lenient = fs.FederatedClassifier(site="hospital", numeric=["age"], **QUICK).fit(X, y)
        assert lenient.predict(X.iloc[[0]].assign(age="seventy")) == lenient.predict(X.iloc[[0]].assign(age=None))

    def test_rare_spellings_of_a_category_stay_what_they_were(self):
        X, y = patients()
        X = X.assign(sex=["F" if i < 3 else s for i, s in enumerate(X["sex"])])
        model = fs.FederatedClassifier(site="hospital", **QUICK).fit(X, y)
        assert np.isfinite(model.predict_proba(X)).all()

    def test_numbers_that_are_categories(self):
        rng = np.random.default_rng(0)
        X = rng.integers(0, 3, size=(90, 2)).astype(float)
        y = X[:, 1] == 1
        model = fs.FederatedClassifier(categorical=["x1"], rounds=20).fit(X, y)
        assert model.score(X, y) == 1
        assert fs.FederatedClassifier(rounds=20).fit(X, y).score(X, y) < 0.9

    def test_an_identifier_is_left_out_and_noted(self):
        X, y = patients()
        model = fs.FederatedClassifier(**QUICK).fit(X.assign(row_id=np.arange(len(X))), y)
        assert any("row_id" in note for note in model.notes_)
        assert "row_id" not in {c.name for c in model.encoder_.columns}


class TestClassifiers:
    def test_more_than_two_classes(self):
        X, y = load_iris(return_X_y=True)
        model = fs.FederatedClassifier(rounds=20, clients=3).fit(X, y)
        assert model.score(X, y) > 0.9
        shares = model.predict_proba(X)
        assert shares.shape == (150, 3)
        assert np.allclose(shares.sum(axis=1), 1)
        assert np.array_equal(model.classes_[model.decision_function(X).argmax(axis=1)], model.predict(X))

    @pytest.mark.parametrize("share", [0.0, 0.3])
    def test_scores_of_the_auroc_become_probabilities(self, share):
        X, y, sites = numbers(300)
        settings = {"rounds": 10, "validation_share": share}
        model = fs.FederatedClassifier("CODASCA", **settings).fit(X, y, sites=sites)
        raw = fs.FederatedClassifier("CODASCA", **settings, calibrate=False).fit(X, y, sites=sites)
        assert model.calibration_ is not None
        assert raw.calibration_ is None
        assert log_loss(y, model.predict_proba(X)) < log_loss(y, raw.predict_proba(X))
        assert roc_auc_score(y, model.decision_function(X)) == roc_auc_score(y, raw.decision_function(X))

    def test_few_rows_of_a_class(self):
        X = numbers(40)[0]
        rare = np.where(np.arange(40) < 2, 1, 0)
        for seed in range(4):  # some of which hold out none of them, one or both
            model = fs.FederatedClassifier("CODASCA", "mlp", **QUICK, random_state=seed).fit(X, rare)
            assert np.isfinite(model.predict_proba(X)).all()
        with pytest.raises(ValueError, match=r"validation_share = 0.9: leaves the class '1' no rows to train on"):
            fs.FederatedClassifier(**QUICK, validation_share=0.9).fit(X, rare)

    def test_more_rounds_or_another_seed_change_the_model(self):
        X, y, _ = numbers()
        first, second = (fs.FederatedClassifier(**QUICK, random_state=s).fit(X, y) for s in (0, 1))
        again = fs.FederatedClassifier(**QUICK, random_state=np.random.RandomState(3)).fit(X, y)
        other = fs.FederatedClassifier(**QUICK, random_state=np.random.RandomState(3)).fit(X, y)
        assert not np.array_equal(first.decision_function(X), second.decision_function(X))
        assert np.array_equal(again.decision_function(X), other.decision_function(X))

    def test_verbose_prints_and_quiet_does_not(self, capsys):
        X, y, _ = numbers()
        fs.FederatedClassifier(**QUICK).fit(X, y)
        assert capsys.readouterr().out == ""
        fs.FederatedClassifier(**QUICK, verbose=1).fit(X, y)
        assert "round 3:" in capsys.readouterr().out


class TestWithTheOthers:
    def test_clone_and_parameters(self):
        model = fs.FederatedClassifier("DRFA", options={"dual_step": 0.1}, **QUICK)
        other = clone(model).set_params(rounds=7)
        assert other.get_params() == {**model.get_params(), "rounds": 7}
        assert repr(model).startswith("FederatedClassifier(algorithm='DRFA'")

    def test_a_pipeline_passes_sites_on(self):
        X, y, sites = numbers()
        steps = [("scale", StandardScaler()), ("classifier", fs.FederatedClassifier(**QUICK))]
        pipe = Pipeline(steps).fit(X, y, classifier__sites=sites)
        assert pipe[-1].sites_ == ("a", "b", "c")
        assert pipe.predict(X).shape == y.shape

    def test_metadata_routing(self):
        X, y, sites = numbers()
        with sklearn.config_context(enable_metadata_routing=True):
            model = fs.FederatedClassifier(**QUICK).set_fit_request(sites=True).set_score_request(sites=True)
            search = GridSearchCV(model, {"rounds": [1, 2]}, cv=GroupKFold(3), n_jobs=1)
            search.fit(X, y, groups=sites, sites=sites)
        assert len(search.best_estimator_.sites_) == 3

    def test_grid_search_leaves_whole_sites_out(self):
        X, y = patients()
        grid = {"algorithm": ["FedAvgM", "CODASCA"], "primal_step": [np.float64(0.1)]}
        search = GridSearchCV(
            fs.FederatedClassifier(site="hospital", **QUICK), grid, cv=GroupKFold(3), scoring="roc_auc"
        )
        search.fit(X, y, groups=X["hospital"])
        assert search.best_score_ > 0.6
        assert search.best_estimator_.sites_ == ("north", "south", "west")

    def test_cross_validation_may_leave_one_site(self):
        X, y, _ = numbers()
        two = np.arange(60) % 2
        frame = pd.DataFrame(X, columns=list("abcd")).assign(site=two)
        model = fs.FederatedClassifier(site="site", rounds=20)
        assert cross_val_score(model, frame, y, groups=two, cv=GroupKFold(2)).min() > 0.7

    def test_pickle_of_the_object(self):
        X, y, sites = numbers()
        model = fs.FederatedClassifier("CODASCA", **QUICK).fit(X, y, sites=sites)
        again = pickle.loads(pickle.dumps(model))
        assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
