"""`partial_fit`: a stream's coefficients against those of a batch fit to the same rows, and errors."""

from __future__ import annotations

import copy
import itertools
import pickle
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError

from datasets import assert_bitwise_equal, assert_same_state, fitted_state, make_binary, noises
from dealing import deal
from dropmargin import DropoutLogisticRegression, DropoutSVC, GaussianNoise, MCFClassifier, NoisyLinearClassifier
from dropmargin.data import Columns, TrainingData, canonical
from dropmargin.estimators.fitting import problem_of
from dropmargin.io.model import load, save
from dropmargin.losses import GaussianLogistic, Hinge, Logistic, Quadratic
from dropmargin.noise import DropoutNoise
from dropmargin.objective import IterativeModel
from dropmargin.online.summary import Summary
from dropmargin.penalties import Penalty
from dropmargin.solvers import SOLVERS, Features, Problem, make_objective, with_means

_NOISES = list(noises())
_GROUPS = DropoutNoise(0.3, groups=np.arange(60) // 4)
_SMOOTH = {"logistic": DropoutLogisticRegression, "quadratic": MCFClassifier, "svc": DropoutSVC}


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
    objective, columns = plain_objective(problem_of(model), X, np.searchsorted(classes, y), len(classes))
    return float(objective.value(columns.select(np.vstack([model.coef_.T, model.intercept_]))).sum())


def plain_objective(problem, X, y, n_classes=2):
    """Return the objective of rows that are not centred, and its features."""
    noise = problem.noise and problem.noise.resolve(X.shape[1])
    data = TrainingData.of_matrix(canonical(X), y, np.ones(len(y)), n_classes)
    problem, data = with_means(replace(problem, noise=noise), data)
    groups = problem.variance.groups
    order = np.arange(X.shape[1]) if groups is None else np.argsort(groups, kind="stable")
    columns = Columns(order, X.shape[1])
    return make_objective(problem, data, data.outputs("ovr"), Features(columns, None, problem.variance)), columns


def feed(model, X, y, size, classes=None, weights=None):
    classes = np.unique(y) if classes is None else classes
    for begin in range(0, len(y), size):
        rows = slice(begin, begin + size)
        own = None if weights is None else weights[rows]
        model.partial_fit(X[rows], y[rows], classes=classes, sample_weight=own)
    return model


# Many rows: near the optimum -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "size"), deal(_SMOOTH, [100, 700, 6000]))
def test_one_pass_comes_near_the_optimum(name, size):
    X, y = make_stream()
    model = _SMOOTH[name](noise=0.3, C=0.01)
    whole = clone(model).fit(X, y)
    online = feed(clone(model), X, y, size)
    assert objective_of(online, X, y) < 1.01 * whole.objective_
    assert online._stream.buffer is None or len(online._stream.buffer) < 512


@pytest.mark.parametrize(
    ("loss", "noise"), deal([Logistic, Quadratic, GaussianLogistic, Hinge], [None, 0.5, GaussianNoise(0.2), _GROUPS])
)
def test_every_loss_under_every_kind_of_variance(loss, noise):
    X, y = make_stream(3000)
    model = NoisyLinearClassifier(loss(), noise=noise, C=0.01)
    whole = clone(model).fit(X, y)
    assert objective_of(feed(clone(model), X, y, 800), X, y) < 1.02 * whole.objective_


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


@pytest.mark.parametrize(
    ("make", "n_classes", "n_next", "size"),
    deal([DropoutSVC, DropoutLogisticRegression], [2, 3], [0, 10, 32, 100], [600, 9000]),
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


# The summary ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
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
    ),
)
def test_the_summary_is_exact_in_value_gradient_and_the_two_directions(loss, noise, fit_intercept):
    X, y = make_stream(900, 20)
    problem = Problem(loss, noise, Penalty(), 0.01, fit_intercept, "ovr", SOLVERS["newton"], 1e-4, 100)
    objective, _ = plain_objective(problem, X, y)
    start = Summary.start(np.random.default_rng(1).normal(size=(21, 1)), 1.0)
    coef = np.random.default_rng(0).normal(scale=0.3, size=(21, 1))
    coef[-1] *= fit_intercept
    point = replace(objective, penalty=start).at(coef)
    whole = objective.at(coef)
    np.testing.assert_allclose(point.value, whole.value)
    np.testing.assert_allclose(point.gradient, whole.gradient)
    summary, order = Summary.of(point, IterativeModel(point)), np.append(np.arange(20)[::-1], 20)
    np.testing.assert_allclose(summary.value(coef), whole.value)
    np.testing.assert_allclose(summary.at(coef)[1], whole.gradient)
    intercept = np.eye(21)[:, [20]]
    for direction in [coef, intercept] if fit_intercept else [coef]:
        wanted = IterativeModel(whole).product(direction)
        step = 0.1 * direction
        np.testing.assert_allclose(summary.at(coef + step)[1] - summary.at(coef)[1], 0.1 * wanted, atol=1e-9)
        rise = summary.value(coef + step) - summary.value(coef)
        expected = 0.1 * whole.gradient.T @ direction + 0.005 * direction.T @ wanted
        np.testing.assert_allclose(rise, expected[0])
        reordered = summary.reordered(order)
        np.testing.assert_allclose(reordered.value((coef - step)[order]), summary.value(coef - step))
        np.testing.assert_allclose(reordered.at((coef - step)[order])[1], summary.at(coef - step)[1][order])


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


