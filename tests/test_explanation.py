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

    subsets = [some for k in range(1, len(present) + 1) for some in itertools.combinations(present, k)]
    changed = [without(model, x, np.flatnonzero(np.isin(units, some) & ~np.isnan(x)), reference) for some in subsets]
    flips = dict(zip(map(frozenset, subsets), model.predict(np.vstack(changed)) != label, strict=True))
    contributions = {u: margin - score_against(model, changed[i], label, other) for i, u in enumerate(present)}
    order = sorted(present, key=lambda u: -contributions[u])
    flip = next((k for k in range(1, len(order) + 1) if flips[frozenset(order[:k])]), None)
    least = min((len(some) for some in subsets if flips[frozenset(some)]), default=None)
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
    for x, found in zip(rows, explanation, strict=True):
        contributions, flip, least = brute_force(model, x, units, fill, is_sparse)
        assert found.n_present == len(contributions)
        listed = {f"u{u}": value for u, value in contributions.items() if abs(value) > 1e-12}
        ours = dict(zip(found.features, found.contributions, strict=True))
        assert {k: v for k, v in ours.items() if abs(v) > 1e-12} == pytest.approx(listed, abs=1e-9)
        assert list(found.contributions) == sorted(found.contributions, reverse=True)
        assert found.flip_count == flip
        assert found.least_count == (least if missing == "error" and multi_class != "ovo" else None)


def test_most_labels_of_the_brute_force_flip():
    """The test above would pass for a model whose labels never flip."""
    X, y = make_rows(4)
    counts = explain(DropoutSVC().fit(X, y), X).flip_counts
    assert len(set(counts.tolist())) > 2
    assert np.isfinite(counts).mean() > 0.5


@together(
    ("cls", "options", "expected"),
    [
        # The score without any feature is exactly zero, for which the first class is predicted.
        (DropoutSVC, {"noise": DropoutNoise(0.1, reference="zero"), "fit_intercept": False}, 0),
        (DropoutSVC, {"noise": DropoutNoise(0.1, reference="zero"), "fit_intercept": False, "l1_ratio": 1.0}, 0),
        (DropoutSVC, {"noise": GaussianNoise(0.1), "fit_intercept": False}, 0),
    ],
)
def test_without_any_feature_the_first_class_wins_the_tie(cls, options, expected):
    rng = np.random.default_rng(3)
    X = rng.random((50, 8)) + 0.1
    y = np.r_[0, np.ones(49, dtype=int)]
    explanation = explain(cls(**options).fit(X, y), X)
    for row in explanation:
        assert row.label == 1
        assert (row.flip_count, row.flips_to) == (row.least_count, expected)
        assert row.flip_count <= 8


@pytest.mark.parametrize("missing", ["error", "rescale", "conditional"])
def test_a_row_that_has_lost_all_its_features(missing):
    X, y = make_rows(3)
    model = DropoutSVC(missing=missing).fit(X, y)
    lost = [sparse.csr_array((1, N_FEATURES))] + ([] if missing == "error" else [np.full((1, N_FEATURES), np.nan)])
    for rows in lost:
        (row,) = explain(model, rows)
        assert row.label == model.predict(rows)[0]
        assert (row.features, row.n_present, row.flip_count) == ([], 0, None)


@pytest.mark.parametrize("missing", ["error", "rescale", "conditional"])
def test_contributions_to_a_number_are_differences_of_predictions(missing):
    X, _ = make_rows(2)
    y = X @ np.arange(N_FEATURES) + 5.0
    model = DropoutRidge(noise=0.1, missing=missing).fit(X, y)
    for x, row in zip(X[:5], explain(model, X[:5], n=N_FEATURES), strict=True):
        assert row.label == pytest.approx(model.predict(x[None])[0])
        assert (row.runner_up, row.flip_count, row.least_count) == (None, None, None)
        # all features at their means, which is the mean prediction
        assert row.margin == pytest.approx(row.label - model.predict(X).mean())
        for name, contribution in zip(row.features, row.contributions, strict=True):
            changed = without(model, x, int(name[1:]), X.mean(axis=0))
            assert contribution == pytest.approx(row.label - model.predict(changed)[0])
    frame = explain(model, X[:5]).to_frame()
    assert list(frame.columns[:4]) == ["prediction", "difference", "n_present", "feature_1"]


