"""The error of the data file readers."""

from __future__ import annotations

from typing import Any

_MAX_QUOTED, _MAX_MESSAGE = 40, 200


class DataFormatError(ValueError):
    """A data file is malformed. The message is one line, ``file:line: what is wrong (what to do)``.

    Parameters
    ----------
    what : str
        What is wrong, and what to do.
    name : str
        The file.
    line : int, optional
        The line, counted from 1, if it is known.
    """

    def __init__(self, what: str, name: str, line: int | None = None) -> None:
        self.what, self.name, self.line = what, name, line
        super().__init__(f"{name}{'' if line is None else f':{line}'}: {what}")

    def __reduce__(self) -> Any:
        return type(self), (self.what, self.name, self.line)


def quoted(token: bytes | str) -> str:
    """Return a part of a file in quotes for a message: printable, on one line, at most 40 characters."""
    shown = token[:_MAX_QUOTED]
    text = shown.decode("utf-8", "backslashreplace") if isinstance(shown, bytes) else shown
    return f"'{_printable(text)}{'...' if len(token) > _MAX_QUOTED else ''}'"


def one_line(error: BaseException) -> str:
    """Return the message of another library's error on one line, at most 200 characters."""
    text = _printable(" ".join(str(error).split()) or type(error).__name__)
    return text if len(text) <= _MAX_MESSAGE else text[:_MAX_MESSAGE] + "..."


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
