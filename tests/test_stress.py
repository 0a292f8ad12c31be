"""The stress test: methods, parameters and scores when features of the test rows are deleted."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from datasets import make_sparse
from dropmargin import DropoutNoise, DropoutSVC, DropoutSVCCV, deletion_curve
from dropmargin.evaluation.methods import RescalingClassifier
from dropmargin.evaluation.stress import TREATMENTS, Plan, methods_for, stress_test
from regression_data import make_table

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


def test_every_method_is_tested_under_its_treatments(results):
    expected = [
        (treatment, method.name)
        for treatment in TREATMENTS
        for method in methods_for("hinge")
        if treatment in method.treatments
    ]
    assert [(one.treatment, one.method) for one in results] == expected
    for one in results:
        assert_array_equal(one.curve.levels, PLAN.levels)
        assert_allclose(one.error, 1.0 - one.curve.mean)
        assert one.parameters.get("C", 1.0) in PLAN.Cs
        assert ("noise" in one.parameters) == one.method.startswith("DropoutSVC")
        assert one.converged


def test_methods_that_would_take_too_long_are_named(data):
    (X, y), test = data
    wide = sparse.csr_array(sparse.hstack([X, sparse.csr_array((X.shape[0], 300))]))
    wide_test = sparse.csr_array(sparse.hstack([test[0], sparse.csr_array((test[0].shape[0], 300))]))
    notes = []
    plan = Plan([0.5], [0.5], treatments=["missing"], noises=[0.2], Cs=[1.0], n_folds=2, n_repeats=1)
    found = stress_test((wide, y), (wide_test, test[1]), plan, notes.append)
    assert (
        notes[0]
        == "LogisticRegression (iterative) is left out: 60 rows, 320 features and 2 classes would take too long"
    )
    assert notes[-1].startswith(f"{len(found)} of {len(found)}: HistGradientBoosting")


def test_groups_are_deleted_and_dropped_together(data):
    groups = np.repeat(np.arange(5), 4)
    plan = Plan([0.4], [0.4], ["missing"], "columns", groups, noises=[0.2, 0.4], Cs=[1.0], n_folds=2, n_repeats=2)
    for one in stress_test(*data, plan):
        curve = deletion_curve(
            one.model,
            *data[1],
            levels=[0.4],
            strategy="columns",
            groups=groups,
            n_repeats=2,
            fill=np.nan,
            random_state=0,
        )
        assert_array_equal(one.curve.scores, curve.scores)
        if "noise" in one.parameters:
            assert_array_equal(one.parameters["noise"].groups, groups)


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

    plan = replace(PLAN, treatments=["zero"])  # the linear classifiers without a wrapper
    for one, other in zip(results, stress_test(*map(widened, data), plan), strict=False):
        assert_array_equal(one.curve.scores, other.curve.scores)


def test_a_given_c_is_used(data):
    plan = Plan([0.5], [0.5], treatments=["zero"], noises=[0.2], own_c=0.3, Cs=[1.0], n_folds=2, n_repeats=1)
    ours = stress_test(*data, plan)[0]
    assert ours.parameters["C"] == 0.3
    blankout = DropoutNoise(0.2, reference="zero")
    assert_allclose(ours.model.coef_, DropoutSVC(noise=blankout, C=0.3, tol=1e-6).fit(*data[0]).coef_, atol=0.01)


# Numbers as targets -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def numbers():
    X, y, _ = make_table(n_rows=160)
    X[np.random.default_rng(0).random(X.shape) < 0.05] = np.nan
    return (X[:80], y[:80]), (X[80:], y[80:])


@pytest.mark.parametrize("loss", [None, "svr"])
def test_numbers_are_predicted_by_regressors(numbers, loss):
    plan = replace(PLAN, loss=loss, treatments=["missing"])
    results = stress_test(*numbers, plan)
    ours = "DropoutSVR" if loss == "svr" else "DropoutRidge"
    names = [ours, f"{ours} (conditional)", "Ridge (means)", "Ridge (iterative)", "HistGradientBoosting"]
    assert [one.method for one in results] == names
    unit = np.std(numbers[0][1]) if loss == "svr" else 1.0
    for one in results:
        given = {"levels": PLAN.levels, "n_repeats": 2, "fill": np.nan, "random_state": 0}
        assert_array_equal(one.curve.scores, deletion_curve(one.model, *numbers[1], **given).scores)
        assert_allclose(one.error, -one.curve.mean)
        assert_allclose(one.r2, deletion_curve(one.model, *numbers[1], scoring="r2", **given).mean)
        assert one.is_ours == (one.method in names[:2])
        if "alpha" in one.parameters:
            assert any(one.parameters["alpha"] == pytest.approx(unit / (2.0 * C)) for C in PLAN.Cs)
    if loss == "svr":
        assert results[0].model.epsilon == pytest.approx(0.1 * unit)


def test_the_standard_error_of_the_rmse_is_that_of_other_samples_of_rows(numbers):
    plan = replace(PLAN, levels=[0.0], treatments=["missing"])
    (one,) = stress_test(*numbers, plan, methods=methods_for("ridge")[:1])
    (X, y), rng = numbers[1], np.random.default_rng(0)
    squares = np.square(y - one.model.predict(X))
    drawn = np.sqrt(squares[rng.integers(len(y), size=(4000, len(y)))].mean(axis=1))
    assert one.standard_error[0] == pytest.approx(np.std(drawn), rel=0.1)


def test_deleted_zeros_of_numbers(numbers):
    plan = replace(PLAN, loss="ridge", treatments=["zero"])
    assert [one.method for one in stress_test(*numbers, plan)] == ["DropoutRidge", "Ridge"]
    with pytest.raises(ValueError, match="loss must be one of"):
        stress_test(*numbers, replace(PLAN, loss="huber"))


def test_another_loss_of_classes_is_compared(data):
    plan = replace(PLAN, loss="logistic", treatments=["zero"])
    found = stress_test(*data, plan, methods=methods_for("logistic")[:1])
    assert [one.method for one in found] == ["DropoutLogisticRegression"]


def test_trees_learn_from_deleted_cells_if_that_is_better():
    """Cells that are missing at random say nothing, so trees have to learn what to do without them."""
    X = np.repeat(np.random.default_rng(0).normal(size=(400, 1)), 4, axis=1)
    rows = (X[:200], X[:200, 0] > 0.4), (X[200:], X[200:, 0] > 0.4)
    plan = Plan([0.0, 0.6], [0.6], treatments=["missing"], n_folds=2, n_repeats=3)
    (one,) = stress_test(*rows, plan, methods=methods_for("hinge")[-1:])
    assert one.parameters["deleted"] == 0.6
    plain = HistGradientBoostingClassifier(max_leaf_nodes=7, random_state=0).fit(*rows[0])
    given = {"levels": [0.6], "n_repeats": 3, "fill": np.nan, "random_state": 0}
    assert one.curve.mean[1] > deletion_curve(plain, *rows[1], **given).mean[0] + 0.02


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
