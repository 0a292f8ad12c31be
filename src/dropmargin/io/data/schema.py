"""Which columns of a table are read, by their names; the same for every kind of table."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dropmargin.io.data.dataset import ReadOptions
from dropmargin.io.data.errors import DataFormatError, quoted

_MOST_LISTED = 20


@dataclass(frozen=True)
class Selection:
    """Positions of the columns to read: those of features, and those of labels and documents if asked for."""

    names: tuple[str, ...]
    features: tuple[int, ...]
    target: int | None
    text: int | None

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features' columns."""
        return tuple(self.names[i] for i in self.features)


def select_columns(names: Sequence[str], options: ReadOptions, file: str, line: int | None = None) -> Selection:
    """Return the columns that the options ask for; names that are twice there or not at all are an error."""
    positions: dict[str, int] = {}
    for i, name in enumerate(names):
        if not name:
            raise DataFormatError(f"column {i + 1} has no name (give it one, or leave it out)", file, line)
        if name in positions:
            raise DataFormatError(f"there are two columns of the name {quoted(name)}", file, line)
        positions[name] = i
    target = None if options.target is None else _find(options.target, "--target", positions, file, line)
    text = None if options.text is None else _find(options.text, "--text", positions, file, line)
    if target is not None and target == text:
        raise ValueError(f"target and text are the same column, {options.target!r}.")
    for option in ("categorical", "ignore"):
        for name in getattr(options, option):
            _find(name, f"--{option}", positions, file, line)
    left_out = {options.target, *options.ignore}
    features = [i for i, name in enumerate(names) if name not in left_out and text is None]
    if options.columns is not None:
        features = [i for i in features if names[i] in options.columns]
    if not features and text is None:
        what = "there are no columns besides those of --target and --ignore"
        if options.columns is not None:
            what = f"none of the columns {_listed(list(options.columns))} is there; the file has {_listed(names)}"
        raise DataFormatError(what, file, line)
    return Selection(tuple(names), tuple(features), target, text)


def _find(name: str, option: str, positions: Mapping[str, int], file: str, line: int | None) -> int:
    if name in positions:
        return positions[name]
    names = list(positions)
    close = difflib.get_close_matches(name, names, n=1)
    meant = f"did you mean {quoted(close[0])}? " if close else ""
    raise DataFormatError(
        f"there is no column {quoted(name)} ({option}); {meant}The columns are {_listed(names)}", file, line
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(quoted(name) for name in names[:_MOST_LISTED]) + more
