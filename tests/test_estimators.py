"""Fits and fitted models: bits, warm starts, sparse coefficients, attributes that are there and that are not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

from datasets import assert_bitwise_equal, estimators, make_binary, make_multiclass, noises
from dealing import deal
from dropmargin import DropoutLogisticRegression, DropoutSVC, MCFClassifier, NoisyLinearClassifier, load, save
from helpers import as_format, make_data

_ESTIMATORS = estimators()


# Determinism and concurrency --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "make", "noise"), deal(_ESTIMATORS, [np.asarray, sparse.csr_array], noises()), ids=str
)
def test_the_same_fit_twice_is_the_same_to_the_last_bit(name, make, noise):
    X, y = make_multiclass()
    one, two = (clone(_ESTIMATORS[name]).set_params(noise=noises()[noise]).fit(make(X), y) for _ in range(2))
    assert_bitwise_equal(one, two)
    assert one.history_ == two.history_
    assert_bitwise_equal(one.fit(make(X), y), two)  # a third, on a fitted estimator


# Warm starts ------------------------------------------------------------------------------------------------------

_WARM = {
    **_ESTIMATORS,
    "svc-l1": DropoutSVC(l1_ratio=1.0),
    "logistic-l1": DropoutLogisticRegression(l1_ratio=1.0),
    "svc-lbfgs": DropoutSVC(solver="lbfgs"),
    "logistic-irls": DropoutLogisticRegression(solver="irls"),
    "svc-ovo": DropoutSVC(multi_class="ovo"),
}


def _relative_gap(model, wanted):
    return abs(model.objective_ - wanted.objective_) / abs(wanted.objective_)


_IN_THE_DUAL = ("svc", "svc-gaussian", "svc-ovo")


@pytest.mark.parametrize(("name", "noise"), deal(_WARM, [None, 0.3]))
def test_a_warm_start_at_the_solution_costs_less_and_stays_there(name, noise):
    X, y = make_multiclass(n_samples=200)
    cold = clone(_WARM[name]).set_params(noise=noise, tol=1e-6, warm_start=True).fit(X, y)
    warm = clone(cold).fit(X, y)
    passes, iterations = warm.n_passes_, warm.n_iter_
    warm.fit(X, y)
    if (noise == 0.3 and name in ("svc", "svc-l1", "svc-lbfgs")) or (noise is None and name in _IN_THE_DUAL):
        # One class has no coefficients there; and coordinate descent in the dual has no use for coefficients.
        assert warm.n_iter_ <= iterations
        assert warm.n_passes_ <= passes + 3.0  # one for the scores of each column
    else:
        if name == "mcf-quadratic":  # one step solves it, from anywhere
            assert warm.n_passes_ <= passes
        else:
            assert warm.n_iter_ < iterations
            assert warm.n_passes_ < passes
    # L-BFGS does not know its gap, and at a kink it stops early
    assert _relative_gap(warm, cold) <= (1e-4 if (name, noise) == ("svc-lbfgs", None) else 2e-6)


@pytest.mark.parametrize(("name", "change"), deal(_ESTIMATORS, ["classes", "names", "features", "pairs"]))
def test_a_warm_start_with_other_classes_or_shape_starts_afresh(name, change):
    X, y = make_multiclass()
    estimator = _ESTIMATORS[name]
    warm = clone(estimator).set_params(warm_start=True).fit(X, y)
    if change == "classes":
        X, y = make_binary()
    elif change == "names":
        y = np.array(["a", "b", "c"])[y]
    elif change == "features":
        X = X[:, :5]
    else:
        X, y = make_multiclass(n_samples=200, n_classes=4)
        warm.set_params(multi_class="ovo")
    params = {"multi_class": warm.multi_class}
    assert_bitwise_equal(warm.fit(X, y), clone(estimator).set_params(**params).fit(X, y))


def _fitted(cls=DropoutSVC, n_classes=3, **params):
    X, labels, _ = make_data(n_samples=60, n_columns=n_classes - 1)
    y = (labels > 0).sum(axis=1)
    return cls(C=0.1, l1_ratio=1.0, **params).fit(X, y), X, y


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("cls", "n_classes", "params"),
    [
        (DropoutSVC, 2, {}),
        (DropoutSVC, 3, {"multi_class": "ovo"}),
        (DropoutLogisticRegression, 3, {"missing": "rescale"}),
    ],
)
def test_predictions_do_not_change(cls, n_classes, params, layout):
    model, X, _ = _fitted(cls, n_classes, **params)
    dense, rows = model.coef_, as_format(X, layout)
    expected = model.decision_function(rows)
    stability = model.predict_stability(rows, 0.3, n_draws=100)
    assert model.sparsify() is model
    assert sparse.issparse(model.coef_)
    assert model.coef_.nnz < dense.size
    assert_allclose(model.decision_function(rows), expected, atol=1e-12)
    assert_array_equal(model.predict_stability(rows, 0.3, n_draws=100), stability)
    assert model.densify() is model
    assert_array_equal(model.coef_, dense)


def test_a_sparse_model_is_saved_and_starts_a_fit(tmp_path):
    model, X, y = _fitted(warm_start=True)
    dense = model.coef_
    save(model.sparsify(), tmp_path / "model.json")
    assert sparse.issparse(model.coef_)
    assert_array_equal(load(tmp_path / "model.json").coef_, dense)
    model.fit(X, y)
    assert isinstance(model.coef_, np.ndarray)
    assert_allclose(model.coef_, dense, atol=1e-3)


# What is and is not there -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "method"),
    deal(
        [DropoutSVC(), MCFClassifier("quadratic"), MCFClassifier("exponential"), NoisyLinearClassifier("hinge")],
        ["predict_proba", "predict_log_proba"],
    ),
    ids=str,
)
def test_scores_that_are_no_log_odds_have_no_probabilities_and_say_where_to_get_them(estimator, method):
    X, y = make_binary()
    for model in (estimator, clone(estimator).fit(X, y)):
        assert not hasattr(model, method)
        with pytest.raises(AttributeError) as caught:
            getattr(model, method)
        reasons = f"{caught.value} {caught.value.__cause__}"
        assert type(model).__name__ in reasons
        assert "probability='sigmoid'" in reasons
