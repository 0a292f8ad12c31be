"""How sure a prediction is under dropout and other noise: against all patterns, and against draws from the noise."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import sparse

from datasets import N_FEATURES, blankout, make_binary, make_multiclass
from dealing import deal
from dropmargin import DropoutSVC, PoissonNoise

PER_FEATURE = np.linspace(0.0, 0.9, N_FEATURES)
MOST_ERROR = 5.0 * 0.5  # five standard errors of one draw


def by_all_patterns(model, rows, rate, reference=0.0):
    """Return the total probability of the patterns that leave each label as it is; NaN stays NaN."""
    rate = np.broadcast_to(rate, rows.shape[1])
    kept = np.array(list(product([0.0, 1.0], repeat=rows.shape[1])))
    probability = np.prod(np.where(kept == 1.0, 1.0 - rate, rate), axis=1)
    out = []
    for row in rows:
        corrupted = reference + (row - reference) * kept / (1 - rate)
        out.append(probability @ (model.predict(corrupted) == model.predict([row])[0]))
    return np.array(out)


def many_features(n_features=20, n_samples=40, n_classes=3):
    X, y = make_multiclass(n_samples, n_features, n_classes)
    return DropoutSVC(noise=0.1).fit(X, y), X


# Few features: exact ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "make", "options"),
    deal(
        [0.1, 0.5, 0.95, PER_FEATURE],
        [make_binary, make_multiclass],
        [{}, {"fit_intercept": False}, {"multi_class": "ovo"}],
    ),
)
def test_few_features_are_exact(rate, make, options):
    X, y = make()
    model = DropoutSVC(noise=0.2, **options).fit(X, y)
    exact = by_all_patterns(model, X[:15], rate)
    np.testing.assert_allclose(model.predict_stability(X[:15], blankout(rate)), exact, rtol=0, atol=1e-12)
    assert np.ptp(exact) > 0.1  # there is something to find


# Many features: draws -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.3, 0.9])
def test_draws_are_within_their_standard_error(rate):
    model, X = many_features(14)
    exact = model.predict_stability(X, blankout(rate), n_draws=2**12)  # 2^14 patterns are enumerated
    np.testing.assert_allclose(exact[:3], by_all_patterns(model, X[:3], rate), rtol=0, atol=1e-12)
    drawn = model.predict_stability(X, blankout(rate), n_draws=256)
    assert 0.0 < np.abs(drawn - exact).max() < MOST_ERROR / np.sqrt(256)


@pytest.mark.parametrize("noise", [blankout(0.5), blankout(np.linspace(0.0, 0.9, 20)), PoissonNoise()])
def test_sparse_rows_give_what_dense_rows_give(noise):
    model, X = many_features()
    dense = model.predict_stability(X, noise)
    for layout in (sparse.csr_array, sparse.csr_matrix, sparse.csc_array):
        np.testing.assert_allclose(model.predict_stability(layout(X), noise), dense, rtol=0, atol=1e-12)
