"""The results of a search: a table like that of scikit-learn's `GridSearchCV`, and warnings at the ends of the grid."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from dropmargin.errors import ParameterWarning
from dropmargin.model_selection.grid import HIGHEST_RATE, Grid, Point, noise_level
from dropmargin.noise import DropoutNoise
from dropmargin.typing import Array

# Mean scores that differ by less than this many decimal digits are equal.
_DIGITS = 12


def cv_results(grid: Grid, scores: Array, refined: Array) -> dict[str, Any]:
    """Return the scores of all grid points as a dict of columns, for `pandas.DataFrame`.

    Keys and values are those of `sklearn.model_selection.GridSearchCV`, without times, as points on a path have no time
    of their own; ``refined`` is added. The points are in the order of ``scores``, of shape (n_folds, n_noises, n_Cs),
    the last index first.
    """
    points = list(np.ndindex(grid.shape))
    noise = np.empty(len(points), dtype=object)
    noise[:] = [grid.noises[row] for row, _ in points]
    C = np.array([grid.Cs[column] for _, column in points])
    by_fold = scores.reshape(len(scores), len(points))
    mean = by_fold.mean(axis=0)
    with np.errstate(invalid="ignore"):  # scores may be infinite
        deviation = by_fold.std(axis=0)
    ranked = np.where(np.isnan(mean), -np.inf, np.round(mean, _DIGITS))
    return {
        "param_noise": np.ma.masked_array(noise, mask=False),
        "param_C": np.ma.masked_array(C, mask=False),
        "params": [{"noise": one, "C": float(value)} for one, value in zip(noise, C, strict=True)],
        **{f"split{fold}_test_score": own.copy() for fold, own in enumerate(by_fold)},
        "mean_test_score": mean,
        "std_test_score": deviation,
        "rank_test_score": rankdata(-ranked, method="min").astype(np.int32),
        "refined": refined.ravel().copy(),
    }


def warn_constant(target: str, is_highest: bool, stacklevel: int) -> None:
    """Warn that the chosen model has no coefficients.

    Parameters
    ----------
    target : str
        What it predicts, a label or a number.
    is_highest : bool
        Whether no point of the grid has a higher score.
    stacklevel : int
        As in `warnings.warn`, as if called by the caller.
    """
    text = f"The chosen model is constant: it has no coefficients and predicts the same {target} for all rows"
    if is_highest:
        text += ", and no point of the grid scores higher. Add larger values to Cs, or weaker noise to noises."
    else:
        text += "; its score is within one standard error of the highest. The highest is chosen by rule='best'."
    warnings.warn(ParameterWarning(text, "Cs"), stacklevel=stacklevel + 1)


def warn_at_ends(grid: Grid, mean: Array, chosen: Point, stacklevel: int) -> None:
    """Warn if the chosen ``C`` or noise is at an end of its grid, where the best value may lie outside.

    There is no warning where the score does not change towards the end, for a grid of one value, for no noise, for
    dropout rates from 0.9 on, and for a noise without parameters. ``stacklevel`` is as in `warnings.warn`, as if called
    by the caller.
    """
    row, column = chosen
    side = _end(range(len(grid.Cs)), column, mean[row])
    if side:
        C, step = grid.Cs[column], grid.Cs[column] / grid.Cs[column - side]
        end, other = ("smallest", "smaller") if side < 0 else ("largest", "larger")
        examples = ", ".join(f"{value:.3g}" for value in sorted((C * step, C * step**2)))
        text = f"The chosen C={C:.6g} is the {end} of Cs; {other} values may score higher. Add {other} values to Cs"
        warnings.warn(ParameterWarning(f"{text}, such as {examples}.", "Cs"), stacklevel=stacklevel + 1)
    noise, free = grid.noises[row], [i for i, own in enumerate(grid.noises) if own is None or own.variance().is_zero]
    if noise is None or row in free or not noise.get_params(deep=False):
        return
    alike = [i for i, other in enumerate(grid.noises) if type(other) is type(noise) and i not in free]
    side = _end(free + sorted(alike, key=lambda i: noise_level(grid.noises[i])), row, mean[:, column])
    if side < 0 or (side > 0 and not (isinstance(noise, DropoutNoise) and noise_level(noise) >= HIGHEST_RATE)):
        end, other = ("weakest", "weaker noise, or None for no noise,") if side < 0 else ("strongest", "stronger noise")
        text = f"The chosen noise {noise!r} is the {end} {type(noise).__name__} of noises; {other} may score higher."
        warnings.warn(ParameterWarning(f"{text} Add it to noises.", "noises"), stacklevel=stacklevel + 1)


def _end(order: Sequence[int], chosen: int, scores: Array) -> int:
    """Return -1 or 1 if the chosen index is first or last of several, and its score differs from the next; else 0."""
    place, last = order.index(chosen), len(order) - 1
    if last == 0 or 0 < place < last:
        return 0
    inner = order[1 if place == 0 else last - 1]
    is_flat = np.round(scores[chosen], _DIGITS) == np.round(scores[inner], _DIGITS)
    return 0 if is_flat else -1 if place == 0 else 1
