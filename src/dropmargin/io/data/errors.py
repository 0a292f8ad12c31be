"""The errors of the data file readers."""

from __future__ import annotations

from typing import Any

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

    def __reduce__(self) -> Any:
        return type(self), (self.what, self.name, self.line, self.column)


class AbsentColumnError(DataFormatError):
    """A file does not have the column that an option names.

    Parameters
    ----------
    column, option : str
        The column, and the name of the option.
    more : str
        Which columns there are.
    name : str
        The file.
    line : int, optional
        The line of the header.
    """

    def __init__(self, column: str, option: str, more: str, name: str, line: int | None = None) -> None:
        self.missing_column, self.option, self.more = column, option, more
        super().__init__(f"there is no column {quoted(column)} (--{option}); {more}", name, line)

    def __reduce__(self) -> Any:
        return type(self), (self.missing_column, self.option, self.more, self.name, self.line)


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
