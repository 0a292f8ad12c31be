"""A fit, wherever the rows are: checked rows become training data, `solve` minimises, and attributes are set.

`TrainingRows` are rows after all checks: in memory (`check_rows`), or in files or on a cluster
(`partition_fit.checked_rows`). `fit_rows` is the fit of an estimator to them. Other packages use these functions, and
no private attributes of an estimator.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets

from dropmargin.data import (
    Partitions,
    Rows,
    TrainingData,
    as_dense,
    binary_outputs,
    canonical,
    entry_range,
    is_dense_matrix,
    linear_scores,
    one_partition,
    worst_column,
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
from dropmargin.estimators.conditional import FactorModel
from dropmargin.estimators.factor_analysis import fill_conditional, fit_factor_model
from dropmargin.estimators.parameters import check_parameters
from dropmargin.losses import Logistic, Loss, MCFLogistic, MGFLoss, MomentLoss
from dropmargin.noise import Noise, as_noise
from dropmargin.penalties import Penalty
from dropmargin.solvers import Iteration, Monitor, Problem, Result, choose_solver, no_monitor, solve
from dropmargin.typing import Array

if TYPE_CHECKING:
    from dropmargin.estimators.base import MarginalisedModel


# Rows ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Training rows after all checks, wherever they are.

    Parameters
    ----------
    partitions : Partitions of Rows
        Missing entries are minus zeros, and ``y`` is the index of each row's label.
    n_rows, n_features, n_stored : int
        The shape of ``X``, and the number of stored entries.
    is_dense : bool
    dtype : dtype
        The precision of the products.
    has_missing : bool
    labels : ndarray
        All labels, sorted; those of a regression are the different targets.
    totals : ndarray
        The sum of the sample weights of each label.
    lowest, highest : float
        The range of the entries.
    where : callable
        Returns how an error names the feature of the lowest entry (true), or of that of largest absolute value.
    feature_names : sequence of str, default=None
    are_filled : bool, default=False
        Whether missing entries take their conditional means before a fit, so that the noise corrupts them.
    """

    partitions: Partitions
    n_rows: int
    n_features: int
    n_stored: int
    is_dense: bool
    dtype: Any
    has_missing: bool
    labels: Array
    totals: Array
    lowest: float
    highest: float
    where: Callable[[bool], str]
    feature_names: Sequence[str] | None = None
    are_filled: bool = False

    def take(self, index: Array) -> TrainingRows:
        """Return some rows of those in memory."""
        rows = self.partitions.single().take(index)
        totals = np.bincount(rows.y, rows.sample_weight, minlength=len(self.labels))
        partitions = one_partition(rows.X, rows.sample_weight, rows.y)
        return replace(self, partitions=partitions, n_rows=len(rows), n_stored=int(rows.X.size), totals=totals)

    def check_range(self, noise: Noise | None) -> None:
        """Raise a `ValueError` if entries are too large, or negative where the noise does not allow it."""
        validation.check_range(self.lowest, self.highest, noise, self.where)

    def problem(self, problem: Problem) -> Problem:
        """Return the problem with its noise for these features; the noise excludes missing entries."""
        problem = replace(problem, is_single=self.dtype == np.float32)
        if problem.noise is None:
            return problem
        noise = problem.noise.resolve(self.n_features, self.feature_names)
        self.check_range(noise)
        if self.has_missing and not self.are_filled:
            noise = missing.exclude_missing_from_noise(noise, self.n_stored < self.n_rows * self.n_features)
        return replace(problem, noise=noise)

    def encoded(self, index: Array, factors: Array, class_weights: Array, **given: Any) -> TrainingData:
        """Return the rows with an index for each label, and a factor of its weights."""
        partitions = self.partitions.transformed(_encode, index, factors)
        sizes = self.n_rows, self.n_features, class_weights, self.is_dense, self.n_stored
        return TrainingData(partitions, *sizes, has_missing=self.has_missing, **given)

    def mean_square(self) -> float:
        """Return the weighted mean of the squared norm of a row; dense rows are centred."""
        return self.encoded(np.arange(len(self.labels)), np.ones(len(self.labels)), self.totals).mean_square()


def _encode(rows: Rows, index: Array, factors: Array) -> Rows:
    weights = 1.0 if rows.sample_weight is None else rows.sample_weight
    return Rows(rows.X, index[rows.y], weights * factors[rows.y], rows.number)


