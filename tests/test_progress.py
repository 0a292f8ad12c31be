"""The progress bar on terminals and in notebooks, and when there is none."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
import time
import types

import pytest
from sklearn.naive_bayes import GaussianNB

from datasets import make_multiclass
from dropmargin import deletion_curve
from dropmargin.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Return a list whose only element is the time of tqdm."""
    now = [0.0]
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    return now


def test_bar_shows_steps_and_remaining_time_and_is_erased(clock):
    stream = Terminal()
    with Progress(4, "work", stream=stream) as progress:
        clock[0] = 60.0
        progress.advance()
        assert "work:  25%|" in stream.getvalue()
        assert "1/4 [01:00<03:00" in stream.getvalue()
        clock[0] = 7200.0
        progress.advance(2)
        assert "3/4 [2:00:00<" in stream.getvalue()
    *_, last_line, after = stream.getvalue().split("\r")
    assert last_line.isspace()
    assert after == ""


@pytest.mark.parametrize(
    ("stream", "verbose", "seconds"), [(io.StringIO(), 1, 60.0), (Terminal(), 0, 60.0), (Terminal(), 1, 1.0)]
)
def test_no_bar_without_terminal_or_if_not_verbose_or_for_short_work(clock, stream, verbose, seconds):
    with Progress(2, "work", verbose=verbose, stream=stream) as progress:
        clock[0] = seconds
        progress.advance()
    assert stream.getvalue() == ""


@pytest.mark.parametrize("verbose", [0, 1])
def test_deletion_curve_shows_bars_on_stderr(clock, monkeypatch, verbose):
    X, y = make_multiclass()

    class Slow(GaussianNB):
        def predict_proba(self, X):
            clock[0] += 1.0
            return super().predict_proba(X)

        def predict(self, X):
            clock[0] += 1.0
            return super().predict(X)

    monkeypatch.setattr("sys.stderr", Terminal())
    model = Slow().fit(X, y)
    deletion_curve(model, X, y, levels=[0.5], strategy="worst", verbose=verbose)
    deletion_curve(model, X, y, levels=[0.5], verbose=verbose)
    text = sys.stderr.getvalue()
    assert [label in text for label in ("ranking columns: ", "deletion curve: ")] == [verbose == 1] * 2
    assert verbose or text == ""


def test_steps_of_several_threads_are_all_counted(clock):
    class Slow(int):
        """A step that other threads may overtake while it is added."""

        def __radd__(self, other):
            time.sleep(0.01)
            return int(other) + int(self)

    stream = Terminal()
    with Progress(9, "work", stream=stream) as progress:
        threads = [threading.Thread(target=progress.advance, args=(Slow(1),)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        clock[0] = 60.0
        progress.advance()
        assert "9/9 [" in stream.getvalue()


class Broken(Terminal):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def write(self, text):
        raise self.error


@pytest.mark.parametrize("error", [BrokenPipeError(), ValueError("I/O operation on closed file"), RuntimeError()])
def test_bar_on_broken_terminal_is_removed_and_does_not_block_the_next_one(clock, error):
    broken, stream = Broken(error), Terminal()
    progress = Progress(3, "work", stream=broken)

    def advance():
        with progress:
            for _ in range(3):
                clock[0] += 60.0
                progress.advance()
        finished.set()

    finished = threading.Event()
    thread = threading.Thread(target=advance)  # tqdm keeps its lock after an error in a thread
    thread.start()
    thread.join()
    assert finished.is_set()
    with Progress(3, "work", stream=stream) as following:
        clock[0] += 60.0
        following.advance()
    assert "1/3 [" in stream.getvalue()


def test_closed_or_missing_stderr_is_no_terminal(clock, monkeypatch):
    closed = io.StringIO()
    closed.close()
    written: list[str] = []
    without_isatty = types.SimpleNamespace(write=written.append, flush=lambda: None)
    for stream in (closed, None, without_isatty):
        monkeypatch.setattr("sys.stderr", stream)
        with Progress(2, "work") as progress:
            clock[0] += 60.0
            progress.advance()
    assert written == []


def test_advance_after_the_end_draws_nothing(clock):
    stream = Terminal()
    with Progress(3, "work", stream=stream) as progress:
        clock[0] = 60.0
        progress.advance()
    erased = stream.getvalue()
    clock[0] = 120.0
    progress.advance()
    assert stream.getvalue() == erased


@pytest.mark.parametrize("situation", ["notebook", "not verbose", "short", "no kernel", "no shell", "own stream"])
def test_notebook_needs_no_terminal(clock, monkeypatch, situation):
    shell = types.SimpleNamespace() if situation == "no kernel" else types.SimpleNamespace(kernel=object())
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: None if situation == "no shell" else shell
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    stream = io.StringIO() if situation == "own stream" else None
    with Progress(2, "work", verbose=int(situation != "not verbose"), stream=stream) as progress:
        clock[0] = 1.0 if situation == "short" else 60.0
        progress.advance()
    assert ("1/2 [" in sys.stderr.getvalue()) == (situation == "notebook")


def test_tqdm_is_not_imported_without_a_bar():
    code = "import sys; from dropmargin.progress import Progress; Progress(2, 'work'); print('tqdm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


_CELL = """
import threading
import tqdm.std
from dropmargin.progress import Progress
now = [0.0]
tqdm.std.time = lambda: now[0]
with Progress(7, "work") as progress:
    def work():
        for _ in range(3):
            now[0] += 60.0
            progress.advance()
    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
"""


def test_bar_of_threads_is_below_its_cell_in_a_real_kernel():
    pytest.importorskip("ipykernel", reason="a real kernel needs ipykernel (pip install ipykernel)")
    pytest.importorskip("ipywidgets", reason="a bar in a notebook needs ipywidgets (pip install ipywidgets)")
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
    (shown,) = [message for message in outputs if message["msg_type"] == "display_data"]
    assert shown["parent_header"]["msg_id"] == cell
    assert "1/7 [" in shown["content"]["data"]["text/plain"]
    assert [message for message in outputs if message["msg_type"] == "comm_close"]  # erased, though incomplete
    assert not [message for message in outputs if message["msg_type"] == "stream"]
