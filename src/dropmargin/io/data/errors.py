"""The error of the data file readers."""

from __future__ import annotations

_MAX_QUOTED = 40
_MAX_MESSAGE = 200


class DataFormatError(ValueError):
    """A data file is malformed. The message is one line, ``file:line:column: what is wrong (what to do)``.

    Parameters
    ----------
    what : str
        What is wrong, and what to do.
    name : str
        The file.
    line, column : int, optional
        The position, counted from 1; columns are counted in bytes.
    """

    def __init__(self, what: str, name: str, line: int | None = None, column: int | None = None) -> None:
        self.what, self.name, self.line, self.column = what, name, line, column
        where = [name] + [str(number) for number in (line, column) if number is not None]
        super().__init__(f"{':'.join(where)}: {what}")

    def __reduce__(self) -> tuple[type, tuple[str, str, int | None, int | None]]:
        return type(self), (self.what, self.name, self.line, self.column)


def quoted(token: bytes | str) -> str:
    """Return a part of a file in quotes for a message: printable, on one line, at most 40 characters."""
    shown = token[:_MAX_QUOTED]
    text = shown.decode("utf-8", "backslashreplace") if isinstance(shown, bytes) else shown
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return f"'{text}...'" if len(token) > _MAX_QUOTED else f"'{text}'"


def one_line(error: BaseException) -> str:
    """Return the message of another library's error on one line, at most 200 characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if len(text) <= _MAX_MESSAGE else text[:_MAX_MESSAGE] + "..."
