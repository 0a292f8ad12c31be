"""The bar on the terminal and in notebooks: what it says, and when it keeps quiet."""

from __future__ import annotations

import contextvars
import io
import sys
import threading
import time
import types

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


def test_steps_from_several_threads_are_all_counted(clock):
    class Slow(int):
        """A step that other threads may overtake while it is added."""

        def __radd__(self, other):
            time.sleep(0.01)
            return int(other) + int(self)

    screen = Terminal()
    with Progress(9, "work", stream=screen) as bar:
        _in_threads(8, lambda: bar.advance(Slow(1)))
        clock[0] = 60.0
        bar.advance()
        assert "9/9, 0:00 left" in screen.getvalue()


def _in_threads(number, job):
    threads = [threading.Thread(target=job) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_bar_never_outgrows_its_terminal(clock, monkeypatch):
    for columns in (32, 45, 60):
        monkeypatch.setenv("COLUMNS", str(columns))
        screen = Terminal()
        with Progress(500, "a label that is rather long", stream=screen) as bar:
            clock[0] += 60.0
            bar.advance(100)
        assert max(map(len, screen.getvalue().split("\r"))) < columns
        assert "100/500, 4" in screen.getvalue()


@pytest.mark.parametrize("error", [BrokenPipeError(), ValueError("I/O operation on closed file"), RuntimeError()])
def test_a_bar_that_cannot_be_drawn_is_given_up(clock, error):
    class Broken(Terminal):
        attempts = 0

        def write(self, text):
            self.attempts += 1
            raise error

    screen = Broken()
    with Progress(3, "work", stream=screen) as bar:
        for _ in range(3):
            clock[0] += 60.0
            bar.advance()
    assert screen.attempts == 1


def test_a_closed_or_missing_stderr_is_no_terminal(clock, monkeypatch):
    closed = Terminal()
    closed.isatty = io.StringIO.isatty.__get__(closed)
    closed.close()
    written: list[str] = []
    unknown = types.SimpleNamespace(write=written.append, flush=lambda: None)  # it does not say what it is
    for stream in (closed, None, unknown):
        monkeypatch.setattr("sys.stderr", stream)
        with Progress(2, "work") as bar:
            clock[0] += 60.0
            bar.advance()
    assert written == []


def test_a_late_thread_draws_nothing_after_the_end(clock):
    screen = Terminal()
    with Progress(3, "work", stream=screen) as bar:
        clock[0] = 60.0
        bar.advance()
    wiped = screen.getvalue()
    clock[0] = 120.0
    bar.advance()
    assert screen.getvalue() == wiped


@pytest.fixture
def notebook(monkeypatch):
    """Make this look like the kernel of a notebook; return its shell and what is displayed, update by update."""
    shown: list = []

    class Handle:
        def update(self, data, raw):
            assert raw
            shown.append(data)

    def display(data, raw, display_id):
        assert raw
        assert display_id
        assert not shown  # one output per bar
        shown.append(data)
        return Handle()

    shell = types.SimpleNamespace(kernel=object())
    ipython, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython, module.display = lambda: shell, display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return shell, shown


def test_a_notebook_shows_one_output_and_empties_it(clock, notebook, monkeypatch):
    _, shown = notebook
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with Progress(4, "a < b") as bar:
        bar.advance()
        assert shown == []  # for the first two seconds
        clock[0] = 60.0
        bar.advance()
        clock[0] = 90.0
        bar.advance()
    first, second, last = shown
    assert first["text/plain"] == "a < b [############------------] 2/4, 1:00 left"
    assert second["text/plain"].endswith("3/4, 0:30 left")
    assert "a &lt; b" in second["text/html"]
    assert '<progress max="4" value="3"' in second["text/html"]
    assert last == {"text/plain": "", "text/html": ""}
    assert sys.stderr.getvalue() == ""


def test_the_drawing_of_a_thread_belongs_to_the_cell_that_began_the_work(clock, notebook, monkeypatch):
    cell = contextvars.ContextVar("cell", default="unknown")
    cells = []
    monkeypatch.setattr(sys.modules["IPython.display"], "display", lambda *args, **kwargs: cells.append(cell.get()))
    monkeypatch.setattr("sys.stderr", io.StringIO())
    cell.set("first")
    with Progress(4, "work") as bar:
        cell.set("second")
        clock[0] = 60.0
        _in_threads(1, bar.advance)
    assert cells == ["first"]


@pytest.mark.parametrize("why", ["unwanted", "short", "no kernel", "no shell", "a stream of its own"])
def test_a_notebook_keeps_quiet(clock, notebook, why, monkeypatch):
    shell, shown = notebook
    monkeypatch.setattr("sys.stderr", io.StringIO())
    if why == "no kernel":  # IPython on a terminal
        del shell.kernel
    if why == "no shell":  # a program that has imported IPython
        sys.modules["IPython"].get_ipython = lambda: None
    stream = io.StringIO() if why == "a stream of its own" else None
    with Progress(2, "work", verbose=int(why != "unwanted"), stream=stream) as bar:
        clock[0] = 1.0 if why == "short" else 60.0
        bar.advance()
    assert shown == []


def test_looking_for_a_notebook_imports_nothing(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    Progress(2, "work")
    assert "IPython" not in sys.modules


_CELL = """
import threading
from dropmargin import progress
progress._DELAY = progress._REDRAW_SECONDS = 0.0
with progress.Progress(6, "work") as bar:
    for _ in range(2):
        thread = threading.Thread(target=lambda: [bar.advance() for _ in range(3)])
        thread.start()
        thread.join()
"""


def test_a_real_kernel_shows_the_steps_of_threads_below_their_cell():
    pytest.importorskip("ipykernel", reason="a real kernel needs ipykernel (pip install ipykernel)")
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    outputs = []
    try:
        reply = client.execute_interactive(_CELL, timeout=120, output_hook=outputs.append)
        cell = reply["parent_header"]["msg_id"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert reply["content"]["status"] == "ok"
    drawn = [message for message in outputs if "display_data" in message["msg_type"]]
    assert [message["msg_type"] for message in drawn] == ["display_data"] + 6 * ["update_display_data"]
    assert {message["parent_header"]["msg_id"] for message in drawn} == {cell}
    assert len({message["content"]["transient"]["display_id"] for message in drawn}) == 1
    texts = [message["content"]["data"]["text/plain"] for message in drawn]
    assert texts[0].startswith("work [####--------------------] 1/6, ")
    assert texts[-1] == ""
