"""The type of the data sets that loaders return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dropmargin.typing import Array


@dataclass(frozen=True, eq=False)
class Split:
    """A data set with its official training and test parts.

    Parameters
    ----------
    X_train, X_test : ndarray or csr_array
        Features; the docstring of the loader describes them.
    y_train, y_test : ndarray of int64
        Labels.
    description : str
        One sentence: the data set, and the files it was read from.
    feature_names : tuple of str, or None
        Names of the columns, if known.
    target_names : tuple of str, or None
        Names of the labels in ascending order, if known.
    """

    X_train: Any
    y_train: Array
    X_test: Any
    y_test: Array
    description: str
    feature_names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] | None = None
