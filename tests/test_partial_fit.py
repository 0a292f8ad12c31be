"""`partial_fit`: a stream's coefficients against those of a batch fit to the same rows."""

from __future__ import annotations

import copy
import itertools
import pickle
import runpy
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.feature_extraction.text import HashingVectorizer

from datasets import assert_bitwise_equal, make_binary, make_multiclass, noises, relative_difference
from dealing import deal, together
from dropmargin import (
    DropoutLogisticRegression,
    DropoutSVC,
    GaussianNoise,
    MCFClassifier,
    NoisyLinearClassifier,
)
from dropmargin.estimators.fitting import Fit
from dropmargin.losses import GaussianLogistic, Hinge, Logistic, Quadratic
from dropmargin.noise import DropoutNoise
from dropmargin.online.summary import Summary
from helpers import make_objective

_NOISES = list(noises())
_GROUPS = DropoutNoise(0.3, groups=np.arange(60) // 4)
_SMOOTH = {
    "logistic": DropoutLogisticRegression,
    "quadratic": MCFClassifier,
    "svc": DropoutSVC,
}


def make_stream(n_samples=6000, n_features=60, seed=0):
    """Return sparse counts by a law of frequencies, and two noisy classes."""
    rng = np.random.default_rng(seed)
    shares = 1.0 / (np.arange(n_features) + 3.0)
    X = sparse.csr_array(rng.poisson(4.0 * shares / shares.sum() * 3.0, (n_samples, n_features)).astype(float))
    scores = X @ rng.normal(size=n_features)
    return X, (scores + scores.std() * rng.normal(size=n_samples) > np.median(scores)).astype(int)


def objective_of(model, X, y):
    """Return what `fit` minimises, at the model's coefficients, summed over the columns."""
    classes = model.classes_
    labels = np.where(np.asarray(y)[:, None] == (classes if len(classes) > 2 else classes[1:]), 1.0, -1.0)
    problem = Fit(model).problem
    noise = problem.noise and problem.noise.with_means(np.asarray(X.mean(axis=0)).ravel())
    objective = make_objective(X, labels, np.ones(len(labels)), problem.loss, noise, C=model.C)
    return float(objective.at(np.vstack([model.coef_.T, model.intercept_])).value.sum())


def feed(model, X, y, size, classes=None, weights=None):
    classes = np.unique(y) if classes is None else classes
    for begin in range(0, len(y), size):
        rows = slice(begin, begin + size)
        own = None if weights is None else weights[rows]
        model.partial_fit(X[rows], y[rows], classes=classes, sample_weight=own)
    return model


# Few rows: the solution of a batch -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "noise"), deal(["svc", "svc-gaussian", "logistic", "logistic-gaussian", "quadratic"], _NOISES, n=14)
)
def test_few_rows_are_solved_as_by_fit(name, noise):
    X, y = make_binary()
    given = {"noise": noises()[noise], "C": 0.5, "tol": 1e-8}
    if name == "quadratic":
        model = MCFClassifier("quadratic", **given)
    else:
        loss, _, approximation = name.partition("-")
        cls = DropoutSVC if loss == "svc" else DropoutLogisticRegression
        model = cls(approximation=approximation or "bound", **given)
    whole = clone(model).fit(X, y)
    one = clone(model).partial_fit(X, y, classes=[0, 1])
    some = feed(clone(model), X, y, 13)
    for got in (one, some):
        assert got.objective_ == pytest.approx(whole.objective_, rel=1e-6)
        np.testing.assert_allclose(got.decision_function(X), whole.decision_function(X), atol=2e-3)


@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
def test_several_classes_in_few_rows(multi_class):
    X, y = make_multiclass(n_samples=300)
    model = DropoutLogisticRegression(multi_class=multi_class, tol=1e-10)
    whole = clone(model).fit(X, y)
    assert relative_difference(feed(clone(model), X, y, 70), whole) < 1e-3


def test_few_rows_with_more_entries_than_a_partition():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 9000))  # a batch fit cuts them in two
    y = (X[:, :20].sum(axis=1) > 0.0).astype(int)
    model = DropoutLogisticRegression(tol=1e-8)
    assert relative_difference(clone(model).partial_fit(X, y, classes=[0, 1]), model.fit(X, y)) < 1e-3


