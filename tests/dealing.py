"""Combinations of test parameters, chosen evenly instead of multiplied out."""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator


def deal(*factors: Iterable[Any], n: int | None = None) -> list[tuple[Any, ...]]:
    """Return ``n`` combinations of the factors' values, which cover the values and their pairs as evenly as possible.

    By default every pair of values of the first two factors occurs, and each value of every other factor. If ``n`` is
    less, every value occurs as long as ``n`` is not less than the longest factor. A dictionary stands for its keys. The
    list is always the same.
    """
    values = [list(factor) for factor in factors]
    longest = max(map(len, values))
    n = max(longest, len(values[0]) * len(values[1])) if n is None else n
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


def round_robin(*factors: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return as many combinations as the longest factor has values; every value of every factor occurs."""
    values = [list(factor) for factor in factors]
    return deal(*values, n=max(map(len, values)))


def together(
    names: str | tuple[str, ...], cases: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that runs many small cases in one test, and reports each that fails.

    It takes what ``pytest.mark.parametrize`` takes. The fixtures of the test are made once, for all cases.
    """
    names = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)
    cases = [tuple(case) if len(names) > 1 else (case,) for case in cases]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run_all(**fixtures: Any) -> None:
            failures = []
            for case in cases:
                try:
                    test(**dict(zip(names, case, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    failures.append(f"{case}: {type(error).__name__}: {error}")
            assert not failures, f"{len(failures)} of {len(cases)} cases fail:\n" + "\n\n".join(failures)

        wanted = inspect.signature(test).parameters.items()
        run_all.__signature__ = inspect.Signature([value for name, value in wanted if name not in names])  # type: ignore[attr-defined]
        return run_all

    return decorate


def deal_checks(
    full: list[Any],
    others: list[Any],
    *,
    stride: int,
    failing: Any = None,
    keep_slow: bool = False,
    slow: tuple[str, ...] = (),
) -> pytest.MarkDecorator:
    """Return a mark with all of scikit-learn's checks of some estimators, and a share of the checks of others.

    Each of the others meets one check in ``stride``, the next one the checks after those; with ``keep_slow`` the rest
    of their checks is marked as slow, and so are the checks named in ``slow``. ``failing(estimator)`` has the checks
    that must fail, with the reasons.
    """
    cases = []
    for number, estimator in enumerate([*full, *others]):
        expected = failing(estimator) if failing else {}
        checks = estimator_checks_generator(estimator, mark="xfail", expected_failed_checks=expected)
        for index, case in enumerate(checks):
            is_chosen = number < len(full) or (index - number) % stride == 0
            if is_chosen and _id(getattr(case, "values", case)[1]) not in slow:
                cases.append(case)
            elif is_chosen or keep_slow:
                cases.append(pytest.param(*case, marks=pytest.mark.slow))
    return pytest.mark.parametrize(("estimator", "check"), cases, ids=_id)


def _id(value: Any) -> str:
    """Return the name of a check without its arguments, or an estimator as it is printed."""
    function = getattr(value, "func", None)
    return str(value) if function is None else function.__name__
