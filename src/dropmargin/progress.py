"""A bar on the terminal for work that takes more than a moment: plain text on stderr, with the time that is left."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

# Nothing is shown for work that is done in this many seconds.
_PATIENCE = 2.0
_BETWEEN_DRAWINGS = 0.2
_WIDTH = 24


class Progress:
    """Count steps and draw ``label [####----] 12/50, 0:34 left`` on one line, which is wiped at the end.

    Silent if the stream is not a terminal, if ``verbose`` is 0, and for the first two seconds.

    Parameters
    ----------
    total : int
        Number of steps.
    label : str
        What is going on.
    verbose : int, default=1
        0 for silence.
    stream : text stream, default=None
        Where to draw; ``None`` for stderr.

    Examples
    --------
    >>> with Progress(3, "counting") as progress:
    ...     for _ in range(3):
    ...         progress.advance()
    """

    def __init__(self, total: int, label: str, *, verbose: int = 1, stream: TextIO | None = None) -> None:
        self._total = total
        self._label = label
        self._stream = sys.stderr if stream is None else stream
        self._shown = bool(verbose) and self._stream is not None and self._stream.isatty()
        self._done = 0
        self._started = self._drawn = time.monotonic()
        self._length = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._length:
            self._write("\r" + " " * self._length + "\r")

    def advance(self, steps: int = 1) -> None:
        """Count ``steps`` more steps as done."""
        self._done += steps
        now = time.monotonic()
        if self._shown and now - self._started >= _PATIENCE and now - self._drawn >= _BETWEEN_DRAWINGS:
            self._drawn = now
            line = self._line(now - self._started)
            self._write("\r" + line.ljust(self._length))
            self._length = len(line)

    def _line(self, elapsed: float) -> str:
        share = min(1.0, self._done / self._total) if self._total else 1.0
        full = round(_WIDTH * share)
        left = round(elapsed * (1.0 - share) / share) if share else 0
        minutes, seconds = divmod(left, 60)
        hours, minutes = divmod(minutes, 60)
        clock = f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
        bar = "#" * full + "-" * (_WIDTH - full)
        return f"{self._label} [{bar}] {self._done}/{self._total}, {clock} left"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
