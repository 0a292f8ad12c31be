"""Base of the models that choose noise and ``C``: checks, folds, metadata routing, search and final fit."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn import get_config
from sklearn.base import BaseEstimator, is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted

from dropmargin.data import ClassArray
from dropmargin.errors import ParameterError
from dropmargin.estimators.base import CheckedRows, MarginalisedModel
from dropmargin.estimators.parameters import (
    Parameters,
    RunParameters,
    SharedParameters,
    check_parameters,
    parameter,
    specification,
)
from dropmargin.model_selection.grid import Grid, check_grid, check_noisy_problems
from dropmargin.model_selection.results import cv_results, warn_at_ends
from dropmargin.model_selection.search import (
    FINAL_SHARE,
    ROUGH_TOL,
    RULES,
    ArrayFold,
    Fold,
    Outcome,
    Search,
    SearchData,
    Solution,
    warn_unconverged,
)
from dropmargin.solvers import Problem, solve
from dropmargin.typing import Array

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
    prune: bool = parameter(default=True)
    store_coefs: bool | str = parameter(default="auto")


class MarginalisedModelCV(RunParameters, SharedParameters, GridParameters, BaseEstimator):
    """Base of the models that choose noise and ``C`` by cross-validation."""

    verbose: int = parameter(default=1)

    #: The model with a given noise and ``C``.
    _plain_class: ClassVar[type[MarginalisedModel]]
    #: The score for ``scoring=None``, and the same for rows that have been checked.
    _default_scoring: ClassVar[str]
    _plain_scorer: ClassVar[Any]

    def _plain(self) -> MarginalisedModel:
        """Return the plain model with the parameters that it shares with the search, and without noise."""
        shared = specification(type(self)).keys() & specification(self._plain_class).keys()
        shared -= specification(RunParameters).keys()
        return self._plain_class(noise=None, **{name: getattr(self, name) for name in shared})

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> Self:
        # All checks come before the search.
        check_parameters(self)
        template = self._plain()
        X, y = indexable(X, y)
        rows = template._check_data(template._problem(), X, y, sample_weight)
        classes, encoded = template._encode(rows)
        grid = check_grid(self.noises, self.Cs, rows, template._scale_of_C(rows))
        problem = check_noisy_problems(template, rows, grid)
        split_params, score_params = self._route(sample_weight, groups)
        splits = self._splits(X, y, rows, classes, split_params)
        folds = [partial(_load_fold, X, y, rows, train, test, score_params) for train, test in splits]
        n_threads = effective_n_jobs(self.n_jobs)
        refit = partial(_refit, rows, classes, encoded, n_threads)
        data = SearchData(len(rows.y), rows.X.shape[1], classes, rows.has_missing, folds, refit)
        return self._search(data, template, problem, grid, n_threads, self.verbose)

    def _search(
        self,
        data: SearchData,
        template: MarginalisedModel,
        problem: Problem,
        grid: Grid,
        n_threads: int,
        verbose: int,
    ) -> Self:
        """Run the search over rows in memory or elsewhere, and set the fitted attributes."""
        tol = FINAL_SHARE * problem.tol
        rough_tol = max(problem.tol, ROUGH_TOL) if self.prune else tol
        plain = self.scoring in (None, self._default_scoring) and not data.has_missing
        scorer = self._target_scorer()
        if scorer is not None:
            scorer.noise.resolve(data.n_features, getattr(template, "feature_names_in_", None))
        else:
            scorer = self._plain_scorer if plain else self._scorer()
        n_outputs = template._n_outputs(data.classes)
        store = self._stores(len(data.folds), grid, n_outputs, data.n_features)
        search = Search(template, problem, grid, scorer, tol, rough_tol, self.rule, store, n_threads, data.n_rows)
        with data.folds[0]() as fold:
            try_scorer(search, fold)
        outcome = search.run(data.folds, verbose)
        if not np.isfinite(outcome.mean).any():
            raise ValueError("scoring gave NaN at every point of the grid: there is nothing to choose by.")
        self._store(grid, outcome, outcome.chosen(self.rule))
        self._refit(template, data, outcome)
        warn_unconverged(np.append(outcome.converged, self.best_estimator_.converged_), stacklevel=5)
        warn_at_ends(grid, outcome.mean, self.best_index_, stacklevel=4)
        return self

    def _stores(self, n_folds: int, grid: Grid, n_outputs: int, n_features: int) -> bool:
        """Return whether to keep the coefficients of the whole grid."""
        if isinstance(self.store_coefs, bool | np.bool_):
            return bool(self.store_coefs)
        if not isinstance(self.store_coefs, str) or self.store_coefs != "auto":
            raise ValueError(f"store_coefs must be True, False or 'auto', got {self.store_coefs!r}.")
        return 8 * n_folds * grid.shape[0] * grid.shape[1] * n_outputs * (n_features + 1) <= _MOST_STORED

    def _splits(
        self, X: Any, y: Any, rows: Any, classes: Array | None, split_params: dict[str, Any]
    ) -> list[tuple[Array, Array]]:
        """Return training and test rows of each fold, after checking that it can be learnt from and scored.

        ``rows`` has the labels and the sample weights after all checks, `Rows` without need of ``X``.
        """
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

    def _target_scorer(self) -> Any:
        """Return the scorer of ``target_noise``; ``None`` if it is ``None``."""
        raise NotImplementedError

    def _route(self, sample_weight: Any, groups: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what the splitter and what the scorer are to be given."""
        given = {"sample_weight": sample_weight, "groups": groups}
        given = {name: value for name, value in given.items() if value is not None}
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **given)
            return dict(routed.splitter.split), dict(routed.scorer.score)
        weights = {} if sample_weight is None else {"sample_weight": np.asarray(sample_weight)}
        if weights and weights["sample_weight"].ndim == 0:
            weights = {}
        return {"groups": groups}, weights

    def _scorer(self) -> Any:
        # Imported late, because it takes a good part of a second.
        from sklearn.metrics import check_scoring

        return check_scoring(self._plain(), scoring=self._default_scoring if self.scoring is None else self.scoring)

    def _store(self, grid: Grid, outcome: Outcome, chosen: tuple[int, int]) -> None:
        self.noises_, self.Cs_ = grid.noises, grid.Cs
        self.scores_, self.n_iter_, self.refined_ = outcome.scores, outcome.n_iter, outcome.refined
        if outcome.coefs is not None:
            self.coefs_paths_ = outcome.coefs
        elif hasattr(self, "coefs_paths_"):  # of an earlier fit
            del self.coefs_paths_
        self.cv_results_ = cv_results(grid, outcome.scores, outcome.refined)
        self.best_index_ = chosen
        self.best_score_ = float(outcome.mean[chosen])
        self.noise_, self.C_ = grid.noises[chosen[0]], float(grid.Cs[chosen[1]])

    def _refit(self, template: MarginalisedModel, data: SearchData, outcome: Outcome) -> None:
        """Fit the chosen model to all rows, from the mean of its folds."""
        best = template.set_params(noise=self.noise_, C=self.C_)
        where = (slice(None), *self.best_index_)
        start = None if outcome.coefs is None else outcome.coefs[where].mean(axis=0).T
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # one warning counts all fits
            self.best_estimator_ = data.refit(best, start)
        self.coef_, self.intercept_ = best.coef_, best.intercept_
        if hasattr(best, "classes_"):
            self.classes_ = best.classes_
        self.n_features_in_ = best.n_features_in_
        if hasattr(best, "feature_names_in_"):
            self.feature_names_in_ = best.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _best(self) -> MarginalisedModel:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    def sparsify(self) -> Self:
        """Convert the coefficients to a sparse array, see `DropoutSVC.sparsify`.

        Returns
        -------
        self : object
            The estimator, with ``coef_``, also of ``best_estimator_``, as a CSR array.
        """
        self.coef_ = self._best().sparsify().coef_
        return self

    def densify(self) -> Self:
        """Convert the coefficients to a dense array, which they are after `fit`.

        Returns
        -------
        self : object
            The estimator, with ``coef_``, also of ``best_estimator_``, as an ndarray.
        """
        self.coef_ = self._best().densify().coef_
        return self

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing != "error"
        return tags


