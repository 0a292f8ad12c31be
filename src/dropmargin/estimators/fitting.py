"""What an estimator contributes to a fit, wherever the rows are: problem, labels, start and fitted attributes.

Rows are in memory (`CheckedRows`), or in files or on a cluster (`partition_fit.PartitionRows`); `Fit.run` is the same
for all of them. Other packages use this interface, and no private attributes of an estimator.
"""

from __future__ import annotations

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning

from dropmargin.data import (
    EncodedRows,
    Rows,
    as_dense,
    binary_outputs,
    canonical,
    linear_scores,
)
from dropmargin.data.inputs import validate_rows
from dropmargin.data.missing_values import (
    STATISTICS,
    FeatureStatistics,
    has_missing,
    incomplete_rows,
    nan_to_negative_zero,
    negative_zero_to_nan,
)
from dropmargin.errors import ParameterError
from dropmargin.estimators import missing, validation
from dropmargin.estimators.factor_analysis import FactorModel, fill_conditional, fit_factor_model
from dropmargin.estimators.parameters import check_parameters
from dropmargin.losses import Logistic, Loss, MCFLogistic, MGFLoss, MomentLoss
from dropmargin.noise import Noise, as_noise
from dropmargin.penalties import Penalty
from dropmargin.solvers import Iteration, Monitor, Problem, Result, choose_solver, no_monitor, solve
from dropmargin.typing import Array

if TYPE_CHECKING:
    from dropmargin.estimators.base import MarginalisedModel


class TrainingRows(ABC):
    """Training rows after all checks, wherever they are."""

    n_features: int
    feature_names: Sequence[str] | None
    dtype: Any
    has_missing: bool
    #: Whether zeros are not stored.
    has_implicit: bool
    #: Whether missing entries take values before the fit, so that the noise corrupts them.
    are_filled = False

    def problem(self, problem: Problem) -> Problem:
        """Return the problem with its noise for these features; the noise excludes missing entries."""
        problem = replace(problem, is_single=self.dtype == np.float32)
        if problem.noise is None:
            return problem
        noise = problem.noise.resolve(self.n_features, self.feature_names)
        self.check_range(noise)
        if self.has_missing and not self.are_filled:
            noise = missing.exclude_missing_from_noise(noise, self.has_implicit)
        return replace(problem, noise=noise)

    @abstractmethod
    def check_range(self, noise: Noise) -> None:
        """Raise a `ValueError` if there are negative entries, and the noise does not allow them."""

    @abstractmethod
    def encoded(self, fit: Fit) -> AbstractContextManager[EncodedRows]:
        """Return a context with the rows as a solver needs them."""

    def statistics(self, fit: Fit, encoded: EncodedRows) -> FeatureStatistics:
        """Return the statistics of the features that predictions need."""
        return encoded.feature_statistics() if fit.uses_deviations else FeatureStatistics(encoded.feature_means, None)

    @abstractmethod
    def mean_square(self) -> float:
        """Return the weighted mean of the squared norm of a row; dense rows are centred."""


