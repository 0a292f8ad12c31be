"""A bar for work that takes more than a moment, on the terminal or in a notebook, with the time that is left."""

from __future__ import annotations

import contextvars
import html
import shutil
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Protocol, TextIO

# Nothing is shown for work that is done in this many seconds.
_PATIENCE = 2.0
_BETWEEN_DRAWINGS = 0.2
_WIDTH = 24
_NARROWEST = 6


class Progress:
    """Count steps and show ``label [####----] 12/50, 0:34 left``, which is wiped at the end.

    Plain text on stderr if that is a terminal, a bar below the cell in a notebook. Silent elsewhere, if ``verbose`` is
    0, and for the first two seconds. Steps may be counted from several threads at once. A bar that cannot be drawn
    (the terminal was closed, say) is given up; it never stops the work.

    Parameters
    ----------
    total : int
        Number of steps.
    label : str
        What is going on.
    verbose : int, default=1
        0 for silence.
    stream : text stream, default=None
        Where to draw, if it is a terminal; ``None`` for stderr or the notebook.

    Examples
    --------
    >>> with Progress(3, "counting") as progress:
    ...     for _ in range(3):
    ...         progress.advance()
    """

    def __init__(self, total: int, label: str, *, verbose: int = 1, stream: TextIO | None = None) -> None:
        self._total = total
        self._label = label
        self._screen = _find_screen(stream) if verbose else None
        self._done = 0
        self._started = self._drawn = time.monotonic()
        self._lock = threading.Lock()
        # A notebook knows by the context of the caller to which cell an output belongs; other threads do not have it.
        self._context = contextvars.copy_context()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            if self._screen is not None:
                self._draw(self._screen.wipe)
            self._screen = None  # a thread that is late draws nothing any more

    def advance(self, steps: int = 1) -> None:
        """Count ``steps`` more steps as done."""
        with self._lock:
            self._done += steps
            now = time.monotonic()
            due = now - self._started >= _PATIENCE and now - self._drawn >= _BETWEEN_DRAWINGS
            if due and self._screen is not None:
                self._drawn = now
                left = self._time_left(now - self._started)
                self._draw(partial(self._screen.show, self._label, self._done, self._total, left))

    def _time_left(self, elapsed: float) -> str:
        """Return how long the rest takes if its steps are as slow as those that are done."""
        left = round(elapsed * max(0, self._total - self._done) / self._done) if self._done else 0
        minutes, seconds = divmod(left, 60)
        hours, minutes = divmod(minutes, 60)
        return (f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}") + " left"

    def _draw(self, action: Callable[[], None]) -> None:
        try:
            self._context.run(action)
        except Exception:  # whatever it is, the work is worth more than its bar
            self._screen = None


class _Screen(Protocol):
    """Where a bar is drawn."""

    def show(self, label: str, done: int, total: int, left: str) -> None: ...

    def wipe(self) -> None: ...


class _Terminal:
    """One line of a terminal, written again and again."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._length = 0

    def show(self, label: str, done: int, total: int, left: str) -> None:
        room = shutil.get_terminal_size().columns - 1  # a line that is broken in two cannot be overwritten
        line = _line(label, done, total, left, room)
        self._write("\r" + line.ljust(min(self._length, room)))
        self._length = len(line)

    def wipe(self) -> None:
        if self._length:
            self._write("\r" + " " * self._length + "\r")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class _Notebook:
    """An output below the cell, replaced again and again; plain text where HTML is not shown."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, label: str, done: int, total: int, left: str) -> None:
        bar = f'<progress max="{total}" value="{done}" style="vertical-align: middle"></progress>'
        self._publish(
            {
                "text/plain": _line(label, done, total, left),
                "text/html": f"<span>{html.escape(label)} {bar} {done}/{total}, {left}</span>",
            }
        )

    def wipe(self) -> None:
        if self._handle is not None:
            self._publish({"text/plain": "", "text/html": ""})

    def _publish(self, data: dict[str, str]) -> None:
        from IPython.display import display  # a notebook has imported it long ago

        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def _line(label: str, done: int, total: int, left: str, room: int | None = None) -> str:
    """Return the bar as text; the bar, then the label give way where there is no room."""
    counts = f"{done}/{total}, {left}"
    width = _WIDTH
    if room is not None:
        width = min(_WIDTH, max(_NARROWEST, room - len(label) - len(counts) - 4))
        label = label[: max(0, room - width - len(counts) - 4)]
    full = round(width * min(1.0, done / total)) if total else width
    line = f"{label} [{'#' * full}{'-' * (width - full)}] {counts}"
    return line if room is None else line[:room]


def _find_screen(stream: TextIO | None) -> _Screen | None:
    """Return where to draw: the terminal behind a stream, or the notebook; ``None`` if there is neither."""
    terminal = sys.stderr if stream is None else stream
    try:
        if terminal is not None and terminal.isatty():
            return _Terminal(terminal)
    except (AttributeError, ValueError):  # something else in its place, or a stream that was closed
        return None
    return _Notebook() if stream is None and _in_notebook() else None


def _in_notebook() -> bool:
    """Return whether this is the kernel of a notebook; IPython, which takes long to import, is not imported for it."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_shell is not None and getattr(get_shell(), "kernel", None) is not None
