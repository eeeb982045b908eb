"""`fs.FederatedClassifier`: a scikit-learn classifier that federated algorithms train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from fedsaddle.array_types import Floats
from fedsaddle.data.table import Array
from fedsaddle.errors import BadInput
from fedsaddle.estimators import federated
from fedsaddle.estimators.federated import BadValue, Federated, value_errors
from fedsaddle.estimators.training import InputRows, Step, TrainedModel, is_auto, ranks_only, scores_of
from fedsaddle.files import JsonObject
from fedsaddle.metrics.calibration import Platt
from fedsaddle.privacy.settings import Privacy

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from fedsaddle.estimators.training import TableLike


class FederatedClassifier(ClassifierMixin, Federated):  # type: ignore[misc]
    """A scikit-learn classifier whose rows stay at their sites while it is trained.

    Columns are preprocessed as by `fs.from_frame` and the command line, with statistics of the training rows of all
    sites: missing cells are imputed and flagged, skewed numbers logged, numbers standardised, categories one-hot
    encoded, and each site has an intercept. Then `fs.run` trains with the algorithm on a problem that fits it.
    Algorithms for the AUROC and for pairs give scores that are not log odds; Platt's method calibrates them, on
    validation rows if there are any with both classes, else on training rows.

    Args:
        algorithm: one of `fedsaddle list algorithms`: "FedAvgM" for the mean loss, "DRFA" for the worst site,
            "CODASCA" or "FedX1" for the AUROC, "Local SGDA" for the worst class.
        model: "linear", "mlp", or a dictionary such as `{"name": "mlp", "hidden": [32]}`.
        problem: the objective, by name or as a dictionary in the form of a config: `{"l2": 0.01}`, or `{"name":
            "pairwise", "risk": "partial-auc"}`; None: the one that fits the algorithm.
        rounds: rounds of communication.
        local_steps: local steps of a site in a round.
        batch_size: rows of a mini-batch.
        primal_step: the learning rate: a number, "auto", or a schedule in the form of a config: `{"name": "cosine",
            "first": 0.3, "rounds": 100}`.
        options: more arguments of the algorithm, such as `{"dual_step": 0.01}`.
        site: the column of `X`, a DataFrame, that names the site of each row; it is no feature.
        clients: number of clients to which rows are assigned at random, if no sites are given.
        site_intercept: a 0/1 feature for each site; a new site has the mean.
        hinges: hinges of each number column, so that a linear model can bend.
        numeric: columns to treat as numeric; cells that cannot be parsed become missing.
        categorical: columns to treat as categorical, even if they look numeric.
        validation_share: the share of each site's rows that is held out to choose the best round and for Platt's
            method; "auto": none for linear models, which learn from all rows, and 0.16 for others, which overfit.
        select: the measure of the validation rows by which the best round is chosen; "auto": by the problem.
        patience: evaluations without a better one after which training ends.
        calibrate: Platt's method: "auto" where scores are no log odds, True for two classes in any case, or False.
        privacy: differential privacy: `fs.Privacy(epsilon=8)`, or a dictionary such as `{"epsilon": 8, "unit":
            "patient"}`, with the patients given to `fit`. Not covered: how columns are treated (means, scales,
            categories, the share of the classes), and validation rows, of which there are none by default.
        random_state: random seed, also of the noise with `privacy`: keep it secret then: `secrets.randbits(60)`.
        verbose: print evaluations.

    Attributes:
        classes_: the labels.
        n_features_in_: columns of `X`.
        feature_names_in_: their names, where `X` had names.
        n_iter_: rounds.
        selected_round_: the round whose model was kept, or None.
        sites_: the names of the sites.
        privacy_: the budget: ε spent, of how much; or None.
        mixture_: the weight of each site, for algorithms that have one, or None.
        calibration_: Platt's two numbers, or None.
        config_: the config of the run, as a dictionary.
        history_: the evaluations.
        notes_: what was left out or read in a special way, a line each.
        module_: the model, a `torch.nn.Module`; `encoder_` makes its inputs.

    Raises:
        BadInput: for parameters and rows that cannot be used, as a ValueError; names key, value and remedy.

    Examples:
        >>> import fedsaddle as fs
        >>> from sklearn.datasets import load_breast_cancer
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> hospital = [f"hospital {i % 3}" for i in range(len(y))]
        >>> model = fs.FederatedClassifier(rounds=20).fit(X, y, sites=hospital)
        >>> bool(model.score(X, y, sites=hospital) > 0.95)
        True
    """

    def __init__(
        self,
        algorithm: str = "FedAvgM",
        model: str | Mapping[str, object] = "linear",
        *,
        problem: str | Mapping[str, object] | None = None,
        rounds: int = 100,
        local_steps: int = 8,
        batch_size: int = 64,
        primal_step: Step = "auto",
        options: Mapping[str, object] | None = None,
        site: str | None = None,
        clients: int = 1,
        site_intercept: bool = True,
        hinges: int = 0,
        numeric: Sequence[str] = (),
        categorical: Sequence[str] = (),
        validation_share: float | str = "auto",
        select: str = "auto",
        patience: int | None = None,
        calibrate: bool | str = "auto",
        privacy: Privacy | Mapping[str, object] | None = None,
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool | int = False,
    ) -> None:
        super().__init__(
            algorithm, model, problem=problem, rounds=rounds, local_steps=local_steps, batch_size=batch_size,
            primal_step=primal_step, options=options, site=site, clients=clients, site_intercept=site_intercept,
            hinges=hinges, numeric=numeric, categorical=categorical, validation_share=validation_share, select=select,
            patience=patience, privacy=privacy, random_state=random_state, verbose=verbose,
        )  # fmt: skip
        self.calibrate = calibrate

    def fit(
        self,
        X: TableLike,
        y: ArrayLike,
        sites: ArrayLike | None = None,
        patients: ArrayLike | None = None,
        subgroups: ArrayLike | None = None,
    ) -> Self:
        """Train on rows.

        Args:
            X: the features: an array, or a DataFrame that may have text and missing cells.
            y: the label of each row, of two or more classes.
            sites: the site of each row, text or whole numbers; None: see `site` and `clients`.
            patients: whom each row belongs to; a patient's rows are all trained on or all held out.
            subgroups: the group of each row, such as the sex, at whatever site: for `problem="group-fair"`, the worst
                mixture of the groups' losses. (`groups` are those of scikit-learn's splitters.)

        Raises:
            BadInput: for parameters and rows that cannot be used, as a ValueError.
            Diverged: if the model is not finite; try a smaller step.
        """
        with value_errors():
            rows = InputRows.of(self, X, sites, self.site, training=True).in_groups(subgroups)
            self.classes_, codes = self._labels(y, len(rows))
            found = self._train(rows, codes, [str(name) for name in self.classes_], patients)
            self.calibration_ = self._calibrated(found) if self._wants_calibration() else None
        return self

    def decision_function(self, X: TableLike, sites: ArrayLike | None = None) -> Floats:
        """Log odds of the second class, (n,), or for more than two classes a score for each, (n, k).

        Args:
            X: rows as in `fit`.
            sites: the site of each row; a new site, or None, has the mean intercept.
        """
        with value_errors():
            scores = self._scores(X, sites)
        if len(self.classes_) > 2:
            return scores
        one = _one_score(scores)
        platt = self.calibration_
        return one if platt is None else platt.slope * one + platt.intercept

    def predict_proba(self, X: TableLike, sites: ArrayLike | None = None) -> Floats:
        """The probability of each class, (n, k), in the order of `classes_`.

        Args:
            X: rows as in `fit`.
            sites: the site of each row; a new site, or None, has the mean intercept.
        """
        odds = self.decision_function(X, sites)
        if odds.ndim == 1:
            positive = Platt(1.0, 0.0).probability(odds)
            return np.stack([1 - positive, positive], axis=1)
        shares = np.exp(odds - odds.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def predict(self, X: TableLike, sites: ArrayLike | None = None) -> Array:
        """The most probable class of each row.

        Args:
            X: rows as in `fit`.
            sites: the site of each row; a new site, or None, has the mean intercept.
        """
        odds = self.decision_function(X, sites)
        return np.asarray(self.classes_[(odds > 0).astype(int) if odds.ndim == 1 else odds.argmax(axis=1)])

    def score(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        sites: ArrayLike | None = None,
    ) -> float:
        """The accuracy.

        Args:
            X: rows as in `fit`.
            y: the label of each row.
            sample_weight: the weight of each row; None: all count alike.
            sites: the site of each row; a new site, or None, has the mean intercept.
        """
        return float(accuracy_score(y, self.predict(X, sites), sample_weight=sample_weight))

    def _labels(self, y: ArrayLike | None, rows: int) -> tuple[Array, Array]:
        """The classes, and the code of each row."""
        if y is None:
            raise BadValue("y", None, "requires y to be passed, but the target y is None; give the label of each row")
        labels = column_or_1d(y, warn=True)
        gaps = [at for at, label in enumerate(labels) if is_gap(label)] if labels.dtype.kind == "O" else []
        if gaps:
            raise BadInput(f"y[{gaps[0]}]", None, "the label is missing; drop the row")
        check_classification_targets(labels)
        if len(labels) != rows:
            raise BadInput("len(y)", len(labels), f"X has {rows} rows; give one label for each row")
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise BadInput(
                "y", classes.tolist(), "one class leaves nothing to learn; rows of two or more classes are needed"
            )
        if len(classes) > 2 and ranks_only(self.algorithm, self.problem):
            remedy = (
                f"Only binary classification is supported by {self.algorithm!r}, which ranks two classes. The type of "
                "the target is multiclass; choose 'FedAvgM', 'DRFA' or 'Local SGDA', or sklearn's OneVsRestClassifier"
            )
            raise BadInput("y", f"{len(classes)} classes", remedy)
        return classes, codes

    def _wants_calibration(self) -> bool:
        if is_auto(self.calibrate):
            return ranks_only(self.algorithm, self.problem) and self.privacy is None
        if not isinstance(self.calibrate, bool):
            raise BadInput("calibrate", self.calibrate, 'must be True, False or "auto"')
        if self.calibrate and len(self.classes_) > 2:
            raise BadInput("calibrate", True, f"is for two classes, y has {len(self.classes_)}; leave it out")
        return self.calibrate

    def _calibrated(self, found: TrainedModel) -> Platt:
        """Platt's two numbers, fitted on validation rows if these have both classes."""
        held = found.data.validation
        rows = found.data.train if held is None or len(np.unique(held.y.numpy())) < 2 else held
        if rows is found.data.train and self.privacy is not None:
            remedy = "would be fitted to training rows, which is no part of the budget; give validation_share = 0.2"
            raise BadInput("calibrate", self.calibrate, remedy)
        log_odds = not ranks_only(self.algorithm, self.problem)
        return Platt.fit(_one_score(scores_of(self.module_, rows.x)), rows.y.numpy(), log_odds=log_odds)

    def _fitted(self) -> JsonObject:
        platt = None if self.calibration_ is None else self.calibration_.to_dict()
        return {
            **super()._fitted(),
            "classes": federated.array_to_dict("classes_", self.classes_),
            "calibration": platt,
        }

    def _set_fitted(self, given: JsonObject) -> None:
        super()._set_fitted(given)
        self.classes_ = federated.array_from_dict(given["classes"])
        platt = given["calibration"]
        self.calibration_ = None if platt is None else Platt(float(platt["slope"]), float(platt["intercept"]))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = not ranks_only(self.algorithm, self.problem)
        return tags


def is_gap(label: object) -> bool:
    """None, NaN or pandas' NA and NaT."""
    return (
        label is None or type(label).__name__ in ("NAType", "NaTType") or (isinstance(label, float) and label != label)
    )


def _one_score(scores: Floats) -> Floats:
    """One score a row for two classes: the second's, less the first's where there are two."""
    return np.asarray(scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores[:, 0])
