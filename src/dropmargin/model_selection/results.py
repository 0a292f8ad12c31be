"""The results of a search: a table like that of scikit-learn's `GridSearchCV`, and warnings at the ends of the grid."""

from __future__ import annotations

import warnings
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
    what = f"is constant: it has no coefficients and predicts the same {target} for all rows"
    if is_highest:
        what = f"{what}, and no point of the grid scores higher"
        remedy = "Add larger values to Cs, or weaker noise to noises."
        option = "Add larger values, or weaker noise to --noises"
    else:
        what = f"{what}; its score is within one standard error of the highest"
        remedy, option = "The highest is chosen by rule='best'.", "The highest is chosen by --rule best"
    warning = ParameterWarning(f"The chosen model {what}. {remedy}", "Cs", f"the chosen model {what}. {option}")
    warnings.warn(warning, stacklevel=stacklevel + 1)


def warn_at_ends(grid: Grid, mean: Array, chosen: Point, stacklevel: int) -> None:
    """Warn if the chosen ``C`` or noise is at an end of its grid, where the best value may lie outside.

    There is no warning where the score does not change towards the end, for a grid of one value, for no noise, for
    dropout rates from 0.9 on, and for a noise without parameters. ``stacklevel`` is as in `warnings.warn`, as if called
    by the caller.
    """
    for warning in (_end_of_cs(grid, mean, chosen), _end_of_noises(grid, mean, chosen)):
        if warning is not None:
            warnings.warn(warning, stacklevel=stacklevel + 1)


def _end_of_cs(grid: Grid, mean: Array, chosen: Point) -> ParameterWarning | None:
    row, column = chosen
    last = len(grid.Cs) - 1
    if last == 0 or column not in (0, last):
        return None
    inner = 1 if column == 0 else last - 1
    if _is_flat(mean[row, column], mean[row, inner]):
        return None
    C, step = grid.Cs[column], grid.Cs[column] / grid.Cs[inner]
    end, other = ("smallest", "smaller") if column == 0 else ("largest", "larger")
    examples = ", ".join(f"{value:.3g}" for value in sorted((C * step, C * step**2)))
    return ParameterWarning(
        f"The chosen C={C:.6g} is the {end} of Cs; {other} values may score higher. Add {other} values to Cs, such as "
        f"{examples}.",
        "Cs",
        f"the chosen C {C:.6g} is the {end} of the grid; {other} values may score higher. Add {other} values, such as "
        f"{examples}",
    )


def _end_of_noises(grid: Grid, mean: Array, chosen: Point) -> ParameterWarning | None:
    row, column = chosen
    noise = grid.noises[row]
    if noise is None or noise.variance().is_zero or not noise.get_params(deep=False):
        return None
    free = [i for i, other in enumerate(grid.noises) if other is None or other.variance().is_zero]
    alike = [i for i, other in enumerate(grid.noises) if type(other) is type(noise) and i not in free]
    order = free + sorted(alike, key=lambda i: noise_level(grid.noises[i]))
    place = order.index(row)
    is_natural_end = isinstance(noise, DropoutNoise) and noise_level(noise) >= HIGHEST_RATE
    if len(order) == 1 or 0 < place < len(order) - 1 or (place > 0 and is_natural_end):
        return None
    if _is_flat(mean[row, column], mean[order[1 if place == 0 else place - 1], column]):
        return None
    end, other = ("weakest", "weaker noise, or None for no noise,") if place == 0 else ("strongest", "stronger noise")
    option = other.replace("None", "none")
    return ParameterWarning(
        f"The chosen noise {noise!r} is the {end} {type(noise).__name__} of noises; {other} may score higher. Add "
        "it to noises.",
        "noises",
        f"the chosen noise is the {end} of its kind in the grid; {option} may score higher. Add it to the list",
    )


def _is_flat(score: float, other: float) -> bool:
    return bool(np.round(score, _DIGITS) == np.round(other, _DIGITS))