class CheckedRows(Rows, TrainingRows):
    """Training rows in memory; missing entries, if there are any, have become minus zeros."""

    def __init__(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        has_missing: bool,
        feature_names: Sequence[str] | None = None,
        are_filled: bool = False,
    ) -> None:
        super().__init__(X, y, sample_weight)
        self.has_missing = has_missing
        self.feature_names = feature_names
        self.are_filled = are_filled
        self.n_features, self.dtype = X.shape[1], X.dtype
        self.has_implicit = X.size < X.shape[0] * X.shape[1]
        self._model: FactorModel | None = None

    def take(self, index: Array) -> CheckedRows:
        chosen = self.X[index], self.y[index], self.sample_weight[index]
        return CheckedRows(*chosen, self.has_missing, self.feature_names, self.are_filled)

    def check_range(self, noise: Noise) -> None:
        if not noise.allows_negative:
            validation.check_entries(self.X, noise, self.feature_names)

    def encoded(self, fit: Fit) -> AbstractContextManager[EncodedRows]:
        classes, targets, weights = fit.encode_labels(self.y, self.sample_weight)
        X, is_missing = self.X, self.has_missing
        if self.are_filled and is_missing:
            X, is_missing = fill_conditional(X, self._factor_model(fit)), False
        n_classes, first = 1 if classes is None else len(classes), fit.first_intercept(targets, weights)
        given = {"classes": classes, "has_missing": is_missing, "first_intercept": first}
        return nullcontext(EncodedRows.of_matrix(X, targets, weights, n_classes, **given))

    def statistics(self, fit: Fit, encoded: EncodedRows) -> FeatureStatistics:
        if not self.are_filled:
            return super().statistics(fit, encoded)
        model = self._factor_model(fit)
        return FeatureStatistics(model.mean, None, model.factors, model.residual_variance)

    def _factor_model(self, fit: Fit) -> FactorModel:
        """Return the Gaussian of the features, fitted when it is first used."""
        if self._model is None:
            _, _, weights = fit.encode_labels(self.y, self.sample_weight)
            self._model = fit_factor_model(self.X, weights, self.has_missing, fit.estimator.missing_rank)
        return self._model

    def mean_square(self) -> float:
        return EncodedRows.of_matrix(self.X, self.y, self.sample_weight, n_classes=1).mean_square()

    def residual_deviation(self, model: MarginalisedModel) -> float | None:
        """Return the standard deviation of the residuals of complete rows; ``None`` if there are too few rows."""
        X, y, weights = self.X, self.y, self.sample_weight
        if self.has_missing:
            complete = np.flatnonzero(~incomplete_rows(negative_zero_to_nan(X)))
            X, y, weights = X[complete], y[complete], weights[complete]
        n_rows = np.count_nonzero(weights)
        # Noise and penalty leave fewer degrees of freedom to the coefficients, so this is an upper bound.
        n_free = n_rows - 1 - np.count_nonzero(model.coef_)
        if n_free <= 0:
            return None
        squares = np.square(y - linear_scores(X, *coefficients(model))[:, 0])
        return float(np.sqrt(np.average(squares, weights=weights) * n_rows / n_free))