# Many rows: near the optimum -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "size"), deal(_SMOOTH, [100, 700, 6000], n=6))
def test_one_pass_comes_near_the_optimum(name, size):
    X, y = make_stream()
    model = _SMOOTH[name](noise=0.3, C=0.01)
    whole = clone(model).fit(X, y)
    online = feed(clone(model), X, y, size)
    assert objective_of(online, X, y) < 1.01 * whole.objective_
    assert online._stream.buffer is None or len(online._stream.buffer) < 512


@pytest.mark.parametrize(
    ("loss", "noise"),
    deal([Logistic, Quadratic, GaussianLogistic, Hinge], [None, 0.5, GaussianNoise(0.2), _GROUPS], n=12),
)
def test_every_loss_under_every_kind_of_variance(loss, noise):
    X, y = make_stream(3000)
    model = NoisyLinearClassifier(loss(), noise=noise, C=0.01)
    whole = clone(model).fit(X, y)
    assert objective_of(feed(clone(model), X, y, 800), X, y) < 1.02 * whole.objective_


def test_the_order_of_rows_changes_little():
    X, y = make_stream()
    model = DropoutLogisticRegression(noise=0.3, C=0.01)
    values = []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(y))
        values.append(objective_of(feed(clone(model), X[order], y[order], 1000), X, y))
    sorted_rows = np.argsort(y, kind="stable")  # all of one class, then all of the other
    values.append(objective_of(feed(clone(model), X[sorted_rows], y[sorted_rows], 1000), X, y))
    best = clone(model).fit(X, y).objective_
    assert max(values) < 1.01 * best


def feed_by_class(model, X, y, n_next, size):
    """Pass rows sorted by class; the last batch of a class has some rows of the next one."""
    order = np.argsort(y, kind="stable")
    ends = [*(np.cumsum(np.bincount(y))[:-1] + n_next), len(y)]
    begins, edges = [0, *ends[:-1]], [0]
    for begin, end in zip(begins, ends, strict=True):
        edges += list(range(end, begin, -size))[::-1]
    for begin, end in itertools.pairwise(edges):
        rows = order[begin:end]
        model.partial_fit(X[rows], y[rows], classes=np.unique(y))
    return model


@together(
    ("make", "n_classes", "n_next", "size"),
    deal([DropoutSVC, DropoutLogisticRegression], [2, 3], [0, 10, 32, 100], [600, 9000], n=16),
)
def test_rows_sorted_by_class_are_learned_as_by_fit(make, n_classes, n_next, size):
    X, y = make_classification(6000, 20, n_informative=10, n_classes=n_classes, random_state=n_classes)
    model = make(noise=0.1)
    expected = clone(model).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        online = feed_by_class(clone(model), X, y, n_next, size)
    assert online.score(X, y) > expected.score(X, y) - 0.015
    for k in range(n_classes):  # no class is lost
        assert online.score(X[y == k], y[y == k]) > expected.score(X[y == k], y[y == k]) - 0.05


def test_a_class_that_comes_back():
    X, y = make_classification(9000, 20, n_informative=10, random_state=1)
    order = np.concatenate([np.argsort(y[:6000], kind="stable"), np.arange(6000, 9000)])  # sorted, then shuffled
    model = DropoutSVC(noise=0.1)
    online = feed(clone(model), X[order], y[order], 700)
    assert online.score(X, y) > clone(model).fit(X, y).score(X, y) - 0.01


@pytest.mark.parametrize("make", [DropoutSVC, DropoutLogisticRegression])
def test_more_features_than_rows_in_the_sample_of_a_sorted_stream(make):
    rng = np.random.default_rng(0)
    y, frequency = rng.integers(0, 2, 9000), 1.0 / (np.arange(6000) + 10.0)
    mean = frequency * np.exp(0.4 * rng.normal(size=(2, 6000)))
    words = [rng.choice(6000, 40, p=mean[label] / mean[label].sum()) for label in y]
    X = sparse.csr_array((np.ones(9000 * 40), np.concatenate(words), np.arange(0, 9001 * 40, 40)), shape=(9000, 6000))
    model, train, test = make(noise=0.5, C=0.1), slice(6500), slice(6500, None)
    expected = clone(model).fit(X[train], y[train]).score(X[test], y[test])
    with pytest.warns(UserWarning, match="6000 features, more than the stream keeps rows.*shuffle the rows") as caught:
        online = feed_by_class(clone(model), X[train], y[train], 10, 9000)
    assert caught[0].filename == __file__
    assert online.score(X[test], y[test]) > expected - 0.03


