"""What a long fit has around it: a bar with the time left, and a hash of its parameters for the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

import dropmargin
from dropmargin.data import as_dense
from dropmargin.estimators.base import MarginalisedClassifier
from dropmargin.progress import Progress
from dropmargin.solvers import Iteration
from dropmargin.streaming.checkpoint import hash_of

# These say how to compute and not what.
_NO_MATTER = ("n_jobs", "verbose")
_PROGRESS_STEPS = 1000


def parameter_hash(estimator: MarginalisedClassifier) -> bytes:
    """Return a hash of all that the result depends on besides the data."""
    is_warm = estimator.warm_start and hasattr(estimator, "coef_")
    start = [as_dense(estimator.coef_), estimator.intercept_] if is_warm else []
    return hash_of(dropmargin.__version__, np.__version__, _described(estimator), *start)


def _described(value: Any) -> Any:
    if isinstance(value, BaseEstimator):
        params = value.get_params(deep=False).items()
        return type(value).__name__, [(name, _described(own)) for name, own in sorted(params) if name not in _NO_MATTER]
    if isinstance(value, np.ndarray | list | tuple):
        return "array", np.asarray(value).tolist()
    return sorted(value.items(), key=repr) if isinstance(value, dict) else repr(value)


@contextmanager
def fit_progress(estimator: MarginalisedClassifier, progress: bool) -> Iterator[Callable[[Iteration], None]]:
    """Yield a monitor that draws a bar: how many of the digits that ``tol`` asks for are there."""
    with Progress(_PROGRESS_STEPS, f"fitting {type(estimator).__name__}", verbose=int(progress)) as bar:
        largest, shown = 0.0, 0

        def monitor(entry: Iteration) -> None:
            nonlocal largest, shown
            gap = entry.gap / max(abs(entry.objective), np.finfo(float).tiny)
            if not (np.isfinite(gap) and gap > 0.0):
                return
            largest = max(largest, gap)
            aim = max(estimator.tol, 1e-15)
            share = np.log(largest / gap) / np.log(largest / aim) if largest > aim else 1.0
            reached = int(_PROGRESS_STEPS * min(1.0, share))
            bar.advance(max(0, reached - shown))
            shown = max(shown, reached)

        yield monitor
