"""Errors of a fit to partitions name the partition, and leave the model as it was."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse

from backends import Elsewhere
from dropmargin import DropoutSVC
from dropmargin.data import Rows
from dropmargin.estimators.fitting import fit_partitions
from dropmargin.noise import DropoutNoise

pytestmark = pytest.mark.timeout(120)
_EDGES = (0, 30, 70, 71, 120)


def _data(seed=0, n_rows=120, n_features=8):
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.8, (n_rows, n_features)) * rng.uniform(0.3, 1.2, (n_rows, n_features))
    y = np.argmax((X - X.mean(axis=0)) @ rng.normal(size=(n_features, 3)) + rng.normal(size=(n_rows, 3)), axis=1)
    return X, np.array(["a", "b", "c"])[y], rng.uniform(0.5, 2.0, n_rows)


def _parts(X, y, weights=None, edges=_EDGES):
    own = [slice(a, b) for a, b in itertools.pairwise(edges)]
    return [Rows(X[s], y[s], None if weights is None else weights[s]) for s in own]


def _fit(estimator, parts, **options):
    return fit_partitions(estimator, Elsewhere(parts), **options)


def _invalid(which, X=None, y=None, weights=None):
    parts = _parts(*_data()[:2])
    own = parts[which]
    parts[which] = Rows(own.X if X is None else X(own.X), own.y if y is None else y(own.y), weights)
    return parts


def _with(value):
    def change(X):
        X = X.copy()
        X[1, 2] = value
        return X

    return change


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (_invalid(1, X=_with(np.nan)), r"part B: X has NaN; .*missing='rescale'"),
        (_invalid(3, X=_with(np.inf)), r"part D: X has infinity in feature 2"),
        (_invalid(1, X=_with(1e200)), r"1.0e\+200 in feature 2 of part B, whose squares overflow"),
        (_invalid(1, X=lambda X: X[:, :5]), r"part B has 5 features, but part A has 8"),
        (_invalid(3, X=sparse.csr_array), r"part D is sparse, but part A is dense"),
        (_invalid(1, y=lambda y: y[:-2]), r"part B: X has 40 rows, but y has 38 labels"),
        (_invalid(1, y=lambda y: np.arange(len(y))), r"part B has numbers as labels, but part A has text"),
        (_invalid(3, y=lambda y: y[:, None].repeat(2, axis=1)), r"part D: y should be a 1d array"),
        (_invalid(1, weights=-np.ones(40)), r"part B: sample_weight must be finite and not negative"),
        (_invalid(1, weights=np.ones(39)), r"part B: sample_weight.shape"),
        ([Rows(np.empty((0, 8)), np.empty(0))] * 4, r"There are no rows"),
    ],
)
def test_errors_name_the_partition(parts, message):
    model = DropoutSVC().fit(*_data(seed=5)[:2])
    before = dict(model.__dict__)
    with pytest.raises(ValueError, match=message):
        _fit(model, parts, names=["part A", "part B", "part C", "part D"])
    assert model.__dict__ == before  # the very same arrays


def test_errors_of_all_partitions_together():
    X, y, _ = _data()
    with pytest.raises(ValueError, match="at least 2 classes"):
        _fit(DropoutSVC(), _parts(X, np.full(120, "a")))
    with pytest.raises(ValueError, match="X has 8 features, rate has shape"):
        _fit(DropoutSVC(noise=DropoutNoise([0.1, 0.2])), _parts(X, y))
    with pytest.raises(ValueError, match="C must be"):
        _fit(DropoutSVC(C=-1.0), _parts(X, y))
    with pytest.raises(ValueError, match="continuous"):
        _fit(DropoutSVC(), _parts(X, X[:, 0]))
