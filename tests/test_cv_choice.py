"""The choice of noise and ``C``: that of scikit-learn's grid search, ties, the one-standard-error rule, pruning."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.preprocessing import scale

from datasets import make_binary, make_centred
from dropmargin import DropoutLogisticRegression, DropoutLogisticRegressionCV, DropoutSVC, DropoutSVCCV
from dropmargin.model_selection import path_solver

_PAIRS = [(DropoutSVC, DropoutSVCCV), (DropoutLogisticRegression, DropoutLogisticRegressionCV)]
svc_if_slow = pytest.mark.parametrize(
    ("plain", "search"), [pytest.param(*_PAIRS[0], marks=pytest.mark.slow), _PAIRS[1]], ids=["svc", "logistic"]
)


def _grid_search(estimator, X, y, noises, Cs, cv, scoring=None):
    """Return the results of scikit-learn's search."""
    grid = [{"C": [C], "noise": [noise]} for C in Cs for noise in noises]
    return GridSearchCV(estimator, grid, cv=cv, scoring=scoring, refit=False).fit(X, y).cv_results_


def _choice(results, scoring="score"):
    """Return rate, ``C`` and score that scikit-learn's search finds; of equals, the smallest ``C``, the first noise.

    Equal means of folds may differ by rounding there, so that the choice among them is made here.
    """
    means = results[f"mean_test_{scoring}"]
    params = results["params"][np.flatnonzero(means >= means.max() - 1e-12)[0]]
    return params["noise"], params["C"], pytest.approx(means.max(), rel=1e-6)


def _assert_choice_of_grid_search(plain, search, X, y, noises, Cs, cv=3, tol=1e-8):
    """Check that a search takes what scikit-learn's takes, with and without the early stop."""
    wanted = _choice(_grid_search(plain(tol=tol), X, y, noises, Cs, cv))
    for prune in (True, False):
        model = search(noises=noises, Cs=Cs, cv=cv, prune=prune, tol=tol).fit(X, y)
        assert (model.noise_.rate, model.C_, model.best_score_) == wanted
        assert model.refined_[model.best_index_]
        assert model.refined_.all() or prune


_SCORES = ["roc_auc", "neg_log_loss", "f1_macro", "balanced_accuracy", "neg_brier_score"]


@cache
def _grid_search_by_all_scores():
    return _grid_search(DropoutLogisticRegression(tol=1e-16), *make_binary(), [0.1, 0.6], [0.1, 1.0], 3, _SCORES)


@pytest.mark.parametrize("scoring", _SCORES)
def test_any_score_of_scikit_learn(scoring):
    X, y = make_binary()
    model = DropoutLogisticRegressionCV(noises=[0.1, 0.6], Cs=[0.1, 1.0], cv=3, scoring=scoring, tol=1e-16).fit(X, y)
    assert (model.noise_.rate, model.C_, model.best_score_) == _choice(_grid_search_by_all_scores(), scoring)


@svc_if_slow
def test_the_choice_on_breast_cancer(plain, search):
    X, y = load_breast_cancer(return_X_y=True)
    _assert_choice_of_grid_search(plain, search, scale(X), y, [0.0, 0.1, 0.3, 0.6], [0.01, 0.1, 1.0])


def _scores_from(table):
    """Return a scorer that looks its score up by noise and ``C``, and by the fold that the test rows tell."""
    return lambda model, X, y: table[int(X[0, -1])][model.noise.rate, model.C]


def _rigged(table, **options):
    """Fit a search to three folds whose scores are given: ``{(rate, C): [score of each fold]}``."""
    X, y = make_centred(30)
    X[:, -1] = np.repeat(np.arange(3.0), 10)
    y = np.arange(30) % 2
    noises, Cs = (list(dict.fromkeys(key[k] for key in table)) for k in (0, 1))
    folds = [{key: scores[fold] for key, scores in table.items()} for fold in range(3)]
    model = DropoutSVCCV(noises=noises, Cs=Cs, cv=KFold(3), scoring=_scores_from(folds), **options)
    return model.fit(X, y)


@pytest.mark.parametrize("prune", [True, False])
def test_of_equal_scores_the_smallest_c_and_then_the_first_noise(prune):
    flat = {(rate, C): [0.5, 0.7, 0.6] for rate in (0.3, 0.6, 0.1) for C in (0.1, 1.0, 10.0)}
    model = _rigged(flat, prune=prune)
    assert (model.noise_.rate, model.C_, model.best_index_) == (0.3, 0.1, (0, 0))
    high = flat | {key: [0.9, 0.8, 0.7] for key in [(0.6, 1.0), (0.1, 1.0), (0.3, 10.0)]}
    assert _rigged(high, prune=prune).best_index_ == (1, 1)


@pytest.mark.parametrize("prune", [True, False])
def test_the_one_standard_error_rule(prune):
    # the best has mean 0.8 and standard error 0.1 / sqrt(3) = 0.0577: 0.7423 is enough
    table = {
        (0.1, 0.1): [0.74] * 3,
        (0.5, 0.1): [0.6] * 3,
        (0.1, 1.0): [0.745] * 3,
        (0.5, 1.0): [0.75] * 3,
        (0.1, 10.0): [0.7, 0.8, 0.9],
        (0.5, 10.0): [0.78] * 3,
    }
    assert _rigged(table, prune=prune).best_index_ == (0, 2)
    model = _rigged(table, prune=prune, rule="one-se")
    assert (model.noise_.rate, model.C_) == (0.5, 1.0)
    assert model.best_score_ == pytest.approx(0.75)
    assert model.refined_[model.best_index_]


@pytest.mark.parametrize("search", [pytest.param(DropoutSVCCV, marks=pytest.mark.slow), DropoutLogisticRegressionCV])
def test_points_that_cannot_be_the_best_are_not_solved(search, monkeypatch):
    monkeypatch.setattr(path_solver, "_FEW_SCORES", 0)  # as for tables that are not small
    X, y = (part[:200] for part in load_digits(return_X_y=True))
    grid = {"noises": [0.0, 0.2, 0.8], "Cs": np.logspace(-4, 2, 9), "cv": 2}
    pruned, full = (search(**grid, prune=prune).fit(X, y) for prune in (True, False))
    assert pruned.best_index_ == full.best_index_
    assert pruned.best_score_ == pytest.approx(full.best_score_)
    is_interpolated = (pruned.n_iter_ == 0).all(axis=0)
    assert is_interpolated[2].any()  # strong noise
    assert not is_interpolated[:, ::4].any()
    assert full.n_iter_.all()
    assert np.isfinite(pruned.scores_).all()
    if search is DropoutLogisticRegressionCV:  # of what one standard error may choose, nothing is skipped
        assert search(**grid, rule="one-se").fit(X, y).n_iter_.all()
