"""Scores of rows with deleted features, for many coefficients: as `missing` and `conditional` compute them for one.

What does not depend on the coefficients is computed once. With ``missing="rescale"`` the scores are three products with
each row. With ``missing="conditional"`` the expected score is the score of the row whose missing features have their
conditional means, so dense rows are filled once, and their scores are one product. Sparse rows stay sparse: with the
expected factors ``z``, and the missing features ``m`` of the row's pattern, the score is
``b + w_o x_o + w_m mu_m + (w_m U_m) z``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dropmargin.data import linear_scores
from dropmargin.data.blocks import chunks
from dropmargin.data.deletion import DeletedRows
from dropmargin.data.deviations import Deviations
from dropmargin.data.missing_values import FeatureStatistics
from dropmargin.estimators.conditional import FactorModel
from dropmargin.estimators.missing import anchor
from dropmargin.typing import Array

# Numbers of a chunk of rows with their own matrices.
_CHUNK = 2**21


class RescaledRows:
    """Rows to score as with ``missing="rescale"``."""

    def __init__(self, rows: DeletedRows, statistics: FeatureStatistics) -> None:
        self.rows, self.statistics = rows, statistics

    def scores(self, coef: Array, intercept: Array) -> Array:
        """Return the scores of the rows, one column per output."""
        factor, shift = anchor(self.rows.missing_sums, coef, intercept, self.statistics)
        return factor * linear_scores(self.rows.filled, coef, np.zeros(1, dtype=coef.dtype)) + shift


class FilledRows:
    """Dense rows to score as with ``missing="conditional"``."""

    def __init__(self, rows: DeletedRows, model: FactorModel) -> None:
        self.filled = rows.filled
        for where, missing, factors in _expected_factors(rows, model):
            self.filled[where] = np.where(missing > 0.0, model.mean + factors @ model.factors.T, self.filled[where])

    def scores(self, coef: Array, intercept: Array) -> Array:
        return linear_scores(self.filled, coef, intercept)


class SparseFilledRows:
    """Sparse rows to score as with ``missing="conditional"``."""

    def __init__(self, rows: DeletedRows, model: FactorModel) -> None:
        self.rows, self.model = rows, model
        self.factors = np.concatenate([factors for _, _, factors in _expected_factors(rows, model)])

    def scores(self, coef: Array, intercept: Array) -> Array:
        scores = linear_scores(self.rows.filled, coef, intercept) + self.rows.missing_sums(coef * self.model.mean)
        for output, own in enumerate(coef):
            loadings = self.rows.missing_sums(own * self.model.factors.T)
            scores[:, output] += np.einsum("nk,nk->n", self.factors, loadings)
        return scores


ScoredRows = RescaledRows | FilledRows | SparseFilledRows


def _expected_factors(rows: DeletedRows, model: FactorModel) -> Iterator[tuple[slice, Array, Array]]:
    """Yield slices of rows, their missing features, and their expected factors."""
    n_rows, n_features = rows.shape
    for where in chunks(n_rows, model.rank**2 + model.rank + 2 * n_features, _CHUNK, 1):
        missing = rows.missing(where)
        projected = Deviations(rows.filled[where], missing, model.mean).times(model.precision_factors)
        yield where, missing, np.linalg.solve(model.matrices(missing), projected[:, :, None])[:, :, 0]
