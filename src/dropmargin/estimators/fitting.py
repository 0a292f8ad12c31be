"""A fit, wherever the rows are: checked rows become training data, `solve` minimises, and attributes are set.

`fit_rows` is the fit of an estimator to `TrainingRows`, wherever they are. Other packages use these functions, and no
private attributes of an estimator.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning

from dropmargin.data import Partitions, Rows, TrainingData, as_dense, binary_outputs, linear_scores
from dropmargin.data.missing_values import STATISTICS, FeatureStatistics, incomplete_rows, negative_zero_to_nan
from dropmargin.errors import ParameterError
from dropmargin.estimators import validation
from dropmargin.estimators.conditional import FactorModel
from dropmargin.estimators.factor_analysis import fill_conditional, fit_factor_model
from dropmargin.estimators.parameters import check_parameters
from dropmargin.estimators.rows import TrainingRows, check_partitions, set_or_delete
from dropmargin.losses import Logistic, Loss, MCFLogistic, MGFLoss, MomentLoss
from dropmargin.noise import as_noise
from dropmargin.penalties import Penalty
from dropmargin.solvers import Iteration, Monitor, Problem, Result, choose_solver, no_monitor, solve
from dropmargin.typing import Array

if TYPE_CHECKING:
    from dropmargin.estimators.base import MarginalisedModel

E = TypeVar("E", bound="MarginalisedModel")


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
    if loss.value(y, np.full_like(y, middle), np.zeros_like(y)).max() <= 1e-15 * (y.max() - y.min()):
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


def partition_problem(estimator: MarginalisedModel) -> Problem:
    """Return the problem of an estimator whose rows are in partitions, after checking its parameters."""
    if estimator.missing == "conditional":
        raise ValueError(
            "missing='conditional' needs all rows in memory, got rows in files or on a cluster: set "
            "missing='rescale', or fit to an array."
        )
    if held_out := validation.holds_out(estimator):
        raise ValueError(
            f"{held_out} holds out rows, and needs all of them in memory, got rows in files or on a cluster: leave it "
            "out, or fit to an array."
        )
    return problem_of(estimator)


def fit_partitions(
    estimator: E,
    data: Partitions,
    names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    monitor: Monitor | None = None,
) -> E:
    """Fit an estimator to rows in partitions; if the fit fails or is interrupted, the estimator is unchanged.

    Partitions are `Rows` with their numbers; they may be empty, and may lack some classes. ``names`` are those of the
    partitions in errors. ``monitor`` is called with each `solvers.Iteration`, in addition to that of ``verbose``.
    """
    with validation.unchanged_on_failure(estimator):
        problem = partition_problem(estimator)
        fit_rows(estimator, problem, check_partitions(estimator, data, names, feature_names), monitor=monitor)
    return estimator
