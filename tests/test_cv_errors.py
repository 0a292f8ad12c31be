"""Bad input to the searches: an error that says what is wrong, before any fit, and an estimator left as it was."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GroupKFold, KFold, LeaveOneOut, PredefinedSplit

from datasets import N_FEATURES, assert_same_state, fitted_state, make_binary, make_multiclass
from dealing import deal, together
from dropmargin import (
    DropoutLogisticRegression,
    DropoutLogisticRegressionCV,
    DropoutNoise,
    DropoutSVC,
    DropoutSVCCV,
    GaussianNoise,
    NoisyLinearClassifierCV,
    PoissonNoise,
    noise_path,
)
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
    (-3, "noises .*got -3"),
    (0.5, "noises .*got 0.5"),
    (None, "noises .*got None"),
    (True, "noises .*got True"),
    ("0.5", "noises .*got '0.5'"),
    (DropoutNoise(rate=0.5), r"noises .*DropoutNoise"),
    (np.array(0.5), "noises .*0.5"),
    ([0.1, "a"], r"noises\[1\].*got 'a'"),
    ([True], r"noises\[0\].*got True"),
    ([[0.1] * N_FEATURES], r"noises\[0\].*rate=rates"),
    ([0.1, 1.0], r"noises\[1\].*\[0, 1\), got 1.0"),
    ([-0.1], r"noises\[0\].*got -0.1"),
    ([0.5, np.nan], r"noises\[1\].*got nan"),
    ([0.5, GaussianNoise(scale=-1.0)], r"noises\[1\].*scale .*got -1.0"),
    ([DropoutNoise(rate=[0.1, 0.2])], r"noises\[0\].*8 features.*\(2,\)"),
    ([0, None], r"rate=0.0\) and None, .*the same"),
    ([None, GaussianNoise(scale=0.0)], r"None and .*scale=0.0\), .*the same"),
    ([0.25, 0.5, 0.25], "rate=0.25.* the same"),
    ([0.25, DropoutNoise(rate=0.25)], "(?s)noises .*the same"),
    ([0.25, DropoutNoise(rate=[0.25] * N_FEATURES)], "(?s)noises .*the same"),
    ([PoissonNoise(), PoissonNoise()], "(?s)noises .*the same"),
    ([DropoutNoise(np.linspace(0, 0.7, 8)), DropoutNoise(list(np.linspace(0, 0.7, 8)))], "(?s)noises .*the same"),
]
_BAD_CS = [
    ([], "Cs is empty"),
    (0, "Cs .*got 0"),
    (0.5, "Cs .*got 0.5"),
    (True, "Cs .*got True"),
    ("1", "Cs .*got '1'"),
    ([1.0, 0.0], r"Cs\[1\] .*\(0, inf\), got 0.0"),
    ([-1.0], r"Cs\[0\] must be .*got -1.0"),
    ([1.0, np.nan], r"Cs\[1\] must be .*got nan"),
    ([np.inf], r"Cs\[0\] must be .*got inf"),
    ([True], r"Cs\[0\] must be .*got True"),
    (["1"], r"Cs\[0\] must be .*got '1'"),
    ([None], r"Cs\[0\] must be .*got None"),
    ([0.1, 1, 1.0], "Cs has 1 and 1, which are the same"),
]


@pytest.mark.usefixtures("no_fits")
@together(
    ("name", "value", "message"),
    [("noises", *case) for case in _BAD_NOISES] + [("Cs", *case) for case in _BAD_CS],
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
@together(
    ("params", "message"),
    [
        ({"rule": "two-se"}, "rule .*'best', 'one-se'.*'two-se'"),
        ({"rule": None}, "rule .*None"),
        ({"n_jobs": 0}, "n_jobs must be .*got 0"),
        ({"n_jobs": "all"}, "n_jobs must be .*got 'all'"),
        ({"tol": -1.0}, "tol must be .*got -1.0"),
        ({"max_iter": 0}, "max_iter must be .*got 0"),
        ({"l1_ratio": 3}, r"l1_ratio .*\[0, 1\], got 3"),
        ({"multi_class": "all"}, "multi_class .*'all'"),
        ({"missing": "no"}, "missing .*'no'"),
        ({"solver": "fast"}, "solver.*fast"),
        ({"class_weight": {7: 1.0}}, "class_weight has the labels"),
        ({"scoring": "goodness"}, "scoring"),
        ({"scoring": ["accuracy", "f1"]}, "scoring must return one number"),
        ({"scoring": {"one": "accuracy"}}, "scoring must return one number"),
        ({"scoring": lambda model, X, y: "good"}, "scoring .*one number.*'good'"),
        ({"scoring": lambda model, X, y: np.ones(3)}, "scoring must return one number"),
        ({"scoring": "neg_log_loss"}, "scoring=.*log_loss.*cannot be computed for DropoutSVC.*logistic"),
        ({"cv": 1}, "k-fold.*n_splits=1|cv"),
        ({"cv": "many"}, "cv"),
        ({"cv": []}, r"cv=\[\] gives no folds"),
        ({"cv": 40}, "n_splits=40"),
        ({"cv": GroupKFold(3)}, "groups"),
        ({"cv": [(np.arange(50), np.array([], dtype=int))]}, "Fold 0 of cv .*no rows"),
        ({"cv": [(np.ones(60, dtype=bool), np.zeros(60, dtype=bool))]}, "Fold 0 of cv .*no rows"),
        ({"prune": "always"}, "prune must be True or False, got 'always'"),
        ({"store_coefs": "yes"}, "store_coefs .*'yes'"),
    ],
)
def test_invalid_parameters(params, message):
    X, y = make_binary()
    with pytest.raises(ValueError, match=message):
        DropoutSVCCV(**{**_SMALL, **params}).fit(X, y)


@pytest.mark.usefixtures("no_fits")
def test_probabilities_that_are_not_there_are_missed_at_once():
    X, y = make_binary()
    with pytest.raises(ValueError, match=r"cannot be computed for DropoutLogisticRegression.*multi_class='ovr'"):
        DropoutLogisticRegressionCV(**_SMALL, scoring="neg_log_loss", multi_class="ovo").fit(X, y)
    with pytest.raises(ValueError, match="cannot be computed for NoisyLinearClassifier"):
        NoisyLinearClassifierCV("quadratic", **_SMALL, scoring="neg_brier_score").fit(X, y)
    with pytest.raises(ValueError, match="cannot be computed for DropoutSVC"):
        noise_path(X, y, [0.1], [1.0], scoring="neg_log_loss")


# Data ---------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_fits")
def test_a_fold_without_weight_cannot_be_scored():
    X, y = make_binary()
    with pytest.raises(ValueError, match=r"Fold 0 of cv .*weight 0"):
        DropoutSVCCV(noises=[0.1], Cs=[1.0], cv=KFold(5)).fit(X, y, sample_weight=np.arange(60) >= 12)


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


@pytest.mark.usefixtures("no_fits")
def test_a_class_whose_rows_in_a_fold_have_no_weight_is_not_there():
    X, y = make_binary()
    weights = np.where((y == 1) & (np.arange(60) >= 20), 0.0, 1.0)
    with pytest.raises(ValueError, match="Fold 0 of cv has no training row of class 1"):
        DropoutSVCCV(**{**_SMALL, "cv": KFold(3)}).fit(X, y, sample_weight=weights)


def _with(X, value):
    X = X.copy()
    X[3, 2] = value
    return X


@pytest.mark.usefixtures("no_fits")
@together(
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
        (lambda X, y: (X, X[:, 1]), {}, "[Uu]nknown label type|continuous"),
        (lambda X, y: (X, y[:30]), {}, "inconsistent numbers of samples"),
        (lambda X, y: (X, None), {}, "y"),
        (lambda X, y: (X[:, 0], y), {}, "2D array"),
    ],
)
def test_data_that_cannot_be(change, params, message):
    X, y = change(*make_binary())
    with pytest.raises(ValueError, match=message):
        DropoutSVCCV(**{**_SMALL, **params}).fit(X, y)


@pytest.mark.usefixtures("no_fits")
@together("weights", [np.ones(59), np.ones((60, 2)), -np.ones(60), np.zeros(60), np.full(60, np.nan), "a"])
def test_weights_that_cannot_be(weights):
    X, y = make_binary()
    with pytest.raises(ValueError, match="sample_weight"):
        DropoutSVCCV(**_SMALL).fit(X, y, sample_weight=weights)
    with pytest.raises(ValueError, match="sample_weight"):
        noise_path(X, y, [0.1], [1.0], sample_weight=weights)


@pytest.mark.usefixtures("no_fits")
def test_groups_of_the_wrong_length():
    X, y = make_binary()
    with pytest.raises(ValueError, match="inconsistent"):
        DropoutSVCCV(**{**_SMALL, "cv": GroupKFold(3)}).fit(X, y, groups=np.arange(59))


@pytest.mark.usefixtures("no_fits")
def test_what_only_a_path_can_be_told_wrong():
    X, y = make_binary()
    for estimator in (DropoutSVC, DropoutSVCCV(), "svc"):
        with pytest.raises(TypeError, match=r"estimator .*DropoutSVC"):
            noise_path(X, y, [0.1], [1.0], estimator=estimator)
    for half in ({"X_test": X}, {"y_test": y}):
        with pytest.raises(ValueError, match="X_test and y_test"):
            noise_path(X, y, [0.1], [1.0], **half)
    with pytest.raises(ValueError, match="features"):
        noise_path(X, y, [0.1], [1.0], X_test=X[:, :3], y_test=y)


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


@pytest.mark.parametrize("prune", [True, False])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_scores_that_are_no_numbers_at_any_point(prune, value):
    X, y = make_binary()
    with pytest.raises(ValueError, match="scoring gave NaN at every point"):
        DropoutSVCCV(**_SMALL, prune=prune, scoring=lambda *_: value).fit(X, y)


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


@pytest.mark.parametrize("method", ["predict_proba", "predict_log_proba"])
def test_probabilities_are_there_for_the_logistic_loss_alone(method):
    X, y = make_binary()
    for model in (DropoutSVCCV(**_SMALL), DropoutSVCCV(**_SMALL).fit(X, y)):
        assert not hasattr(model, method)
        with pytest.raises(AttributeError, match=r"DropoutSVCCV.*has no attribute") as caught:
            getattr(model, method)
        assert "CalibratedClassifierCV" in f"{caught.value.__cause__} {caught.value.__cause__.__cause__}"
    logistic = DropoutLogisticRegressionCV(**_SMALL)
    assert hasattr(logistic, method)
    assert not hasattr(DropoutLogisticRegressionCV(multi_class="ovo"), method)
    plain = DropoutLogisticRegression(noise=logistic.fit(X, y).noise_, C=logistic.C_).fit(X, y)
    np.testing.assert_allclose(getattr(logistic, method)(X), getattr(plain, method)(X), rtol=0.05)
