"""NaN as a missing feature: the anchored score, training without mean and variance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from datasets import (
    N_FEATURES,
    assert_same_state,
    blankout,
    explicit,
    fitted_state,
    make_binary,
    make_multiclass,
    relative_difference,
    with_nan,
)
from dealing import deal
from dropmargin import (
    DropoutSVC,
    GaussianNoise,
    NoisyLinearClassifier,
    PoissonNoise,
)
from dropmargin.noise import Noise, Variance


def anchored(model, X):
    """Return the scores by the formula, row by row and column by column."""
    mean, out = model.feature_means_, np.empty((len(X), len(model.coef_)))
    for i, x in enumerate(X):
        seen = ~np.isnan(x)
        for k, (w, b) in enumerate(zip(model.coef_, model.intercept_, strict=True)):
            moves = np.abs(w) * model.feature_deviations_
            share = max(moves[seen].sum() / moves.sum(), seen.mean() / 2.0)
            out[i, k] = b + w @ mean + (w[seen] @ (x - mean)[seen] / share if seen.any() else 0.0)
    return out


# Prediction ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "make"),
    deal([np.array, explicit, lambda X: sparse.csr_matrix(explicit(X))], [make_binary, make_multiclass]),
)
def test_scores_are_anchored_at_the_training_mean(layout, make):
    X, y = make()
    model = DropoutSVC(missing="rescale").fit(X, y)
    np.testing.assert_allclose(model.feature_means_, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(model.feature_deviations_, X.std(axis=0), rtol=1e-12)
    bad = with_nan(X)
    wanted = anchored(model, bad)
    scores = model.decision_function(layout(bad))
    np.testing.assert_allclose(scores, wanted if wanted.shape[1] > 1 else wanted[:, 0], rtol=1e-12, atol=1e-13)


def test_a_sparse_matrix_is_never_made_dense():
    rng = np.random.RandomState(0)
    columns = np.sort(rng.randint(0, 2_000_000, (200, 20)), axis=1)
    X = sparse.csr_array((rng.uniform(size=4000), columns.ravel(), np.arange(0, 4001, 20)), shape=(200, 2_000_000))
    X.data[::7] = np.nan
    y = rng.randint(0, 2, 200)
    model = DropoutSVC(missing="rescale", C=0.1, tol=0.1).fit(X, y)  # 3 GB if it were dense
    assert model.feature_means_.shape == (2_000_000,)
    assert np.isfinite(model.decision_function(X)).all()
    assert np.isfinite(model.predict_stability(X)).all()


# Training -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [None, blankout(0.3), blankout(np.linspace(0.0, 0.8, N_FEATURES)), PoissonNoise()])
@pytest.mark.parametrize("loss", ["hinge", "logistic", "exponential"])
def test_a_missing_entry_is_a_zero_where_zeros_have_no_variance(loss, noise):
    X, y = make_binary()
    bad = with_nan(X)
    # Without noise rows are centred at the means of what is observed, and sparse rows have other solvers: equal optima.
    options = {"noise": noise, "tol": 1e-12 if noise is None else 1e-4}
    model = NoisyLinearClassifier(loss, missing="rescale", **options)
    plain = NoisyLinearClassifier(loss, **options).fit(np.nan_to_num(bad), y)
    assert relative_difference(model.fit(bad, y), plain) < (1e-6 if noise is None else 1e-12)
    assert relative_difference(model.fit(explicit(bad), y), plain) < (1e-5 if noise is None else 1e-6)


@pytest.mark.parametrize("layout", [np.array, explicit])
def test_means_and_deviations_are_of_observed_entries_by_weight(layout):
    X, y = make_binary()
    bad = with_nan(X)
    bad[:, 3] = np.nan
    weights = np.random.RandomState(0).randint(0, 3, len(y))
    observed = np.repeat(bad[:, :3], weights, axis=0)
    model = DropoutSVC(missing="rescale").fit(layout(bad), y, weights)
    np.testing.assert_allclose(model.feature_means_[:3], np.nanmean(observed, axis=0), rtol=1e-12)
    np.testing.assert_allclose(model.feature_deviations_[:3], np.nanstd(observed, axis=0), rtol=1e-12)
    assert model.feature_means_[3] == model.feature_deviations_[3] == 0.0


# Errors and tags ----------------------------------------------------------------------------------------------------


class _Both(Noise):
    def variance(self):
        return Variance(entry=np.square, slope=0.5, constant=0.1)


@pytest.mark.parametrize(
    ("noise", "layout", "message"),
    [
        (GaussianNoise(0.1), explicit, r"sparse with NaN.*Gaussian.*toarray"),
        (_Both(), np.array, "variance of _Both .*SimpleImputer"),
    ],
)
def test_noise_that_cannot_spare_missing_entries_says_so(noise, layout, message):
    X, y = make_binary()
    model = DropoutSVC(noise=noise, missing="rescale").fit(X, y)
    state = fitted_state(model)
    with pytest.raises(ValueError, match=message):
        model.fit(layout(with_nan(X)), y)
    assert_same_state(model, state)