def check_rows(estimator: MarginalisedModel, X: Any, y: Any, sample_weight: Any) -> TrainingRows:
    """Return training data in memory after all checks but those of the noise."""
    is_number = isinstance(estimator, RegressorMixin)
    X, y = validate_rows(estimator, X, y, ensure_all_finite=estimator._finite(), y_numeric=is_number)
    if is_number:
        y = validation.check_targets(y)
    X, names = canonical(X), getattr(estimator, "feature_names_in_", None)
    is_missing, are_filled = estimator.missing != "error" and has_missing(X), estimator.missing == "conditional"
    X = validation.check_entries(nan_to_negative_zero(X) if is_missing else X, None, names)
    weights = validation.check_weights(sample_weight, X.shape[0])
    n_rows, n_features, rank = np.count_nonzero(weights), X.shape[1], estimator.missing_rank
    if are_filled and rank is not None and rank > min(n_rows, n_features):
        raise ValueError(
            f"missing_rank must be at most the number of rows of positive weight, {n_rows}, and of features, "
            f"{n_features}, got {rank}."
        )
    if not is_number:
        check_classification_targets(y)
    labels, codes = np.unique(y, return_inverse=True)
    totals, (lowest, highest) = np.bincount(codes, weights), entry_range(X)

    def where(smallest: bool) -> str:
        return validation.feature_label(worst_column(X, smallest), names)

    sizes = X.shape[0], n_features, int(X.size), is_dense_matrix(X), X.dtype, is_missing
    entries = labels, totals, lowest, highest, where
    return TrainingRows(one_partition(X, weights, codes), *sizes, *entries, names, are_filled)


# The fit -------------------------------------------------------------------------------------------------------------


def fit_rows(
    estimator: MarginalisedModel,
    problem: Problem,
    rows: TrainingRows,
    n_threads: int = 1,
    start: Array | None = None,
    monitor: Monitor | None = None,
) -> None:
    """Fit an estimator to rows, wherever they are, and set the fitted attributes.

    ``problem`` is that of `problem_of`; ``start`` are coefficients near the solution, those of the last fit with
    ``warm_start``; ``monitor`` is called in addition to that of ``verbose``.
    """
    problem = rows.problem(problem)
    if monitor is not None:
        problem = replace(problem, monitor=partial(_both, problem.monitor, monitor))
    data, statistics = training_data(estimator, rows)
    if start is None:
        start = _warm_start(estimator, data.classes, rows.n_features)
    result = solve(problem, data, start, n_threads)
    estimator.__dict__.pop("_stream", None)  # of an earlier `partial_fit`
    set_result(estimator, result, rows.dtype)
    set_classes(estimator, data.classes, statistics)
    if isinstance(estimator, RegressorMixin):
        set_or_delete(estimator, "residual_deviation_", _residual_deviation(estimator, rows))
    if not result.converged:
        scale = "scale the columns of X to similar ranges, or choose a smaller C."
        more = "Raise max_iter or tol," if result.n_iter >= estimator.max_iter else "More iterations will not help:"
        message = f"{type(estimator).__name__} did not converge: {result.message}. {more} {scale}"
        warnings.warn(message, ConvergenceWarning, stacklevel=3)


def training_data(
    estimator: MarginalisedModel, rows: TrainingRows, scores_incomplete: bool = True
) -> tuple[TrainingData, FeatureStatistics]:
    """Return the rows as a solver needs them, and the statistics of the features that predictions need.

    Unless ``scores_incomplete``, predictions are those of complete rows, which need the means at most.
    """
    present, index, factors = _encode_labels(estimator, rows)
    labels, weights = rows.labels[present], (rows.totals * factors)[present]
    if isinstance(estimator, RegressorMixin):
        first = _first_intercept(estimator._make_loss(), labels, weights)
        data = rows.encoded(index, factors, np.array([weights.sum()]), first_intercept=first)
    else:
        data = rows.encoded(index, factors, weights, classes=labels)
    if not (scores_incomplete or rows.has_missing) or estimator.missing == "error":
        return data, FeatureStatistics(data.feature_means, None)
    if estimator.missing == "rescale":
        return data, FeatureStatistics(data.feature_means, data.feature_deviations)
    own = data.rows.single()
    model = fit_factor_model(own.X, own.sample_weight, data.has_missing, estimator.missing_rank)
    if data.has_missing:
        data = replace(data, rows=data.rows.transformed(_fill_rows, model), has_missing=False)
    return data, FeatureStatistics(model.mean, None, model.factors, model.residual_variance)


def _encode_labels(estimator: MarginalisedModel, rows: TrainingRows) -> tuple[Array, Array, Array]:
    """Return which labels take part, the index of each, and its weight factor; a number is its own index."""
    if isinstance(estimator, RegressorMixin):
        return rows.totals > 0.0, rows.labels, np.ones(len(rows.labels))
    return validation.encode_classes(rows.labels, rows.totals, estimator.class_weight, type(estimator).__name__)


def classes_of(estimator: MarginalisedModel, rows: TrainingRows) -> Array | None:
    """Return the classes that take part in a fit, ``None`` in a regression."""
    return None if isinstance(estimator, RegressorMixin) else rows.labels[_encode_labels(estimator, rows)[0]]


