r"""What a loss needs of the noisy score of each row, as a differentiable function ``z(w)`` of the coefficients.

`Scores` answer four requests about a chunk of rows, and nothing else knows the noise. Coefficients have one column per
output, and the intercept in the last row::

    value(rows, w)               z, one array of shape (n_rows, n_outputs) per part
    jvp(rows, w, p)              the derivative of z along p
    gradient(rows, w, u)         the gradient of sum_i u_i z_i, and half the diagonal of its derivative, see `Moments`
    vjp(rows, w, u, (h, p))      the gradient, plus the second derivative of sum_i h_i z_i times p

For independent features with the variances ``V_d(x) = g + constant`` and the log-MGFs ``K_d(t; x)``::

    Moments       m_i = w.x_i + b,   v_i = sum_d V_d(x_id) w_d^2          mean and variance of the score
    LogMGF        z_i = sum_d K_d(w_d; x_id) + b                          its log moment generating function

For groups ``g`` that are dropped together with the rates ``q_g``, references ``r_d`` and ``c_g = q_g / (1 - q_g)``,
each part is a sum of a function of the group scores ``s_ig = sum over the features d of g of w_d (x_id - r_d)``::

    m_i = w.r + b + sum_g s_ig       v_i = sum_g c_g s_ig^2
    z_i = w.r + b + sum_g log(q_g + (1 - q_g) exp(s_ig / (1 - q_g)))
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from dropmargin.data import FeatureGroups, SparseChunk, Variance
from dropmargin.noise import DropoutNoise, Noise
from dropmargin.typing import Array

Parts = tuple[Array, ...]


class Scores(Protocol):
    """See the module's docstring."""

    def value(self, rows: Any, coef: Array) -> Parts: ...

    def jvp(self, rows: Any, coef: Array, direction: Array) -> Parts: ...

    def gradient(self, rows: Any, coef: Array, left: Parts) -> tuple[Array, Array | None]: ...

    def vjp(self, rows: Any, coef: Array, left: Parts, second: tuple[Parts, Array] | None = None) -> Array: ...


class Moments:
    """Mean and variance of the scores for independent features.

    The derivative of the gradient of the variance is diagonal, so `gradient` returns ``sum_i u_i V_d(x_id)`` as well.
    """

    def __init__(self, variance: Variance) -> None:
        self.depends_on_x = variance.depends_on_x
        constant = np.asarray(variance.constant, dtype=np.float64)
        self.constant: Any = constant[:, None] if constant.ndim else float(constant)
        self.has_constant = bool(np.any(constant))

    def value(self, rows: Any, coef: Array) -> Parts:
        if is_compiled(rows, coef):
            mean, variance = rows.compiled.moments(coef[:, 0])
            return mean[:, None], variance[:, None]
        w = coef[:-1]
        square = w * w
        mean, variance = rows.forward(w, square if self.depends_on_x else None)
        variance = self._with_constant(variance, square, mean)
        return mean + coef[-1], np.maximum(variance, 0.0)  # far from the reference, less is rounding

    def jvp(self, rows: Any, coef: Array, direction: Array) -> Parts:
        cross = 2.0 * coef[:-1] * direction[:-1]
        mean, variance = rows.forward(direction[:-1], cross if self.depends_on_x else None)
        return mean + direction[-1], self._with_constant(variance, cross, mean)

    def _with_constant(self, variance: Any, products: Array, mean: Array) -> Array:
        if self.has_constant:
            variance = variance + (self.constant * products).sum(axis=0)
        return np.broadcast_to(variance, mean.shape)

    def gradient(self, rows: Any, coef: Array, left: Parts) -> tuple[Array, Array]:
        if is_compiled(rows, coef):
            gradient, own = rows.compiled.gradient(coef[:, 0], left[0][:, 0], left[1][:, 0])
            return gradient[:, None], own[:, None]
        first, own = rows.backward(left[0], left[1] if self.depends_on_x else None)
        if self.has_constant:
            own = own + self.constant * left[1].sum(axis=0)
        out = np.empty_like(coef)
        out[:-1], out[-1] = first + 2.0 * own * coef[:-1], left[0].sum(axis=0)
        return out, np.broadcast_to(own, first.shape)

    def vjp(self, rows: Any, coef: Array, left: Parts, second: tuple[Parts, Array] | None = None) -> Array:
        out = self.gradient(rows, coef, left)[0]
        if second is not None:
            h, direction = second
            out[:-1] += 2.0 * self.gradient(rows, coef, h)[1] * direction[:-1]
        return out


def is_compiled(rows: Any, coef: Array) -> bool:
    """Return whether compiled code has the moments of these rows: for one output on CSR rows."""
    return coef.shape[1] == 1 and isinstance(rows, SparseChunk) and rows.compiled is not None


