"""The stress test: methods, parameters and scores when features of the test rows are deleted."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from datasets import make_sparse
from dropmargin import DropoutNoise, DropoutSVC, DropoutSVCCV, deletion_curve
from dropmargin.evaluation.stress import METHODS, TREATMENTS, Plan, RescalingClassifier, stress_test

PLAN = Plan(levels=[0.0, 0.5], choose_at=[0.5], noises=[0.1, 0.3], Cs=[0.1, 1.0], n_folds=2, n_repeats=2)


@pytest.fixture(scope="module")
def data():
    X, y = make_sparse(120, 20, 0.4)
    return (X[:60], y[:60]), (X[60:], y[60:])


@pytest.fixture(scope="module")
def results(data):
    notes = []
    found = stress_test(*data, PLAN, notes.append)
    assert len(notes) == len(found)
    return found


def test_every_method_is_tested_under_every_treatment(results):
    assert [(one.treatment, one.method) for one in results] == [(t, m) for t in TREATMENTS for m in METHODS]
    for one in results:
        assert_array_equal(one.curve.levels, PLAN.levels)
        assert_allclose(one.error, 1.0 - one.curve.mean)
        assert (one.noise is None, one.search is None) == (one.method != "DropoutSVC",) * 2
        assert one.C in PLAN.Cs


def test_curves_are_those_of_the_models(results, data):
    for one in results:
        fill = np.nan if one.treatment == "missing" else 0.0
        curve = deletion_curve(one.model, *data[1], levels=PLAN.levels, n_repeats=2, fill=fill, random_state=0)
        assert_array_equal(one.curve.scores, curve.scores)


def test_results_can_be_pickled(results):
    again = pickle.loads(pickle.dumps(results))
    assert isinstance(again[0].search, DropoutSVCCV)
    assert_array_equal(again[0].curve.scores, results[0].curve.scores)


def test_64_bit_indices_give_the_same_results(results, data):
    def widened(part):
        X = part[0].copy()
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
        return X, part[1]

    for one, other in zip(results, stress_test(*map(widened, data), PLAN), strict=True):
        assert_array_equal(one.curve.scores, other.curve.scores)


def test_given_parameters_are_not_searched_for(data):
    plan = Plan([0.5], [0.5], treatments=["zero"], noises=[0.2], own_c=0.3, Cs=[1.0], n_folds=2, n_repeats=1)
    ours = stress_test(*data, plan)[0]
    assert (ours.C, ours.search) == (0.3, None)
    blankout = DropoutNoise(0.2, reference="zero")
    assert_allclose(ours.model.coef_, DropoutSVC(noise=blankout, C=0.3).fit(*data[0]).coef_)


def test_levels_are_checked(data):
    with pytest.raises(ValueError, match=r"levels must be in \[0, 1\]"):
        stress_test(*data, Plan([0.5], [50]))


def test_the_rescaling_classifier_is_the_classifier_on_complete_rows(data):
    (X, y), (X_test, _) = data
    plain = LogisticRegression().fit(X, y)
    rescaling = RescalingClassifier(LogisticRegression()).fit(X, y)
    assert_allclose(rescaling.decision_function(X_test), plain.decision_function(X_test))
    assert_array_equal(rescaling.predict(X_test), plain.predict(X_test))
    missing = sparse.csr_array(np.full((1, X.shape[1]), np.nan))
    assert_allclose(rescaling.decision_function(missing), plain.decision_function(X.mean(axis=0)[None]))
