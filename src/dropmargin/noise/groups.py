"""Groups of features that are dropped together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from numbers import Integral
from typing import Any

import numpy as np

from dropmargin.typing import Array

# Longest text of a parameter in the representation of a noise.
_MAX_TEXT = 80
_FORMS = (
    "groups must have one group per feature, as groups=[0, 0, 1], or map the name of each group to its features, "
    "as groups={'left': ['a', 'b'], 'right': 'r_*'}"
)


def group_features(groups: Any, n_features: int, feature_names: Sequence[str] | None = None) -> tuple[Array, list[Any]]:
    """Return the number of each feature's group, and the names of the groups in the order of their numbers.

    ``groups`` has the group of each feature, or maps groups to features: indices, names, or patterns such as
    ``"left_*"``. A feature in no group of a mapping is a group of its own, with ``None`` for a name. Groups of an array
    are sorted; those of a mapping have its order.
    """
    if not isinstance(groups, Mapping):
        given = np.asarray(groups)
        if given.ndim != 1 or given.dtype.kind not in "iuUSO":
            raise ValueError(f"{_FORMS}; got {groups!r}.")
        if len(given) != n_features:
            raise ValueError(f"groups has {len(given)} values, but X has {n_features} features. {_FORMS}.")
        names, numbers = np.unique(given.astype(str) if given.dtype.kind == "O" else given, return_inverse=True)
        return numbers, names.tolist()
    numbers = np.full(n_features, -1)
    for number, (name, members) in enumerate(groups.items()):
        listed = [members] if isinstance(members, (str, Integral)) else list(members)
        found = [index for member in listed for index in _find(member, name, n_features, feature_names)]
        if not found:
            raise ValueError(f"Group {name!r} of groups is empty: give it at least one feature.")
        for index in found:
            if numbers[index] >= 0:
                feature, other = index if feature_names is None else feature_names[index], list(groups)[numbers[index]]
                raise ValueError(f"Feature {feature!r} is in groups {other!r} and {name!r}: groups must not overlap.")
        numbers[found] = number
    alone = np.flatnonzero(numbers < 0)
    numbers[alone] = len(groups) + np.arange(len(alone))
    return numbers, [*groups, *[None] * len(alone)]


def _find(member: Any, group: Any, n_features: int, feature_names: Sequence[str] | None) -> list[int]:
    """Return the features that a member of a group stands for: an index, a name, or a pattern."""
    fault = "use names, patterns or indices of features"
    if isinstance(member, Integral) and not isinstance(member, bool):
        if -n_features <= int(member) < n_features:
            return [int(member) % n_features]
        fault = f"X has {n_features} features"
    elif isinstance(member, str) and feature_names is None:
        fault = "X has no feature names: pass a data frame, or use indices of features"
    elif isinstance(member, str) and feature_names is not None:
        names = list(map(str, feature_names))
        for is_meant in (str.__eq__, fnmatchcase):
            found = [index for index, name in enumerate(names) if is_meant(name, member)]
            if found:
                return found
        shown = f"{names[:10]!r}{' ...' if len(names) > 10 else ''}"
        fault = f"X has no feature of that name. Its features are {shown}"
    raise ValueError(f"Group {group!r} of groups has {member!r}: {fault}.")


def group_rates(rate: Any, numbers: Array, names: list[Any]) -> Any:
    """Return one rate per feature from a number, one rate per group, or a mapping of groups to rates.

    A mapping leaves the rate of groups that it does not name at 0.
    """
    if isinstance(rate, Mapping):
        unknown = [name for name in rate if name not in names]
        if unknown:
            raise ValueError(f"rate of DropoutNoise names the group {unknown[0]!r}, but the groups are {names[:10]!r}.")
        return np.array([rate.get(name, 0.0) for name in names], dtype=np.float64)[numbers]
    given = np.asarray(rate)
    if given.ndim == 0:
        return rate
    if given.shape == numbers.shape:
        of_group = np.zeros(len(names))
        of_group[numbers] = given
        if np.array_equal(of_group[numbers], given):
            return given
    if given.shape != (len(names),):
        raise ValueError(
            f"rate of DropoutNoise must be a number, one number per group or a mapping of groups to rates: "
            f"there are {len(names)} groups, rate has shape {given.shape}."
        )
    return given[numbers]


def short_text(name: str, value: Any) -> str:
    """Return the text of a parameter of a noise; in place of a long one, the number of groups or values."""
    text = repr(value)
    if len(text) <= _MAX_TEXT or not hasattr(value, "__len__"):
        return text
    if name == "groups":
        groups = value if isinstance(value, Mapping) else set(map(str, np.ravel(value).tolist()))
        return f"<{len(groups)} groups>"
    return f"<{len(value)} values>"
