"""Errors of `partial_fit`: they name the problem, and the estimator does not change."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from datasets import assert_bitwise_equal, assert_same_state, fitted_state, make_binary
from dropmargin import DropoutLogisticRegression, DropoutSVC, MCFClassifier, NoisyLinearClassifier
from dropmargin.io.model import load, save

X, Y = make_binary(n_samples=700)


@pytest.fixture
def model():
    return DropoutLogisticRegression().partial_fit(X, Y, classes=[0, 1])


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"classes": [0, 1, 2]}, r"classes=\[0, 1, 2\] is not the same as on the first call .* \[0, 1\]"),
        ({"y": np.full(len(Y), 7)}, r"labels that are not among the declared classes \[0, 1\]: \[7\]"),
        ({"X": X[:, :5]}, "5 features"),
        ({"X": np.where(X > 2.0, np.nan, X)}, "NaN"),
        ({"sample_weight": np.ones(3)}, "sample_weight"),
        ({"sample_weight": np.zeros(len(Y))}, "zero for every row"),
    ],
    ids=["other classes", "unknown label", "width", "nan", "weights", "no weight"],
)
def test_bad_batches_do_not_change_the_estimator(model, given, match):
    state = fitted_state(model)
    arguments = {"X": X, "y": Y} | given
    with pytest.raises(ValueError, match=match):
        model.partial_fit(arguments.pop("X"), arguments.pop("y"), **arguments)
    assert_same_state(model, state)


@pytest.mark.parametrize("noise", [0.1, None])
def test_a_batch_without_weights_is_an_error_and_no_part_of_the_stream(noise):
    stream = DropoutSVC(noise=noise)
    before = dict(vars(stream))
    with pytest.raises(ValueError, match=r"sample_weight is zero for every row.*skip batches"):
        stream.partial_fit(X, Y, classes=[0, 1], sample_weight=np.zeros(len(Y)))
    assert vars(stream) == before  # not even n_features_in_: the first batch may still have another width
    with pytest.raises(NotFittedError):
        stream.predict(X)
    plain = DropoutSVC(noise=noise)
    for begin in (0, 100, 600):
        rows = slice(begin, begin + 500)
        stream.partial_fit(X[rows], Y[rows], classes=[0, 1])
        plain.partial_fit(X[rows], Y[rows], classes=[0, 1])
        with pytest.raises(ValueError, match="zero for every row"):
            stream.partial_fit(X[rows], Y[rows], sample_weight=np.zeros(len(Y[rows])))
    assert_bitwise_equal(stream, plain)


def test_an_interrupt_leaves_the_stream_as_it_was(model, monkeypatch):
    other = DropoutLogisticRegression().partial_fit(X, Y, classes=[0, 1])

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dropmargin.online.summary.Summary.of", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X, Y)
    assert_bitwise_equal(model.partial_fit(X, Y), other.partial_fit(X, Y))


@pytest.mark.parametrize(
    ("estimator", "match"),
    [
        (MCFClassifier("exponential"), "MCFClassifier has no partial_fit for Exponential"),
        (NoisyLinearClassifier("mcf-logistic"), "NoisyLinearClassifier has no partial_fit for MCFLogistic"),
        (DropoutSVC(l1_ratio=1.0), r"no partial_fit with l1_ratio=1.0: .* quadratic .* Set l1_ratio=0, or use fit\."),
        (
            DropoutSVC(missing="rescale"),
            r"no partial_fit with missing='rescale': .* not known before the end .* impute .* or use fit\.",
        ),
        (DropoutSVC(multi_class="multinomial"), r"with multi_class='multinomial': .* Set multi_class='ovr' or 'ovo'"),
    ],
    ids=str,
)
def test_the_cause_of_the_error_explains_why_partial_fit_is_unavailable(estimator, match):
    assert not hasattr(estimator, "partial_fit")
    with pytest.raises(AttributeError) as caught:
        estimator.partial_fit(X, Y, classes=[0, 1])
    assert re.search(match, str(caught.value.__cause__))


def test_a_saved_model_predicts_and_warns_that_it_has_no_stream(model, tmp_path):
    save(model, tmp_path / "model.dropmargin")
    loaded = load(tmp_path / "model.dropmargin")
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    with pytest.warns(UserWarning, match="does not contain its rows"):
        loaded.partial_fit(X, Y)
