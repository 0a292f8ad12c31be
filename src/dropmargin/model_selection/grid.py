"""The grid of noises and values of ``C``: defaults from the data, checks, and the order of the path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np

from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.fitting import problem_of
from dropmargin.estimators.rows import TrainingRows
from dropmargin.estimators.validation import check_number
from dropmargin.noise import Noise, Variance, as_noise
from dropmargin.typing import Array

#: The highest dropout rate of the default grid.
HIGHEST_RATE = 0.9
# The default values of C are powers of sqrt(10) between these factors of 1 / (mean squared norm of a row).
_FIRST_FACTOR, _LAST_FACTOR = 0.1, 1e5

# With pruning, this share of a chain of noises is solved if the chain has at least _MIN_CHAIN noises; the others are
# interpolated by polynomials through _ORDER knots. Some values of C may be interpolated if there are as many.
_KNOTS = 0.4
_MIN_CHAIN = 6
_ORDER = 4

Point = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Grid:
    """All pairs of a noise and a value of ``C``; a point is the pair of their indices.

    Parameters
    ----------
    noises : tuple of Noise or None
    Cs : ndarray of shape (n_Cs,)
        In ascending order.
    """

    noises: tuple[Noise | None, ...]
    Cs: Array

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.noises), len(self.Cs)

    @cached_property
    def chains(self) -> list[list[int]]:
        """The noises that differ in their level alone, in descending order of strength; no noise is a separate chain.

        (The hinge without noise has another solver, for which solutions with noise are no good start.)
        """
        kinds: dict[Any, list[int]] = {}
        for index, noise in enumerate(self.noises):
            kinds.setdefault(_kind(noise), []).append(index)
        return [sorted(members, key=lambda index: -_strength(self.noises[index])) for members in kinds.values()]

    def walk(self, skips: bool) -> Sequence[int]:
        """Return the values of ``C`` in the order of their solution.

        If ``skips``, every fourth one comes first, then those halfway between, then the others. Short lists are in
        order.
        """
        order = range(len(self.Cs))
        return [*order[::4], *order[2::4], *order[1::2]] if skips and len(order) >= _MIN_CHAIN else order

    def knots(self, chain: list[int]) -> list[int]:
        """Return the noises of a chain that are solved; the others are interpolated. Short chains are all solved."""
        own = [_strengths(self.noises[index]) for index in chain]
        # A noise is the stronger one in every feature if it has one parameter for all.
        if len(chain) < _MIN_CHAIN or any(map(np.ndim, own)) or len(set(map(float, own))) < len(chain):
            return chain
        count = max(_ORDER, int(np.ceil(_KNOTS * len(chain))))
        return [chain[place] for place in np.round(np.linspace(0, len(chain) - 1, count)).astype(int)]

    def interpolation(self, noise: int, knots: list[int]) -> dict[int, float]:
        """Return the coefficients of the nearest knots in the polynomial interpolation over the log of the strength."""
        here, *places = np.log([_strength(self.noises[index]) for index in (noise, *knots)])
        first = min(max(0, int(np.sum(places > here)) - _ORDER // 2), len(knots) - _ORDER)
        near = range(first, first + _ORDER)
        return {
            knots[k]: float(np.prod([(here - places[m]) / (places[k] - places[m]) for m in near if m != k]))
            for k in near
        }


def noise_level(noise: Noise | None) -> float:
    """Return the mean of the parameter of a noise, to compare noises of the same type; 1 if it has no parameter."""
    if noise is None:
        return 0.0
    level = noise.level
    return float(np.mean(list(level.values()) if isinstance(level, Mapping) else level))


def _strength(noise: Noise | None) -> float:
    """Return the variance of a feature of value one, averaged over the features."""
    return float(np.mean(_strengths(noise)))


def _strengths(noise: Noise | None) -> Any:
    """Return the variance of a feature of value one: a number, or one per feature."""
    variance = Variance() if noise is None else noise.variance()
    return variance.strength


def check_grid(noises: Any, Cs: Any, rows: TrainingRows, factor: float = 1.0) -> Grid:
    """Return the grid of the parameters ``noises`` and ``Cs``.

    Parameters
    ----------
    noises : int or iterable
        Noises, dropout rates or ``None``. An integer is the number of dropout rates, from 0 to 0.9.
    Cs : int or iterable
        Positive numbers. An integer is the number of values, see `default_cs`.
    rows : TrainingRows
    factor : float, default=1.0
        The factor of the default values of ``C``.
    """
    return Grid(_check_noises(noises, rows), _check_cs(Cs, lambda: rows.mean_square() / factor))


def check_noise(name: str, given: Any, rows: TrainingRows) -> Noise | None:
    """Return the noise of a parameter after checking it against the rows; errors begin with the name."""
    try:
        noise = as_noise(given)
        if noise is not None:
            rows.check_range(noise.resolve(rows.n_features, rows.feature_names))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return noise


def check_problems(model: MarginalisedModel, rows: TrainingRows, grid: Grid) -> None:
    """Check each noise of the grid against the other parameters of an estimator, and against missing entries."""
    for noise in grid.noises:
        rows.problem(problem_of(copy(model).set_params(noise=noise)))


def _check_noises(noises: Any, rows: TrainingRows) -> tuple[Noise | None, ...]:
    given = _as_list("noises", noises, "[0.1, 0.5, GaussianNoise(scale=0.1)]")
    if isinstance(given, int):
        return tuple(as_noise(float(rate)) for rate in np.round(np.linspace(0.0, HIGHEST_RATE, given), 6))
    checked = [check_noise(f"noises[{index}]", noise, rows) for index, noise in enumerate(given)]
    _refuse_duplicates("noises", [_signature(noise) for noise in checked], [repr(noise) for noise in checked])
    return tuple(checked)


def _check_cs(Cs: Any, scale: Callable[[], float]) -> Array:
    given = _as_list("Cs", Cs, "[0.01, 0.1, 1]")
    if isinstance(given, int):
        return default_cs(scale(), given)
    values = [check_number(f"Cs[{index}]", C, 0.0, low_open=True) for index, C in enumerate(given)]
    _refuse_duplicates("Cs", values, [f"{C:g}" for C in values])
    return np.sort(np.asarray(values))


def default_cs(scale: float, count: int) -> Array:
    """Return values of ``C`` for the mean squared norm of a row: powers of ``sqrt(10)``, if these are as many.

    If ``C`` times that (of centred rows, if ``X`` is dense) is far below 1, the coefficients are nearly zero. Noise is
    a penalty in addition to ``R(w)``, so the best ``C`` with noise is higher than without.
    """
    middle = 1.0 / scale if scale > 0.0 else 1.0
    exponents = np.linspace(np.log10(_FIRST_FACTOR * middle), np.log10(_LAST_FACTOR * middle), count)
    rounded = np.round(2.0 * exponents) / 2.0
    return 10.0 ** (rounded if len(np.unique(rounded)) == count else exponents)


def _as_list(name: str, values: Any, example: str) -> list[Any] | int:
    """Return the values of a parameter, or their number if it is a number."""
    if isinstance(values, Integral) and not isinstance(values, bool):
        if values < 1:
            raise ValueError(f"{name} must be a list of values or the number of values, at least 1, got {values!r}.")
        return int(values)
    if isinstance(values, str) or not hasattr(values, "__iter__") or getattr(values, "ndim", 1) == 0:
        raise ValueError(
            f"{name} must be a list of values, such as {example}, or the number of values, got {values!r}."
        )
    if not (listed := list(values)):
        raise ValueError(f"{name} is empty: pass at least one value, for example {example}.")
    return listed


def _signature(noise: Noise | None) -> Any:
    """Return a key that is equal for equal noises; noise of variance zero equals no noise."""
    if noise is None or noise.variance().is_zero:
        return None
    return _kind(noise), _simplified(noise.level)


def _kind(noise: Noise | None) -> Any:
    """Return a key that is equal for noises that differ in their level alone."""
    if noise is None or noise.variance().is_zero:
        return None
    others = {name: value for name, value in noise.get_params(deep=False).items() if name != noise.level_name}
    return type(noise), *(_simplified(value) for value in others.values())


def _simplified(value: Any) -> Any:
    """Return a parameter as a number if it is the same for all features, else as a tuple; a mapping as text."""
    if isinstance(value, Mapping):
        return repr(sorted(value.items(), key=repr))
    values = np.ravel(value).tolist()
    return values[0] if all(other == values[0] for other in values) else tuple(values)


def _refuse_duplicates(name: str, keys: list[Any], texts: list[str]) -> None:
    seen: dict[Any, str] = {}
    for key, text in zip(keys, texts, strict=True):
        if key in seen:
            raise ValueError(f"{name} has {seen[key]} and {text}, which are the same. Remove one of them.")
        seen[key] = text
