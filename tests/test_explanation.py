"""`explain` and `top_features`: contributions, flip counts against brute force, names, tables, plots."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from dealing import together
from dropmargin import (
    DropoutLogisticRegression,
    DropoutNoise,
    DropoutRidge,
    DropoutSVC,
    DropoutSVCCV,
    GaussianNoise,
    explain,
    top_features,
)
from dropmargin.io.data import FrameEncoder, TableEncoder, TextEncoder

N_FEATURES = 6
GROUPS = np.array([0, 1, 1, 2, 3, 3])


def make_rows(n_classes, *, seed=0, n_rows=60):
    rng = np.random.default_rng(seed)
    y = np.arange(n_rows) % n_classes
    centres = rng.normal(size=(n_classes, N_FEATURES))
    X = centres[y] + rng.normal(size=(n_rows, N_FEATURES))
    return np.where(rng.random(X.shape) < 0.3, 0.0, X), y


def without(model, x, features, reference):
    """Return a row without some features, as the model is to be told of it."""
    x = x.copy()
    x[features] = reference[features] if model.missing == "error" else np.nan
    return x[None]


def score_against(model, x, label, other):
    """Return the score of a class against another, from what is public."""
    if len(model.classes_) == 2:
        return (2 * label - 1) * model.decision_function(x)[0]
    if model.multi_class != "ovo":
        scores = model.decision_function(x)[0]
        return scores[label] - scores[other]
    pairs = list(itertools.combinations(range(len(model.classes_)), 2))
    pair = copy.copy(model)  # the classifier of one pair
    k = pairs.index((min(label, other), max(label, other)))
    pair.coef_, pair.intercept_, pair.classes_ = model.coef_[[k]], model.intercept_[[k]], model.classes_[:2]
    return (1 if label > other else -1) * pair.decision_function(x)[0]


def brute_force(model, x, units, reference, is_sparse):
    """Return contributions by unit, flip count and least count of a row, each by predictions of changed rows."""
    stored = ~np.isnan(x) & ((x != 0.0) | (not is_sparse))
    present = [u for u in np.unique(units) if stored[units == u].any()]
    label = int(model.predict(x[None])[0])
    scores = np.atleast_1d(model.decision_function(x[None])[0])
    scores = np.array([-scores[0], scores[0]]) if len(scores) == 1 else scores.copy()
    scores[label] = -np.inf
    other = int(scores.argmax())
    margin = score_against(model, x[None], label, other)

    def members(some):
        return np.flatnonzero(np.isin(units, some) & ~np.isnan(x))

    def flips(some):
        return model.predict(without(model, x, members(some), reference))[0] != label

    contributions = {
        u: margin - score_against(model, without(model, x, members([u]), reference), label, other) for u in present
    }
    order = sorted(present, key=lambda u: -contributions[u])
    counts = range(1, len(present) + 1)
    flip = next((k for k in counts if flips(order[:k])), None)
    least = next((k for k in counts if any(map(flips, itertools.combinations(present, k)))), None)
    return contributions, flip, least


CASES = [
    (cls, multi_class, n_classes, missing, grouped, reference)
    for cls, multi_class, n_classes in [
        (DropoutSVC, "ovr", 2),
        (DropoutSVC, "ovr", 4),
        (DropoutSVC, "ovo", 4),
        (DropoutLogisticRegression, "multinomial", 3),
    ]
    for missing in ("error", "rescale", "conditional")
    for grouped in (False, True)
    for reference in (("mean", "zero") if missing == "error" else ("mean",))
]


@pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "sparse"])
@together(("cls", "multi_class", "n_classes", "missing", "grouped", "reference"), CASES)
def test_flip_counts_are_those_of_brute_force(cls, multi_class, n_classes, missing, grouped, reference, is_sparse):
    X, y = make_rows(n_classes)
    units = GROUPS if grouped else np.arange(N_FEATURES)
    noise = DropoutNoise(0.2, reference=reference, groups=GROUPS if grouped else None)
    model = cls(noise=noise, multi_class=multi_class, missing=missing, tol=1e-6).fit(X, y)
    rows = X[:10].copy()
    if missing != "error":
        rows[np.random.default_rng(1).random(rows.shape) < 0.15] = np.nan
    fill = X.mean(axis=0) if reference == "mean" else np.zeros(N_FEATURES)
    names = [f"u{u}" for u in units]
    explanation = explain(model, sparse.csr_array(rows) if is_sparse else rows, feature_names=names)
    assert_array_equal(explanation.labels, model.predict(rows))
    assert explanation.least_is_exact == (missing == "error" and multi_class != "ovo")
    for x, found in zip(rows, explanation, strict=True):
        contributions, flip, least = brute_force(model, x, units, fill, is_sparse)
        assert found.n_present == len(contributions)
        listed = {f"u{u}": value for u, value in contributions.items() if abs(value) > 1e-12}
        ours = dict(zip(found.features, found.contributions, strict=True))
        assert {k: v for k, v in ours.items() if abs(v) > 1e-12} == pytest.approx(listed, abs=1e-9)
        assert list(found.contributions) == sorted(found.contributions, reverse=True)
        assert found.flip_count == flip
        if explanation.least_is_exact:
            assert found.least_count == least
        else:
            assert found.least_count == found.flip_count
            assert least is None or flip is None or least <= flip


def test_most_labels_of_the_brute_force_flip():
    """The test above would pass for a model whose labels never flip."""
    X, y = make_rows(4)
    counts = explain(DropoutSVC().fit(X, y), X).flip_counts
    assert len(set(counts.tolist())) > 2
    assert np.isfinite(counts).mean() > 0.5
