"""Plots of deletion curves, and the style of all plots."""

from __future__ import annotations

import io
import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from datasets import make_multiclass
from dropmargin import DeletionCurveDisplay, DropoutSVC, deletion_curve
from dropmargin.plotting.style import COLOURS, line_style

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


@pytest.mark.parametrize("random_state", [0, None, np.random.RandomState(0)])
def test_several_estimators_have_the_same_deletions(data, models, random_state):
    twins = {"one": models["plain"], "other": models["plain"], "dropout": models["dropout"]}
    display = DeletionCurveDisplay.from_estimators(twins, *data, levels=LEVELS, random_state=random_state)
    assert list(display.curves) == ["one", "other", "dropout"]
    assert_array_equal(display.curves["one"].scores, display.curves["other"].scores)
    assert (display.curves["one"].scores != display.curves["dropout"].scores).any()


def test_options_are_passed_to_the_curves(data, models):
    X, y = data
    settings = {
        "levels": [0.4],
        "strategy": "columns",
        "n_repeats": 3,
        "fill": X.mean(axis=0),
        "rescale": True,
        "scoring": "f1_macro",
        "sample_weight": np.arange(len(y)),
        "random_state": 2,
    }
    for display in (
        DeletionCurveDisplay.from_estimator(models["plain"], X, y, name="plain", n_jobs=1, verbose=0, **settings),
        DeletionCurveDisplay.from_estimators(models, X, y, n_jobs=1, verbose=0, **settings),
    ):
        assert_array_equal(display.curves["plain"].scores, deletion_curve(models["plain"], X, y, **settings).scores)
        assert display.ax_.get_ylabel() == "f1 macro"
        assert display.ax_.get_xlabel() == "columns deleted at random"


def test_the_legend_is_in_the_order_of_the_lines(data, models):
    display = DeletionCurveDisplay.from_estimators(models, *data, levels=LEVELS, random_state=0)
    heights = {line.get_label(): np.mean(line.get_ydata()) for line in display.lines_}
    named = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert named == sorted(heights, key=lambda name: -heights[name])


def test_names_are_neither_formulas_nor_hidden(data, models):
    names = ["$x^2$ and $y$", "_hidden", "null \x00", "plain"]
    display = DeletionCurveDisplay.from_estimators(dict.fromkeys(names, models["plain"]), *data, levels=[0.5])
    shown = {text.get_text().strip("\N{ZERO WIDTH SPACE}") for text in display.ax_.get_legend().get_texts()}
    assert shown == {r"\$x^2\$ and \$y\$", "_hidden", "null \N{REPLACEMENT CHARACTER}", "plain"}
    display.figure_.savefig(io.StringIO(), format="svg")


def test_lines_differ_in_more_than_colour():
    styles = [line_style(index) for index in range(30)]
    assert len({style["color"] for style in styles[:8]}) == len(COLOURS) == 8
    assert len({style["marker"] for style in styles[:8]}) == 8
    assert len({tuple(map(str, style.values())) for style in styles}) == 30


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


def test_curves_with_different_parameters_on_given_axes(data, models):
    figure, ax = plt.subplots()
    curves = {
        "zeros": deletion_curve(models["plain"], *data, levels=LEVELS),
        "worst": deletion_curve(models["plain"], *data, levels=[0.1, 0.2], strategy="worst", scoring="f1_macro"),
    }
    display = DeletionCurveDisplay(curves).plot(ax)
    assert display.ax_ is ax
    assert display.figure_ is figure
    assert ax.get_xlabel() == "features deleted"
    assert ax.get_ylabel() == "score"
    assert plt.get_fignums() == [figure.number]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"show": "loss"}, r"show must be one of \['auto', 'error', 'score'\], got 'loss'"),
        ({"spread": "fog"}, r"spread must be one of \['band', 'none'\], got 'fog'"),
        ({"levels": [2.0]}, "levels must be in"),
        ({"level": [0.5]}, r"deletion_curve\(\) got an unexpected keyword argument 'level'"),
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