class GroupScores:
    """Scores of groups of features: sums of functions of the group scores, see `_Curve`."""

    def __init__(self, groups: FeatureGroups, noise: DropoutNoise | None = None) -> None:
        self.groups = groups
        if noise is None:
            self.curves: tuple[Any, ...] = (_Identity(), _Square(groups.slope))
        else:
            rates = np.zeros(groups.n_groups)
            rates[groups.numbers] = noise.rate
            self.curves = (_GroupLogMGF(rates),)

    def value(self, rows: Any, coef: Array) -> Parts:
        if len(self.curves) == 2 and is_compiled(rows, coef):
            mean, variance = rows.compiled.moments(coef[:, 0])
            return mean[:, None], variance[:, None]
        cells = rows.cells
        score, zero = cells.sums(coef[:-1]), self._at_zero(cells, coef)
        out = []
        for number, curve in enumerate(self.curves):
            part = cells.by_row(curve.value(score, cells.numbers))
            if zero is not None:
                of_zero = curve.value(zero, np.arange(self.groups.n_groups))
                part = part + of_zero.sum(axis=0) - cells.by_row(cells.of_groups(of_zero))
            mean = self.groups.reference @ coef[:-1] + coef[-1]
            out.append(part + mean if number == 0 else np.maximum(part, 0.0))
        return tuple(out)

    def jvp(self, rows: Any, coef: Array, direction: Array) -> Parts:
        cells = rows.cells
        score, along = cells.sums(coef[:-1]), cells.sums(direction[:-1])
        rows.group_scores = coef, direction, score, along  # for `vjp`, which follows in a Hessian product
        zero, along_zero = self._at_zero(cells, coef), self._at_zero(cells, direction)
        out = []
        for number, curve in enumerate(self.curves):
            part = cells.by_row(curve.slopes(score, cells.numbers)[0] * along)
            if zero is not None:
                of_zero = curve.slopes(zero, np.arange(self.groups.n_groups))[0] * along_zero
                part = part + of_zero.sum(axis=0) - cells.by_row(cells.of_groups(of_zero))
            out.append(part + (self.groups.reference @ direction[:-1] + direction[-1] if number == 0 else 0.0))
        return tuple(out)

    def gradient(self, rows: Any, coef: Array, left: Parts) -> tuple[Array, None]:
        return self.vjp(rows, coef, left), None

    def vjp(self, rows: Any, coef: Array, left: Parts, second: tuple[Parts, Array] | None = None) -> Array:
        if second is None and len(self.curves) == 2 and is_compiled(rows, coef):
            return rows.compiled.gradient(coef[:, 0], left[0][:, 0], left[1][:, 0])[0][:, None]
        groups, out = self.groups, np.empty_like(coef)
        out[-1] = left[0].sum(axis=0)
        cells = rows.cells
        known, rows.group_scores = rows.group_scores, None
        if known is not None and second is not None and known[0] is coef and known[1] is second[1]:
            score, along = known[2:]
        else:
            score, along = cells.sums(coef[:-1]), None if second is None else cells.sums(second[1][:-1])
        zero = self._at_zero(cells, coef)
        along_zero = None if second is None else self._at_zero(cells, second[1])
        values, totals = 0.0, 0.0
        for number, (curve, u) in enumerate(zip(self.curves, left, strict=True)):
            slope, curvature = curve.slopes(score, cells.numbers)
            own = cells.of_rows(u) * slope
            h = None if second is None else second[0][number]
            if h is not None:
                own = own + cells.of_rows(h) * (curvature * along)
            values = values + own
            if zero is not None:  # the cells that rows lack
                slope, curvature = curve.slopes(zero, np.arange(groups.n_groups))
                slope = np.broadcast_to(slope, zero.shape)
                totals = totals + slope * u.sum(axis=0) - cells.by_group(cells.of_rows(u) * cells.of_groups(slope))
                if h is not None:
                    of_zero = np.broadcast_to(curvature * along_zero, zero.shape)
                    rest = cells.by_group(cells.of_rows(h) * cells.of_groups(of_zero))
                    totals = totals + of_zero * h.sum(axis=0) - rest
        out[:-1] = cells.transposed(values)
        if groups.has_reference:  # x_id - r_d in place of x_id, and the mean w.r
            sums = cells.by_group(values) + totals
            out[:-1] += groups.reference[:, None] * (left[0].sum(axis=0) - sums[groups.numbers])
        return out

    def _at_zero(self, cells: Any, coef: Array) -> Array | None:
        """Return ``s_ig`` of a row without entries, of shape (n_groups, n_outputs), if rows may lack cells."""
        return -self.groups.at_reference(coef[:-1]) if cells.has_zeros else None


