"""Plots of convergence: the gaps of the history, and the excess over the best known minimum."""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from datasets import make_binary, make_multiclass
from dropmargin import ConvergenceDisplay, DropoutSVC, DropoutSVCCV, FDropSVC
from dropmargin.solvers import Iteration

pytestmark = pytest.mark.usefixtures("draw_in_memory")


@pytest.fixture(scope="module")
def data():
    return make_binary(120)


@pytest.fixture(scope="module")
def fits(data):
    return {solver: DropoutSVC(noise=0.4, solver=solver).fit(*data) for solver in ("newton", "irls")}


def test_gaps_of_the_history_by_passes(fits):
    model = fits["newton"]
    display = ConvergenceDisplay.from_estimators(model)
    (line,) = display.lines_
    assert_array_equal(line.get_xdata(), [entry.passes for entry in model.history_])
    wanted = [entry.gap / abs(entry.objective) if np.isfinite(entry.gap) else np.nan for entry in model.history_]
    assert np.isnan(wanted[0])  # no estimate at first
    assert_allclose(line.get_ydata(), wanted)
    assert line.get_label() == "DropoutSVC"
    assert display.ax_.get_yscale() == "log"
    assert display.ax_.get_xlabel() == "passes over the data"
    assert display.ax_.get_ylabel() == "estimated relative gap"
    (dotted,) = display.tolerances_
    assert_allclose(dotted.get_ydata(), model.tol)
    assert dotted.get_label() == "tol = 0.0001"


def test_fits_without_gaps_are_refused(data):
    with pytest.raises(ValueError, match="solver='lbfgs' does not estimate them"):
        ConvergenceDisplay.from_estimators(DropoutSVC(noise=0.4, solver="lbfgs").fit(*data))


def test_outputs_that_were_solved_one_by_one_have_a_line_each():
    X, y = make_multiclass()
    model = DropoutSVC().fit(sparse.csr_array(X), y)
    display = ConvergenceDisplay.from_estimators({"sparse": model, "dense": DropoutSVC().fit(X, y)})
    assert len(display.lines_) == 3 + 1
    drawn = np.concatenate([line.get_xdata() for line in display.lines_[:3]])
    assert_array_equal(drawn, [entry.passes for entry in model.history_])
    assert all((np.diff(line.get_xdata()) > 0.0).all() for line in display.lines_)
    named = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert named == ["sparse", "dense", "tol = 0.0001"]


def test_searches_pipelines_and_baselines(data):
    search = DropoutSVCCV(noises=[0.2, 0.5], Cs=[0.1, 1.0], cv=2).fit(*data)
    pipeline = make_pipeline(StandardScaler(), DropoutSVC(tol=1e-6)).fit(*data)
    several = {"search": search, "pipeline": pipeline, "fdrop": FDropSVC(2).fit(*data)}
    display = ConvergenceDisplay.from_estimators(several)
    passes = [entry.passes for entry in search.best_estimator_.history_]
    assert_array_equal(display.lines_[0].get_xdata(), passes)
    assert len(display.lines_) == 3
    assert 1e-6 in [line.get_ydata()[0] for line in display.tolerances_]


def test_long_lines_have_fewer_markers():
    model = DropoutSVC().fit(*make_binary())
    model.history_ = [Iteration(index + 1, 1.0, 0.9**index, float(index), 1) for index in range(100)]
    assert ConvergenceDisplay.from_estimators(model).lines_[0].get_markevery() > 1


def test_other_estimators_raise(data):
    with pytest.raises(NotFittedError):
        ConvergenceDisplay.from_estimators(DropoutSVC())
    with pytest.raises(TypeError, match="LinearSVC has no history_"):
        ConvergenceDisplay.from_estimators(LinearSVC().fit(*data))
    with pytest.raises(TypeError, match="fitted classifiers of dropmargin, got 3"):
        ConvergenceDisplay.from_estimators({"a": 3})
    with pytest.raises(ValueError, match="estimators must be a dict"):
        ConvergenceDisplay.from_estimators(3)


def test_given_axes_are_used(fits):
    figure, ax = plt.subplots()
    display = ConvergenceDisplay.from_estimators(fits, ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is figure
    assert plt.get_fignums() == [figure.number]


def test_without_matplotlib_the_error_names_the_extra(fits, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'dropmargin\[plots\]'"):
        ConvergenceDisplay.from_estimators(fits)