@pytest.mark.parametrize("order", ["shuffled", "sorted"])
@pytest.mark.parametrize("name", _SMOOTH)
def test_blocks_like_those_before_take_three_products_others_more(name, order):
    X, y = make_stream(14_700)
    if order == "sorted":
        rows = np.argsort(y, kind="stable")
        X, y = X[rows], y[rows]
    model, passes = _SMOOTH[name](noise=0.3, C=0.01), []
    online = clone(model)
    for begin in range(0, 14_700, 2100):
        passes.append(online.partial_fit(X[begin : begin + 2100], y[begin : begin + 2100], classes=[0, 1]).n_passes_)
    if order == "shuffled":
        assert max(passes[3:]) <= 2.0
        assert passes[-1] == 1.5
    else:
        assert max(passes[3:]) >= 2.5  # where the second class begins
    bound = 1.01 if order == "shuffled" else 1.02
    assert objective_of(online, X, y) < bound * clone(model).fit(X, y).objective_


@pytest.mark.parametrize("noise", [0.3, _GROUPS], ids=["independent", "groups"])
def test_without_an_intercept(noise):
    X, y = make_stream(3000)
    model = DropoutLogisticRegression(noise=noise, C=0.01, fit_intercept=False)
    online = feed(clone(model), X, y, 1000)
    assert online.intercept_ == 0.0
    assert online.objective_ == pytest.approx(clone(model).fit(X, y).objective_, rel=0.02)


@pytest.mark.parametrize("noise", [0.3, _GROUPS], ids=["independent", "groups"])
def test_dense_and_sparse_rows_agree(noise):
    X, y = make_stream(2000)
    model = DropoutLogisticRegression(noise=noise, C=0.01)
    dense, thin = feed(clone(model), X.toarray(), y, 700), feed(clone(model), X, y, 700)
    assert relative_difference(dense, thin) < 1e-6
    mixed = clone(model).partial_fit(X[:100], y[:100], classes=[0, 1]).partial_fit(X[100:].toarray(), y[100:])
    assert relative_difference(mixed, clone(model).partial_fit(X, y, classes=[0, 1])) < 1e-6


@pytest.mark.parametrize("noise", [DropoutNoise(np.linspace(0.1, 0.6, 60)), _GROUPS], ids=["independent", "groups"])
def test_several_outputs_are_as_good_as_each_alone(noise):
    X, _ = make_stream(1500)
    y = np.arange(1500) % 5
    model = DropoutLogisticRegression(noise=noise, C=0.01)
    together = clone(model).partial_fit(X, y, classes=range(5))
    alone = [clone(model).partial_fit(X, y == k, classes=[False, True]) for k in range(5)]
    expected = sum(objective_of(one, X, y == k) for k, one in enumerate(alone))
    assert objective_of(together, X, y) == pytest.approx(expected, rel=1e-12)


def test_a_weight_of_two_is_twice_the_c_and_the_row_twice():
    X, y = make_stream(1500)
    model = DropoutLogisticRegression(noise=0.3, C=0.01)
    weighted = feed(clone(model), X, y, 600, weights=np.full(len(y), 2.0))
    assert relative_difference(weighted, feed(clone(model).set_params(C=0.02), X, y, 600)) < 1e-9
    few = clone(model).set_params(tol=1e-10)
    weights = 1.0 + (np.arange(200) % 2)
    twice = np.repeat(np.arange(200), weights.astype(int))
    weighted = clone(few).partial_fit(X[:200], y[:200], classes=[0, 1], sample_weight=weights)
    repeated = clone(few).partial_fit(X[twice], y[twice], classes=[0, 1])
    assert relative_difference(weighted, repeated) < 1e-4


