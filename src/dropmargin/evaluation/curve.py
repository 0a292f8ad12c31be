"""The base class of curves: scores by level and repeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dropmargin.typing import Array


@dataclass(frozen=True, eq=False)
class ScoreCurve:
    """Scores of one classifier at several levels of corruption.

    Attributes
    ----------
    scores : ndarray of shape (n_levels, n_repeats)
    scoring : str, callable or None
        The metric, as it was given.
    """

    scores: Array
    scoring: Any

    @property
    def mean(self) -> Array:
        """Mean score of each level over the repeats."""
        return self.scores.mean(axis=1)

    @property
    def std(self) -> Array:
        """Standard deviation of the scores of each level over the repeats."""
        return np.std(self.scores, axis=1)
