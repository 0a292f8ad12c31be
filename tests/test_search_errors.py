"""Bad input to the searches: an error that says what is wrong, before any fit, and an estimator left as it was."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GroupKFold, LeaveOneOut, PredefinedSplit

from datasets import N_FEATURES, assert_same_state, fitted_state, make_binary, make_multiclass
from dealing import deal
from dropmargin import DropoutLogisticRegressionCV, DropoutNoise, DropoutSVCCV, GaussianNoise, PoissonNoise, noise_path
from dropmargin.model_selection.path_solver import PathSolver

_SMALL = {"noises": [0.1, 0.5], "Cs": [0.1, 1.0], "cv": 3}


@pytest.fixture
def no_fits(monkeypatch):
    """Let every fit of a grid point fail the test."""

    def solve(*args, **kwargs):
        pytest.fail("a fit began before the error")

    monkeypatch.setattr(PathSolver, "solve", solve)


# Parameters ---------------------------------------------------------------------------------------------------------

_BAD_NOISES = [
    ([], "noises is empty"),
    (0, "noises .*got 0"),
    (DropoutNoise(rate=0.5), r"noises .*DropoutNoise"),
    ([0.1, "a"], r"noises\[1\].*got 'a'"),
    ([0.1, 1.0], r"noises\[1\].*\[0, 1\), got 1.0"),
    ([0.5, GaussianNoise(scale=-1.0)], r"noises\[1\].*scale .*got -1.0"),
    ([DropoutNoise(rate=[0.1, 0.2])], r"noises\[0\].*8 features.*\(2,\)"),
    ([0, None], r"rate=0.0\) and None, .*the same"),
    ([0.25, DropoutNoise(rate=[0.25] * N_FEATURES)], "(?s)noises .*the same"),
    ([DropoutNoise(np.linspace(0, 0.7, 8)), DropoutNoise(list(np.linspace(0, 0.7, 8)))], "(?s)noises .*the same"),
]
_BAD_CS = [
    ([], "Cs is empty"),
    (0, "Cs .*got 0"),
    ([1.0, 0.0], r"Cs\[1\] .*\(0, inf\), got 0.0"),
    ([0.1, 1, 1.0], "Cs has 1 and 1, which are the same"),
]


@pytest.mark.usefixtures("no_fits")
@pytest.mark.parametrize(
    ("name", "value", "message"), [("noises", *case) for case in _BAD_NOISES] + [("Cs", *case) for case in _BAD_CS]
)
def test_a_grid_that_is_none(name, value, message):
    X, y = make_binary()
    for model in (DropoutSVCCV(), DropoutLogisticRegressionCV()):
        with pytest.raises(ValueError, match=message):
            model.set_params(**{**_SMALL, name: value}).fit(X, y)
    grid = {"noises": [0.1], "Cs": [1.0], name: value}
    with pytest.raises(ValueError, match=message):
        noise_path(X, y, **grid)


@pytest.mark.usefixtures("no_fits")
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"rule": "two-se"}, "rule .*'best', 'one-se'.*'two-se'"),
        ({"class_weight": {7: 1.0}}, "class_weight has the labels"),
        ({"scoring": "goodness"}, "scoring"),
        ({"scoring": ["accuracy", "f1"]}, "scoring must return one number"),
        ({"scoring": lambda model, X, y: "good"}, "scoring .*one number.*'good'"),
        ({"scoring": "neg_log_loss"}, "scoring=.*log_loss.*cannot be computed for DropoutSVC.*logistic"),
        ({"cv": []}, r"cv=\[\] gives no folds"),
        ({"cv": GroupKFold(3)}, "groups"),
        ({"cv": [(np.arange(50), np.array([], dtype=int))]}, "Fold 0 of cv .*no rows"),
        ({"prune": "always"}, "prune must be True or False, got 'always'"),
        ({"store_coefs": "yes"}, "store_coefs .*'yes'"),
    ],
)
def test_invalid_parameters(params, message):
    X, y = make_binary()
    with pytest.raises(ValueError, match=message):
        DropoutSVCCV(**{**_SMALL, **params}).fit(X, y)


# Data ---------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_fits")
@pytest.mark.parametrize("labels", [[0, 1, 2], ["a", "b", "c"]])
def test_a_fold_without_a_class_names_fold_and_class(labels):
    X, y = make_multiclass()
    y = np.array(labels)[np.sort(y)]
    with pytest.raises(ValueError, match=rf"Fold 0 of cv has no training row of class {labels[0]!r}.*[Ss]tratified"):
        DropoutSVCCV(**{**_SMALL, "cv": PredefinedSplit((y != labels[0]).astype(int))}).fit(X, y)
    lonely = np.array([labels[0]] * 45 + [labels[1]] * 44 + [labels[2]])
    with pytest.raises(ValueError, match=f"Fold 89 of cv has no training row of class {labels[2]!r}"):
        DropoutSVCCV(**{**_SMALL, "cv": LeaveOneOut()}).fit(X, lonely)


def _with(X, value):
    X = X.copy()
    X[3, 2] = value
    return X


@pytest.mark.usefixtures("no_fits")
@pytest.mark.parametrize(
    ("change", "params", "message"),
    [
        (lambda X, y: (_with(X, -1.0), y), {"noises": [0.5, PoissonNoise()]}, "Poisson.*X >= 0.*feature 2"),
        (lambda X, y: (_with(X, np.nan), y), {}, "NaN"),
        (lambda X, y: (_with(X, np.inf), y), {"missing": "rescale"}, "infinity"),
        (lambda X, y: (_with(X, 1e200), y), {}, "feature 2"),
        (
            lambda X, y: (sparse.csr_array(_with(X, np.nan)), y),
            {"noises": [0.5, GaussianNoise(scale=0.1)], "missing": "rescale"},
            "GaussianNoise",
        ),
        (lambda X, y: (X, np.zeros(60)), {}, "at least 2 classes|one class"),
        (lambda X, y: (X, X[:, 1]), {}, "label|continuous"),
        (lambda X, y: (X, y[:30]), {}, "60.*30|30.*60"),
        (lambda X, y: (X, None), {}, "y"),
    ],
)
def test_data_that_cannot_be(change, params, message):
    X, y = change(*make_binary())
    with pytest.raises(ValueError, match=message):
        DropoutSVCCV(**{**_SMALL, **params}).fit(X, y)


# Failures on the way ------------------------------------------------------------------------------------------------


class _FailsLater:
    """A scorer that raises an error, or returns a value, at its n-th call."""

    def __init__(self, n_calls, outcome):
        self.n_left, self.outcome = n_calls, outcome

    def __call__(self, model, X, y):
        self.n_left -= 1
        if self.n_left < 0:
            raise self.outcome
        return model.score(X, y)


@pytest.mark.parametrize(
    ("n_calls", "n_jobs", "error"), deal([0, 5, 14], [1, 2], [KeyboardInterrupt(), RuntimeError("no more")])
)
def test_a_search_that_fails_leaves_the_estimator_as_it_was(n_calls, n_jobs, error):
    X, y = make_binary()
    fresh = DropoutSVCCV(**_SMALL, n_jobs=n_jobs, scoring=_FailsLater(n_calls, error))
    with pytest.raises(type(error)):
        fresh.fit(X, y)
    assert not hasattr(fresh, "coef_")
    fitted = DropoutSVCCV(**_SMALL, n_jobs=n_jobs).fit(X, y)
    state = fitted_state(fitted.set_params(scoring=_FailsLater(n_calls, error)))
    with pytest.raises(type(error)):
        fitted.fit(X[:, :4], y)
    assert_same_state(fitted, state)
    assert fitted.predict(X).shape == y.shape


@pytest.mark.parametrize("rule", ["best", "one-se"])
@pytest.mark.parametrize("prune", [True, False])
def test_a_point_whose_score_is_no_number_is_not_chosen(prune, rule):
    X, y = make_binary()

    def only_weak_noise(model, X, y):
        return np.nan if model.noise.rate > 0.3 else model.score(X, y)

    options = {"noises": [0.8, 0.5, 0.2], "scoring": only_weak_noise, "prune": prune, "rule": rule}
    model = DropoutSVCCV(**{**_SMALL, **options}).fit(X, y)
    assert model.noise_.rate == 0.2
    assert np.isfinite(model.best_score_)
    assert np.isnan(model.scores_[:, :2]).all()


def test_fits_that_do_not_converge_are_counted_in_one_warning_at_the_callers_line():
    X, y = make_binary()
    with pytest.warns(ConvergenceWarning, match=r"^13 of 13 fits did not converge\..*max_iter") as caught:
        DropoutSVCCV(**_SMALL, max_iter=1, tol=1e-9).fit(X, y)
    assert [one.filename for one in caught if one.category is ConvergenceWarning] == [__file__]
    with pytest.raises(ConvergenceWarning):  # the tests turn it into an error
        DropoutSVCCV(**_SMALL, max_iter=1, tol=1e-9).fit(X, y)