class _Identity:
    """``k_g(u) = u``."""

    def value(self, u: Array, groups: Array) -> Any:
        return u

    def slopes(self, u: Array, groups: Array) -> tuple[Any, Any]:
        return 1.0, 0.0


class _Square(NamedTuple):
    """``k_g(u) = c_g u^2`` with two derivatives, given the group of each number."""

    slope: Array

    def value(self, u: Array, groups: Array) -> Any:
        return self.slope[groups][..., None] * np.square(u)

    def slopes(self, u: Array, groups: Array) -> tuple[Any, Any]:
        c = 2.0 * self.slope[groups][..., None]
        return c * u, c


class _GroupLogMGF(NamedTuple):
    """``k_g(u) = log(q_g + (1 - q_g) exp(u / (1 - q_g)))``, the log-MGF of a feature 1."""

    rates: Array

    def value(self, u: Array, groups: Array) -> Any:
        return self._expand(u, groups)[0]

    def slopes(self, u: Array, groups: Array) -> tuple[Any, Any]:
        return self._expand(u, groups)[1:]

    def _expand(self, u: Array, groups: Array) -> tuple[Any, Any, Any]:
        rates = np.broadcast_to(self.rates[groups][..., None], u.shape)
        return DropoutNoise(rates, reference="zero").log_mgf(u, np.ones_like(u))


class LogMGF:
    """The log-MGF of the score for independent features.

    A feature that is zero may still have a ``K``, the same for every row. Sums over features run over the stored
    entries with ``K(t; x) - K(t; 0)``, and ``K(t; 0)`` is added once.
    """

    def __init__(self, noise: Noise) -> None:
        self.noise = noise

    def value(self, rows: Any, coef: Array) -> Parts:
        columns = self._columns(rows, coef)
        return (np.stack([own.value for own in columns], axis=1) + coef[-1],)

    def jvp(self, rows: Any, coef: Array, direction: Array) -> Parts:
        columns = zip(self._columns(rows, coef), direction[:-1].T, strict=True)
        changes = [own.jacobian @ p + own.slope_of_zero @ p for own, p in columns]
        return (np.stack(changes, axis=1) + direction[-1],)

    def gradient(self, rows: Any, coef: Array, left: Parts) -> tuple[Array, None]:
        return self.vjp(rows, coef, left), None

    def vjp(self, rows: Any, coef: Array, left: Parts, second: tuple[Parts, Array] | None = None) -> Array:
        out = np.empty_like(coef)
        out[-1] = left[0].sum(axis=0)
        for k, own in enumerate(self._columns(rows, coef)):
            out[:-1, k] = own.jacobian.T @ left[0][:, k] + left[0][:, k].sum() * own.slope_of_zero
            if second is not None:
                h = second[0][0][:, k]
                out[:-1, k] += (own.second.T @ h + h.sum() * own.second_of_zero) * second[1][:-1, k]
        return out

    def _columns(self, rows: Any, coef: Array) -> list[_LogMGFColumn]:
        """Return the log-MGF at each output's coefficients; the last ones are kept with the rows."""
        known = rows.__dict__.get("log_mgf")
        if known is None or not np.array_equal(known[0], coef[:-1]):
            columns = [_LogMGFColumn.of(rows, self.noise, own) for own in np.ascontiguousarray(coef[:-1].T)]
            rows.__dict__["log_mgf"] = known = coef[:-1].copy(), columns
        return known[1]


class _LogMGFColumn(NamedTuple):
    """The log-MGF at one coefficient vector: its value, and its derivatives by the argument for each stored entry.

    The derivatives are less those of a zero in place of the entry, which the last two have for each feature.
    """

    value: Array
    jacobian: Any
    second: Any
    slope_of_zero: Array
    second_of_zero: Array

    @classmethod
    def of(cls, rows: Any, noise: Noise, coef: Array) -> _LogMGFColumn:
        entries, features = rows.entries()
        arguments = np.broadcast_to(coef[features], entries.shape)
        at_zero = noise.log_mgf(coef, np.zeros_like(coef))
        with np.errstate(invalid="ignore"):
            value, slope, second = (
                rows.with_entries(own - zero[features])
                for own, zero in zip(noise.take(features).log_mgf(arguments, entries), at_zero, strict=True)
            )
            total = np.asarray(value.sum(axis=1)).ravel() + at_zero[0].sum()
        # inf - inf is outside the noise's domain
        return cls(np.where(np.isnan(total), np.inf, total), slope, second, at_zero[1], at_zero[2])