def test_rows_of_weight_zero_have_no_effect():
    X, y = make_stream(1500)
    kept = np.arange(len(y)) % 3 > 0
    model = DropoutSVC(noise=0.3, C=0.01)
    weighted = clone(model).partial_fit(X, y, classes=[0, 1], sample_weight=kept.astype(float))
    assert_bitwise_equal(weighted, clone(model).partial_fit(X[kept], y[kept], classes=[0, 1]))


# The summary ---------------------------------------------------------------------------------------------------------


@together(
    ("loss", "noise", "fit_intercept"),
    deal(
        [Logistic(), Quadratic(), Hinge()],
        [
            DropoutNoise(0.4, reference="zero"),
            DropoutNoise(0.3, reference=np.linspace(0.0, 1.0, 20)),
            GaussianNoise(0.3),
            DropoutNoise(0.3, reference=np.linspace(0.0, 1.0, 20), groups=np.arange(20) // 4),
        ],
        [True, False],
        n=12,
    ),
)
def test_the_summary_is_exact_in_value_gradient_and_the_two_directions(loss, noise, fit_intercept):
    X, y = make_stream(900, 20)
    objective = make_objective(
        X, 2.0 * y[:, None] - 1.0, np.ones(900), loss, noise, fit_intercept=fit_intercept, C=0.01
    )
    start = Summary.start(20, 1.0)
    coef = np.random.default_rng(0).normal(scale=0.3, size=(21, 1))
    coef[-1] *= fit_intercept
    point = replace(objective, penalty=start).at(coef)
    whole = objective.at(coef)
    np.testing.assert_allclose(point.value, whole.value)
    np.testing.assert_allclose(point.gradient, whole.gradient)
    summary = start.after(point, point.hessian())
    np.testing.assert_allclose(summary.value(coef), whole.value)
    np.testing.assert_allclose(summary.at(coef)[1], whole.gradient)
    intercept = np.eye(21)[:, [20]]
    for direction in [coef, intercept] if fit_intercept else [coef]:
        wanted = whole.hessian().product(direction)
        step = 0.1 * direction
        np.testing.assert_allclose(summary.at(coef + step)[1] - summary.at(coef)[1], 0.1 * wanted, atol=1e-9)
        rise = summary.value(coef + step) - summary.value(coef)
        expected = 0.1 * whole.gradient.T @ direction + 0.005 * direction.T @ wanted
        np.testing.assert_allclose(rise, expected[0])
        moved = summary.moved(coef + step)
        np.testing.assert_allclose(moved.value(coef - step), summary.value(coef - step))
        np.testing.assert_allclose(moved.at(coef - step)[1], summary.at(coef - step)[1], atol=1e-9)


# State of a stream ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy], ids=["pickle", "deepcopy"])
def test_a_copy_during_a_stream_continues_with_the_same_bits(again):
    X, y = make_stream(3000)
    model = feed(DropoutSVC(noise=0.3, C=0.01), X[:1100], y[:1100], 550)
    other = again(model)
    for one in (model, other):
        feed(one, X[1100:], y[1100:], 333)
    assert_bitwise_equal(model, other)


def test_fit_starts_again():
    X, y = make_stream(1500)
    model = DropoutLogisticRegression(noise=0.3, C=0.01).partial_fit(X, y, classes=[0, 1]).fit(X, y)
    assert_bitwise_equal(model, DropoutLogisticRegression(noise=0.3, C=0.01).fit(X, y))
    fresh = DropoutLogisticRegression(noise=0.3, C=0.01).partial_fit(X[:900], y[:900], classes=[0, 1])
    with pytest.warns(UserWarning, match="partial_fit of DropoutLogisticRegression starts anew"):
        assert_bitwise_equal(copy.deepcopy(model).partial_fit(X[:900], y[:900]), fresh)
    assert_bitwise_equal(model.partial_fit(X[:900], y[:900], classes=[0, 1]), fresh)


def test_single_rows():
    X, y = make_binary(n_samples=40)
    model = feed(DropoutLogisticRegression(tol=1e-8), X, y, 1)
    assert relative_difference(model, DropoutLogisticRegression(tol=1e-8).fit(X, y)) < 1e-2


def test_the_state_is_bounded():
    X, y = make_stream(24_000, 5)
    model, sizes = DropoutLogisticRegression(noise=0.3, C=0.01), []
    for begin in range(0, 24_000, 1000):
        model.partial_fit(X[begin : begin + 1000], y[begin : begin + 1000], classes=[0, 1])
        sizes.append(len(pickle.dumps(model._stream)))
    row = len(pickle.dumps(X)) / X.shape[0] + 24  # with label, weight and key
    assert max(sizes) < 2 * 4096 * row + 40_000
    assert max(sizes[12:]) <= 1.1 * max(sizes[:12])


def test_buffered_rows_count():
    X, y = make_stream(3000)
    model = DropoutLogisticRegression(noise=0.3, C=0.01).partial_fit(X[:2000], y[:2000], classes=[0, 1])
    before = model.coef_.copy()
    model.partial_fit(X[2000:2010], y[2000:2010])
    assert len(model._stream.buffer) == 10
    assert not np.array_equal(before, model.coef_)
    model.partial_fit(X[2010:], y[2010:])
    assert model._stream.buffer is None


def test_the_callers_arrays_may_change_afterwards():
    X, y = make_binary(n_samples=300)
    given = X.copy()
    model = DropoutLogisticRegression(tol=1e-8).partial_fit(given[:200], y[:200], classes=[0, 1])
    given[:] = 0.0
    model.partial_fit(X[200:], y[200:])
    assert relative_difference(model, DropoutLogisticRegression(tol=1e-8).fit(X, y)) < 1e-3


def test_a_declared_class_may_come_late():
    X, y = make_multiclass(n_samples=2000, n_features=8)
    late = np.concatenate([np.flatnonzero(y < 2), np.flatnonzero(y == 2)])
    model = DropoutLogisticRegression(C=0.1)
    early = clone(model).partial_fit(X[y < 2][:300], y[y < 2][:300], classes=[0, 1, 2])
    assert set(early.predict(X[y < 2][:300])) == {0, 1}
    np.testing.assert_array_equal(early.decision_function(X)[:, 2], -1.0)  # nothing is known of it
    assert np.isfinite(early.coef_).all()
    assert early.coef_.shape == (3, 8)
    online = feed(clone(model), X[late], y[late], 400, classes=[0, 1, 2])
    assert online.score(X, y) > clone(model).fit(X, y).score(X, y) - 0.03


@pytest.mark.parametrize("C", [0.3, 0.6])
def test_an_unseen_class_is_not_predicted_by_rounding(C):
    X = np.random.default_rng(0).normal(size=(1000, 3))
    y = np.where(X[:, 0] > 0.0, 2, 0)
    model = DropoutLogisticRegression(C=C, multi_class="ovo").partial_fit(X, y, classes=[0, 1, 2])
    # pairs (0, 1), (0, 2), (1, 2): where one of the two has not come, the other is expected, whatever the row
    assert list(model.intercept_[[0, 2]]) == [-1.0, 1.0]
    assert not model.coef_[[0, 2]].any()


def test_a_stream_of_hashed_text():
    rng = np.random.default_rng(0)
    words = {0: ["goal", "match", "team", "the", "a"], 1: ["vote", "law", "party", "the", "a"]}
    y = rng.integers(0, 2, 1200)
    texts = [" ".join(rng.choice(words[label], 6)) for label in y]
    hashing = HashingVectorizer(n_features=2**12)
    model = DropoutSVC(noise=0.5)
    for begin in range(0, 1200, 150):
        model.partial_fit(hashing.transform(texts[begin : begin + 150]), y[begin : begin + 150], classes=[0, 1])
    assert model.score(hashing.transform(texts), y) > 0.95


def test_single_precision_stays():
    X, y = make_stream(1500)
    model = feed(DropoutLogisticRegression(noise=0.3, C=0.01), X.astype(np.float32), y, 500)
    assert model.coef_.dtype == np.float32


def test_the_example_of_a_text_stream_learns(draw_in_memory):
    names = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "plot_stream.py"))
    assert len(names["errors"]) == 19
    assert np.mean(names["errors"][-5:]) < 0.15  # a word in eight tells nothing
