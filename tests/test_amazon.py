"""The paper's review data: known errors at the optimum, and the gap.

The data may not be shipped. The tests look for it in the folder DROPMARGIN_DATA, or in shared/data beside the checkout.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sklearn.datasets import load_svmlight_file

from dropmargin import DropoutLogisticRegression, DropoutSVC

_DATA = Path(os.environ.get("DROPMARGIN_DATA", Path(__file__).parents[2] / "shared" / "data")) / "amazon5k"

pytestmark = pytest.mark.skipif(
    not _DATA.is_dir(),
    reason=f"the Amazon reviews are not in {_DATA}; set DROPMARGIN_DATA to the folder above amazon5k",
)

_KNOWN_ERRORS = [
    ("books", DropoutSVC, 0.1574),
    ("books", DropoutLogisticRegression, 0.1550),
    ("kitchen", DropoutSVC, 0.1095),
    ("kitchen", DropoutLogisticRegression, 0.1071),
]


@pytest.fixture(scope="module")
def reviews():
    def load(domain, part):
        return load_svmlight_file(_DATA / f"{domain}_{part}.svmlight.gz", n_features=5000, zero_based=True)

    return {domain: (*load(domain, "train"), *load(domain, "test")) for domain in ("books", "kitchen")}


@pytest.mark.parametrize(("domain", "estimator", "expected"), _KNOWN_ERRORS)
def test_error_at_the_optimum(reviews, domain, estimator, expected):
    X, y, X_test, y_test = reviews[domain]
    model = estimator(noise=0.5, C=0.1).fit(X, y)
    assert 1.0 - model.score(X_test, y_test) == pytest.approx(expected, abs=0.0015)


@pytest.mark.parametrize(("noise", "C"), [(0.1, 1.0), (0.7, 0.01)])
def test_estimated_gap_is_not_too_small(reviews, noise, C):
    X, y, *_ = reviews["kitchen"]
    for estimator in (DropoutSVC, DropoutLogisticRegression):
        model = estimator(noise=noise, C=C).fit(X, y)
        optimum = estimator(noise=noise, C=C, tol=1e-13).fit(X, y).objective_
        assert (model.objective_ - optimum) / optimum <= model.tol