@pytest.mark.parametrize(
    ("name", "noise"), deal(["svc", "svc-gaussian", "logistic", "logistic-gaussian", "quadratic"], _NOISES)
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


X, Y = make_binary(n_samples=700)


@pytest.fixture
def model():
    return DropoutLogisticRegression().partial_fit(X, Y, classes=[0, 1])


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"classes": [0, 1, 2]}, r"classes=\[0, 1, 2\] is not the same as on the first call .* \[0, 1\]"),
        ({"y": np.full(len(Y), 7)}, r"labels that are not among the declared classes \[0, 1\]: \[7\]"),
        ({"X": X[:, :5]}, "5 features"),
        ({"X": np.where(X > 2.0, np.nan, X)}, "NaN"),
        ({"sample_weight": np.ones(3)}, "sample_weight"),
        ({"sample_weight": np.zeros(len(Y))}, "zero for every row"),
    ],
    ids=["other classes", "unknown label", "width", "nan", "weights", "no weight"],
)
def test_bad_batches_do_not_change_the_estimator(model, given, match):
    state = fitted_state(model)
    arguments = {"X": X, "y": Y} | given
    with pytest.raises(ValueError, match=match):
        model.partial_fit(arguments.pop("X"), arguments.pop("y"), **arguments)
    assert_same_state(model, state)


@pytest.mark.parametrize("noise", [0.1, None])
def test_a_batch_without_weights_is_an_error_and_no_part_of_the_stream(noise):
    stream = DropoutSVC(noise=noise)
    before = dict(vars(stream))
    with pytest.raises(ValueError, match=r"sample_weight is zero for every row.*skip batches"):
        stream.partial_fit(X, Y, classes=[0, 1], sample_weight=np.zeros(len(Y)))
    assert vars(stream) == before  # not even n_features_in_: the first batch may still have another width
    with pytest.raises(NotFittedError):
        stream.predict(X)
    plain = DropoutSVC(noise=noise)
    for begin in (0, 100, 600):
        rows = slice(begin, begin + 500)
        stream.partial_fit(X[rows], Y[rows], classes=[0, 1])
        plain.partial_fit(X[rows], Y[rows], classes=[0, 1])
        with pytest.raises(ValueError, match="zero for every row"):
            stream.partial_fit(X[rows], Y[rows], sample_weight=np.zeros(len(Y[rows])))
    assert_bitwise_equal(stream, plain)


def test_an_interrupt_leaves_the_stream_as_it_was(model, monkeypatch):
    other = DropoutLogisticRegression().partial_fit(X, Y, classes=[0, 1])

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dropmargin.online.summary.Summary.of", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X, Y)
    assert_bitwise_equal(model.partial_fit(X, Y), other.partial_fit(X, Y))


@pytest.mark.parametrize(
    ("estimator", "match"),
    [
        (MCFClassifier("exponential"), "MCFClassifier has no partial_fit for Exponential"),
        (NoisyLinearClassifier("mcf-logistic"), "NoisyLinearClassifier has no partial_fit for MCFLogistic"),
        (DropoutSVC(l1_ratio=1.0), r"no partial_fit with l1_ratio=1.0: .* quadratic .* Set l1_ratio=0, or use fit\."),
        (
            DropoutSVC(missing="rescale"),
            r"no partial_fit with missing='rescale': .* not known before the end .* impute .* or use fit\.",
        ),
        (DropoutSVC(multi_class="multinomial"), r"with multi_class='multinomial': .* Set multi_class='ovr' or 'ovo'"),
    ],
    ids=str,
)
def test_the_cause_of_the_error_explains_why_partial_fit_is_unavailable(estimator, match):
    assert not hasattr(estimator, "partial_fit")
    with pytest.raises(AttributeError) as caught:
        estimator.partial_fit(X, Y, classes=[0, 1])
    assert re.search(match, str(caught.value.__cause__))


def test_a_saved_model_predicts_and_warns_that_it_has_no_stream(model, tmp_path):
    save(model, tmp_path / "model.dropmargin")
    loaded = load(tmp_path / "model.dropmargin")
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    with pytest.warns(UserWarning, match="does not contain its rows"):
        loaded.partial_fit(X, Y)
