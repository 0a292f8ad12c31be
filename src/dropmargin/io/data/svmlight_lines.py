"""One line of an svmlight file, and the errors of malformed lines.

::

    line  = [label [qid] {index:value}] [# comment]
    label = number, up to 2^53 in size                qid = "qid:" digits, which are ignored
    index = digits                                    value = number or "nan", which stands for a missing value

Numbers are decimal, such as ``-1.5e3``, and separated by spaces or tabs. Indices may have any order, but must not
occur twice. The compiled parser accepts exactly the same lines.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from dropmargin.io.data.dataset import ReadOptions
from dropmargin.io.data.errors import quoted

_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DIGITS = re.compile(rb"[0-9]+")
_TOKEN = re.compile(rb"[^ \t]+")
_LARGEST_LABEL = 2.0**53
LARGEST_INTEGER = 2**63 - 1


class LineError(Exception):
    """A malformed line: what is wrong, and the column if it is not the whole line."""

    def __init__(self, what: str, column: int | None = None) -> None:
        super().__init__(what)
        self.what, self.column = what, column


@dataclass(frozen=True)
class IndexRange:
    """The feature indices that a file may have."""

    lowest: int
    highest: int
    beyond: str

    @classmethod
    def from_options(cls, options: ReadOptions) -> IndexRange:
        """Return the range; it includes 0 if ``zero_based`` is not given."""
        first = 0 if options.zero_based else 1
        lowest = 1 if options.zero_based is False else 0
        if options.n_features is not None and not options.ignore_extra:
            beyond = f"but there are {options.n_features} features (--ignore-extra leaves the others out)"
            return cls(lowest, options.n_features - 1 + first, beyond)
        if options.ignore_extra:
            return cls(lowest, LARGEST_INTEGER, "which is 2^63 or more")
        beyond = f"but at most {options.max_features} features are allowed (raise --max-features if that is intended)"
        return cls(lowest, options.max_features - 1 + first, beyond)

    def error(self, index: int) -> str:
        """Return the message for an index outside of the range."""
        if index < self.lowest:
            return f"feature index {index}, but indices start at {self.lowest} (use --zero-based)"
        return f"feature index {index if index < 2**64 else 'of more than 64 bits'}, {self.beyond}"


def parse_line(line: bytes, indices: IndexRange) -> tuple[float, list[tuple[int, float]]] | None:
    """Return the label and the sorted entries of a line without its newline, or None if the line is empty."""
    body = line.rstrip(b"\r").split(b"#", 1)[0]
    tokens = [(match.group(), match.start() + 1) for match in _TOKEN.finditer(body)]
    if not tokens:
        return None
    label = _parse_label(*tokens[0])
    if len(tokens) > 1 and tokens[1][0].startswith(b"q"):
        _check_qid(*tokens.pop(1))
    entries = [_parse_entry(token, column, indices) for token, column in tokens[1:]]
    entries.sort(key=lambda entry: entry[0])
    for (index, _), (following, _) in itertools.pairwise(entries):
        if index == following:
            raise LineError(f"feature index {index} occurs twice")
    return label, entries


def _parse_label(token: bytes, column: int) -> float:
    if not _NUMBER.fullmatch(token):
        if b":" in token:
            raise LineError(f"the label is missing: the line begins with {quoted(token)}", column)
        if b"," in token:
            raise LineError(f"several labels, {quoted(token)}, but a row has one", column)
        raise LineError(f"the label {quoted(token)} is not a number", column)
    label = float(token)
    if not -_LARGEST_LABEL <= label <= _LARGEST_LABEL:
        raise LineError(f"the label {quoted(token)} is too large (labels are numbers up to 2^53)", column)
    return label


def _check_qid(token: bytes, column: int) -> None:
    if not token.startswith(b"qid:") or not _DIGITS.fullmatch(token[4:]):
        raise LineError(f"{quoted(token)} should be qid: and digits, or index:value", column)
    if _integer(token[4:]) > LARGEST_INTEGER:
        raise LineError(f"{quoted(token)} is 2^63 or more", column)


def _integer(digits: bytes) -> int:
    """Return the number, or 2^64 if it is larger: Python refuses to convert thousands of digits."""
    significant = digits.lstrip(b"0") or b"0"
    return int(significant) if len(significant) <= 19 else 2**64


def _parse_entry(token: bytes, column: int, indices: IndexRange) -> tuple[int, float]:
    index, colon, value = token.partition(b":")
    if not colon:
        raise LineError(f"expected index:value, got {quoted(token)}", column)
    if not _DIGITS.fullmatch(index):
        if index == b"qid":
            raise LineError("qid must follow the label", column)
        raise LineError(f"the feature index {quoted(index)} is not an integer of at least 0", column)
    number = _integer(index)
    if not indices.lowest <= number <= indices.highest:
        raise LineError(indices.error(number))
    return number, _parse_value(value, index, column)


def _parse_value(token: bytes, index: bytes, column: int) -> float:
    if token.lower() == b"nan":
        return float("nan")
    of = f"of feature {_integer(index)}"
    if not token:
        raise LineError(f"the value {of} is missing", column)
    if not _NUMBER.fullmatch(token):
        if token.lower().lstrip(b"+-") in (b"inf", b"infinity"):
            raise LineError(f"the value {of} is infinite", column)
        raise LineError(f"the value {quoted(token)} {of} is not a number", column)
    value = float(token)
    if value - value != 0.0:
        raise LineError(f"the value {quoted(token)} {of} is too large", column)
    return value
