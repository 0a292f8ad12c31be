"""Base of the models that choose noise and ``C``: checks, folds, metadata routing, search and final fit."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn import get_config
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils import indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted

from dropmargin.data import Rows
from dropmargin.data.missing_values import STATISTICS
from dropmargin.estimators import calibration, conformal, held_out, validation
from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.fitting import classes_of, fit_rows, n_outputs, problem_of, scale_of_C
from dropmargin.estimators.parameters import (
    Parameters,
    RunParameters,
    boolean,
    check_parameters,
    parameter,
    specification,
)
from dropmargin.estimators.prediction import Prediction
from dropmargin.estimators.rows import TrainingRows, check_rows, set_or_delete
from dropmargin.estimators.scorers import PredictionScorer, target_scorer
from dropmargin.losses import Loss
from dropmargin.model_selection.folds import Fold, Targets
from dropmargin.model_selection.grid import Grid, check_grid, check_noise, check_problems
from dropmargin.model_selection.results import cv_results, warn_at_ends, warn_constant
from dropmargin.model_selection.search import (
    FINAL_SHARE,
    ROUGH_TOL,
    RULES,
    Outcome,
    Search,
    try_scorer,
    warn_unconverged,
)
from dropmargin.noise import Noise
from dropmargin.typing import Array

# The attributes of the best model that the search has as well, beside the statistics of the features.
_OF_BEST = ("coef_", "intercept_", "classes_", "n_features_in_", "feature_names_in_", "residual_deviation_")
# Coefficients of all points are kept up to this many bytes, unless ``store_coefs`` is given.
_MOST_STORED = 2**28


class GridParameters(Parameters):
    """The parameters of the search over noise and ``C``."""

    noises: Any = parameter(default=10)
    Cs: Any = parameter(default=13)
    cv: Any = parameter(default=None)
    scoring: Any = parameter(default=None)
    target_noise: Any = parameter(default=None)
    rule: str = parameter(default="best", choices=RULES)
    prune: bool = parameter(default=True, check=boolean)
    store_coefs: bool | str = parameter(default="auto")


class MarginalisedModelCV(Prediction, GridParameters):
    """Base of the models that choose noise and ``C`` by cross-validation."""

    verbose: int = parameter(default=1)

    #: The model with a given noise and ``C``.
    _plain_class: ClassVar[type[MarginalisedModel]]
    #: The score for ``scoring=None``.
    _default_scorer: ClassVar[PredictionScorer]

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Choose noise and ``C`` by cross-validation and fit the model with them to all rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data. NaN is a missing feature, unless ``missing="error"``.
        y : array-like of shape (n_samples,)
            Labels (numbers, strings, booleans) for a classifier, numbers for a regressor.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, in the fits and in the scores. With scikit-learn's metadata routing enabled, the scores
            have weights only if the scorer requests them.
        groups : array-like of shape (n_samples,), default=None
            Groups of rows, for a ``cv`` that needs them, such as `sklearn.model_selection.GroupKFold`.

        Returns
        -------
        self : object
            The fitted estimator. If the fit fails or is interrupted, the estimator is unchanged.

        Warns
        -----
        UserWarning
            If the chosen ``C``, or the chosen noise among those of its class, is at an end of the grid, so that values
            outside of the grid may score higher. There is no warning for a grid of one value, where the score does not
            change towards the end, or at a natural end: no noise, and dropout rates from 0.9 on. Or if the chosen model
            has no coefficients, so that it predicts the same for all rows.
        ConvergenceWarning
            If a fit did not converge.
        """
        with validation.unchanged_on_failure(self):
            check_parameters(self)
            model = plain_model(self)
            problem_of(model)  # its parameters are checked before the rows
            X, y = indexable(X, y)
            rows = check_rows(model, X, y, sample_weight)
            given, metadata, n_threads = (X, y), (sample_weight, groups), effective_n_jobs(self.n_jobs)
            run_search(self, model, rows, Targets.of(rows), given, metadata, n_threads, self.verbose)
        return self

    def _stores(self, n_folds: int, grid: Grid, n_outputs: int, n_features: int) -> bool:
        """Return whether to keep the coefficients of the whole grid."""
        if isinstance(self.store_coefs, bool | np.bool_):
            return bool(self.store_coefs)
        if not isinstance(self.store_coefs, str) or self.store_coefs != "auto":
            raise ValueError(f"store_coefs must be True, False or 'auto', got {self.store_coefs!r}.")
        return 8 * n_folds * grid.shape[0] * grid.shape[1] * n_outputs * (n_features + 1) <= _MOST_STORED

    def _splits(
        self, X: Any, y: Any, rows: Rows, classes: Array | None, split_params: dict[str, Any]
    ) -> list[tuple[Array, Array]]:
        """Return training and test rows of each fold, after checking that it can be learnt from and scored."""
        splits = list(check_cv(self.cv, rows.y, classifier=is_classifier(self)).split(X, y, **split_params))
        if not splits:
            raise ValueError(f"cv={self.cv!r} gives no folds.")
        checked = []
        for index, (train, test) in enumerate(splits):
            train, test = (
                np.flatnonzero(part) if part.dtype == bool else part for part in map(np.asarray, (train, test))
            )
            if not np.any(rows.sample_weight[test]):
                raise ValueError(f"Fold {index} of cv has no rows to score, or only rows of weight 0.")
            self._check_training_rows(index, rows.y[train][rows.sample_weight[train] > 0.0], classes)
            checked.append((train, test))
        return checked

    def _check_training_rows(self, index: int, y: Array, classes: Array | None) -> None:
        """Raise an error if the targets of the training rows of a fold, without those of weight 0, are too few."""
        raise NotImplementedError

    def _target_score(self, noise: Noise) -> PredictionScorer:
        """Return the score of a row under a noise that is ``target_noise``."""
        raise NotImplementedError

    def _search_scorer(self, rows: TrainingRows) -> Any:
        """Return the scorer of the search, which scores checked rows where that is possible."""
        noise = check_noise("target_noise", self.target_noise, rows)
        if noise is not None:
            shape, names = (rows.n_rows, rows.n_features), rows.feature_names
            return target_scorer(noise, self.missing, shape, names, self._target_score(noise))
        return self._default_scorer if self.scoring in (None, default_scoring(self)) else self._scorer()

    def _route(self, sample_weight: Any, groups: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what the splitter and what the scorer are to be given."""
        if get_config()["enable_metadata_routing"]:
            given = {"sample_weight": sample_weight, "groups": groups}
            routed = process_routing(self, "fit", **{name: own for name, own in given.items() if own is not None})
            return dict(routed.splitter.split), dict(routed.scorer.score)
        weights = np.asarray(0.0 if sample_weight is None else sample_weight)  # a number is the weight of all rows
        return {"groups": groups}, {"sample_weight": weights} if weights.ndim else {}

    def _scorer(self) -> Any:
        # Imported late, because it takes a good part of a second.
        from sklearn.metrics import check_scoring

        return check_scoring(plain_model(self), scoring=default_scoring(self) if self.scoring is None else self.scoring)

    def _store(self, grid: Grid, outcome: Outcome) -> None:
        chosen = outcome.chosen(self.rule)
        self.noises_, self.Cs_ = grid.noises, grid.Cs
        self.scores_, self.n_iter_, self.refined_ = outcome.scores, outcome.n_iter, outcome.refined
        set_or_delete(self, "coefs_paths_", outcome.coefs)
        self.cv_results_ = cv_results(grid, outcome.scores, outcome.refined)
        self.best_index_ = chosen
        self.best_score_ = float(outcome.mean[chosen])
        self.noise_, self.C_ = grid.noises[chosen[0]], float(grid.Cs[chosen[1]])

    def _refit(
        self, model: MarginalisedModel, rows: TrainingRows, outcome: Outcome, splits: Any, n_threads: int
    ) -> None:
        """Fit the chosen model to all rows, from the mean of its folds, whose held-out rows it learns from."""
        best = model.set_params(noise=self.noise_, C=self.C_)
        where = (slice(None), *self.best_index_)
        coefs = None if outcome.coefs is None else outcome.coefs[where]
        start = None if coefs is None else coefs.mean(axis=0).T
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # one warning counts all fits
            fit_rows(best, problem_of(best), rows, n_threads, start)
            held_out.learn(best, rows, splits, coefs, n_threads)
        self.best_estimator_ = best
        for name in (*_OF_BEST, *STATISTICS, *calibration.ATTRIBUTES, *conformal.ATTRIBUTES):
            set_or_delete(self, name, getattr(best, name, None))

    def _make_loss(self) -> Loss:
        return plain_model(self)._make_loss()

    def _resolved_noise(self, noise: Any) -> Noise:
        return self.best_estimator_._resolved_noise(noise)

    def _set_coef(self, coef: Any) -> Self:
        self.coef_ = self.best_estimator_.coef_ = coef
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the score of the rows of ``X``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.
        y : array-like of shape (n_samples,)
            True labels or numbers.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
            The score of ``scoring``; by default the accuracy of a classifier, or R^2 of a regressor.
        """
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        check_is_fitted(self)
        return float(self._scorer()(self.best_estimator_, X, y, **weights))

    def get_metadata_routing(self) -> MetadataRouter:
        """Return which parameters of `fit` go to the splitter and which to the scorer.

        Returns
        -------
        routing : sklearn.utils.metadata_routing.MetadataRouter
            The routing.
        """
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(splitter=check_cv(self.cv, classifier=is_classifier(self)), method_mapping=_mapping("split"))
            .add(scorer=self._scorer(), method_mapping=_mapping("score"))
        )