# Names, groups and columns --------------------------------------------------------------------------------------------

DOCUMENTS = ["a great film", "great fun", "a bore", "what a bore", "fun and great", "a bad bore"]
STARS = ["five", "five", "one", "one", "five", "one"]


@pytest.mark.parametrize("vectorizer", [CountVectorizer(), TfidfVectorizer(), TextEncoder()])
def test_words_of_documents(vectorizer):
    model = make_pipeline(vectorizer, DropoutSVC(noise=DropoutNoise(0.2, reference="zero"))).fit(DOCUMENTS, STARS)
    explanation = explain(model, ["great great film", "such a bore"])
    assert [(row.label, row.features[0], row.n_present) for row in explanation] == [
        ("five", "great", 2),
        ("one", "bore", 1),
    ]
    top = top_features(model, n=2)
    assert top.classes == ["five", "one"]
    assert [names[0] for names in top.names] == ["great", "bore"]
    assert [strengths[0] > 0 for strengths in top.strengths] == [False, True]


def make_table():
    rng = np.random.default_rng(0)
    colours = rng.choice(["red", "blue", "green", None], 60)
    size = np.where(rng.random(60) < 0.2, 0.0, rng.normal(size=60))
    return {"size": size, "colour": colours, "other": rng.normal(size=60)}, np.where(
        size + (colours == "red") > 0, 1, 0
    )


@pytest.mark.parametrize("groups", [None, "columns", "both"])
def test_columns_of_a_table_vanish_as_a_whole(groups):
    pd = pytest.importorskip("pandas")
    table, y = make_table()
    frame = pd.DataFrame(table)
    encoder = TableEncoder().fit(frame)
    columns = encoder.feature_columns_
    if groups is not None:
        groups = columns if groups == "columns" else np.where(columns == "other", "other", "both")
    noise = 0.1 if groups is None else DropoutNoise(0.1, groups=groups)
    model = make_pipeline(encoder, StandardScaler(), DropoutSVC(noise=noise, missing="rescale")).fit(frame, y)
    for i, row in enumerate(explain(model, frame[:20])):
        expected = {"size", "other"} | (set() if frame["colour"].isna()[i] else {"colour"})
        if groups is not None and "both" in groups:
            expected = {"both", "other"}
        assert set(row.features) == expected
        for name, contribution in zip(row.features, row.contributions, strict=True):
            changed = frame[i : i + 1].astype(object)
            changed.loc[:, ["size", "colour"] if name == "both" else name] = None
            before, after = (model.decision_function(rows)[0] for rows in (frame[i : i + 1], changed))
            assert contribution == pytest.approx((2 * row.label - 1) * (before - after))


def test_a_zero_of_a_sparse_table_can_vanish():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": [0.0, 1.0] * 300, "town": rng.integers(200, size=600).astype(str)})
    encoder = TableEncoder(categorical=["town"], scale=False)
    model = make_pipeline(encoder, DropoutSVC(missing="rescale")).fit(frame, [0, 1] * 300)
    assert model[0].sparse_output_
    assert explain(model, frame[:1])[0].n_present == 2
    both = FrameEncoder(["text"]).fit({"text": DOCUMENTS, "size": [0.0, 1.0, 2.0] * 2})
    words = make_pipeline(both, DropoutSVC()).fit({"text": DOCUMENTS, "size": [0.0, 1.0, 2.0] * 2}, STARS)
    (row,) = explain(words, {"text": ["great fun"], "size": [1.0]})
    assert set(row.features) <= {"size", "text: great", "text: fun"}
    assert row.n_present == 3


