"""Plots of deletion curves and of scores by noise, and the style of all plots."""

from __future__ import annotations

import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from datasets import make_binary, make_multiclass
from dropmargin import (
    DeletionCurveDisplay,
    DropoutLogisticRegressionCV,
    DropoutNoise,
    DropoutSVC,
    DropoutSVCCV,
    GaussianNoise,
    NoiseGridDisplay,
    NoisePathDisplay,
    PoissonNoise,
    deletion_curve,
)
from dropmargin.plotting.score_grid import ScoreGrid

LEVELS = [0.5, 0.0, 0.9]


pytestmark = pytest.mark.usefixtures("draw_in_memory")


@pytest.fixture(scope="module")
def data():
    return make_multiclass(200)


@pytest.fixture(scope="module")
def models(data):
    return {"plain": LinearSVC().fit(*data), "dropout": DropoutSVC().fit(*data)}


def test_one_estimator_is_one_line_through_its_errors(data, models):
    display = DeletionCurveDisplay.from_estimator(models["plain"], *data, levels=LEVELS, random_state=0)
    curve = deletion_curve(models["plain"], *data, levels=LEVELS, random_state=0)
    (line,) = display.lines_
    assert_array_equal(line.get_xdata(), [0.0, 0.5, 0.9])  # sorted
    assert_allclose(line.get_ydata(), 1.0 - curve.mean[[1, 0, 2]])
    assert line.get_label() == "LinearSVC"
    assert display.figure_ is display.ax_.figure
    assert display.ax_.get_xlabel() == "features deleted at random"
    assert display.ax_.get_ylabel() == "error"
    assert display.ax_.get_ylim()[0] == 0.0


def test_the_band_is_one_standard_deviation(data, models):
    display = DeletionCurveDisplay.from_estimator(models["plain"], *data, levels=[0.3, 0.6], random_state=0)
    curve = display.curves["LinearSVC"]
    (band,) = display.spreads_
    corners = band.get_paths()[0].vertices
    for level, mean, std in zip(curve.levels, 1.0 - curve.mean, curve.std, strict=True):
        heights = corners[corners[:, 0] == level, 1]
        assert_allclose([heights.min(), heights.max()], [mean - std, mean + std])


@pytest.mark.parametrize(
    ("scoring", "show", "label"),
    [
        ("accuracy", "auto", "error"),
        ("accuracy", "score", "accuracy"),
        ("balanced_accuracy", "auto", "balanced error"),
        ("neg_log_loss", "auto", "log loss"),
        ("neg_log_loss", "score", "neg log loss"),
        ("roc_auc_ovr", "error", "1 - roc auc ovr"),
        (None, "auto", "score"),
    ],
)
def test_errors_where_there_are_any_and_the_score_for_the_rest(data, scoring, show, label):
    model = LogisticRegression().fit(*data)
    display = DeletionCurveDisplay.from_estimator(model, *data, levels=LEVELS, scoring=scoring, show=show)
    mean = np.sort(display.curves["LogisticRegression"].mean)
    shown = np.sort(1.0 - mean) if "error" in label or "1 -" in label else -mean if label == "log loss" else mean
    assert_allclose(np.sort(display.lines_[0].get_ydata()), np.sort(shown))
    assert display.ax_.get_ylabel() == label


