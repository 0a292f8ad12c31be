"""Scores of a classifier on rows corrupted by noise: `corruption_curve`."""

from __future__ import annotations

import pytest
from numpy.testing import assert_array_equal

from datasets import make_multiclass
from dropmargin import DropoutNoise, GaussianNoise, LaplaceNoise, PoissonNoise, corruption_curve
from dropmargin.evaluation.scoring import repeat_seeds
from recorder import Recorder


def test_corrupted_rows_are_those_of_the_noise():
    X, y = make_multiclass()
    recorder = Recorder().fit(X, y)
    noises = [None, 0.3, GaussianNoise(scale=0.2), LaplaceNoise(scale=0.1), PoissonNoise()]
    curve = corruption_curve(recorder, X, y, noises, n_repeats=2, random_state=5)
    assert curve.scores.shape == (5, 2)
    assert [type(noise) for noise in curve.noises] == [
        type(None),
        DropoutNoise,
        GaussianNoise,
        LaplaceNoise,
        PoissonNoise,
    ]
    seeds = repeat_seeds(2, 5)
    expected = [X] + [noise.sample(X, seed) for noise in curve.noises[1:] for seed in seeds]
    for one, other in zip(recorder.seen_, expected, strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("noises", "message"),
    [
        (GaussianNoise(), "noises must be a list"),
        (0.5, "noises must be a list"),
        ("dropout", "noises must be a list"),
        ([], "noises is empty"),
        (["dropout"], "noise must be None"),
        ([0.5, 1.0], r"rate .*\[0, 1\), got 1.0"),
        ([GaussianNoise(scale=[1.0, 2.0])], "one number per feature"),
        ([PoissonNoise()], "needs X >= 0"),
    ],
)
def test_bad_noises_raise(noises, message):
    X, y = make_multiclass()
    X = X - 1.0
    recorder = Recorder().fit(X, y)
    with pytest.raises(ValueError, match=message):
        corruption_curve(recorder, X, y, noises)
    assert recorder.seen_ == []
