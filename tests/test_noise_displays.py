"""Plots of scores by noise."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from datasets import N_FEATURES, make_binary
from dropmargin import (
    DropoutLogisticRegression,
    DropoutLogisticRegressionCV,
    DropoutNoise,
    DropoutSVC,
    DropoutSVCCV,
    GaussianNoise,
    NoiseGridDisplay,
    NoisePathDisplay,
    PoissonNoise,
    noise_path,
)
from dropmargin.plotting.score_grid import ScoreGrid

RATES, CS = [0.6, 0.0, 0.3], [0.01, 0.1, 1.0, 10.0]
ORDER = [1, 2, 0]  # of the rates
MIXED = [0.5, GaussianNoise(0.4), None, PoissonNoise(), 0.2, GaussianNoise(0.1)]


pytestmark = pytest.mark.usefixtures("draw_in_memory")


@pytest.fixture(scope="module")
def data():
    return make_binary(120)


@pytest.fixture(scope="module")
def models(data):
    settings = {"noises": RATES, "Cs": CS, "cv": 3}
    return {
        "svm": DropoutSVCCV(**settings).fit(*data),
        "logistic": DropoutLogisticRegressionCV(prune=False, **settings).fit(*data),
    }


@pytest.fixture(scope="module")
def mixed(data):
    return DropoutSVCCV(noises=MIXED, Cs=CS, cv=3).fit(*data)


def errors_at_best_c(model):
    """Return, per noise, the lowest mean error, its standard error over the folds and the index of its C."""
    mean = model.scores_.mean(axis=0)
    best = mean.argmax(axis=1)
    own = model.scores_[:, np.arange(len(mean)), best]
    return 1.0 - own.mean(axis=0), own.std(axis=0, ddof=1) / np.sqrt(len(own)), best


def made_up_grid(noises, chosen, n_cs=2, metric="accuracy", refined=None, n_folds=3):
    """Return a grid of made-up scores."""
    scores = np.random.RandomState(0).uniform(0.5, 0.9, (n_folds, len(noises), n_cs))
    return ScoreGrid(tuple(noises), 10.0 ** np.arange(n_cs), scores, metric, chosen, refined)


# Error by noise ------------------------------------------------------------------------------------------------


def test_each_estimator_is_a_line_through_its_errors_at_the_best_c(models):
    display = NoisePathDisplay.from_estimators(models)
    assert [line.get_label() for line in display.lines_] == ["svm", "logistic"]
    for line, model in zip(display.lines_, models.values(), strict=True):
        assert_array_equal(line.get_xdata(), [0.0, 0.3, 0.6])  # sorted
        assert_allclose(line.get_ydata(), errors_at_best_c(model)[0][ORDER])
    assert display.axes_ == [display.ax_]
    assert display.figure_ is display.ax_.figure
    assert display.ax_.get_xlabel() == "dropout rate"
    assert display.ax_.get_ylabel() == "cross-validated error at the best C"
    display.figure_.canvas.draw()
    assert all(text.get_text().endswith(" %") for text in display.ax_.get_yticklabels())


def test_the_band_is_one_standard_error_over_the_folds(models):
    display = NoisePathDisplay.from_estimators(models)
    for band, model in zip(display.spreads_, models.values(), strict=True):
        error, deviation, _ = errors_at_best_c(model)
        corners = band.get_paths()[0].vertices
        for index, rate in enumerate(RATES):
            heights = corners[corners[:, 0] == rate, 1]
            wanted = [error[index] - deviation[index], error[index] + deviation[index]]
            assert_allclose([heights.min(), heights.max()], wanted)


def test_the_spread_may_be_left_out(models):
    assert NoisePathDisplay.from_estimators(models, spread="none").spreads_ == [None, None]
    one_fold = NoisePathDisplay({"a": made_up_grid([None, DropoutNoise(0.5)], None, n_folds=1)}).plot()
    assert one_fold.spreads_ == [None]


def test_a_ring_marks_the_chosen_point(models):
    display = NoisePathDisplay.from_estimators(models)
    for ring, line, model in zip(display.chosen_, display.lines_, models.values(), strict=True):
        assert_allclose(ring.get_xdata(), [model.noise_.rate])
        assert_allclose(ring.get_ydata(), [1.0 - model.best_score_])
        assert ring.get_color() == line.get_color()
    assert "chosen" in [text.get_text() for text in display.ax_.get_legend().get_texts()]


def test_points_that_were_stopped_early_have_hollow_markers():
    refined = np.array([[True, True], [False, False], [True, True]])
    grid = made_up_grid([None, DropoutNoise(0.5), DropoutNoise(0.2)], (0, 0), refined=refined)
    display = NoisePathDisplay({"a": grid, "b": made_up_grid([None, DropoutNoise(0.5)], None)}).plot()
    hollow, none = display.inexact_
    assert none is None
    assert_array_equal(hollow.get_xdata(), [0.5])
    assert_allclose(hollow.get_ydata(), 1.0 - grid.mean[1].max())
    assert to_hex(hollow.get_markerfacecolor()) == to_hex(display.ax_.get_facecolor())
    assert "hollow: stopped early" in [text.get_text() for text in display.ax_.get_legend().get_texts()]


def test_every_kind_of_noise_has_a_panel(mixed):
    display = NoisePathDisplay.from_estimators(mixed)
    assert [panel.get_xlabel() for panel in display.axes_] == ["dropout rate", "Gaussian scale"]
    error, _, _ = errors_at_best_c(mixed)
    dropout, poisson, gaussian, again = display.lines_
    assert_allclose(dropout.get_xdata(), [0.0, 0.2, 0.5])
    assert_allclose(dropout.get_ydata(), error[[2, 4, 0]])
    assert_allclose(gaussian.get_xdata(), [0.0, 0.1, 0.4])
    assert_allclose(gaussian.get_ydata(), error[[2, 5, 1]])
    for line in (poisson, again):  # no level: a horizontal line in both panels
        assert line.get_label() == "DropoutSVCCV, Poisson"
        assert_allclose(line.get_ydata(), error[3])
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert sorted(texts[:3]) == ["DropoutSVCCV", "DropoutSVCCV, Poisson", "chosen"]  # each once


@pytest.mark.parametrize(("chosen", "n_rings"), [(0, 2), (1, 1), (2, 1), (3, 2)])
def test_the_chosen_point_is_marked_in_every_panel_that_has_it(chosen, n_rings):
    grid = made_up_grid([None, DropoutNoise(0.5), GaussianNoise(0.1), PoissonNoise()], (chosen, 0))
    rings = NoisePathDisplay({"a": grid}).plot().chosen_
    assert len(rings) == n_rings
    for ring in rings:
        assert_allclose(ring.get_ydata(), [1.0 - grid.mean[chosen, 0]])


def test_the_level_of_per_feature_noise_is_its_mean():
    noises = [DropoutNoise(0.1), DropoutNoise(np.linspace(0.0, 0.8, N_FEATURES))]
    display = NoisePathDisplay({"a": made_up_grid(noises, None)}).plot()
    assert_allclose(display.lines_[0].get_xdata(), [0.1, 0.4])
    assert display.ax_.get_xlabel() == "mean dropout rate"


@pytest.mark.parametrize(
    ("metric", "show", "label"),
    [
        ("accuracy", "auto", "cross-validated error at the best C"),
        ("accuracy", "score", "cross-validated accuracy at the best C"),
        ("balanced_accuracy", "auto", "cross-validated balanced error at the best C"),
        ("roc_auc", "auto", "cross-validated roc auc at the best C"),
        ("roc_auc", "error", "cross-validated 1 - roc auc at the best C"),
    ],
)
def test_error_for_accuracy_and_the_score_for_the_rest(metric, show, label):
    grid = made_up_grid([None, DropoutNoise(0.5)], None, metric=metric)
    display = NoisePathDisplay({"a": grid}).plot(show=show)
    best = grid.mean.max(axis=1)
    assert display.ax_.get_ylabel() == label
    assert_allclose(display.lines_[0].get_ydata(), 1.0 - best if "error" in label or "1 -" in label else best)


def test_paths_have_no_chosen_point(data):
    X, y = data
    paths = {
        name: noise_path(X[:80], y[:80], RATES, CS, estimator=model, X_test=X[80:], y_test=y[80:])
        for name, model in {"svm": DropoutSVC(), "logistic": DropoutLogisticRegression()}.items()
    }
    display = NoisePathDisplay.from_estimators(paths)
    for line, path in zip(display.lines_, paths.values(), strict=True):
        assert_allclose(line.get_ydata(), 1.0 - path.scores.max(axis=1)[ORDER])
    assert display.chosen_ == []
    assert display.spreads_ == [None, None]
    assert display.ax_.get_ylabel() == "error at the best C"


def test_lists_and_pipelines_are_named_after_their_last_class(data, models):
    pipeline = make_pipeline(StandardScaler(), DropoutSVCCV(noises=[0.0, 0.5], Cs=[1.0], cv=2)).fit(*data)
    display = NoisePathDisplay.from_estimators([pipeline, models["logistic"]])
    assert [line.get_label() for line in display.lines_] == ["DropoutSVCCV", "DropoutLogisticRegressionCV"]


def test_given_axes_are_used(models, mixed):
    figure, (left, right) = plt.subplots(1, 2)
    display = NoisePathDisplay.from_estimators(models, ax=left)
    assert display.ax_ is left
    assert display.figure_ is figure
    assert NoisePathDisplay.from_estimators(mixed, ax=[left, right]).axes_ == [left, right]
    assert plt.get_fignums() == [figure.number]
    with pytest.raises(ValueError, match="ax has 1 axes, but 2 are needed, one for each kind of noise: dropout, Gauss"):
        NoisePathDisplay.from_estimators(mixed, ax=left)
    with pytest.raises(TypeError, match="ax must be matplotlib Axes or None, got 'left'"):
        NoisePathDisplay.from_estimators(models, ax="left")


# Errors -------------------------------------------------------------------------------------------------------------


def test_only_fitted_searches_have_scores(data):
    draw = NoisePathDisplay.from_estimators
    with pytest.raises(NotFittedError):
        draw(DropoutSVCCV())
    for wrong in (DropoutSVC().fit(*data), LinearSVC(), make_pipeline(LinearSVC())):
        with pytest.raises(TypeError, match="must be one with CV in its name, such as DropoutSVCCV"):
            draw(wrong)
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    ("display", "message"),
    [
        (NoisePathDisplay({}), "grids must be a dict of names and ScoreGrid objects"),
        (NoisePathDisplay({"a": 1}), "grids must be a dict of names and ScoreGrid objects"),
    ],
)
def test_displays_without_grids_raise(display, message):
    with pytest.raises(ValueError, match=message):
        display.plot()


@pytest.mark.parametrize("settings", [{"show": "loss"}, {"spread": "fog"}])
def test_bad_options_raise_before_a_figure_is_made(models, settings):
    (name,) = settings
    with pytest.raises(ValueError, match=f"{name} must be one of"):
        NoisePathDisplay.from_estimators(models, **settings)
    assert plt.get_fignums() == []


# Heat maps -----------------------------------------------------------------------------------------------------------


def test_the_cells_are_the_mean_scores(models):
    model = models["svm"]
    display = NoiseGridDisplay.from_estimator(model)
    (image,) = display.images_
    mean = 100.0 * model.scores_.mean(axis=0)
    assert_allclose(image.get_array(), mean[ORDER])
    assert [float(text.get_text()) for text in display.ax_.texts] == [round(value, 1) for value in mean[ORDER].ravel()]
    assert [text.get_text() for text in display.ax_.get_yticklabels()] == ["0", "0.3", "0.6"]
    assert [text.get_text() for text in display.ax_.get_xticklabels()] == ["0.01", "0.1", "1", "10"]
    assert display.ax_.get_ylabel() == "dropout rate"
    assert display.colorbar_.ax.get_ylabel() == "mean accuracy over 3 folds, %"


def test_a_frame_and_the_title_show_the_chosen_point(models):
    model = models["svm"]
    display = NoiseGridDisplay.from_estimator(model)
    (frame,) = display.chosen_
    left, bottom = frame.get_xy()
    assert (bottom + 0.5, left + 0.5) == (ORDER.index(model.best_index_[0]), model.best_index_[1])
    noise = f"dropout rate {model.noise_.rate:g}" if model.noise_.rate else "no noise"
    assert display.ax_.get_title("left") == f"chosen: {noise}, C = {model.C_:g}"


def test_every_kind_of_noise_has_a_panel_and_numbers_need_room(mixed):
    display = NoiseGridDisplay.from_estimator(mixed)
    assert [len(image.get_array()) for image in display.images_] == [3, 3, 1]
    large = made_up_grid([None, DropoutNoise(0.5)], None, n_cs=40)
    assert len(NoiseGridDisplay(large).plot().ax_.texts) == 0
