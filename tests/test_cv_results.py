"""`cv_results_` of a search, and the warnings if the choice is at an end of the grid."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.model_selection import GridSearchCV

from dealing import together
from dropmargin import (
    DropoutNoise,
    DropoutRidgeCV,
    DropoutSVC,
    DropoutSVCCV,
    GaussianNoise,
    NoisyLinearClassifierCV,
    PoissonNoise,
)
from dropmargin.errors import ParameterWarning
from dropmargin.model_selection.grid import Grid
from dropmargin.model_selection.results import cv_results, warn_at_ends
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


def test_points_are_in_the_order_of_the_scores():
    X, labels, _ = make_data(n_samples=60)
    model = NoisyLinearClassifierCV("logistic", noises=[None, GaussianNoise(0.3)], Cs=[0.1, 1.0, 10.0], cv=2)
    model.fit(X, labels[:, 0])
    results = model.cv_results_
    place = np.ravel_multi_index(model.best_index_, model.scores_.shape[1:])
    assert results["params"][place] == {"noise": model.noise_, "C": model.C_}
    assert results["param_noise"][place] is model.noise_
    assert results["param_C"][place] == model.C_
    assert results["mean_test_score"][place] == model.best_score_
    assert results["rank_test_score"][place] == 1
    assert_array_equal(results["split1_test_score"], model.scores_[1].ravel())
    assert_array_equal(results["refined"], model.refined_.ravel())
    again = pickle.loads(pickle.dumps(model)).cv_results_
    assert_array_equal(again["rank_test_score"], results["rank_test_score"])


def test_equal_scores_have_the_same_rank_and_nan_the_last():
    grid = Grid((None,), np.array([0.1, 1.0, 10.0, 100.0]))
    scores = np.array([[[0.5, 0.7 + 1e-15, np.nan, 0.7]]])
    found = cv_results(grid, scores, np.ones((1, 4), dtype=bool))["rank_test_score"]
    assert found.tolist() == [3, 1, 4, 1]


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
        (2, ["C=100 ", "largest", "larger", "1e+03, 1e+04"]),
    ],
)
def test_the_ends_of_cs(column, words):
    found = _warnings(RATES, 3, (1, column))
    assert found.keys() == (set() if words is None else {"Cs"})
    assert words is None or all(word in found["Cs"] for word in words)


@together(
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


def test_no_warning_for_one_value_or_where_the_score_does_not_change():
    assert not _warnings([DropoutNoise(0.1)], 1, (0, 0))
    assert not _warnings(RATES, 3, (1, 0), scores=np.full((3, 3), 0.9))
    assert not _warnings(RATES, 3, (2, 1), scores=np.full((3, 3), 0.9))


def test_a_search_warns_where_it_is_called():
    X, labels, _ = make_data(n_samples=60)
    with pytest.warns(UserWarning, match="is the largest of Cs; larger values may score higher") as caught:
        NoisyLinearClassifierCV("logistic", noises=[None], Cs=[0.1, 1.0, 10.0], cv=2).fit(X, labels[:, 0])
    assert [one.filename for one in caught] == [__file__]


def test_the_warning_about_a_constant_model_says_whether_others_score_higher():
    X, labels, _ = make_data(n_samples=60)
    search = DropoutSVCCV(noises=[0.1], Cs=[1e-4], l1_ratio=1.0, cv=3)
    with pytest.warns(ParameterWarning, match="no coefficients.*, and no point of the grid scores higher"):
        search.fit(X, labels[:, 0])
    # a score that differs much between the folds, and little between the values of C
    search.set_params(Cs=[1e-4, 10.0], rule="one-se", scoring=lambda model, X, y: X[0, 0] + 1e-3 * (model.C > 1.0))
    with pytest.warns(ParameterWarning, match="no coefficients.*within one standard error of the highest"):
        search.fit(X, labels[:, 0])
    assert search.best_score_ < search.scores_.mean(axis=0).max()


def test_no_warning_about_a_constant_model_if_only_those_of_the_folds_are():
    X, labels, _ = make_data(n_samples=60)
    y = labels[:, 0].astype(float)
    threshold = 0.5 / np.abs((y - y.mean()) @ X).max()  # of C for all rows, half of that for the rows of a fold
    search = DropoutRidgeCV(noises=[None], Cs=[1.2 * threshold], l1_ratio=1.0, cv=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search.fit(X, y)
    assert search.coef_.any()
    assert not search.coefs_paths_[..., :-1].any()
