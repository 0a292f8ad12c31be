"""What the tests of invariances share: classifiers at a tight tolerance, and how close two of them must be."""

from __future__ import annotations

from sklearn.base import clone

from datasets import TIGHT, estimators, noises, relative_difference

BAR = 1e-10
ESTIMATORS = estimators(tol=TIGHT, C=0.5)
NOISES = noises()
CORE = {name: ESTIMATORS[name] for name in ESTIMATORS if not name.endswith("-gaussian")}


def fit(estimator, X, y, sample_weight=None, **params):
    return clone(estimator).set_params(**params).fit(X, y, sample_weight=sample_weight)


def assert_close(got, wanted, bar=BAR):
    assert relative_difference(got, wanted) <= bar
