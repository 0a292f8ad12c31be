"""The progress bar on terminals and in notebooks, and when there is none."""

from __future__ import annotations

import io

import pytest

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
