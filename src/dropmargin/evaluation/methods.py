"""The methods of the stress test: each is a search for its best parameters by cross-validation.

Where deleted features are zero, the linear models predict as they are. Where they are known to be missing, each method
has a way to predict without them: the rule of ``missing="rescale"``, imputation, or trees that accept NaN.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone, is_regressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.frozen import FrozenEstimator
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted

from dropmargin.data import canonical, one_partition
from dropmargin.data.deletion import delete_entries
from dropmargin.data.inputs import check_rows
from dropmargin.data.matrix import as_dense
from dropmargin.data.missing_values import feature_statistics, fill_missing, has_missing, nan_to_negative_zero
from dropmargin.estimators.missing import anchored_scores
from dropmargin.model_selection import DropoutLogisticRegressionCV, DropoutRidgeCV, DropoutSVCCV, DropoutSVRCV
from dropmargin.model_selection.base import MarginalisedModelCV, plain_model
from dropmargin.noise import DropoutNoise, as_noise
from dropmargin.typing import Array

TREATMENTS = ("zero", "missing")
#: The models that the others are compared with, by loss: searches over noise and ``C``.
SEARCHES: dict[str, Any] = {
    "hinge": DropoutSVCCV,
    "logistic": DropoutLogisticRegressionCV,
    "ridge": DropoutRidgeCV,
    "svr": DropoutSVRCV,
}
# Rounds of regressions of the iterative imputer. On complete training rows its own rule would stop after one.
_ROUNDS = 5


@dataclass(frozen=True)
class Plan:
    """The parameters of a stress test.

    Parameters
    ----------
    levels : sequence of float
        Shares of the features to delete.
    choose_at : sequence of float
        Parameters are chosen by the mean score at these levels: the accuracy, or minus the root mean squared error.
    treatments : sequence of {"zero", "missing"}
        How deleted features are treated.
    strategy : {"entries", "columns", "worst"}
        What is deleted, as for `deletion_curve`.
    groups : ndarray of int or None
        The group of each feature, as for `deletion_curve`: features that come from one column of a table, for example.
        Dropout in training then drops these groups.
    loss : {"hinge", "logistic", "ridge", "svr"} or None
        The loss of our model: `DropoutSVC`, `DropoutLogisticRegression`, `DropoutRidge` or `DropoutSVR`. The last two
        predict numbers, and are compared with regressors. ``None`` is ``"ridge"`` for targets with fractions, else
        ``"hinge"``. The epsilon of ``"svr"`` is a tenth of the standard deviation of the training targets.
    noises : sequence
        Noises of our model to choose from, as for `DropoutSVCCV`.
    Cs : int, sequence of float or None
        Values of ``C`` to choose from, for all linear methods: as for `DropoutSVCCV`; ``None`` for five values
        (seven of a regression), a factor of ten apart, in the range that suits the data. `Ridge` has
        ``alpha = 1 / (2 C)``, where the ``C`` of ``"svr"`` is divided by the standard deviation of the targets.
    own_c : float or None
        A fixed ``C`` for our model, in place of a choice.
    n_folds : int
        Number of folds of the cross-validation.
    n_repeats : int
        Number of random deletions per level.
    random_state : int
        Seed of the deletions and folds.
    n_jobs : int or None
        Number of threads; it does not change the results.
    verbose : int
        0 for no progress bar.
    """

    levels: Sequence[float]
    choose_at: Sequence[float]
    treatments: Sequence[str] = TREATMENTS
    strategy: str = "entries"
    groups: Any = None
    loss: str | None = None
    noises: Sequence[Any] = (0.05, 0.1, 0.3, 0.5, 0.7)
    Cs: Any = None
    own_c: float | None = None
    n_folds: int = 3
    n_repeats: int = 5
    random_state: int = 0
    n_jobs: int | None = None
    verbose: int = 1


@dataclass(frozen=True, eq=False)
class Task:
    """A treatment of deleted features, and what the searches of all methods share."""

    treatment: str
    plan: Plan  # with a loss
    X: Any
    y: Array
    Cs: Array
    folds: Sequence[Any]
    score: Callable[..., float]  # of an estimator, X and y: the score with deleted features

    @property
    def unit(self) -> float:
        """The unit of ``C`` and epsilon: the standard deviation of the targets of ``"svr"``, else 1."""
        return (float(np.std(self.y)) or 1.0) if self.plan.loss == "svr" else 1.0


@dataclass(frozen=True)
class Method:
    """A method of the stress test: ``make(task)`` returns the search for its parameters.

    ``cost(n_rows, n_features, n_classes)`` is in units of about a minute; a method that costs more is left out.
    """

    name: str
    make: Callable[[Task], Any]
    treatments: Sequence[str] = TREATMENTS
    cost: Callable[[int, int, int], float] = lambda n, d, k: 0.0


class RescalingClassifier(ClassifierMixin, BaseEstimator):
    """A linear classifier of scikit-learn that predicts with missing features as ``missing="rescale"`` does.

    In training a missing value is replaced by the mean of its feature.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any) -> RescalingClassifier:
        """Fit the classifier to ``X`` with its missing values replaced by means."""
        X = canonical(X)
        is_missing = has_missing(X)
        X = nan_to_negative_zero(X) if is_missing else X
        self.columns_ = feature_statistics(one_partition(X), is_missing)
        if is_missing:
            X = fill_missing(X, self.columns_.mean)
        self.estimator_ = clone(self.estimator).fit(X, y)
        self.classes_, self.n_features_in_ = self.estimator_.classes_, X.shape[1]
        return self

    def decision_function(self, X: Any) -> Array:
        """Return the scores of each row: one for two classes, else one per class."""
        check_is_fitted(self)
        X = check_rows(X, ensure_all_finite="allow-nan")
        scores = anchored_scores(X, self.estimator_.coef_, self.estimator_.intercept_, self.columns_)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """Return the predicted label of each row."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0.0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]


class DeletedCells(TransformerMixin, BaseEstimator):
    """Deletes a share of the cells of training rows, those of a group together, and none of the rows to predict."""

    def __init__(self, deleted: float = 0.0, groups: Any = None) -> None:
        self.deleted = deleted
        self.groups = groups

    def fit(self, X: Any, y: Any = None) -> DeletedCells:
        """Return the transformer, which learns nothing."""
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Array:
        """Return training rows with missing values for the deleted cells; every tenth row stays as it is."""
        X = as_dense(X)
        rows = delete_entries(X, self.deleted, np.nan, 1.0, np.random.default_rng(0), self.groups)
        rows[::10] = X[::10]  # trees refuse columns without any value
        return rows

    def transform(self, X: Any) -> Array:
        """Return rows to predict, all of whose cells are left."""
        return as_dense(X)


def _ours(task: Task, missing: str = "rescale") -> MarginalisedModelCV:
    plan = task.plan
    own: dict[str, Any] = {"epsilon": 0.1 * task.unit} if plan.loss == "svr" else {}
    own |= {"missing": missing if task.treatment == "missing" else "error"}
    own |= {"n_jobs": plan.n_jobs, "verbose": plan.verbose}
    Cs = task.Cs if plan.own_c is None else [plan.own_c]
    return SEARCHES[str(plan.loss)](noises=_noises(task), Cs=Cs, cv=task.folds, scoring=task.score, **own)


def _noises(task: Task) -> list[Any]:
    """Return the noises to choose from: dropout of the groups that are deleted, to zero if deleted features are."""
    noises = []
    for noise in map(as_noise, task.plan.noises):
        if isinstance(noise, DropoutNoise):
            reference = "zero" if task.treatment == "zero" and noise.needs_means else noise.reference
            groups = task.plan.groups if noise.groups is None else noise.groups
            noise = DropoutNoise(noise.rate, reference=reference, groups=groups)
        noises.append(noise)
    return noises


def _search(task: Task, model: Any, grid: dict[str, Any]) -> GridSearchCV:
    return GridSearchCV(model, grid, scoring=task.score, cv=task.folds, error_score="raise")


def _linear(task: Task, model: Any) -> GridSearchCV:
    """Return the search over ``C``, or ``alpha = 1 / (2 C)``, wherever it is among the parameters of a model."""
    name = next(name for name in model.get_params() if name.rpartition("__")[2] in ("C", "alpha"))
    return _search(task, model, {name: task.Cs if name.endswith("C") else 0.5 * task.unit / task.Cs})


def _iterative(task: Task, model: Any) -> GridSearchCV:
    # A tolerance of zero: all rounds are made. The imputer needs no labels, so it is fitted once for all folds.
    imputer = IterativeImputer(max_iter=_ROUNDS, tol=0.0, keep_empty_features=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        imputer.fit(as_dense(task.X))
    return _linear(task, make_pipeline(FunctionTransformer(as_dense), FrozenEstimator(imputer), model))


def _trees(task: Task, model: Any) -> GridSearchCV:
    # Trees learn from missing cells of training rows where such rows belong; whether it helps is chosen, too.
    deleted = sorted({0.0, float(np.mean(task.plan.choose_at))})
    pipeline = Pipeline([("cells", DeletedCells(groups=task.plan.groups)), ("trees", model)])
    return _search(task, pipeline, {"cells__deleted": deleted, "trees__max_leaf_nodes": [7, 31]})


_SVC = LinearSVC(loss="hinge", max_iter=5000, random_state=0)
_LOGISTIC = LogisticRegression(max_iter=1000)
_ZERO, _MISSING = TREATMENTS[:1], TREATMENTS[1:]


def _peers(name: str, model: Any, trees: Any) -> tuple[Method, ...]:
    """Return the methods that exist for classes and for numbers: a linear model after imputation, and trees."""
    means = make_pipeline(SimpleImputer(keep_empty_features=True), model)
    return (
        Method(name, partial(_linear, model=model), _ZERO),
        Method(f"{name} (means)", partial(_linear, model=means), _MISSING),
        Method(f"{name} (iterative)", partial(_iterative, model=model), _MISSING, lambda n, d, k: 1e-9 * n * d**3),
        Method("HistGradientBoosting", partial(_trees, model=trees), _MISSING, lambda n, d, k: 1e-8 * n * d * k),
    )


_REGRESSORS = _peers("Ridge", Ridge(), HistGradientBoostingRegressor(random_state=0))
_CLASSIFIERS = (
    Method("LinearSVC", partial(_linear, model=_SVC), _ZERO),
    Method("LinearSVC (rescaled)", partial(_linear, model=RescalingClassifier(_SVC)), _MISSING),
    Method("LogisticRegression (rescaled)", partial(_linear, model=RescalingClassifier(_LOGISTIC)), _MISSING),
    *_peers("LogisticRegression", _LOGISTIC, HistGradientBoostingClassifier(random_state=0)),
)


def methods_for(loss: str) -> tuple[Method, ...]:
    """Return the methods of a stress test: ours of this loss first, then the others."""
    name = type(plain_model(SEARCHES[loss]())).__name__
    ours = Method(name, _ours), Method(f"{name} (conditional)", partial(_ours, missing="conditional"), _MISSING)
    return *ours, *(_REGRESSORS if predicts_numbers(loss) else _CLASSIFIERS)


def predicts_numbers(loss: str) -> bool:
    """Return whether a loss is one of regression."""
    return is_regressor(SEARCHES[loss]())