def _fill_rows(rows: Rows, model: FactorModel) -> Rows:
    return Rows(fill_conditional(rows.X, model), rows.y, rows.sample_weight)


def _first_intercept(loss: Loss, y: Array, weights: Array) -> float:
    """Return the intercept to start a regression from: the weighted mean of the targets, or one without any loss."""
    assert isinstance(loss, MomentLoss)
    middle = 0.5 * (y.min() + y.max())
    if not loss.value(y, np.full_like(y, middle), np.zeros_like(y)).any():
        return float(middle)
    return float(np.average(y, weights=weights))


def _residual_deviation(model: MarginalisedModel, rows: TrainingRows) -> float | None:
    """Return the standard deviation of the residuals of complete rows in memory; ``None`` if there are too few."""
    own = rows.partitions.single()
    if own is None:
        return None
    if rows.has_missing:
        own = own.take(np.flatnonzero(~incomplete_rows(negative_zero_to_nan(own.X))))
    n_rows = np.count_nonzero(own.sample_weight)
    # Noise and penalty leave fewer degrees of freedom to the coefficients, so this is an upper bound.
    n_free = n_rows - 1 - np.count_nonzero(model.coef_)
    if n_free <= 0:
        return None
    squares = np.square(rows.labels[own.y] - linear_scores(own.X, *coefficients(model))[:, 0])
    return float(np.sqrt(np.average(squares, weights=own.sample_weight) * n_rows / n_free))


def _warm_start(estimator: MarginalisedModel, classes: Array | None, n_features: int) -> Array | None:
    """Return the coefficients of an earlier fit (``warm_start``), if their shape and the classes are the same."""
    if not (estimator.warm_start and hasattr(estimator, "coef_")):
        return None
    if classes is not None and not np.array_equal(estimator.classes_, classes):
        return None
    coef, intercept = coefficients(estimator)
    if coef.shape != (n_outputs(estimator, classes), n_features):
        return None
    return np.vstack([as_dense(coef).T, intercept[None, :]]).astype(np.float64)


def n_outputs(estimator: MarginalisedModel, classes: Array | None) -> int:
    """Return the number of outputs for these classes; ``None`` in a regression."""
    return 1 if classes is None else len(binary_outputs(len(classes), estimator.multi_class))


def scale_of_C(estimator: MarginalisedModel, y: Array, sample_weight: Array) -> float:  # noqa: N802
    """Return the factor of the default values of ``C`` of a search."""
    return estimator._scale_of_C(y, sample_weight)


# Attributes ----------------------------------------------------------------------------------------------------------


def set_classes(estimator: MarginalisedModel, classes: Array | None, statistics: FeatureStatistics) -> None:
    """Set the classes and what predictions need to know of the features."""
    if classes is not None:
        estimator.classes_ = classes
    for name, values in zip(STATISTICS, statistics, strict=True):
        set_or_delete(estimator, name, values)


def set_result(estimator: MarginalisedModel, result: Result, dtype: Any) -> None:
    """Set coefficients, intercepts and the attributes that describe the fit."""
    if not np.isfinite(result.coef).all():
        raise ValueError(
            "The fit left the range of floating-point numbers. Scale the columns of X, for example with "
            "sklearn.preprocessing.StandardScaler, or choose a smaller C."
        )
    set_coefficients(estimator, result.coef, dtype)
    estimator.n_iter_, estimator.n_passes_ = result.n_iter, result.n_passes
    estimator.objective_ = float(result.objective.sum())
    estimator.converged_, estimator.history_ = result.converged, result.history


def coefficients(model: Any) -> tuple[Any, Array]:
    """Return the coefficients, one row per output, and the intercepts; a regressor has a vector and a number."""
    coef = model.coef_ if model.coef_.ndim == 2 else model.coef_[None, :]
    return coef, np.atleast_1d(model.intercept_)


def set_coefficients(model: MarginalisedModel, coef: Array, dtype: Any) -> None:
    """Set coefficients and intercepts from those of a solver, intercept last and one column per output."""
    model.coef_, model.intercept_ = np.ascontiguousarray(coef[:-1].T.astype(dtype)), coef[-1].astype(dtype)
    if isinstance(model, RegressorMixin):
        model.coef_, model.intercept_ = model.coef_[0], model.intercept_[0]


def set_or_delete(estimator: Any, name: str, value: Any) -> None:
    """Set an attribute; if the value is ``None``, delete that of an earlier fit."""
    if value is not None:
        setattr(estimator, name, value)
    elif hasattr(estimator, name):
        delattr(estimator, name)


def problem_of(estimator: MarginalisedModel) -> Problem:
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
    if multi_class == "ovo" and (values["probability"] or values["conformal"]):
        raise ValueError("probability and conformal need multi_class='ovr' or 'multinomial', got 'ovo'.")
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
