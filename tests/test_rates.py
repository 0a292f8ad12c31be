"""Dropout rates from an unlabelled sample of where the model will be used."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from datasets import make_binary
from dropmargin import estimate_dropout_rates


def share(present, n_rows=20):
    """Return a column that is present in this many rows."""
    return np.r_[np.full(present, 2.0), np.zeros(n_rows - present)]


def test_rates_follow_the_formula():
    train = np.stack([share(20), share(10), share(10), share(5)], axis=1)
    target = np.stack([share(15), share(10), share(4), share(10)], axis=1)
    assert_allclose(estimate_dropout_rates(train, target), [0.25, 0.0, 0.6, 0.0])


@pytest.mark.parametrize(
    "layout",
    [
        sparse.csr_array,
        sparse.csr_matrix,
        sparse.csc_array,
        sparse.coo_array,
        np.float32,
        pd.DataFrame,
        lambda X: pl.DataFrame(X, schema=[f"f{i}" for i in range(X.shape[1])]),
        np.ndarray.tolist,
    ],
)
def test_every_format_gives_the_same_rates_and_stays_as_it_is(layout):
    X, _ = make_binary()
    Y, _ = make_binary(seed=9)
    Y[::3, 2] = 0.0
    Y[0, 0] = np.nan
    expected = estimate_dropout_rates(X, Y)
    given = layout(Y)
    before = given.copy() if hasattr(given, "copy") else given.clone()
    assert_array_equal(estimate_dropout_rates(layout(X), given), expected)
    assert_array_equal(estimate_dropout_rates(X, given), expected)
    after = (given, before)
    one, other = (item.toarray() if sparse.issparse(item) else np.asarray(item) for item in after)
    assert_array_equal(one, other)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_columns_are_matched_by_name(frame):
    train = pd.DataFrame({"a": [1.0, 1.0], "b": [1.0, 0.0]})
    assert_array_equal(estimate_dropout_rates(train, frame({"b": [1.0, 1.0], "a": [1.0, 0.0]})), [0.5, 0.0])


@pytest.mark.parametrize(
    ("train", "target", "message"),
    [
        (np.ones((2, 3)), np.ones((2, 2)), "X_train has 3 features, X_target has 2"),
        (
            pd.DataFrame({"a": [1.0], "b": [1.0]}),
            pd.DataFrame({"a": [1.0], "c": [1.0]}),
            r"X_target .* lacks \['b'\] and has \['c'\] in addition",
        ),
        (pd.DataFrame({"a": [1.0], "b": [1.0]}), pd.DataFrame({"a": [1.0]}), r"X lacks \['b'\]; its columns must be"),
        (pd.DataFrame({"a": [1.0], "b": [1.0]}), np.ones((1, 3)), "X_train has 2 features, X_target has 3"),
        (np.ones((2, 3)), np.ones(3), "Expected 2D array"),
        (np.ones((2, 3)), np.ones((0, 3)), "minimum of 1 is required"),
        (np.ones((2, 1)), [["word"]], "could not convert string to float"),
    ],
)
def test_samples_with_other_columns_are_refused(train, target, message):
    with pytest.raises(ValueError, match=message):
        estimate_dropout_rates(train, target)
