"""What training rows are reduced to before a fit: sums by class and by target, and variances of centred entries."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dropmargin.data import TrainingData, canonical
from dropmargin.data.outputs import binary_outputs, class_sums, output_targets, target_weights
from helpers import NOISES, as_format, make_data


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_weights_of_classes_are_sums_over_their_rows(layout):
    X, _, weights = make_data()
    y = np.random.default_rng(0).integers(-1, 3, len(X))  # -1: the row has no class
    sums = [sum(weight for own, weight in zip(y, weights, strict=True) if own == k) for k in range(4)]
    data = TrainingData.of_matrix(canonical(as_format(X, layout)), y, weights, 4)
    assert_allclose(data.class_weights, sums)
    assert data.weight == pytest.approx(weights[y >= 0].sum())
    assert_allclose(class_sums(y, weights > 1.0, 4), [np.sum((y == k) & (weights > 1.0)) for k in range(4)])
    assert_allclose(class_sums(X[:, 0], weights, 1), [weights.sum()])  # numbers, all of one class


@pytest.mark.parametrize(("n_classes", "multi_class"), [(2, "ovr"), (3, "ovr"), (4, "ovo")])
def test_weights_of_targets_are_sums_over_the_rows_that_take_part(n_classes, multi_class):
    y, weights = np.random.default_rng(1).integers(n_classes, size=50), make_data(50)[2]
    outputs = binary_outputs(n_classes, multi_class)
    found = target_weights(outputs, class_sums(y, weights, n_classes))
    for k, output in enumerate(outputs):
        targets, takes_part = output_targets([output], y)[:, 0], output.takes_part(y)
        assert_allclose(found[:, k], [weights[takes_part & (targets == target)].sum() for target in (1.0, -1.0)])
        assert takes_part.sum() < len(y) or multi_class == "ovr"


@pytest.mark.parametrize("name", [name for name in NOISES if name != "none"])
def test_the_variance_of_centred_entries_is_that_of_the_entries(name):
    X, means, variance = make_data()[0], np.array([0.3, -1.0, 2.0, 0.0, 50.0, 0.7]), NOISES[name].variance()
    assert_allclose(variance.shifted(means).of(X - means) + 0.0 * X, variance.of(X) + 0.0 * X, rtol=1e-12, atol=1e-12)
