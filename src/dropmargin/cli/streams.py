"""The standard streams while a command runs: closed ones, characters that a terminal lacks, readers that go away."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_OUTPUT = "standard output"


@contextmanager
def prepared_streams() -> Iterator[None]:
    """Let nothing that is wrong with a standard stream end in a traceback.

    A character that the encoding of standard output lacks is written as an escape sequence such as ``\\xfc``. Output to
    a closed standard output is an `OSError`; notes that cannot be written to standard error are dropped.
    """
    _reserve_descriptors()
    output, notes = sys.stdout, sys.stderr
    errors = getattr(output, "errors", None)
    sys.stdout = _Closed() if output is None else output
    sys.stderr = _Notes(notes)
    if isinstance(output, io.TextIOWrapper):
        output.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors=errors)
        sys.stdout, sys.stderr = output, notes


@contextmanager
def writing_output() -> Iterator[None]:
    """Name standard output in an error of writing to it; a reader that went away stays a `BrokenPipeError`."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, f"cannot write: {error.strerror}", _OUTPUT) from error


def abandon(stream: Any) -> None:
    """Send what a stream cannot write to the null device, so that the end of the process does not try again."""
    try:
        stream.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


class _Closed(io.TextIOBase):
    """Standard output that was closed before the start."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "it is closed")


class _Notes:
    """Standard error, but for its errors: work is not lost because a note about it cannot be written."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return len(text) if self._stream is None else self._stream.write(text)
        except OSError:
            abandon(self._stream)
            return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            abandon(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _reserve_descriptors() -> None:
    """Open the null device in place of closed standard streams, so that no file of ours takes their number."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
