"""The noises: unbiased, with the moments that they claim; as a step of a pipeline; errors of parameters."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from datasets import blankout, make_binary
from dealing import deal, deal_checks
from dropmargin import DropoutNoise, GaussianNoise, LaplaceNoise, NoiseTransformer, PoissonNoise
from dropmargin.noise import as_noise
from helpers import N_FEATURES, NOISES, SOME_NOISES, plain_log_mgf

ROW = np.array([0.0, 0.5, 1.0, 2.5, 0.7, 3.0])
N_DRAWS = 200_000


@pytest.fixture(scope="module")
def draws():
    """Return many corrupted copies of `ROW`, by noise."""
    many = np.tile(ROW, (N_DRAWS, 1))
    return {name: NOISES[name].sample(many, random_state=seed) for seed, name in enumerate(SOME_NOISES)}


def _within_standard_errors(samples, expected, n_errors=5.0):
    error = samples.std(axis=0) / np.sqrt(len(samples))
    assert_array_equal(np.abs(samples.mean(axis=0) - expected) <= n_errors * error + 1e-12, True)


def _variance(noise, x):
    """Return the variance as the library says it."""
    law = noise.variance()
    return law.of(x) + np.zeros_like(x)


# Moments ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOME_NOISES)
def test_samples_are_unbiased(name, draws):
    _within_standard_errors(draws[name], ROW)


@pytest.mark.parametrize("name", SOME_NOISES)
def test_samples_have_the_stated_variance(name, draws):
    _within_standard_errors((draws[name] - ROW) ** 2, _variance(NOISES[name], ROW))


@pytest.mark.parametrize("name", SOME_NOISES)
def test_log_mgf_is_the_formula_of_the_design(name):
    t = np.linspace(-2.0, 2.0, 9)[:, None] + np.zeros(N_FEATURES)
    assert_allclose(NOISES[name].log_mgf(t, ROW)[0], plain_log_mgf(NOISES[name], t, ROW), rtol=1e-12, atol=1e-14)


# The log-MGF and its derivatives ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "noise",
    [
        *(NOISES[name] for name in SOME_NOISES),
        blankout(0.0),
        blankout(0.999),
        GaussianNoise(0.0),
        LaplaceNoise(0.0),
        LaplaceNoise(0.03),
    ],
)
def test_derivatives_of_the_log_mgf_match_finite_differences(noise):
    t = np.array([-30.0, -3.0, -0.5, 0.0, 0.5, 3.0, 30.0])[:, None] + np.zeros(N_FEATURES)
    if isinstance(noise, LaplaceNoise):
        t *= 0.1  # the domain is |t| < 1 / scale, and 1 / 0.3 is the narrowest here
    # the scale on which K bends is (1 - rate) / x
    step = 1e-5 * (1.0 - np.max(noise.rate) if isinstance(noise, DropoutNoise) else 1.0)
    low, middle, high = (noise.log_mgf(t + shift, ROW) for shift in (-step, 0.0, step))
    for order in (0, 1):
        slope = (high[order] - low[order]) / (2.0 * step)
        size = np.abs(middle[order]) * np.finfo(float).eps / step  # what rounding costs the difference
        assert np.all(np.abs(slope - middle[order + 1]) <= 1e-6 * np.abs(middle[order + 1]) + 10.0 * size + 1e-8)


@pytest.mark.parametrize(("rate", "t"), deal([0.0, 1e-12, 0.5, 0.999], [-1e8, 1e3]))
def test_dropout_log_mgf_reaches_its_limits_without_overflow(rate, t):
    x = np.array([0.0, 2.0, -2.0])
    value, slope, second = blankout(rate).log_mgf(np.full(3, t), x)
    kept = x / (1.0 - rate)
    assert np.all(np.isfinite([value, slope, second]))
    tends_to_kept = t * x > 0.0 if rate else np.ones(3, dtype=bool)
    assert_allclose(slope, np.where(tends_to_kept, kept, 0.0), rtol=1e-12, atol=1e-100)
    assert_allclose(second, 0.0, atol=1e-100)
    if rate:
        far = np.log1p(-rate) + t * kept
        assert_allclose(value, np.where(x == 0.0, 0.0, np.where(far > 0.0, far, np.log(rate))), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("t", [2.0, -2.0, 2.0000001, -50.0])
def test_laplace_log_mgf_is_infinite_outside_its_domain(t):
    noise = LaplaceNoise(0.5)
    assert_array_equal(noise.log_mgf(np.array([t]), np.array([1.0]))[0], np.inf)
    assert np.isfinite(noise.log_mgf(np.array([0.999 * np.sign(t) * 2.0]), np.array([1.0]))[0]).all()


# Sampling -----------------------------------------------------------------------------------------------------------


def _sparse_rows(kind=sparse.csr_array, dtype=np.float64, n_samples=50):
    rng = np.random.default_rng(3)
    dense = rng.poisson(0.5, (n_samples, N_FEATURES)).astype(dtype)
    return kind(dense)


@pytest.mark.parametrize(
    ("noise", "kind", "dtype"),
    deal(
        [blankout(0.4), NOISES["dropout per feature"], PoissonNoise()],
        [sparse.csr_array, sparse.csr_matrix, sparse.csc_array],
        [np.float32, np.float64],
    ),
)
def test_sparse_samples_stay_sparse(noise, kind, dtype):
    X = _sparse_rows(kind, dtype)
    before = X.copy()
    sample = noise.sample(X, random_state=0)
    assert sparse.issparse(sample)
    assert isinstance(sample, sparse.sparray) == isinstance(X, sparse.sparray)
    assert sample.dtype == dtype
    assert sample.shape == X.shape
    assert not np.any((sample.toarray() != 0.0) & (X.toarray() == 0.0))
    assert (sample != X).nnz > 0
    assert (before != X).nnz == 0


def test_duplicate_entries_of_a_sparse_x_are_one_entry():
    twice = sparse.csr_array((np.ones(2000), np.zeros(2000, dtype=int), np.arange(0, 2001, 2)), shape=(1000, 1))
    sample = blankout(0.5).sample(twice, random_state=0).toarray()
    assert_array_equal(np.unique(sample), [0.0, 4.0])


@pytest.mark.parametrize("noise", [GaussianNoise(0.1), LaplaceNoise(0.1), GaussianNoise([0.0] * 5 + [0.1])], ids=repr)
def test_additive_noise_refuses_to_fill_a_sparse_x(noise):
    with pytest.raises(ValueError, match=f"{type(noise).__name__}.*dense"):
        noise.sample(_sparse_rows(), random_state=0)


# Parameters ---------------------------------------------------------------------------------------------------------


def test_as_noise_understands_numbers_noises_and_none():
    noise = LaplaceNoise(0.2)
    assert as_noise(noise) is noise
    assert as_noise(None) is None
    for number in (0.25, np.float32(0.25), 0):
        dropout = as_noise(number)
        assert isinstance(dropout, DropoutNoise)
        assert dropout.rate == float(number)


@deal_checks(
    [],
    [
        NoiseTransformer(),
        NoiseTransformer(None),
        NoiseTransformer(0.5, when="always", random_state=0),
        NoiseTransformer(LaplaceNoise(scale=0.5)),
        NoiseTransformer(GaussianNoise(scale=0.5), when="always"),
    ],
    stride=5,
)
def test_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "noise", [0.4, blankout(np.linspace(0, 0.9, 8)), GaussianNoise(0.3), LaplaceNoise(0.2), PoissonNoise()]
)
def test_training_rows_are_a_sample_of_the_noise(noise):
    X, _ = make_binary()
    step = NoiseTransformer(noise, random_state=3)
    expected = (blankout(noise) if isinstance(noise, float) else noise).sample(X, 3)
    assert_array_equal(step.fit_transform(X), expected)
    assert (expected != X).any()


def test_rows_to_predict_are_left_alone_by_default():
    X, _ = make_binary()
    step = NoiseTransformer(0.5, random_state=0).fit(X)
    assert_array_equal(step.transform(X), X)
    assert_array_equal(NoiseTransformer(None).fit_transform(X), X)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noise": 1.0}, r"rate .*\[0, 1\), got 1.0"),
        ({"noise": "dropout"}, "noise .*'dropout'"),
        ({"when": "predict"}, r"when .*'fit', 'always'.*'predict'"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, message):
    X = make_binary()[0] - 1.0
    with pytest.raises(ValueError, match=message):
        NoiseTransformer(**settings).fit_transform(X)
