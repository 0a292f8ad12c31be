"""What every loader returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dropmargin.typing import Array


@dataclass(frozen=True, eq=False)
class Split:
    """A data set in its official parts.

    Parameters
    ----------
    X_train, X_test : ndarray or csr_array
        The rows; the loader says what they are.
    y_train, y_test : ndarray of int64
        Their labels.
    description : str
        One sentence: what this is, and from which files it was read.
    feature_names : tuple of str, or None
        The names of the columns, if they are known.
    target_names : tuple of str, or None
        The names of the labels in ascending order, if they are known.
    """

    X_train: Any
    y_train: Array
    X_test: Any
    y_test: Array
    description: str
    feature_names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] | None = None
