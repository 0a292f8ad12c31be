"""The standard streams while a command runs: closed or full ones, and characters that their encoding lacks."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def prepared_streams() -> Iterator[None]:
    """Replace the standard streams, so that a closed or full one does not end in a traceback.

    A character that the encoding of standard output lacks is written as an escape sequence such as ``\\xfc``. An error
    of writing to standard output names it. Text that cannot be written to standard error is dropped.
    """
    _reserve_descriptors()
    stdout, stderr = sys.stdout, sys.stderr
    errors = getattr(stdout, "errors", None)
    sys.stdout, sys.stderr = _Output(stdout), _Messages(stderr)
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        if isinstance(stdout, io.TextIOWrapper):
            stdout.reconfigure(errors=errors)
        sys.stdout, sys.stderr = stdout, stderr


@contextmanager
def naming_standard_output() -> Iterator[None]:
    """Name standard output in an `OSError`; a reader that has closed a pipe remains a `BrokenPipeError`."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, f"cannot write: {error.strerror}", "standard output") from error


def discard_unwritten(stream: Any) -> None:
    """Flush a stream; if that fails, redirect it to the null device, so that Python does not try again at exit."""
    try:
        stream.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


class _Stream:
    """A standard stream that may have been closed before the start (None)."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Output(_Stream):
    """Standard output; an error of writing names it."""

    def write(self, text: str) -> int:
        with naming_standard_output():
            if self._stream is None:
                raise OSError(errno.EBADF, "it is closed")
            return self._stream.write(text)

    def flush(self) -> None:
        with naming_standard_output():
            if self._stream is not None:
                self._stream.flush()


class _Messages(_Stream):
    """Standard error without errors: a message that cannot be written must not stop the work."""

    def write(self, text: str) -> int:
        try:
            return len(text) if self._stream is None else self._stream.write(text)
        except OSError:
            discard_unwritten(self._stream)
            return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            discard_unwritten(self._stream)


def _reserve_descriptors() -> None:
    """Open the null device in place of closed standard streams, so that no file gets their descriptors."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this one
