"""Noise as a step of a pipeline: corrupted in training, untouched at prediction unless asked for."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from datasets import blankout, make_binary, make_sparse
from dealing import deal_checks
from dropmargin import DropoutNoise, GaussianNoise, LaplaceNoise, NoiseTransformer, PoissonNoise


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


@pytest.mark.parametrize("container", [sparse.csr_array, sparse.csr_matrix])
def test_sparse_in_sparse_out(container):
    X, _ = make_sparse(50, 20, 0.2)
    given = container(X)
    out = NoiseTransformer(0.5, random_state=0).fit_transform(given)
    assert isinstance(out, container)
    assert set(np.unique(out.data / given.data)) == {0.0, 2.0}
    assert_array_equal(given.toarray(), X.toarray())
    with pytest.raises(ValueError, match=r"GaussianNoise.*dense"):
        NoiseTransformer(GaussianNoise()).fit_transform(given)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noise": 1.0}, r"rate .*\[0, 1\), got 1.0"),
        ({"noise": "dropout"}, "noise .*'dropout'"),
        ({"noise": DropoutNoise(rate=[0.1, 0.2])}, r"rate .*\(2,\)"),
        ({"noise": PoissonNoise()}, "Poisson.*X >= 0"),
        ({"when": "predict"}, r"when .*'fit', 'always'.*'predict'"),
        ({"when": None}, "when .*None"),
        ({"random_state": "seed"}, "seed"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, message):
    X = make_binary()[0] - 1.0
    with pytest.raises(ValueError, match=message):
        NoiseTransformer(**settings).fit_transform(X)