class Fit:
    """What an estimator contributes to a fit; its parameters are checked."""

    def __init__(self, estimator: MarginalisedModel) -> None:
        self.estimator = estimator
        self.problem = _problem(estimator)
        self.is_regression = isinstance(estimator, RegressorMixin)
        self.uses_deviations: bool = estimator.missing == "rescale"

    def check_rows(self, X: Any, y: Any, sample_weight: Any) -> CheckedRows:
        """Return training data in memory after all checks but those of the labels and of the noise."""
        own = self.estimator
        X, y = validate_rows(own, X, y, ensure_all_finite=own._finite(), y_numeric=self.is_regression)
        if self.is_regression:
            y = validation.check_targets(y)
        X, names = canonical(X), getattr(own, "feature_names_in_", None)
        is_missing, are_filled = own.missing != "error" and has_missing(X), own.missing == "conditional"
        X = validation.check_entries(nan_to_negative_zero(X) if is_missing else X, None, names)
        weights = validation.check_weights(sample_weight, X.shape[0])
        n_rows, n_features = np.count_nonzero(weights), X.shape[1]
        if are_filled and own.missing_rank is not None and own.missing_rank > min(n_rows, n_features):
            raise ValueError(
                f"missing_rank must be at most the number of rows of positive weight, {n_rows}, and of features, "
                f"{n_features}, got {own.missing_rank}."
            )
        return CheckedRows(X, y, weights, is_missing, names, are_filled)

    def run(
        self, rows: TrainingRows, n_threads: int = 1, start: Array | None = None, monitor: Monitor | None = None
    ) -> None:
        """Solve the problem and set the fitted attributes.

        ``start`` are coefficients near the solution; ``monitor`` is called in addition to that of ``verbose``.
        """
        problem = rows.problem(self.problem)
        if monitor is not None:
            problem = replace(problem, monitor=partial(_both, problem.monitor, monitor))
        with rows.encoded(self) as encoded:
            start = self.start(encoded.classes, rows.n_features) if start is None else start
            result = solve(problem, encoded, start, n_threads)
            self.store(result, encoded, rows)

    def encode_labels(self, y: Array, weights: Array) -> tuple[Array | None, Array, Array]:
        """Return the classes, the index of the class of each row (-1: none), and its weight; numbers as they are."""
        if self.is_regression:
            return None, y, weights
        own = self.estimator
        return validation.encode_labels(y, own.class_weight, weights, type(own).__name__)

    def encode_classes(self, classes: Array, totals: Array) -> tuple[Array, Array, Array]:
        """Return which classes take part, the index of each, and its weight factor; ``totals`` are their weights.

        In a regression, each number is a class, and its own index.
        """
        if self.is_regression:
            return totals > 0.0, classes, np.ones(len(classes))
        own = self.estimator
        return validation.encode_classes(classes, totals, own.class_weight, type(own).__name__)

    def first_intercept(self, y: Array, weights: Array) -> float:
        """Return the intercept to start from: for numbers, their weighted mean, or one without any loss; else zero."""
        loss = self.problem.loss
        if not self.is_regression:
            return 0.0
        assert isinstance(loss, MomentLoss)
        counted = y[weights > 0.0]
        middle = 0.5 * (counted.min() + counted.max())
        if not loss.value(counted, np.full_like(counted, middle), np.zeros_like(counted)).any():
            return float(middle)
        return float(np.average(y, weights=weights))

    def n_outputs(self, classes: Array | None) -> int:
        """Return the number of outputs for these classes."""
        return 1 if classes is None else len(binary_outputs(len(classes), self.problem.multi_class))

    def scale_of_C(self, y: Array, sample_weight: Array) -> float:  # noqa: N802
        """Return the factor of the default values of ``C`` of a search."""
        return self.estimator._scale_of_C(y, sample_weight)

    def start(self, classes: Array | None, n_features: int) -> Array | None:
        """Return the coefficients of an earlier fit (``warm_start``), if their shape and the classes are the same."""
        own = self.estimator
        if not (own.warm_start and hasattr(own, "coef_")):
            return None
        if classes is not None and not np.array_equal(own.classes_, classes):
            return None
        coef, intercept = coefficients(own)
        if coef.shape != (self.n_outputs(classes), n_features):
            return None
        return np.vstack([as_dense(coef).T, intercept[None, :]]).astype(np.float64)

    def set_features(self, n_features: int, names: Sequence[str] | None) -> None:
        self.estimator.n_features_in_ = n_features
        set_or_delete(self.estimator, "feature_names_in_", None if names is None else np.array(names, dtype=object))

    def set_classes(self, classes: Array | None, statistics: FeatureStatistics) -> None:
        """Set the classes and what predictions need to know of the features."""
        if classes is not None:
            self.estimator.classes_ = classes
        for name, values in zip(STATISTICS, statistics, strict=True):
            set_or_delete(self.estimator, name, values)

    def set_result(self, result: Result, dtype: Any) -> None:
        """Set coefficients, intercepts and the attributes that describe the fit."""
        if not np.isfinite(result.coef).all():
            raise ValueError(
                "The fit left the range of floating-point numbers. Scale the columns of X, for example with "
                "sklearn.preprocessing.StandardScaler, or choose a smaller C."
            )
        own = self.estimator
        set_coefficients(own, result.coef, dtype)
        own.n_iter_, own.n_passes_ = result.n_iter, result.n_passes
        own.objective_ = float(result.objective.sum())
        own.converged_, own.history_ = result.converged, result.history

    def store(self, result: Result, encoded: EncodedRows, rows: TrainingRows) -> None:
        """Set the fitted attributes; warn if the solver has not converged."""
        own = self.estimator
        own.__dict__.pop("_stream", None)  # of an earlier `partial_fit`
        self.set_result(result, rows.dtype)
        self.set_classes(encoded.classes, rows.statistics(self, encoded))
        if self.is_regression:
            deviation = rows.residual_deviation(own) if isinstance(rows, CheckedRows) else None
            set_or_delete(own, "residual_deviation_", deviation)
        if not result.converged:
            scale = "scale the columns of X to similar ranges, or choose a smaller C."
            more = "Raise max_iter or tol," if result.n_iter >= own.max_iter else "More iterations will not help:"
            message = f"{type(own).__name__} did not converge: {result.message}. {more} {scale}"
            warnings.warn(message, ConvergenceWarning, stacklevel=3)


