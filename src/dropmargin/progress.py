"""A progress bar on the terminal or in a notebook."""

from __future__ import annotations

import contextvars
import sys
import threading
from typing import Any, TextIO


class Progress:
    """A tqdm bar for work of more than two seconds, which is erased at the end.

    There is no bar if ``verbose`` is 0, or if stderr is not a terminal and the program does not run in a notebook.
    `advance` may be called from several threads. Errors of the bar, such as those of a closed terminal, remove the bar
    and are not raised.

    ``stream`` is the stream of the bar, if it is a terminal; ``None`` for stderr or the notebook.

    >>> with Progress(3, "counting") as progress:
    ...     for _ in range(3):
    ...         progress.advance()
    """

    def __init__(self, total: int, label: str, *, verbose: int = 1, stream: TextIO | None = None) -> None:
        self._lock = threading.Lock()  # tqdm does not lock its counter
        # A notebook assigns outputs to cells by the context of the caller, which other threads do not have.
        self._context = contextvars.copy_context()
        self._bar: Any = None
        if verbose and (_is_terminal(stream or sys.stderr) or (stream is None and _in_notebook())):
            self._bar = _create_bar(total=total, desc=label, file=stream)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._bar is not None:
                self._bar.total = None  # tqdm does not erase an incomplete bar in a notebook
                self._draw(self._bar.close)
            self._bar = None

    def advance(self, steps: int = 1) -> None:
        """Count ``steps`` more steps as done."""
        with self._lock:
            if self._bar is not None:
                self._draw(self._bar.update, steps)

    def _draw(self, method: Any, *args: int) -> None:
        try:
            self._context.run(method, *args)
        except Exception:  # an error of the bar must not stop the work
            self._bar.disable = True  # prevents another attempt when the bar is deleted
            self._bar = None


def _create_bar(**options: Any) -> Any:
    """Return a tqdm bar without the monitor thread of tqdm, and with a lock of its own.

    tqdm does not release its lock after an error or an interrupt while drawing, and other bars would wait for it.
    """
    from tqdm.auto import tqdm

    bar_class: Any = type("Bar", (tqdm,), {"monitor_interval": 0})
    bar_class.set_lock(threading.RLock())
    # Without miniters, tqdm guesses from the pace of the last steps how many steps to skip.
    return bar_class(delay=2, leave=False, miniters=1, dynamic_ncols=True, lock_args=(False,), **options)


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except (AttributeError, ValueError):  # not a stream, or closed
        return False


def _in_notebook() -> bool:
    """Return whether this is the kernel of a notebook, without importing IPython."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_shell is not None and getattr(get_shell(), "kernel", None) is not None
