"""`cv_results_` of a search, and the warnings if the choice is at an end of the grid."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.model_selection import GridSearchCV

from dropmargin import DropoutNoise, DropoutSVC, DropoutSVCCV, GaussianNoise, NoisyLinearClassifierCV, PoissonNoise
from dropmargin.errors import ParameterWarning
from dropmargin.model_selection.grid import Grid
from dropmargin.model_selection.results import warn_at_ends
from helpers import make_data

RATES = [None, *map(DropoutNoise, (0.1, 0.3))]


def test_the_table_is_that_of_a_grid_search():
    pd = pytest.importorskip("pandas")
    X, labels, _ = make_data(n_samples=80, seed=3)
    y = labels[:, 0]
    model = DropoutSVCCV(noises=[0.0, 0.2, 0.5], Cs=[1.0, 0.1], cv=4, tol=1e-9, prune=False).fit(X, y)
    grid = {"C": [0.1, 1.0], "noise": [0.0, 0.2, 0.5]}
    other = GridSearchCV(DropoutSVC(tol=1e-10), grid, cv=4).fit(X, y)
    ours, theirs = pd.DataFrame(model.cv_results_), pd.DataFrame(other.cv_results_)
    ours["param_noise"] = [noise.rate for noise in ours["param_noise"]]
    ours, theirs = (table.sort_values(["param_C", "param_noise"], ignore_index=True) for table in (ours, theirs))
    for name in theirs.columns:
        if name != "params" and "time" not in name:
            assert_array_equal(ours[name].to_numpy(float), theirs[name].to_numpy(float), err_msg=name)
    assert not any("time" in name for name in ours.columns)
    assert ours["refined"].all()


def _warnings(noises, n_cs, chosen, scores=None):
    """Return the parameters and texts of the warnings for a choice, with scores that decrease away from it."""
    grid = Grid(tuple(noises), 10.0 ** np.arange(n_cs))
    if scores is None:
        rows, columns = np.indices(grid.shape)
        scores = 1.0 - 0.1 * np.abs(rows - chosen[0]) - 0.1 * np.abs(columns - chosen[1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_at_ends(grid, np.asarray(scores, dtype=float), chosen, stacklevel=1)
    assert all(isinstance(one.message, ParameterWarning | UserWarning) for one in caught)
    assert all(one.filename == __file__ for one in caught)
    return {one.message.parameter: str(one.message) for one in caught}


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (0, ["C=1 ", "smallest", "smaller", "0.01, 0.1"]),
        (1, None),
        (3, ["C=1000 ", "largest", "larger", "1e+04, 1e+05"]),
    ],
)
def test_the_ends_of_cs(column, words):
    found = _warnings(RATES, 4, (1, column))
    assert found.keys() == (set() if words is None else {"Cs"})
    assert words is None or all(word in found["Cs"] for word in words)


@pytest.mark.parametrize(
    ("noises", "row", "words"),
    [
        (RATES, 0, None),  # no noise is a natural end
        (RATES, 1, None),
        (RATES, 2, ["DropoutNoise(rate=0.3)", "strongest", "stronger"]),
        (RATES[1:], 0, ["DropoutNoise(rate=0.1)", "weakest", "weaker", "None"]),
        ([DropoutNoise(0.0), *RATES[1:]], 0, None),
        ([DropoutNoise(0.3), DropoutNoise(0.1)], 1, ["weakest"]),
        ([DropoutNoise(0.5), DropoutNoise(0.9)], 1, None),  # the end of the default grid
        ([DropoutNoise(0.95), DropoutNoise(0.99)], 0, ["weakest"]),
        ([None, GaussianNoise(5.0)], 1, ["GaussianNoise(scale=5.0)", "strongest"]),
        ([GaussianNoise(5.0), DropoutNoise(0.1)], 0, None),  # one of each class
        ([None, PoissonNoise()], 1, None),
        (RATES[1:2], 0, None),
    ],
)
def test_the_ends_of_the_noises(noises, row, words):
    found = _warnings(noises, 3, (row, 1))
    assert found.keys() == (set() if words is None else {"noises"})
    assert words is None or all(word in found["noises"] for word in words)


def test_a_search_warns_where_it_is_called():
    X, labels, _ = make_data(n_samples=60)
    with pytest.warns(UserWarning, match="is the largest of Cs; larger values may score higher") as caught:
        NoisyLinearClassifierCV("logistic", noises=[None], Cs=[0.1, 1.0, 10.0], cv=2).fit(X, labels[:, 0])
    assert [one.filename for one in caught] == [__file__]