def coefficients(model: Any) -> tuple[Any, Array]:
    """Return the coefficients, one row per output, and the intercepts; a regressor has a vector and a number."""
    coef = model.coef_ if model.coef_.ndim == 2 else model.coef_[None, :]
    return coef, np.atleast_1d(model.intercept_)


def set_coefficients(model: MarginalisedModel, coef: Array, dtype: Any) -> None:
    """Set coefficients and intercepts from those of a solver, intercept last and one column per output."""
    model.coef_, model.intercept_ = np.ascontiguousarray(coef[:-1].T.astype(dtype)), coef[-1].astype(dtype)
    if isinstance(model, RegressorMixin):
        model.coef_, model.intercept_ = model.coef_[0], model.intercept_[0]


def loss_of(model: MarginalisedModel) -> Loss:
    return model._make_loss()


def set_or_delete(estimator: Any, name: str, value: Any) -> None:
    """Set an attribute; if the value is ``None``, delete that of an earlier fit."""
    if value is not None:
        setattr(estimator, name, value)
    elif hasattr(estimator, name):
        delattr(estimator, name)


def _problem(estimator: MarginalisedModel) -> Problem:
    """Check the parameters and return the problem that they describe."""
    values = check_parameters(estimator)
    penalty = Penalty(l2=1.0 - values["l1_ratio"], l1=values["l1_ratio"])
    loss, noise = estimator._make_loss(), as_noise(estimator.noise)
    if isinstance(loss, MGFLoss) and noise is not None and not noise.has_log_mgf:
        raise ValueError(
            f"{type(loss).__name__} needs a noise with log_mgf(), which {type(noise).__name__} lacks, got "
            f"noise={noise!r}: choose another noise, or the hinge, logistic or quadratic loss."
        )
    solver = choose_solver(estimator.solver, loss, penalty)
    multi_class = values.get("multi_class", "ovr")
    if multi_class == "multinomial" and not isinstance(loss, Logistic | MCFLogistic):
        raise ParameterError(
            f"multi_class='multinomial' is for the logistic loss with approximation='bound' and for the loss "
            f"'mcf-logistic', got {type(loss).__name__}: use DropoutLogisticRegression or "
            "MCFClassifier(loss='logistic'), or multi_class='ovr'.",
            "multi_class",
            "multinomial is for the logistic loss with approximation bound and for mcf-logistic; choose ovr or ovo",
        )
    if multi_class == "multinomial" and solver.needs_majoriser:
        raise ValueError(
            f"solver={estimator.solver!r} needs a quadratic majoriser, which multi_class='multinomial' does not have; "
            "use solver='auto', 'newton' or 'lbfgs'."
        )
    monitor = partial(_show, type(estimator).__name__) if estimator.verbose else no_monitor
    given = {name: values[name] for name in ("C", "fit_intercept", "tol", "max_iter")}
    return Problem(
        loss=loss, noise=noise, penalty=penalty, solver=solver, monitor=monitor, multi_class=multi_class, **given
    )


def _both(first: Monitor, second: Monitor, entry: Iteration) -> None:
    first(entry)
    second(entry)


def _show(name: str, entry: Iteration) -> None:
    """Print a line for an iteration (``verbose``)."""
    gap = "" if np.isnan(entry.gap) or np.isinf(entry.gap) else f"  gap {entry.gap / abs(entry.objective):8.1e}"
    line = (
        f"[{name}] iteration {entry.iteration:4d}  objective {entry.objective:.8g}{gap}"
        f"  passes {entry.passes:g}  active {entry.n_active}\n"
    )
    print(line, end="", file=sys.stderr, flush=True)  # one write: threads would mix text and line ends
