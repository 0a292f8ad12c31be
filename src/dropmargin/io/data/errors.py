"""The one error of the readers."""

from __future__ import annotations

_LONGEST_QUOTE = 40


class DataFormatError(ValueError):
    """A data file is not what it should be; the message is one line, ``file:line:column: what (what to do)``.

    Parameters
    ----------
    what : str
    name : str
        The file.
    line, column : int, optional
        Where, both from 1; the column counts bytes.
    """

    def __init__(self, what: str, name: str, line: int | None = None, column: int | None = None) -> None:
        self.what, self.name, self.line, self.column = what, name, line, column
        where = [name] + [str(number) for number in (line, column) if number is not None]
        super().__init__(f"{':'.join(where)}: {what}")

    def __reduce__(self) -> tuple[type, tuple[str, str, int | None, int | None]]:
        return type(self), (self.what, self.name, self.line, self.column)


def quoted(token: bytes | str) -> str:
    """Return a token of a file for a message: in quotes, on one line, not longer than a glance."""
    longest = _LONGEST_QUOTE
    shown = token[:longest]
    text = shown.decode("utf-8", "backslashreplace") if isinstance(shown, bytes) else shown
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return f"'{text}...'" if len(token) > longest else f"'{text}'"


def one_line(error: BaseException) -> str:
    """Return another library's message, on one line and of bounded length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:200] + "..."
