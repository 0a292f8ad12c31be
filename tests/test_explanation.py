"""`explain` and `top_features`: contributions, flip counts against brute force, names, tables, plots."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from dealing import deal
from dropmargin import (
    DropoutLogisticRegression,
    DropoutNoise,
    DropoutRidge,
    DropoutSVC,
    DropoutSVCCV,
    explain,
    top_features,
)

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
    """Return contributions by unit and the flip count of a row, each by predictions of changed rows."""
    stored = ~np.isnan(x) & ((x != 0.0) | (not is_sparse))
    present = [u for u in np.unique(units) if stored[units == u].any()]
    label = int(model.predict(x[None])[0])
    scores = np.atleast_1d(model.decision_function(x[None])[0])
    scores = np.array([-scores[0], scores[0]]) if len(scores) == 1 else scores.copy()
    scores[label] = -np.inf
    other = int(scores.argmax())
    margin = score_against(model, x[None], label, other)

    subsets = [some for k in range(1, len(present) + 1) for some in itertools.combinations(present, k)]
    changed = [without(model, x, np.flatnonzero(np.isin(units, some) & ~np.isnan(x)), reference) for some in subsets]
    flips = dict(zip(map(frozenset, subsets), model.predict(np.vstack(changed)) != label, strict=True))
    contributions = {u: margin - score_against(model, changed[i], label, other) for i, u in enumerate(present)}
    order = sorted(present, key=lambda u: -contributions[u])
    flip = next((k for k in range(1, len(order) + 1) if flips[frozenset(order[:k])]), None)
    return contributions, flip


CASES = deal(
    [
        (DropoutSVC, "ovr", 2),
        (DropoutSVC, "ovr", 4),
        (DropoutSVC, "ovo", 4),
        (DropoutLogisticRegression, "multinomial", 3),
    ],
    [("error", "mean"), ("error", "zero"), ("rescale", "mean"), ("conditional", "mean")],
    [False, True],
    [False, True],
    n=12,
)


@pytest.mark.parametrize(("kind", "rule", "grouped", "is_sparse"), CASES)
def test_flip_counts_are_those_of_brute_force(kind, rule, grouped, is_sparse):
    (cls, multi_class, n_classes), (missing, reference) = kind, rule
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
    for x, found in zip(rows, explanation, strict=True):
        contributions, flip = brute_force(model, x, units, fill, is_sparse)
        assert found.n_present == len(contributions)
        listed = {f"u{u}": value for u, value in contributions.items() if abs(value) > 1e-12}
        ours = dict(zip(found.features, found.contributions, strict=True))
        assert {k: v for k, v in ours.items() if abs(v) > 1e-12} == pytest.approx(listed, abs=1e-9)
        assert list(found.contributions) == sorted(found.contributions, reverse=True)
        assert found.flip_count == flip


@pytest.mark.parametrize("missing", ["error", "rescale", "conditional"])
def test_contributions_to_a_number_are_differences_of_predictions(missing):
    X, _ = make_rows(2)
    y = X @ np.arange(N_FEATURES) + 5.0
    model = DropoutRidge(noise=0.1, missing=missing).fit(X, y)
    for x, row in zip(X[:5], explain(model, X[:5], n=N_FEATURES), strict=True):
        assert row.label == pytest.approx(model.predict(x[None])[0])
        assert (row.runner_up, row.flip_count) == (None, None)
        # all features at their means, which is the mean prediction
        assert row.margin == pytest.approx(row.label - model.predict(X).mean())
        for name, contribution in zip(row.features, row.contributions, strict=True):
            changed = without(model, x, int(name[1:]), X.mean(axis=0))
            assert contribution == pytest.approx(row.label - model.predict(changed)[0])
    frame = explain(model, X[:5]).to_frame()
    assert list(frame.columns[:4]) == ["prediction", "difference", "n_present", "feature_1"]


# Errors, text and plots -----------------------------------------------------------------------------------------------


def test_errors_name_what_is_wrong():
    X, y = make_rows(2)
    model = DropoutSVC().fit(X, y)
    with pytest.raises(NotFittedError, match="explain needs a fitted model"):
        explain(DropoutSVC(), X)
    with pytest.raises(NotFittedError, match="top_features needs a fitted model"):
        top_features(DropoutSVCCV())
    with pytest.raises(TypeError, match="a model of dropmargin, such as DropoutSVC"):
        explain(LogisticRegression().fit(X, y), X)
    with pytest.raises(ValueError, match="feature_names has 2 names, but the model has 6 features"):
        explain(model, X, feature_names=["a", "b"])
    with pytest.raises(ValueError, match="n must be"):
        explain(model, X, n=0)
    with pytest.raises(ValueError, match="NaN"):
        explain(model, np.where(X > 1.0, np.nan, X))
    with pytest.raises(ValueError, match=r"missing='rescale' needs statistics of the training data"):
        explain(copy.copy(model).set_params(missing="rescale"), X)


def test_plots(draw_in_memory):
    plt = pytest.importorskip("matplotlib.pyplot")
    X, y = make_rows(3)
    model = DropoutSVC(noise=0.1).fit(X, y)
    explanation = explain(model, X, n=3)
    row = next(i for i, row in enumerate(explanation) if row.flip_count == 2 and row.contributions[1] > 0.0)
    explanation.plot(row)
    own = explanation[row]
    assert_allclose([bar.get_width() for bar in explanation.ax_.patches], own.contributions)
    assert [text.get_text() for text in explanation.ax_.get_yticklabels()] == own.features
    (line,) = explanation.lines_
    assert_allclose(line.get_ydata(), 1.5)  # between the second bar and the third
    never = int(np.flatnonzero(np.isinf(explanation.flip_counts))[0])
    assert explanation.plot(never).lines_ == []
    assert explanation.ax_.get_xlabel() == "contribution to the margin"
    top = top_features(model, n=4).plot()
    assert [ax.get_title() for ax in top.axes_] == ["0", "1", "2"]
    with pytest.raises(ValueError, match="ax has 1 axes, but 3 are needed, one for each class: 0, 1, 2"):
        top.plot(ax=plt.gca())
