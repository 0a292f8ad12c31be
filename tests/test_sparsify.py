"""Sparse coefficients: `sparsify` and `densify`."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from dropmargin import DropoutLogisticRegression, DropoutSVC, load, save
from helpers import as_format, make_data


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