def test_the_spread_may_be_left_out(data, models):
    curves = {"plain": deletion_curve(models["plain"], *data, levels=LEVELS)}
    assert DeletionCurveDisplay(curves).plot(spread="none").spreads_ == [None]
    worst = DeletionCurveDisplay.from_estimator(models["plain"], *data, levels=LEVELS, strategy="worst")
    assert worst.spreads_ == [None]  # nothing varies
    assert worst.ax_.get_xlabel() == "columns deleted, most useful first"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"show": "loss"}, r"show must be one of \['auto', 'error', 'score'\], got 'loss'"),
        ({"spread": "fog"}, r"spread must be one of \['band', 'none'\], got 'fog'"),
        ({"levels": [2.0]}, "levels must be in"),
        ({"level": [0.5]}, "'level'"),
    ],
)
def test_bad_options_raise_before_a_figure_is_made(data, models, settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        DeletionCurveDisplay.from_estimators(models, *data, **settings)
    assert plt.get_fignums() == []


def test_bad_estimators_and_curves_raise(data, models):
    with pytest.raises(ValueError, match="of one class: name them"):
        DeletionCurveDisplay.from_estimators([models["plain"], models["plain"]], *data)
    with pytest.raises(ValueError, match="estimators is empty"):
        DeletionCurveDisplay.from_estimators({}, *data)
    for wrong in (3, LinearSVC, "LinearSVC"):
        with pytest.raises(ValueError, match="estimators must be a dict"):
            DeletionCurveDisplay.from_estimators(wrong, *data)
    with pytest.raises(NotFittedError):
        DeletionCurveDisplay.from_estimator(LinearSVC(), *data)
    for curves in ({}, [], {"a": 1.0}, None):
        with pytest.raises(ValueError, match="curves must be a dict of names and DeletionCurve objects"):
            DeletionCurveDisplay(curves).plot()


def test_without_matplotlib_the_error_names_the_extra(data, models, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'dropmargin\[plots\]'"):
        DeletionCurveDisplay.from_estimators(models, *data)
    curves = {"plain": deletion_curve(models["plain"], *data, levels=LEVELS)}
    DeletionCurveDisplay(curves).plot(Figure().subplots())  # pyplot is needed for new figures only


def test_import_dropmargin_is_light():
    code = (
        "import sys, dropmargin; heavy = {'matplotlib', 'sklearn.metrics', 'sklearn.inspection', "
        "'sklearn.model_selection'} & set(sys.modules); sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


RATES, CS = [0.6, 0.0, 0.3], [0.01, 0.1, 1.0, 10.0]
ORDER = [1, 2, 0]  # of the rates
MIXED = [0.5, GaussianNoise(0.4), None, PoissonNoise(), 0.2, GaussianNoise(0.1)]


@pytest.fixture(scope="module")
def binary():
    return make_binary(120)


@pytest.fixture(scope="module")
def searches(binary):
    settings = {"noises": RATES, "Cs": CS, "cv": 3}
    return {
        "svm": DropoutSVCCV(**settings).fit(*binary),
        "logistic": DropoutLogisticRegressionCV(prune=False, **settings).fit(*binary),
    }


@pytest.fixture(scope="module")
def mixed(binary):
    return DropoutSVCCV(noises=MIXED, Cs=CS, cv=3).fit(*binary)


def errors_at_best_c(model):
    """Return, per noise, the lowest mean error, its standard error over the folds and the index of its C."""
    mean = model.scores_.mean(axis=0)
    best = mean.argmax(axis=1)
    own = model.scores_[:, np.arange(len(mean)), best]
    return 1.0 - own.mean(axis=0), own.std(axis=0, ddof=1) / np.sqrt(len(own)), best


# Error by noise ------------------------------------------------------------------------------------------------


def test_each_estimator_is_a_line_through_its_errors_at_the_best_c(searches):
    display = NoisePathDisplay.from_estimators(searches)
    assert [line.get_label() for line in display.lines_] == ["svm", "logistic"]
    for line, model in zip(display.lines_, searches.values(), strict=True):
        assert_array_equal(line.get_xdata(), [0.0, 0.3, 0.6])  # sorted
        assert_allclose(line.get_ydata(), errors_at_best_c(model)[0][ORDER])
    assert display.axes_ == [display.ax_]
    assert display.figure_ is display.ax_.figure
    assert display.ax_.get_xlabel() == "dropout rate"
    assert display.ax_.get_ylabel() == "cross-validated error at the best C"
    display.figure_.canvas.draw()
    assert all(text.get_text().endswith(" %") for text in display.ax_.get_yticklabels())


def test_a_ring_marks_the_chosen_point(searches):
    display = NoisePathDisplay.from_estimators(searches)
    for ring, line, model in zip(display.chosen_, display.lines_, searches.values(), strict=True):
        assert_allclose(ring.get_xdata(), [model.noise_.rate])
        assert_allclose(ring.get_ydata(), [1.0 - model.best_score_])
        assert ring.get_color() == line.get_color()
    assert "chosen" in [text.get_text() for text in display.ax_.get_legend().get_texts()]


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


def made_up_grid(noises, chosen, n_cs=2, metric="accuracy", refined=None, n_folds=3):
    """Return a grid of made-up scores."""
    scores = np.random.RandomState(0).uniform(0.5, 0.9, (n_folds, len(noises), n_cs))
    return ScoreGrid(tuple(noises), 10.0 ** np.arange(n_cs), scores, metric, chosen, refined)


@pytest.mark.parametrize(("chosen", "n_rings"), [(0, 2), (1, 1), (2, 1), (3, 2)])
def test_the_chosen_point_is_marked_in_every_panel_that_has_it(chosen, n_rings):
    grid = made_up_grid([None, DropoutNoise(0.5), GaussianNoise(0.1), PoissonNoise()], (chosen, 0))
    rings = NoisePathDisplay({"a": grid}).plot().chosen_
    assert len(rings) == n_rings
    for ring in rings:
        assert_allclose(ring.get_ydata(), [1.0 - grid.mean[chosen, 0]])


def test_given_axes_are_used(searches, mixed):
    figure, (left, right) = plt.subplots(1, 2)
    display = NoisePathDisplay.from_estimators(searches, ax=left)
    assert display.ax_ is left
    assert display.figure_ is figure
    assert NoisePathDisplay.from_estimators(mixed, ax=[left, right]).axes_ == [left, right]
    assert plt.get_fignums() == [figure.number]
    with pytest.raises(ValueError, match="ax has 1 axes, but 2 are needed, one for each kind of noise: dropout, Gauss"):
        NoisePathDisplay.from_estimators(mixed, ax=left)
    with pytest.raises(TypeError, match="ax must be matplotlib Axes or None, got 'left'"):
        NoisePathDisplay.from_estimators(searches, ax="left")


# Errors -------------------------------------------------------------------------------------------------------------


def test_only_fitted_searches_have_scores(binary):
    draw = NoisePathDisplay.from_estimators
    with pytest.raises(NotFittedError):
        draw(DropoutSVCCV())
    for wrong in (DropoutSVC().fit(*binary), LinearSVC(), make_pipeline(LinearSVC())):
        with pytest.raises(TypeError, match="must be one with CV in its name, such as DropoutSVCCV"):
            draw(wrong)
    assert plt.get_fignums() == []


# Heat maps -----------------------------------------------------------------------------------------------------------


def test_the_cells_are_the_mean_scores(searches):
    model = searches["svm"]
    display = NoiseGridDisplay.from_estimator(model)
    (image,) = display.images_
    mean = 100.0 * model.scores_.mean(axis=0)
    assert_allclose(image.get_array(), mean[ORDER])
    assert [float(text.get_text()) for text in display.ax_.texts] == [round(value, 1) for value in mean[ORDER].ravel()]
    assert [text.get_text() for text in display.ax_.get_yticklabels()] == ["0", "0.3", "0.6"]
    assert [text.get_text() for text in display.ax_.get_xticklabels()] == ["0.01", "0.1", "1", "10"]
    assert display.ax_.get_ylabel() == "dropout rate"
    assert display.colorbar_.ax.get_ylabel() == "mean accuracy over 3 folds, %"


def test_a_frame_and_the_title_show_the_chosen_point(searches):
    model = searches["svm"]
    display = NoiseGridDisplay.from_estimator(model)
    (frame,) = display.chosen_
    left, bottom = frame.get_xy()
    assert (bottom + 0.5, left + 0.5) == (ORDER.index(model.best_index_[0]), model.best_index_[1])
    noise = f"dropout rate {model.noise_.rate:g}" if model.noise_.rate else "no noise"
    assert display.ax_.get_title("left") == f"chosen: {noise}, C = {model.C_:g}"