def run_search(
    estimator: MarginalisedModelCV,
    model: MarginalisedModel,
    rows: TrainingRows,
    targets: Targets,
    given: tuple[Any, Any] | None,
    metadata: tuple[Any, Any],
    n_threads: int,
    verbose: int,
) -> None:
    """Choose noise and ``C`` by cross-validation on rows in memory or elsewhere, and set the fitted attributes.

    Parameters
    ----------
    estimator : MarginalisedModelCV
    model : MarginalisedModel
        The plain model without noise.
    rows : TrainingRows
    targets : Targets
        Of these rows.
    given : tuple or None
        Rows and targets as the caller passed them, if they are in memory.
    metadata : tuple
        Sample weights and groups as the caller passed them.
    n_threads, verbose : int
    """
    # 1. All checks come before the search.
    problem, classes = problem_of(model), classes_of(model, rows)
    y = rows.labels[targets.codes]
    grid = check_grid(estimator.noises, estimator.Cs, rows, scale_of_C(model, y, targets.sample_weight))
    check_problems(model, rows, grid)
    split_params, score_params = estimator._route(*metadata)
    X, own = (np.zeros((len(y), 1)), y) if given is None else given
    splits = estimator._splits(X, own, Rows(None, y, targets.sample_weight), classes, split_params)
    folds = [partial(Fold.load, rows, targets, given, *split, score_params) for split in splits]
    scorer = estimator._search_scorer(rows)
    tol = FINAL_SHARE * problem.tol
    rough_tol = max(problem.tol, ROUGH_TOL) if estimator.prune else tol
    store = estimator._stores(len(folds), grid, n_outputs(model, classes), rows.n_features)
    search = Search(model, problem, grid, scorer, tol, rough_tol, rows.n_rows, estimator.rule, store, n_threads)
    try_scorer(search, folds[0]())
    # 2. The search, and the final fit.
    outcome = search.run(folds, verbose)
    if not np.isfinite(outcome.mean).any():
        raise ValueError("scoring gave NaN at every point of the grid: there is nothing to choose by.")
    estimator._store(grid, outcome)
    estimator._refit(model, rows, outcome, splits, n_threads)
    warn_unconverged(np.append(outcome.converged, estimator.best_estimator_.converged_), stacklevel=4)
    chosen = estimator.best_index_
    if not np.any(estimator.coef_):
        warn_constant("number" if classes is None else "label", chosen == outcome.best(), stacklevel=3)
    else:
        warn_at_ends(grid, outcome.mean, chosen, stacklevel=3)


def plain_model(search: MarginalisedModelCV) -> MarginalisedModel:
    """Return the plain model with the parameters that it shares with a search, and without noise."""
    shared = specification(type(search)).keys() & specification(search._plain_class).keys()
    shared -= specification(RunParameters).keys()
    return search._plain_class(noise=None, **{name: getattr(search, name) for name in shared})


def default_scoring(search: MarginalisedModelCV) -> str:
    """Return the name of the score for ``scoring=None``."""
    return search._default_scorer.name


def _mapping(callee: str) -> MethodMapping:
    return MethodMapping().add(caller="fit", callee=callee)
