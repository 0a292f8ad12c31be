"""Fits to rows in partitions, in files or on a cluster: of a model, or of a search over noise and ``C``.

The folds of a search are those of rows in memory: targets and sample weights are gathered, and split as there. In the
training rows of a fold, the test rows have the weight zero, so that no rows are copied or moved. The path over the grid
and the choice are those of `model_selection.search`. A few rows are gathered, and searched in memory: a search over a
small table solves all values of ``C`` together there, and two paths to a solution within ``tol`` may differ in the
label of a row, which may decide between two points of the grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from joblib import effective_n_jobs

from dropmargin.data import Partitions, Rows, stack_rows
from dropmargin.data.missing_values import negative_zero_to_nan
from dropmargin.estimators import validation
from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.fitting import fit_partitions, partition_problem
from dropmargin.estimators.parameters import check_parameters
from dropmargin.estimators.rows import TrainingRows, check_partitions, check_rows
from dropmargin.model_selection.base import MarginalisedModelCV, plain_model, run_search
from dropmargin.model_selection.folds import Targets
from dropmargin.progress import Progress
from dropmargin.solvers import Iteration, Problem

E = TypeVar("E", MarginalisedModel, MarginalisedModelCV)

_PROGRESS_STEPS = 1000
# A search gathers rows of at most this many bytes.
_GATHERED_BYTES = 2**24


def check_estimator(estimator: Any) -> Problem:
    """Return the problem of a model, or of a search without noise, after checking all parameters."""
    if isinstance(estimator, MarginalisedModelCV):
        check_parameters(estimator)
        return partition_problem(plain_model(estimator))
    if not isinstance(estimator, MarginalisedModel):
        raise TypeError(
            "estimator must be a DropoutSVC, DropoutLogisticRegression, MCFClassifier, NoisyLinearClassifier, "
            "DropoutRidge, DropoutSVR or NoisyLinearRegressor, or one of those with CV in their names, got "
            f"{type(estimator).__name__}."
        )
    return partition_problem(estimator)


def fit_estimator(
    estimator: E,
    data: Partitions,
    names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    progress: bool = False,
) -> E:
    """Fit a model or a search to rows in partitions; the other parameters are those of `fit_partitions`.

    Parameters
    ----------
    progress : bool, default=False
        Whether to show a bar with the remaining time.
    """
    if not isinstance(estimator, MarginalisedModelCV):
        with _fit_progress(estimator, progress) as monitor:
            return fit_partitions(estimator, data, names, feature_names, monitor)
    with validation.unchanged_on_failure(estimator):
        check_parameters(estimator)
        model = plain_model(estimator)
        partition_problem(model)  # its parameters are checked before the rows
        rows, given, n_threads = check_partitions(model, data, names, feature_names), None, 1
        targets = Targets.of(rows)
        weights = targets.sample_weight if np.any(targets.sample_weight != 1.0) else None
        # The size of all rows in double precision; a stored entry of sparse rows has an index.
        n_bytes = rows.n_stored * (8 if rows.is_dense else 12)
        if n_bytes <= _GATHERED_BYTES and (rows.feature_names is None or rows.is_dense):
            given, n_threads = (_gather_features(rows), rows.labels[targets.codes]), effective_n_jobs(estimator.n_jobs)
            rows = check_rows(model, *given, weights)
            targets = Targets.of(rows)
        # Folds elsewhere are solved one after the other: each uses all threads or workers.
        verbose = estimator.verbose if progress else 0
        run_search(estimator, model, rows, targets, given, (weights, None), n_threads, verbose)
    return estimator


@contextmanager
def _fit_progress(estimator: MarginalisedModel, progress: bool) -> Iterator[Callable[[Iteration], None]]:
    """Yield a monitor that shows a bar: the digits of ``tol`` that are reached, by the relative gap."""
    with Progress(_PROGRESS_STEPS, f"fitting {type(estimator).__name__}", verbose=int(progress)) as bar:
        largest, shown = 0.0, 0

        def monitor(entry: Iteration) -> None:
            nonlocal largest, shown
            gap = entry.gap / max(abs(entry.objective), np.finfo(float).tiny)
            if not (np.isfinite(gap) and gap > 0.0):
                return
            largest = max(largest, gap)
            goal = max(estimator.tol, 1e-15)
            share = np.log(largest / gap) / np.log(largest / goal) if largest > goal else 1.0
            reached = int(_PROGRESS_STEPS * min(1.0, share))
            bar.advance(max(0, reached - shown))
            shown = max(shown, reached)

        yield monitor


def _gather_features(rows: TrainingRows) -> Any:
    """Return the features of all rows, as a data frame if they have names."""
    parts = [part for part in rows.partitions.map(_features_of) if part.shape[0]]
    X = stack_rows([negative_zero_to_nan(part) for part in parts] if rows.has_missing else parts)
    if rows.feature_names is None:
        return X
    import pandas as pd

    return pd.DataFrame(X, columns=list(rows.feature_names))


def _features_of(rows: Rows) -> Any:
    return rows.X.copy()
