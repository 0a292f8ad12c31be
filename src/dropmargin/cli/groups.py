"""Groups of features that are lost together: the columns of a table, ``--groups`` and ``--group-by``."""

from __future__ import annotations

import csv
import re
from collections.abc import Hashable, Sequence
from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from dropmargin.cli.console import UsageError, closest
from dropmargin.cli.files import read_text
from dropmargin.noise import DropoutNoise, as_noise
from dropmargin.typing import Array

if TYPE_CHECKING:
    from dropmargin.cli.training import TrainingData

_RANGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


def feature_groups(data: TrainingData, options: SimpleNamespace) -> Array | None:
    """Return the number of each feature's group, or None if every feature is a group of its own.

    By default the features of one column of a table are a group: a lost cell is the loss of all of them.
    """
    given = "--groups" if options.groups is not None else "--group-by" if options.group_by is not None else None
    if options.groups is not None and options.group_by is not None:
        raise UsageError("--groups and --group-by cannot be combined: one of them makes the groups")
    if given is None and data.encoder is None:  # without a text for each feature: there may be millions
        return None
    columns = _feature_columns(data)
    if columns is None:
        if given is not None:
            raise UsageError(f"{given} is for the columns of tables and matrices; words of text are lost one by one")
        return None
    names = list(dict.fromkeys(columns))
    keys: dict[str, Hashable] = {}
    if options.groups is not None:
        others = [*getattr(data.encoder, "left_out_", ()), *options.ignore]  # columns of the file that are no features
        keys = _read_groups(options.groups, names, others)
    elif options.group_by is not None:
        keys = _by_prefix(names, options.group_by)
    codes = {key: i for i, key in enumerate(dict.fromkeys(keys.get(name, (name,)) for name in names))}
    if len(codes) == len(columns):
        return None
    return np.array([codes[keys.get(name, (name,))] for name in columns], dtype=np.int64)


def with_groups(noise: Any, groups: Array | None) -> Any:
    """Return dropout by group; other noises are those of single features."""
    noise = as_noise(noise)
    return DropoutNoise(noise.rate, groups=groups) if groups is not None and isinstance(noise, DropoutNoise) else noise


def check_dropout(options: SimpleNamespace, kinds: Sequence[str | None]) -> None:
    """Refuse groups if no noise is dropout."""
    given = "--groups" if options.groups is not None else "--group-by" if options.group_by is not None else None
    if given is not None and "DropoutNoise" not in kinds:
        raise UsageError(f"{given} is for dropout: other noise corrupts each feature by itself")


def _feature_columns(data: TrainingData) -> list[str] | None:
    """Return the column that each feature comes from; features without a name have their number in the file."""
    if data.encoder is not None:
        columns = getattr(data.encoder, "feature_columns_", None)
        return None if columns is None else list(columns)
    if data.feature_names is not None:
        return [str(name) for name in data.feature_names]
    first = 0 if data.summary["zero_based"] is True or data.summary["format"] == "npz" else 1
    return [str(j + first) for j in range(data.X.shape[1])]


def _by_prefix(names: list[str], separator: str) -> dict[str, Hashable]:
    keys: dict[str, Hashable] = {name: name.partition(separator)[0] for name in names if separator in name}
    if len(set(keys.values())) == len(keys):
        what = f"no two columns share the part of their names before {separator!r}" if keys else "no column has it"
        shown = ", ".join(map(repr, names[:10])) + (" ..." if len(names) > 10 else "")
        raise UsageError(f"--group-by {separator}: {what}; the columns are {shown}")
    return keys


def _read_groups(path: str, names: list[str], others: list[str]) -> dict[str, Hashable]:
    """Return the group of each column that the file names: ``name: column, column, prefix_*`` in each line."""
    keys: dict[str, Hashable] = {}
    groups: set[str] = set()
    for number, line in enumerate(read_text("--groups", path).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where = f"--groups {path}:{number}"
        group, colon, listed = (part.strip() for part in line.partition(":"))
        if not colon or not group:
            raise UsageError(f"{where}: expected the name of a group, a colon and its columns, got {line[:60]!r}")
        if group in groups:
            raise UsageError(f"{where}: there are two groups named {group!r}")
        groups.add(group)
        members = [part.strip() for part in next(csv.reader([listed], skipinitialspace=True), [])]
        found = [name for member in filter(None, members) for name in _find(member, where, group, names, others)]
        if not found:
            what = "are all left out or ignored" if any(members) else "are missing"
            raise UsageError(f"{where}: the columns of group {group!r} {what}")
        for name in found:
            if keys.setdefault(name, group) != group:
                raise UsageError(f"{where}: column {name!r} is in group {keys[name]!r}, too; groups must not overlap")
    if not keys:
        raise UsageError(f"--groups {path}: there is no group in this file")
    return keys


def _find(member: str, where: str, group: str, names: list[str], others: list[str]) -> list[str]:
    """Return the columns that a name, a pattern or a range of numbers stands for."""
    if member in names:
        return [member]
    span = _RANGE.fullmatch(member)
    if span is not None and names[0].isdecimal():
        found = [name for name in names if int(span[1]) <= int(name) <= int(span[2])]
    else:
        found = [name for name in names if fnmatchcase(name, member)]
    if not found and not any(fnmatchcase(name, member) for name in others):
        hint = closest(member, names)
        raise UsageError(f"{where}: group {group!r} has {member!r}, but there is no column of that name{hint}")
    return found
