"""Combinations of test parameters, chosen evenly instead of multiplied out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator


def deal(*factors: Iterable[Any], n: int | None = None) -> list[tuple[Any, ...]]:
    """Return ``n`` combinations of the factors' values, which cover the values and their pairs as evenly as possible.

    By default there are as many as the longest factor has values, so that every value occurs. A dictionary stands for
    its keys. The list is always the same.
    """
    values = [list(factor) for factor in factors]
    longest = max(map(len, values))
    n = longest if n is None else n
    if n < longest:
        raise ValueError(f"n={n} combinations cannot cover a factor of {longest} values.")
    used: Counter[tuple[int, int]] = Counter()
    met: Counter[tuple[int, int, int, int]] = Counter()
    cases = []
    for _ in range(n):
        case: list[int] = []
        for factor, own in enumerate(values):

            def cost(value: int, factor: int = factor, case: list[int] = case) -> tuple[int, int, int]:
                together = sum(met[other, at, factor, value] for other, at in enumerate(case))
                return together, used[factor, value], value

            case.append(min(range(len(own)), key=cost))
            used[factor, case[factor]] += 1
            met.update((other, at, factor, case[factor]) for other, at in enumerate(case[:factor]))
        cases.append(tuple(own[at] for own, at in zip(values, case, strict=True)))
    return cases


def deal_checks(full: list[Any], others: list[Any], *, stride: int, failing: Any = None) -> pytest.MarkDecorator:
    """Return a mark with all of scikit-learn's checks of some estimators, and a share of the checks of others.

    Each of the others meets one check in ``stride``, the next one the checks after those. ``failing(estimator)`` has
    the checks that must fail, with the reasons.
    """
    cases = []
    for number, estimator in enumerate([*full, *others]):
        expected = failing(estimator) if failing else {}
        checks = estimator_checks_generator(estimator, mark="xfail", expected_failed_checks=expected)
        cases += [case for index, case in enumerate(checks) if number < len(full) or (index - number) % stride == 0]
    return pytest.mark.parametrize(("estimator", "check"), cases, ids=_id)


def _id(value: Any) -> str:
    """Return the name of a check without its arguments, or an estimator as it is printed."""
    function = getattr(value, "func", None)
    return str(value) if function is None else function.__name__
