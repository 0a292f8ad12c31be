"""The classifiers that choose noise and ``C``: scores, folds, the choice, pruning, table, warnings."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, ShuffleSplit, StratifiedKFold, cross_val_score
from sklearn.utils.fixes import parse_version

from datasets import N_FEATURES, assert_bitwise_equal, make_binary, make_centred, make_multiclass, relative_difference
from dealing import deal
from dropmargin import (
    DropoutLogisticRegression,
    DropoutLogisticRegressionCV,
    DropoutNoise,
    DropoutSVC,
    DropoutSVCCV,
    DropoutSVRCV,
    GaussianNoise,
    NoisyLinearClassifierCV,
    PoissonNoise,
)
from dropmargin.errors import ParameterWarning
from dropmargin.model_selection import path_solver
from dropmargin.model_selection.grid import Grid
from dropmargin.model_selection.results import warn_at_ends
from fuzz import selection
from helpers import make_data

_TOL = 1e-10
_NOISES = [0.5, None, GaussianNoise(scale=0.4), 0.2]
_CS = [0.3, 1.0, 10.0]
_SMALL = {"noises": [0.1, 0.5], "Cs": [0.1, 1.0], "cv": 3}
_PAIRS = [(DropoutSVC, DropoutSVCCV), (DropoutLogisticRegression, DropoutLogisticRegressionCV)]
both = pytest.mark.parametrize(("plain", "search"), _PAIRS, ids=["svc", "logistic"])


def _scores_of_fits(estimator, model, X, y, cv, scoring=None, weights=None, score_weights=None):
    """Return the scores that fits with every noise and ``C`` of a fitted search have on the folds."""
    score, out = get_scorer(scoring or "accuracy") if not callable(scoring) else scoring, np.zeros(model.scores_.shape)
    for fold, (train, test) in enumerate(cv):
        own = {} if weights is None else {"sample_weight": (weights if score_weights is None else score_weights)[test]}
        for row, noise in enumerate(model.noises_):
            for column, C in enumerate(model.Cs_):
                fit = clone(estimator).set_params(noise=noise, C=C)
                fit.fit(X[train], y[train], None if weights is None else weights[train])
                out[fold, row, column] = score(fit, X[test], y[test], **own)
    return out


# The scores ---------------------------------------------------------------------------------------------------------


@both
def test_weights_count_in_fits_and_scores(plain, search):
    X, y = make_binary()
    weights = np.random.RandomState(0).randint(0, 4, len(y)).astype(float)
    model = search(**_SMALL, tol=_TOL, prune=False).fit(X, y, sample_weight=weights)
    wanted = _scores_of_fits(plain(tol=_TOL), model, X, y, StratifiedKFold(3).split(X, y), weights=weights)
    np.testing.assert_allclose(model.scores_, wanted, rtol=1e-12)
    final = plain(noise=model.noise_, C=model.C_, tol=_TOL).fit(X, y, weights)
    assert relative_difference(model, final) < 1e-4
    scalar = search(**_SMALL).fit(X, y, sample_weight=2.0)
    np.testing.assert_array_equal(scalar.scores_, search(**_SMALL).fit(X, y, sample_weight=np.full(60, 2.0)).scores_)


# The folds ----------------------------------------------------------------------------------------------------------


def test_folds_may_be_given_in_every_way_of_scikit_learn():
    X, y = make_binary()
    splits = list(StratifiedKFold(3).split(X, y))
    masks = [tuple(np.isin(np.arange(60), part) for part in split) for split in splits]
    wanted = DropoutSVCCV(**_SMALL).fit(X, y)
    lists = [(list(train), list(test)) for train, test in splits]
    for cv in (StratifiedKFold(3), lists, masks, iter(splits)):
        got = DropoutSVCCV(**{**_SMALL, "cv": cv}).fit(X, y)
        np.testing.assert_array_equal(got.scores_, wanted.scores_)
        assert_bitwise_equal(got, wanted)
    assert DropoutSVCCV(noises=[0.5], Cs=[0.1], cv=None).fit(X, y).scores_.shape == (5, 1, 1)
    shuffled = ShuffleSplit(2, test_size=0.3, random_state=0)
    model = DropoutSVCCV(**{**_SMALL, "cv": shuffled}, tol=_TOL).fit(X, y)
    wanted = _scores_of_fits(DropoutSVC(tol=_TOL), model, X, y, shuffled.split(X))
    np.testing.assert_allclose(model.scores_[:, model.refined_], wanted[:, model.refined_], rtol=1e-12)


def test_metadata_routing():
    X, y = make_binary()
    weights, groups = np.random.RandomState(1).uniform(0.0, 2.0, 60), np.arange(60) // 5
    folds = list(GroupKFold(3).split(X, y, groups))
    options = {**_SMALL, "tol": _TOL, "prune": False}
    requests = [{"sample_weight": False}, {"sample_weight": True}]
    with sklearn.config_context(enable_metadata_routing=True):
        for n_jobs, request in zip((1, 2), requests, strict=True):
            scorer = get_scorer("accuracy").set_score_request(**request)
            model = DropoutSVCCV(**{**options, "cv": GroupKFold(3), "scoring": scorer}, n_jobs=n_jobs)
            model.fit(X, y, sample_weight=weights, groups=groups)
            own = weights if request["sample_weight"] else np.ones(60)
            wanted = _scores_of_fits(DropoutSVC(tol=_TOL), model, X, y, folds, weights=weights, score_weights=own)
            np.testing.assert_allclose(model.scores_, wanted, rtol=1e-12)
        # the estimator in a search of scikit-learn, which routes to it what it asks for
        inner = DropoutSVCCV(**_SMALL, scoring=get_scorer("accuracy").set_score_request(sample_weight=True))
        inner.set_fit_request(sample_weight=True, groups=False).set_score_request(sample_weight=True)
        scores = cross_val_score(inner, X, y, cv=GroupKFold(3), params={"sample_weight": weights, "groups": groups})
        by_hand = [
            clone(inner).fit(X[a], y[a], sample_weight=weights[a]).score(X[b], y[b], sample_weight=weights[b])
            for a, b in folds
        ]
        np.testing.assert_allclose(scores, by_hand)
        if parse_version(sklearn.__version__) >= parse_version("1.9"):  # earlier ones accept weights without a request
            with pytest.raises(ValueError, match="sample_weight"):
                DropoutSVCCV(**_SMALL).fit(X, y, sample_weight=weights)


# The fit ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pair", "make"), deal(_PAIRS, [make_binary, make_multiclass]))
def test_the_final_model_is_a_plain_fit_to_all_rows(pair, make):
    plain, search = pair
    X, y = make()
    model = search(noises=[0.5, PoissonNoise(), 0.2], Cs=_CS, cv=3, tol=1e-16).fit(X, y)
    final = plain(noise=model.noise_, C=model.C_, tol=1e-16).fit(X, y)
    assert relative_difference(model, final) < 1e-6
    assert isinstance(model.best_estimator_, plain)
    for method in ("predict", "decision_function", "score", "predict_stability"):
        given = (X, y) if method == "score" else (X,)
        np.testing.assert_allclose(getattr(model, method)(*given), getattr(final, method)(*given), atol=1e-5)


def test_the_attributes_of_a_fit():
    X, y = make_binary()
    model = DropoutSVCCV(noises=_NOISES, Cs=[10.0, 0.3, 1.0], cv=3).fit(X, y)
    assert model.scores_.shape == model.n_iter_.shape == (3, 4, 3)
    assert model.coefs_paths_.shape == (3, 4, 3, 1, N_FEATURES + 1)
    np.testing.assert_array_equal(model.Cs_, _CS)
    assert [repr(noise) for noise in model.noises_[1:]] == [
        "None",
        "GaussianNoise(scale=0.4)",
        "DropoutNoise(rate=0.2)",
    ]
    row, column = model.best_index_
    assert (repr(model.noise_), model.C_) == (repr(model.noises_[row]), model.Cs_[column])
    assert model.best_score_ == pytest.approx(model.scores_[:, row, column].mean())
    assert model.best_score_ == pytest.approx(model.scores_.mean(axis=0).max())
    train, test = next(StratifiedKFold(3).split(X, y))
    fold = DropoutSVC(noise=model.noise_, C=model.C_).fit(X[train], y[train])
    fold.coef_, fold.intercept_ = (model.coefs_paths_[(0, *model.best_index_)][:, part] for part in (slice(-1), -1))
    assert fold.score(X[test], y[test]) == model.scores_[(0, *model.best_index_)]


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


_SCORES = ["roc_auc", "neg_log_loss", "f1_macro", "balanced_accuracy", "neg_brier_score"]


@cache
def _grid_search_by_all_scores():
    return _grid_search(DropoutLogisticRegression(tol=1e-16), *make_binary(), [0.1, 0.6], [0.1, 1.0], 3, _SCORES)


@pytest.mark.parametrize("scoring", _SCORES)
def test_any_score_of_scikit_learn(scoring):
    X, y = make_binary()
    model = DropoutLogisticRegressionCV(noises=[0.1, 0.6], Cs=[0.1, 1.0], cv=3, scoring=scoring, tol=1e-16).fit(X, y)
    assert (model.noise_.rate, model.C_, model.best_score_) == _choice(_grid_search_by_all_scores(), scoring)


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


# Searches that take less than half a second each, and those that once had a finding: two classes with a softmax (22),
# labels with equal scores (21), equal means by the rule of one standard error (55), constant models of the folds (65).
_QUICK = [0, 3, 6, 17, 20, 21, 22, 26, 27, 41, 46, 49, 55, 65, 70]
_MORE = [pytest.param(range(first, first + 10), marks=pytest.mark.slow) for first in range(0, 100, 10)]


@pytest.mark.parametrize("indices", [*(_QUICK[k::3] for k in range(3)), *_MORE], ids=lambda indices: str([*indices]))
def test_no_search_has_a_finding(indices):
    outcomes = [selection.run(0, index) for index in indices]
    wrong = [outcome for outcome in outcomes if outcome.findings]
    assert not wrong, "\n".join(selection.describe(0, outcome) for outcome in wrong)


# Negative variances by rounding, far from the reference; conjugate gradients that went on into rounding errors.
@pytest.mark.parametrize(("seed", "index"), [(90210, 35), (31337, 71)])
def test_searches_that_once_had_a_finding(seed, index):
    assert not selection.run(seed, index).findings


def _change_score(search):
    search.scores_[(0, *search.best_index_)] += 0.01


def _change_coefficients(search):
    search.coefs_paths_[(0, *search.best_index_)] *= 1.05


def _change_choice(search):
    search.best_index_ = tuple(np.unravel_index(search.scores_.mean(axis=0).argmin(), search.refined_.shape))


def _prune_the_best(search):
    """Change the search as if pruning had missed the chosen point, and chosen the next one."""
    search.scores_[(slice(None), *search.best_index_)] = search.scores_.min() - 1.0
    search.refined_[search.best_index_] = False
    mean = np.where(search.refined_, search.scores_.mean(axis=0), -np.inf)
    search.best_index_ = tuple(int(k) for k in np.unravel_index(mean.argmax(), mean.shape))


def _forget_coefficients(search):
    search.coef_ = np.zeros_like(search.coef_)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("claimed", _change_score),
        ("claimed", _change_coefficients),
        ("chosen", _change_choice),
        ("chosen", _prune_the_best),
        ("constant", _forget_coefficients),
        ("crash", lambda search: search.no_such_attribute),
    ],
)
def test_the_harness_sees_a_wrong_search(kind, change, monkeypatch):
    whole = DropoutSVRCV.fit

    def wrong(self, *given, **options):
        change(whole(self, *given, **options))
        return self

    monkeypatch.setattr(DropoutSVRCV, "fit", wrong)
    assert kind in {found for found, _ in selection.run(0, 46).findings}


def test_the_harness_chooses_as_documented():
    scores = np.array([[[0.7, 0.78, 0.7], [0.6, 0.77, 0.7]], [[0.7, 0.78, 0.9], [0.6, 0.79, 0.9]]])
    assert selection.choose(scores, "best") == (0, 2)  # of equal scores, the first noise
    assert selection.choose(scores, "one-se") == (0, 0)  # the standard error is 0.1: 0.7 is enough
    scores[:, 0, 0] -= 0.01
    assert selection.choose(scores, "one-se") == (0, 1)
