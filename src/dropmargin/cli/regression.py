"""Numbers as targets: ``--loss ridge`` and ``--loss svr``, and the errors that ``evaluate`` prints."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from dropmargin.cli.console import UsageError
from dropmargin.estimators import DropoutRidge, DropoutSVR
from dropmargin.io.data.cells import parse_number
from dropmargin.model_selection import DropoutRidgeCV, DropoutSVRCV
from dropmargin.typing import Array

#: The regressor of a loss, and the search over noise and C.
REGRESSORS: dict[str, tuple[Any, Any]] = {"ridge": (DropoutRidge, DropoutRidgeCV), "svr": (DropoutSVR, DropoutSVRCV)}
_EPSILON = 0.1


def is_regressor(model: Any) -> bool:
    """Return whether a fitted model predicts numbers."""
    return not hasattr(model, "classes_")


def check_options(options: SimpleNamespace) -> None:
    """Refuse options that do not suit the loss; set the default of ``--epsilon``."""
    if options.epsilon is not None and options.loss != "svr":
        raise UsageError("--epsilon is for --loss svr")
    options.epsilon = _EPSILON if options.epsilon is None else options.epsilon
    if options.loss not in REGRESSORS:
        return
    others = {"approximation": "bound", "multi_class": "ovr", "class_weight": None, "memory_limit": None}
    for name, neutral in others.items():
        if getattr(options, name, neutral) != neutral:
            raise UsageError(f"--{name.replace('_', '-')} cannot be used with --loss {options.loss}")


def as_numbers(y: Array, decimal: str, where: str) -> Array:
    """Return targets as numbers; ``where`` is where they are from."""
    if y.dtype.kind in "fiub":
        return y.astype(np.float64)
    parsed = [parse_number(str(text).strip(), decimal) for text in y.tolist()]
    if None in parsed:
        wrong = y[parsed.index(None)]
        raise UsageError(f"{where}: the targets must be numbers, got {str(wrong)!r}; for classes choose another --loss")
    return np.array(parsed, dtype=np.float64)


class ErrorCounter:
    """Adds up the errors of predictions, part by part."""

    def __init__(self, regressor: Any, decimal: str, path: str) -> None:
        self._regressor, self._decimal, self._path = regressor, decimal, path
        self._n, self._sums = 0, np.zeros(2)
        self._mean = self._spread = 0.0  # of the targets, updated part by part (Chan et al. 1979)

    def add(self, X: Any, y: Array) -> None:
        """Predict some rows and compare the predictions with their targets."""
        y = as_numbers(y, self._decimal, self._path)
        residuals = y - self._regressor.predict(X)
        self._sums += [np.sum(np.square(residuals)), np.sum(np.abs(residuals))]
        n, gap = self._n + len(y), float(y.mean()) - self._mean
        self._spread += float(np.sum(np.square(y - y.mean()))) + gap**2 * self._n * len(y) / n
        self._mean, self._n = self._mean + gap * len(y) / n, n

    def facts(self) -> dict[str, Any]:
        """Return number of rows, RMSE, mean absolute error and R^2 (``None`` if all targets are equal)."""
        square, absolute = (float(total) for total in self._sums)
        r2 = 1.0 - square / self._spread if self._spread > 0.0 else None
        return {"rows": self._n, "rmse": float(np.sqrt(square / self._n)), "mae": absolute / self._n, "r2": r2}

    def text(self) -> str:
        """Return the facts as text."""
        facts = self.facts()
        r2 = "none, as all targets are equal" if facts["r2"] is None else f"{facts['r2']:.4f}"
        return f"{facts['rows']} rows: RMSE {facts['rmse']:.6g}, mean absolute error {facts['mae']:.6g}, R^2 {r2}"