def try_scorer(search: Search, fold: Fold) -> None:
    """Score a model with arbitrary coefficients, so that errors of the scorer are raised before the search."""
    _, classifier = fold.prepare(search, 1)
    n_features, n_outputs = classifier.n_features_in_, classifier._n_outputs(getattr(classifier, "classes_", None))
    coef = 1e-3 * np.cos(np.arange((n_features + 1) * n_outputs)).reshape(n_features + 1, n_outputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the model may not predict some class
        try:
            search.score(classifier, fold, (0, 0), Solution(coef))
        except (AttributeError, ValueError) as error:
            if is_regressor(classifier):
                raise ParameterError(
                    f"scoring={search.scorer!r} cannot be computed for {type(classifier).__name__}: {error} Choose a "
                    "score of regression, such as 'r2' or 'neg_root_mean_squared_error'.",
                    "scoring",
                    "it cannot be computed for numbers; choose another, such as r2 or neg_root_mean_squared_error",
                ) from error
            if isinstance(error, ValueError):
                raise
            raise ParameterError(
                f"scoring={search.scorer!r} cannot be computed for {type(classifier).__name__}: {error} Choose a "
                "scoring that needs no probabilities, such as 'accuracy' or 'roc_auc', or the logistic loss with "
                "multi_class='ovr', which has them.",
                "scoring",
                "it needs probabilities, which this loss does not have (or does not have for pairs of classes); choose "
                "another score, such as accuracy, or the logistic loss",
            ) from error


def _mapping(callee: str) -> MethodMapping:
    return MethodMapping().add(caller="fit", callee=callee)


def _refit(
    rows: CheckedRows,
    classes: Array | None,
    encoded: ClassArray,
    n_threads: int,
    best: MarginalisedModel,
    start: Array | None,
) -> MarginalisedModel:
    """Fit a model to rows in memory, and return it."""
    result = solve(rows.problem(best._problem()), encoded, start, n_threads)
    return best._store(result, classes, rows.X.dtype, best._statistics(encoded))._set_residuals(rows)


def _load_fold(X: Any, y: Any, rows: CheckedRows, train: Array, test: Array, score_params: dict[str, Any]) -> ArrayFold:
    params = {
        name: _safe_indexing(value, test) if _is_per_row(value, len(rows.y)) else value
        for name, value in score_params.items()
    }
    return ArrayFold(rows.take(train), _safe_indexing(X, test), _safe_indexing(y, test), params, rows.take(test))


def _is_per_row(value: Any, n_rows: int) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str) and len(value) == n_rows
