"""Combinations of test parameters, dealt out instead of multiplied out."""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator


def deal(*factors: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return all pairs of values of the first two factors, each with values of the others dealt out evenly.

    A dictionary stands for its keys. Every value of every factor occurs.
    """
    values = [list(factor) for factor in factors]
    return _complete([list(pair) for pair in product(*map(range, map(len, values[:2])))], values)


def round_robin(*factors: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return as many combinations as the longest factor has values; every value of every factor occurs.

    A dictionary stands for its keys.
    """
    values = [list(factor) for factor in factors]
    return _complete([[i % len(values[0])] for i in range(max(map(len, values)))], values)


def _complete(rows: list[list[int]], values: list[list[Any]]) -> list[tuple[Any, ...]]:
    """Give every row a value of each factor that it lacks: the one that met the values of the row least often."""
    n_given = len(rows[0])
    rows = rows * -(-max(map(len, values)) // len(rows))
    met: Counter[tuple[int, int, int, int]] = Counter()
    used: Counter[tuple[int, int]] = Counter()
    out = []
    for given in rows:
        row = list(given)
        for factor in range(n_given, len(values)):

            def cost(value: int, factor: int = factor, row: list[int] = row) -> tuple[int, int, int]:
                together = sum(met[other, at, factor, value] for other, at in enumerate(row))
                return used[factor, value], together, value

            chosen = min(range(len(values[factor])), key=cost)
            for other, at in enumerate(row):
                met[other, at, factor, chosen] += 1
            used[factor, chosen] += 1
            row.append(chosen)
        out.append(tuple(factor[at] for factor, at in zip(values, row, strict=True)))
    return out


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
    full: list[Any], others: list[Any], *, stride: int, failing: Any = None, keep_slow: bool = False
) -> pytest.MarkDecorator:
    """Return a mark with all of scikit-learn's checks of some estimators, and a share of the checks of others.

    Each of the others meets one check in ``stride``, the next one the checks after those; with ``keep_slow`` the rest
    of their checks is marked as slow. ``failing(estimator)`` has the checks that must fail, with the reasons.
    """
    cases = []
    for number, estimator in enumerate([*full, *others]):
        expected = failing(estimator) if failing else {}
        checks = estimator_checks_generator(estimator, mark="xfail", expected_failed_checks=expected)
        for index, case in enumerate(checks):
            if number < len(full) or (index - number) % stride == 0:
                cases.append(case)
            elif keep_slow:
                cases.append(pytest.param(*case, marks=pytest.mark.slow))
    return pytest.mark.parametrize(("estimator", "check"), cases, ids=_id)


def _id(value: Any) -> str:
    """Return the name of a check without its arguments, or an estimator as it is printed."""
    function = getattr(value, "func", None)
    return str(value) if function is None else function.__name__
