"""Scores of rows with deleted features, for many coefficients: as `missing` and `conditional` compute them for one.

What does not depend on the coefficients is computed once. With ``missing="rescale"`` the scores are three products with
each row. With ``missing="conditional"`` the expected score is the score of the row whose missing features have their
conditional means, so dense rows are filled once, and their scores are one product. Sparse rows stay sparse: with the
expected factors ``z``, and the missing features ``m`` of the row's pattern, the score is
``b + w_o x_o + w_m mu_m + (w_m U_m) z``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from dropmargin.data import linear_scores
from dropmargin.data.deletion import DeletedRows
from dropmargin.data.missing_values import chunks
from dropmargin.estimators.conditional import FactorModel
from dropmargin.estimators.missing import Rescaled, times
from dropmargin.typing import Array

# Numbers of a chunk of rows with their own matrices.
_CHUNK = 2**21


def scores_of_deleted(rows: DeletedRows, rule: Rescaled | FactorModel) -> Callable[[Array, Array], Array]:
    """Return the function of coefficients and intercepts that gives the scores of rows with deleted features."""
    if isinstance(rule, Rescaled):
        return partial(_rescaled, rows, rule)
    n_rows, n_features = rows.shape
    expected = np.empty((n_rows, rule.rank))
    for where in chunks(n_rows, rule.rank**2 + rule.rank + 2 * n_features, _CHUNK):
        missing = rows.missing(where)
        projected = rows.filled[where] @ rule.precision_factors
        projected -= (1.0 - missing) @ (rule.mean[:, None] * rule.precision_factors)
        expected[where] = np.linalg.solve(rule.matrices(missing), projected[:, :, None])[:, :, 0]
        if rows.is_dense:
            filled = rule.mean + expected[where] @ rule.factors.T
            rows.filled[where] = np.where(missing > 0.0, filled, rows.filled[where])
    if rows.is_dense:
        return partial(linear_scores, rows.filled)
    return partial(_conditional, rows, rule, expected)


def _rescaled(rows: DeletedRows, rule: Rescaled, coef: Array, intercept: Array) -> Array:
    factor, shift = rule.affine(coef, intercept, rows.missing_sums)
    return factor * times(rows.filled, coef) + shift


def _conditional(rows: DeletedRows, rule: FactorModel, expected: Array, coef: Array, intercept: Array) -> Array:
    scores = linear_scores(rows.filled, coef, intercept) + rows.missing_sums(coef * rule.mean)
    for output, own in enumerate(coef):
        scores[:, output] += np.einsum("nk,nk->n", expected, rows.missing_sums(own * rule.factors.T))
    return scores