def test_names_of_features_and_groups():
    pd = pytest.importorskip("pandas")
    X, y = make_rows(2)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    scaled = make_pipeline(StandardScaler(), DropoutSVC()).fit(frame, y)
    unnamed = make_pipeline(FunctionTransformer(np.tanh), DropoutSVC()).fit(X, y)
    searched = DropoutSVCCV(noises=[0.1, 0.2], Cs=[0.1], cv=2, verbose=0).fit(frame, y)
    named = DropoutSVC(noise=DropoutNoise(0.1, groups={"left": ["a", "b"], "right": "e"})).fit(frame, y)
    numbered = DropoutSVC(noise=DropoutNoise(0.1, groups=[0, 0, 0, 0, 1, 1])).fit(frame, y)
    for model, rows, expected in [
        (scaled, frame, set("abcdef")),
        (searched, frame, set("abcdef")),
        (unnamed, X, {f"x{d}" for d in range(6)}),
        (named, frame, {"left", "right", "c", "d", "f"}),
        (numbered, frame, {"a, b, c and 1 more", "e, f"}),
    ]:
        assert set(explain(model, rows[:1])[0].features) == expected
    assert set(itertools.chain(*top_features(named).names)) == set("abcdef")
    assert set(itertools.chain(*top_features(scaled, feature_names=range(6)).names)) == set("012345")


# Strengths ------------------------------------------------------------------------------------------------------------


def test_strengths_are_coefficients_times_deviations():
    X, y = make_rows(3)
    X = X * [1.0, 10.0, 0.1, 1.0, 1.0, 1.0]
    for missing in ("error", "rescale", "conditional"):
        model = DropoutLogisticRegression(multi_class="multinomial", missing=missing).fit(X, y)
        top = top_features(model, n=N_FEATURES)
        assert top.classes == [0, 1, 2]
        assert top.is_scaled == (missing != "error")
        expected = model.coef_ * (X.std(axis=0) if top.is_scaled else 1.0)
        for k in range(3):
            assert (np.diff(top.strengths[k]) <= 0.0).all()
            assert len(top.names[k]) == np.count_nonzero(expected[k] > 0.0)
            for name, strength in zip(top.names[k], top.strengths[k], strict=True):
                assert strength == pytest.approx(expected[k, int(name[1:])], rel=1e-3)
    pairs = top_features(DropoutSVC(multi_class="ovo").fit(X, y).sparsify(), n=1)
    assert pairs.classes[:2] == ["0, not 1", "1, not 0"]
    assert len(pairs.classes) == 6
    assert top_features(DropoutRidge().fit(X, y), n=1).classes == ["higher", "lower"]
    frame = pairs.to_frame()
    assert list(frame.columns) == ["class", "feature", "strength"]


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
    with pytest.raises(ValueError, match="contains NaN"):
        explain(model, np.where(X > 1.0, np.nan, X))
    with pytest.raises(ValueError, match=r"missing='rescale' needs statistics of the training data"):
        explain(copy.copy(model).set_params(missing="rescale"), X)


def test_the_text_says_when_the_label_flips():
    X, y = make_rows(4)
    explanation = explain(DropoutSVC().fit(X, y), X)
    assert repr(explanation).startswith("Explanation of 60 rows\nrow 0: ")
    assert repr(explanation).endswith("... and 55 more")
    for row in explanation:
        line = repr(row).split("\n")
        assert len(line) == 1 + len(row.features)
        if row.flip_count is None:
            assert "does not flip" in line[0]
        else:
            assert f"flips to {row.flips_to} when the strongest {row.flip_count} of 6 vanish" in line[0]
            assert line[row.flip_count].endswith(f"<- flips to {row.flips_to}")
        if row.least_count != row.flip_count:
            assert f"the least number is {row.least_count}" in line[0]
    frame = explanation.to_frame()
    assert len(frame) == 60
    assert_array_equal(frame["flip_count"].isna(), np.isinf(explanation.flip_counts))


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
