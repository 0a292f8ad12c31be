"""The bar on the terminal: what it says, and when it keeps quiet."""

from __future__ import annotations

import io

import pytest
from sklearn.naive_bayes import GaussianNB

from datasets import make_multiclass
from dropmargin import deletion_curve, progress
from dropmargin.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Return a list whose only element is the time that the progress bar sees."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_bar_counts_and_says_how_long_it_will_take(clock):
    screen = Terminal()
    with Progress(4, "work", stream=screen) as bar:
        clock[0] = 60.0
        bar.advance()
        assert screen.getvalue() == "\rwork [######------------------] 1/4, 3:00 left"
        clock[0] = 60.1
        bar.advance()
        assert "2/4" not in screen.getvalue()
        clock[0] = 7200.0
        bar.advance()
        assert screen.getvalue().rstrip().endswith("3/4, 40:00 left")
    assert screen.getvalue().endswith("\r" + " " * 47 + "\r")


@pytest.mark.parametrize(
    ("stream", "verbose", "seconds"), [(io.StringIO(), 1, 60.0), (Terminal(), 0, 60.0), (Terminal(), 1, 1.0)]
)
def test_no_bar_without_a_terminal_or_for_short_work_or_if_unwanted(clock, stream, verbose, seconds):
    with Progress(2, "work", verbose=verbose, stream=stream) as bar:
        clock[0] = seconds
        bar.advance()
    assert stream.getvalue() == ""


def test_curves_draw_the_bar_on_stderr(clock, monkeypatch):
    X, y = make_multiclass()

    class Slow(GaussianNB):
        def predict_proba(self, X):
            clock[0] += 1.0
            return super().predict_proba(X)

        def predict(self, X):
            clock[0] += 1.0
            return super().predict(X)

    model = Slow().fit(X, y)
    for verbose, drawn in ((1, True), (0, False)):
        monkeypatch.setattr("sys.stderr", Terminal())
        deletion_curve(model, X, y, levels=[0.5], strategy="worst", verbose=verbose)
        deletion_curve(model, X, y, levels=[0.5], verbose=verbose)
        text = progress.sys.stderr.getvalue()
        assert ("ranking columns [" in text and "deletion curve [" in text) == drawn
        assert drawn or text == ""
