"""One softmax over all classes, ``multi_class="multinomial"``: optima, derivatives, probabilities, and refusals.

The objective is written out here from its formula, with NumPy alone, and minimised by `scipy.optimize`.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from datasets import assert_bitwise_equal, make_multiclass, relative_difference
from dealing import deal
from dropmargin import (
    DropoutLogisticRegression,
    DropoutLogisticRegressionCV,
    DropoutNoise,
    DropoutSVC,
    MCFClassifier,
    NoisyLinearClassifier,
    NoisyLinearClassifierCV,
    load,
    save,
    streaming,
)
from dropmargin.data import LocalPartitions, Rows, row_blocks
from dropmargin.estimators.conditional import log_expected_softmax
from dropmargin.io.model import export_liblinear, export_onnx, to_sklearn
from dropmargin.noise import Variance
from dropmargin.objective import ClassObjective
from dropmargin.objective.scores import NoiseOfScores
from dropmargin.penalties import Penalty
from helpers import N_FEATURES, NOISES, as_format, central_difference, plain_score_log_mgf, plain_score_variance

C = 0.7
_X, _y = make_multiclass(n_samples=80, n_features=N_FEATURES, n_classes=4)
_weights = np.random.default_rng(0).uniform(0.5, 2.0, len(_y))


def model(**params):
    return DropoutLogisticRegression(**({"multi_class": "multinomial", "C": C, "tol": 1e-11} | params))


def mcf(**params):
    return MCFClassifier(loss="logistic", **({"multi_class": "multinomial", "C": C, "tol": 1e-11} | params))


MODELS = {"logistic": model, "mcf-logistic": mcf}


def plain_exponents(loss, noise, rows, d):
    """Return ``e`` of rows for the differences ``d`` of the coefficients, without intercepts."""
    if noise is None:
        return rows @ d
    if loss == "logistic":
        return rows @ d + 0.5 * plain_score_variance(noise, rows, d)
    return np.stack([plain_score_log_mgf(noise, rows, own) for own in d.T], axis=1)


def plain_value(noise, W, b, l1_ratio=0.0, loss="logistic"):
    """Return the objective; it holds for complex numbers, too."""
    total = 0.5 * (1.0 - l1_ratio) * (W**2).sum()
    for label in range(len(b)):
        rows, d = _X[_y == label], W - W[:, [label]]
        e = plain_exponents(loss, noise, rows, d) + b - b[label]
        highest = e.real.max(axis=1)
        total += C * _weights[_y == label] @ (highest + np.log(np.exp(e - highest[:, None]).sum(axis=1)))
    return total


def assert_optimal(fitted, noise, fit_intercept=True, loss="logistic"):
    """Check that a model states the objective at its coefficients, and that no others have a lower one.

    The derivatives are those of complex steps. The penalty makes the objective strongly convex in the coefficients: the
    distance to those of the optimum is at most the norm of the gradient, once the intercepts have none.
    """
    W, b = fitted.coef_.T, fitted.intercept_
    assert fitted.converged_
    assert fitted.objective_ == pytest.approx(plain_value(noise, W, b, loss=loss), rel=1e-10)
    by_coef = [plain_value(noise, W + step.reshape(W.shape), b, loss=loss).imag for step in 1e-30j * np.eye(W.size)]
    assert np.linalg.norm(by_coef) / 1e-30 < 1e-5 * np.linalg.norm(W)
    if fit_intercept:
        by_intercept = [plain_value(noise, W, b + step, loss=loss).imag for step in 1e-30j * np.eye(b.size)]
        assert np.linalg.norm(by_intercept) / 1e-30 < 1e-5 * np.linalg.norm(W)
        assert abs(b.sum()) < 1e-9  # only their differences matter
    else:
        assert not b.any()


def assert_reaches(fitted, exact):
    assert fitted.converged_
    assert fitted.objective_ == pytest.approx(exact.objective_, rel=1e-8)
    assert relative_difference(fitted, exact) < 1e-5


# Optima -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "name"), deal(MODELS, [name for name in NOISES if name != "laplace per feature"]))
def test_no_coefficients_have_a_lower_objective(loss, name):
    fitted = MODELS[loss](noise=NOISES[name]).fit(_X, _y, sample_weight=_weights)
    exact = MODELS[loss](noise=NOISES[name], tol=1e-14).fit(as_format(_X, "sparse"), _y, sample_weight=_weights)
    assert_optimal(exact, NOISES[name], loss=loss)
    assert_reaches(fitted, exact)


def test_optimum_of_dropout_towards_the_mean_and_without_intercept():
    mean = np.average(_X, axis=0, weights=_weights)
    for fit_intercept, given, noise in [
        (True, 0.3, DropoutNoise(0.3, reference=mean)),
        (False, NOISES["dropout"], NOISES["dropout"]),
    ]:
        fitted, exact = (
            model(noise=given, fit_intercept=fit_intercept, tol=tol).fit(_X, _y, sample_weight=_weights)
            for tol in (1e-11, 1e-14)
        )
        assert_optimal(exact, noise, fit_intercept)
        assert_reaches(fitted, exact)


@pytest.mark.parametrize("l1_ratio", [0.5, 1.0])
def test_optimum_under_an_l1_penalty(l1_ratio):
    n, noise = 4 * N_FEATURES, NOISES["dropout"]

    def value(theta):  # positive and negative parts of the coefficients, then the intercepts
        W = (theta[:n] - theta[n : 2 * n]).reshape(-1, 4)
        return plain_value(noise, W, theta[2 * n :], l1_ratio) + l1_ratio * theta[: 2 * n].sum()

    fitted = model(noise=noise, l1_ratio=l1_ratio, tol=1e-8).fit(_X, _y, sample_weight=_weights)
    start = np.concatenate([np.maximum(fitted.coef_.T, 0).ravel(), np.maximum(-fitted.coef_.T, 0).ravel()])
    start = np.concatenate([start + 0.01, fitted.intercept_])
    bounds = [(0.0, None)] * (2 * n) + [(None, None)] * 4
    least = minimize(value, start, method="L-BFGS-B", bounds=bounds, options={"maxfun": 10**5, "ftol": 1e-12}).fun
    assert fitted.converged_
    assert fitted.objective_ <= least * (1.0 + 1e-6)
    assert (fitted.coef_ == 0.0).any()


@pytest.mark.parametrize(("make", "solver"), deal([model, mcf], ["newton", "lbfgs"]))
def test_without_noise_it_is_the_logistic_regression_of_scikit_learn(make, solver):
    ours = make(noise=None, solver=solver, tol=1e-13).fit(_X, _y, sample_weight=_weights)
    theirs = LogisticRegression(C=C, tol=1e-10, max_iter=10_000).fit(_X, _y, sample_weight=_weights)
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    assert_allclose(ours.predict_proba(_X), theirs.predict_proba(_X), atol=1e-6)


def test_two_classes_are_the_binary_problem():
    rows = _y < 2
    assert_bitwise_equal(model().fit(_X[rows], _y[rows]), model(multi_class="ovr").fit(_X[rows], _y[rows]))


def test_weights_are_repeated_rows():
    counts = np.random.default_rng(1).integers(0, 3, len(_y))
    weighted = model(noise=0.3).fit(_X, _y, sample_weight=counts)
    repeated = model(noise=0.3).fit(np.repeat(_X, counts, axis=0), np.repeat(_y, counts))
    assert relative_difference(weighted, repeated) < 1e-5


def test_threads_do_not_change_a_bit():
    rng = np.random.default_rng(2)
    y = rng.integers(0, 5, 18_000)  # more than one partition
    X = rng.normal(size=(len(y), 60)) + 2.0 * np.eye(60)[y]
    one, three = (model(tol=1e-3, n_jobs=n).fit(X, y) for n in (1, 3))
    assert_bitwise_equal(one, three)
    assert one.score(X, y) > 0.5


def test_many_features_and_rare_classes_converge(monkeypatch):
    # The diagonal preconditions, and the noise's part of the Hessian is computed for each product.
    rng = np.random.default_rng(3)
    X = sparse.random_array((300, 3000), density=0.01, format="csr", random_state=rng)
    y = np.minimum(rng.geometric(0.2, 300) - 1, 9)
    monkeypatch.setattr("dropmargin.objective.classes._MOST_KEPT", 0)
    fitted = model(noise=0.5, tol=1e-6).fit(X, y)
    assert fitted.converged_
    dense = model(noise=0.5, tol=1e-9, solver="lbfgs").fit(X.toarray(), y)
    assert fitted.objective_ == pytest.approx(dense.objective_, rel=1e-6)


def test_warm_start_needs_fewer_passes():
    cold = model(noise=0.3, tol=1e-8, warm_start=True).fit(_X, _y)
    first = cold.coef_.copy(), cold.n_passes_
    cold.fit(_X, _y)
    assert cold.n_passes_ < first[1]
    assert_allclose(cold.coef_, first[0], atol=1e-4)


# Derivatives --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "name", "layout"), deal(MODELS, NOISES, ["dense", "sparse"]))
def test_gradient_and_hessian_product_by_finite_differences(loss, name, layout, monkeypatch):
    for most_kept in (2**22, 0):  # log-MGFs are kept, or computed for each product
        monkeypatch.setattr("dropmargin.objective.classes._MOST_KEPT", most_kept)
        objective = make_objective(NOISES[name], layout, loss)
        rng = np.random.default_rng(4)
        at, direction = rng.normal(size=(2, 4 * N_FEATURES + 4, 1))
        at *= 0.5  # where the log-MGF of Laplace noise is finite
        slope = central_difference(lambda c: objective.at(c).value[0], at, direction)  # noqa: B023
        assert slope == pytest.approx((objective.at(at).gradient * direction).sum(), rel=1e-6)
        change = central_difference(lambda c: objective.at(c).gradient, at, direction)  # noqa: B023
        assert_allclose(objective.at(at).hessian().product(direction), change, rtol=1e-5, atol=1e-5)


def make_objective(noise, layout, loss):
    noise = None if noise is None else noise.resolve(N_FEATURES, None)
    X, variance = as_format(_X, layout), Variance() if noise is None else noise.variance()
    if layout == "sparse":
        variance = variance.of_stored_entries()
    groups = None if variance.groups is None else variance.feature_groups(N_FEATURES)
    of_scores = NoiseOfScores(variance, noise if loss == "mcf-logistic" else None, groups)
    targets = np.where(_y[:, None] == np.arange(4), 1.0, -1.0)
    entry = variance.entry if variance.moves_entries else None
    blocks = row_blocks(X[:50], entry) + row_blocks(X[50:], entry)
    parts = [Rows(blocks[0], targets[:50], _weights[:50]), Rows(blocks[1], targets[50:], _weights[50:])]
    return ClassObjective(LocalPartitions(parts), of_scores, None, Penalty(n_intercepts=4), True, N_FEATURES)


@pytest.mark.parametrize(("loss", "name"), deal(MODELS, NOISES))
def test_objective_is_convex(loss, name):
    objective = make_objective(NOISES[name], "dense", loss)
    rng = np.random.default_rng(8)
    for _ in range(6):
        at, direction = 0.4 * rng.normal(size=(2, 4 * N_FEATURES + 4, 1))
        assert (direction * objective.at(at).hessian().product(direction)).sum() > 0.0
        middle = objective.at(at + 0.5 * direction).value[0]
        assert middle <= 0.5 * (objective.at(at).value[0] + objective.at(at + direction).value[0])


@pytest.mark.parametrize("name", [name for name in NOISES if name != "none"])
def test_mcf_bounds_the_expected_loss_of_samples(name):
    noise, rng = NOISES[name].resolve(N_FEATURES, None), np.random.default_rng(9)
    W, b = 0.3 * rng.normal(size=(N_FEATURES, 4)), rng.normal(size=4)
    rows, labels = _X[:10], _y[:10]
    exponents = np.array(
        [
            plain_exponents("mcf-logistic", noise, row[None], W - W[:, [label]])[0] + b - b[label]
            for row, label in zip(rows, labels, strict=True)
        ]
    )
    drawn = noise.draw(np.tile(rows, (4000, 1)), np.random.RandomState(0)).reshape(4000, *rows.shape) @ W + b
    losses = logsumexp(drawn, axis=2) - drawn[:, np.arange(10), labels]
    error = losses.std(axis=0) / np.sqrt(len(losses))
    assert np.all(losses.mean(axis=0) <= logsumexp(exponents, axis=1) + 4.0 * error)


# Probabilities ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["error", "rescale", "conditional"])
def test_probabilities_are_a_softmax(missing):
    fitted = model(missing=missing, tol=1e-4).fit(_X, _y)
    assert_allclose(fitted.predict_proba(_X), softmax(fitted.decision_function(_X), axis=1), rtol=1e-10)
    if missing == "error":
        return
    X = np.where(np.random.default_rng(5).random(_X.shape) < 0.4, np.nan, _X)
    probabilities = fitted.predict_proba(X)
    assert_allclose(probabilities.sum(axis=1), 1.0)
    if missing == "conditional":  # what is unknown makes them less certain
        assert probabilities.max(axis=1).mean() < softmax(fitted.decision_function(X), axis=1).max(axis=1).mean()


def test_expected_softmax_is_near_that_of_samples():
    rng = np.random.default_rng(6)
    mean, roots = rng.normal(size=(5, 4)), rng.normal(size=(5, 4, 4))
    covariance = roots @ roots.swapaxes(1, 2)
    draws = mean[:, None] + rng.normal(size=(5, 20_000, 4)) @ roots.swapaxes(1, 2)
    wanted = softmax(draws, axis=2).mean(axis=1)
    assert_allclose(np.exp(log_expected_softmax(mean, covariance)), wanted, atol=0.03)
    assert np.abs(softmax(mean, axis=1) - wanted).max() > 0.1


# Searches, files, exports, command line -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::dropmargin.errors.ParameterWarning")
@pytest.mark.parametrize(
    ("make", "search"),
    [(model, DropoutLogisticRegressionCV()), (mcf, NoisyLinearClassifierCV("mcf-logistic"))],
    ids=["logistic", "mcf-logistic"],
)
def test_search_chooses_what_a_plain_grid_chooses(make, search):
    noises, Cs = (0.0, 0.3), (0.01, 0.3, 100.0)
    folds = [(np.arange(len(_y)) % 2 == k) for k in range(2)]
    cv = [(np.flatnonzero(~test), np.flatnonzero(test)) for test in folds]
    search = clone(search).set_params(noises=noises, Cs=Cs, cv=cv, multi_class="multinomial", verbose=0)
    search.set_params(scoring="neg_log_loss", tol=1e-8).fit(_X, _y)
    losses = {}
    for noise in noises:
        for value in Cs:
            own = make(noise=noise, C=value, tol=1e-8)
            own = [clone(own).fit(_X[~test], _y[~test]).predict_proba(_X[test]) for test in folds]
            pairs = zip(own, folds, strict=True)
            losses[noise, value] = np.mean([-np.log(p[np.arange(len(p)), _y[test]]).mean() for p, test in pairs])
    noise, value = min(losses, key=losses.get)
    assert (search.noise_.rate if search.noise_ else 0.0, search.C_) == (noise, value)
    assert search.best_score_ == pytest.approx(-losses[noise, value], rel=1e-5)


@pytest.mark.filterwarnings("ignore::dropmargin.errors.ParameterWarning")
def test_files_give_the_same_model_and_search(tmp_path):
    path = tmp_path / "rows.npz"
    np.savez(path, X=_X, y=_y)
    from_file = streaming.fit(model(noise=0.3), path, progress=False)
    assert relative_difference(from_file, model(noise=0.3).fit(_X, _y)) < 1e-5
    search = DropoutLogisticRegressionCV(
        noises=[0.3], Cs=[0.1, 1.0], cv=2, multi_class="multinomial", scoring="neg_log_loss", verbose=0
    )
    in_memory = clone(search).fit(_X, _y)
    from_file = streaming.fit(search, path, progress=False)
    assert_allclose(from_file.cv_results_["mean_test_score"], in_memory.cv_results_["mean_test_score"], rtol=1e-3)


def test_model_files_and_exports_have_the_same_probabilities(tmp_path):
    fitted = model(missing="rescale", tol=1e-4).fit(_X, _y)
    save(fitted, tmp_path / "model")
    assert_array_equal(load(tmp_path / "model").predict_proba(_X), fitted.predict_proba(_X))
    fitted.set_params(missing="error")
    assert_allclose(to_sklearn(fitted).predict_proba(_X), fitted.predict_proba(_X), rtol=1e-10)
    with pytest.raises(ValueError, match="LIBLINEAR has no multinomial models"):
        export_liblinear(fitted, tmp_path / "liblinear")
    assert not (tmp_path / "liblinear").exists()


def test_onnx_has_the_same_probabilities(tmp_path):
    pytest.importorskip("skl2onnx")
    runtime = pytest.importorskip("onnxruntime")
    fitted = model(missing="rescale", tol=1e-4).fit(_X, _y)
    export_onnx(fitted, tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    X = np.where(np.random.default_rng(7).random(_X.shape) < 0.3, np.nan, _X)
    (found,) = session.run(["probability"], {session.get_inputs()[0].name: X})
    assert_allclose(found, fitted.predict_proba(X), rtol=1e-9)


def test_command_line(run, tmp_path):
    np.savez(tmp_path / "rows.npz", X=_X, y=_y)
    options = ["train", "rows.npz", "model", "--multi-class", "multinomial"]
    run(*options, "--loss", "logistic", "--noise", "0.3")
    fitted = load(tmp_path / "model")
    assert_array_equal(fitted.coef_, DropoutLogisticRegression(noise=0.3, multi_class="multinomial").fit(_X, _y).coef_)
    (tmp_path / "model").unlink()
    failed = run(*options, code=2)
    assert failed.error.startswith("--multi-class: multinomial is for the logistic loss")
    assert not (tmp_path / "model").exists()


# Refusals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [DropoutSVC(), MCFClassifier("exponential"), NoisyLinearClassifier("quadratic"), model(approximation="gaussian")],
    ids=lambda estimator: type(estimator).__name__,
)
def test_other_losses_are_refused(estimator):
    estimator = clone(estimator).set_params(multi_class="multinomial")
    with pytest.raises(ValueError, match="multi_class='multinomial' is for the logistic loss"):
        estimator.fit(_X, _y)
    assert not hasattr(estimator, "coef_")


def test_streams_of_batches_and_irls_are_refused():
    with pytest.raises(AttributeError, match=r"no partial_fit with .*Set multi_class='ovr' or 'ovo', or use fit"):
        model().partial_fit(_X, _y, classes=np.unique(_y))
    with pytest.raises(ValueError, match="solver='irls' needs a quadratic majoriser"):
        model(solver="irls").fit(_X, _y)


def test_a_search_with_two_classes_is_that_of_one_vs_rest():
    is_of_two = _y < 2
    X, y = _X[is_of_two], _y[is_of_two]
    found, expected = (DropoutLogisticRegressionCV(cv=3, multi_class=kind).fit(X, y) for kind in ("multinomial", "ovr"))
    assert_array_equal(found.coef_, expected.coef_)
    assert_array_equal(found.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"])


def test_passes_in_files_count_what_is_computed_anew(tmp_path):
    """Losses through the MGF keep what they compute of rows in memory, and compute it again from files."""
    np.savez(tmp_path / "rows.npz", X=_X, y=_y)
    for kind in ("ovr", "multinomial"):
        in_memory = MCFClassifier(loss="logistic", multi_class=kind).fit(_X, _y)
        in_files = streaming.fit(clone(in_memory), [tmp_path / "rows.npz"], progress=False)
        assert_allclose(in_files.objective_, in_memory.objective_, rtol=1e-4)
        assert in_files.n_passes_ > 1.2 * in_memory.n_passes_
