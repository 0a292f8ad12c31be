"""A progress bar with the remaining time, on the terminal or in a notebook."""

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

# The bar is shown after this many seconds.
_DELAY = 2.0
_REDRAW_SECONDS = 0.2
_WIDTH = 24
_MIN_WIDTH = 6


class Progress:
    """Count steps and show ``label [####----] 12/50, 0:34 left``, which is erased at the end.

    The bar is text on stderr if that is a terminal, and an output of the cell in a notebook. It is not shown elsewhere,
    if ``verbose`` is 0, or in the first two seconds. `advance` may be called from several threads. Errors while drawing
    (for example a closed terminal) disable the bar and are not raised.

    Parameters
    ----------
    total : int
        Number of steps.
    label : str
        The text before the bar.
    verbose : int, default=1
        0 for no bar.
    stream : text stream, default=None
        The stream of the bar, if it is a terminal; ``None`` for stderr or the notebook.

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
        # A notebook assigns outputs to cells by the context of the caller, which other threads do not have.
        self._context = contextvars.copy_context()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            if self._screen is not None:
                self._draw(self._screen.erase)
            self._screen = None  # later calls of `advance` draw nothing

    def advance(self, steps: int = 1) -> None:
        """Count ``steps`` more steps as done."""
        with self._lock:
            self._done += steps
            now = time.monotonic()
            due = now - self._started >= _DELAY and now - self._drawn >= _REDRAW_SECONDS
            if due and self._screen is not None:
                self._drawn = now
                left = self._time_left(now - self._started)
                self._draw(partial(self._screen.show, self._label, self._done, self._total, left))

    def _time_left(self, elapsed: float) -> str:
        """Return the remaining time, if the remaining steps take as long as those that are done."""
        left = round(elapsed * max(0, self._total - self._done) / self._done) if self._done else 0
        minutes, seconds = divmod(left, 60)
        hours, minutes = divmod(minutes, 60)
        return (f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}") + " left"

    def _draw(self, action: Callable[[], None]) -> None:
        try:
            self._context.run(action)
        except Exception:  # an error of the bar must not stop the work
            self._screen = None


class _Screen(Protocol):
    """The output of a bar."""

    def show(self, label: str, done: int, total: int, left: str) -> None: ...

    def erase(self) -> None: ...


class _Terminal:
    """One line of a terminal, which is overwritten."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._length = 0

    def show(self, label: str, done: int, total: int, left: str) -> None:
        room = shutil.get_terminal_size().columns - 1  # a wrapped line cannot be overwritten
        line = _line(label, done, total, left, room)
        self._write("\r" + line.ljust(min(self._length, room)))
        self._length = len(line)

    def erase(self) -> None:
        if self._length:
            self._write("\r" + " " * self._length + "\r")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class _Notebook:
    """An output of the cell, which is replaced; plain text where HTML is not supported."""

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

    def erase(self) -> None:
        if self._handle is not None:
            self._publish({"text/plain": "", "text/html": ""})

    def _publish(self, data: dict[str, str]) -> None:
        from IPython.display import display  # already imported in a notebook

        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def _line(label: str, done: int, total: int, left: str, room: int | None = None) -> str:
    """Return the bar as text; in a narrow terminal the bar, then the label is shortened."""
    counts = f"{done}/{total}, {left}"
    width = _WIDTH
    if room is not None:
        width = min(_WIDTH, max(_MIN_WIDTH, room - len(label) - len(counts) - 4))
        label = label[: max(0, room - width - len(counts) - 4)]
    full = round(width * min(1.0, done / total)) if total else width
    line = f"{label} [{'#' * full}{'-' * (width - full)}] {counts}"
    return line if room is None else line[:room]


def _find_screen(stream: TextIO | None) -> _Screen | None:
    """Return the terminal of a stream, or the notebook; ``None`` if there is neither."""
    terminal = sys.stderr if stream is None else stream
    try:
        if terminal is not None and terminal.isatty():
            return _Terminal(terminal)
    except (AttributeError, ValueError):  # not a stream, or closed
        return None
    return _Notebook() if stream is None and _in_notebook() else None


def _in_notebook() -> bool:
    """Return whether this is the kernel of a notebook, without importing IPython, which is slow."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_shell is not None and getattr(get_shell(), "kernel", None) is not None
