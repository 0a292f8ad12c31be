"""The encoder of each kind of column: a small transformer of one column, built on the parts of scikit-learn and SciPy.

An encoder takes the cells of one column (`cells.Cells`) and returns a matrix with a row per cell. A missing cell is NaN
in all features; a missing text has none of the terms. Basis and scaling of a number count in `transform` only: an
encoder that is fitted serves all of them, see `with_basis`.
"""

from __future__ import annotations

from copy import copy
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.interpolate import BSpline
from scipy.special import ndtri
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import CountVectorizer

from dropmargin.tables.cells import Texts
from dropmargin.typing import Array

#: The parts of a date: decimal year, month from 1, weekday from 0 (Monday), hour with its fraction.
PARTS = ("year", "month", "weekday", "hour")
_N_QUANTILES = 100


class ColumnEncoder(TransformerMixin, BaseEstimator):
    """Base of the encoders of one column."""

    kind: ClassVar[str]

    def with_basis(self, basis: str, scaling: str) -> ColumnEncoder:
        """Return the fitted encoder with another basis and scaling of numbers, without what these do not need."""
        return self

    def in_kernel(self) -> Array:
        """Return whether each feature enters the kernel of ``basis="fourier"``: not those of a spline."""
        return np.ones(len(self.get_feature_names_out([""])), dtype=bool)

    def __sklearn_is_fitted__(self) -> bool:
        return any(name.endswith("_") and not name.startswith("_") for name in vars(self))


class NumberEncoder(ColumnEncoder):
    """Encode numbers: scaled, or as a spline whose knots are quantiles of the training data.

    Parameters
    ----------
    basis : {"linear", "spline", "fourier"}, default="spline"
        One feature, or the basis functions of a quadratic spline that is constant beyond the training data, or both.
        Numbers with fewer than three different knots have one feature.
    scaling : {"standard", "quantile"}, default="standard"
        How one feature is scaled: to mean 0 and variance 1, or by its quantiles to a normal distribution.
    n_knots : int, default=8
        The number of knots of the spline.

    Attributes
    ----------
    knots_ : ndarray of shape (n_knots,)
        The knots; empty if there is one feature.
    mean_, scale_ : float
        Mean and standard deviation of the observed numbers.
    quantiles_ : ndarray
        The quantiles for ``scaling="quantile"``.
    """

    kind = "number"

    def __init__(self, basis: str = "spline", scaling: str = "standard", n_knots: int = 8) -> None:
        self.basis = basis
        self.scaling = scaling
        self.n_knots = n_knots

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> NumberEncoder:
        """Learn knots and scale from an array of numbers, with the weights of the rows."""
        X = np.asarray(X, dtype=np.float64)
        order = np.argsort(X)[: np.count_nonzero(~np.isnan(X))]
        ordered, weight = X[order], np.ones(len(order)) if sample_weight is None else np.asarray(sample_weight)[order]
        self.mean_ = float(np.average(ordered, weights=weight))
        self.scale_ = float(np.sqrt(np.average(np.square(ordered - self.mean_), weights=weight))) or 1.0
        self.quantiles_ = _quantiles(ordered, weight, _N_QUANTILES)
        self.knots_ = np.unique(_quantiles(ordered, weight, self.n_knots))
        if len(self.knots_) < self.n_knots:  # where one number is more frequent than a quantile: of the different ones
            different = np.unique(ordered[weight > 0.0])
            self.knots_ = np.unique(_quantiles(different, np.ones(len(different)), self.n_knots))
        self.knots_ = self.knots_ if len(self.knots_) > 2 else np.empty(0)
        return self

    def with_basis(self, basis: str, scaling: str) -> NumberEncoder:
        """Return the fitted encoder with another basis and scaling, without what these do not need."""
        made = copy(self).set_params(basis=basis, scaling=scaling)
        made.knots_ = self.knots_[: 0 if basis == "linear" else None]
        made.quantiles_ = self.quantiles_[: None if scaling == "quantile" and made.has_scaled else 0]
        return made

    @property
    def n_splines(self) -> int:
        """The number of basis functions of the spline."""
        return len(self.knots_) + 1 if len(self.knots_) and self.basis != "linear" else 0

    @property
    def extended_knots(self) -> Array:
        """The knots with two more at each end, as those of scikit-learn's `SplineTransformer`."""
        knots, (first, *_), (*_, last) = self.knots_, np.diff(self.knots_), np.diff(self.knots_)
        before, after = knots[0] - first * np.array([2.0, 1.0]), knots[-1] + last * np.array([1.0, 2.0])
        return np.concatenate([before, knots, after])

    @property
    def has_scaled(self) -> bool:
        """Whether the scaled number is a feature."""
        return self.basis == "fourier" or not self.n_splines

    def transform(self, X: Any) -> Array:
        """Return the features of an array of numbers."""
        X = np.asarray(X, dtype=np.float64)
        parts = [self._scaled(X)[:, None]] if self.has_scaled else []
        if self.n_splines:
            spline = BSpline(self.extended_knots, np.eye(self.n_splines), 2)
            parts.append(spline(np.clip(X, self.knots_[0], self.knots_[-1])))
        return np.hstack(parts)

    def _scaled(self, X: Array) -> Array:
        if self.scaling == "standard":
            return (X - self.mean_) / self.scale_
        # Between the ends of a run of equal quantiles, the middle, as scikit-learn's QuantileTransformer.
        levels, quantiles = np.linspace(0.0, 1.0, len(self.quantiles_)), self.quantiles_
        up, down = np.interp(X, quantiles, levels), np.interp(-X, -quantiles[::-1], -levels[::-1])
        return ndtri(np.clip(0.5 * (up - down), 1e-7, 1.0 - 1e-7))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the name of the column for the scaled number, and with ``[0]``, ``[1]`` and so on for a spline."""
        name = input_features[0]
        return np.array([name] * self.has_scaled + [f"{name}[{i}]" for i in range(self.n_splines)], dtype=object)

    def in_kernel(self) -> Array:
        """Return whether each feature enters the kernel of ``basis="fourier"``: not those of a spline."""
        return np.arange(self.has_scaled + self.n_splines) < self.has_scaled


def _quantiles(ordered: Array, weight: Array, n: int) -> Array:
    """Return ``n`` quantiles of ascending numbers, from the smallest to the largest; each is one of the numbers."""
    total = np.cumsum(weight)
    places = np.searchsorted(total, np.linspace(0.0, 1.0, n) * total[-1])
    return ordered[np.clip(places, np.argmax(weight > 0.0), len(ordered) - 1)]


class CategoryEncoder(ColumnEncoder):
    """Encode categories: a feature of 0 and 1 for each; a category that `fit` has not seen is a missing value.

    Attributes
    ----------
    categories_ : list of str
        The categories, sorted.
    """

    kind = "category"

    def fit(self, X: Texts, y: Any = None, sample_weight: Any = None) -> CategoryEncoder:
        """Learn the categories."""
        self.categories_ = X.present()
        return self

    def transform(self, X: Texts) -> Array:
        """Return the features of texts."""
        places = {name: i for i, name in enumerate(self.categories_)}
        codes = np.array([*(places.get(name, -1) for name in X.names), -1])[X.codes]
        return np.vstack([np.eye(len(places)), np.full(len(places), np.nan)])[codes]  # -1 is the last row

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return names such as ``colour=red``."""
        return np.array([f"{input_features[0]}={category}" for category in self.categories_], dtype=object)


class DateEncoder(ColumnEncoder):
    """Encode dates: decimal year, month, weekday and hour, without those that are constant, each as a number.

    Parameters
    ----------
    basis, scaling, n_knots : str, str, int
        As for `NumberEncoder`.

    Attributes
    ----------
    encoders_ : dict of str to NumberEncoder
        The encoder of each part that varies; the month only if there are several years.
    """

    kind = "date"

    def __init__(self, basis: str = "spline", scaling: str = "standard", n_knots: int = 8) -> None:
        self.basis = basis
        self.scaling = scaling
        self.n_knots = n_knots

    def fit(self, X: Array, y: Any = None, sample_weight: Any = None) -> DateEncoder:
        """Learn the parts that vary, and their scales."""
        parts = dict(zip(PARTS, date_parts(X).T, strict=True))
        n_different = {part: len(np.unique(own[~np.isnan(own)])) for part, own in parts.items()}
        years = np.floor(parts["year"][~np.isnat(X)])
        n_different["month"] *= len(np.unique(years)) > 1
        self.encoders_ = {
            part: NumberEncoder(self.basis, self.scaling, self.n_knots).fit(own, sample_weight=sample_weight)
            for part, own in parts.items()
            if part == "year" or n_different[part] > 1
        }
        return self

    def with_basis(self, basis: str, scaling: str) -> DateEncoder:
        """Return the fitted encoder with another basis and scaling, without what these do not need."""
        made = copy(self).set_params(basis=basis, scaling=scaling)
        made.encoders_ = {part: own.with_basis(basis, scaling) for part, own in self.encoders_.items()}
        return made

    def transform(self, X: Array) -> Array:
        """Return the features of dates."""
        parts = dict(zip(PARTS, date_parts(X).T, strict=True))
        return np.hstack([encoder.transform(parts[part]) for part, encoder in self.encoders_.items()])

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return names such as ``born:year``."""
        named = [(f"{input_features[0]}:{part}", encoder) for part, encoder in self.encoders_.items()]
        return np.concatenate([encoder.get_feature_names_out([name]) for name, encoder in named])

    def in_kernel(self) -> Array:
        """Return whether each feature enters the kernel of ``basis="fourier"``."""
        return np.concatenate([encoder.in_kernel() for encoder in self.encoders_.values()])


def date_parts(when: Array) -> Array:
    """Return the `PARTS` of dates (datetime64), a column each; missing dates (NaT) are NaN."""
    seconds = when.astype("datetime64[s]")
    years, months, days = (seconds.astype(f"datetime64[{unit}]") for unit in "YMD")
    start, end = years.astype("datetime64[s]"), (years + 1).astype("datetime64[s]")
    numbers = np.column_stack(
        [
            years.astype(np.int64) + 1970 + (seconds - start) / (end - start),
            (months - years.astype("datetime64[M]")).astype(np.int64) + 1.0,
            (days.astype(np.int64) + 3) % 7 + 0.0,
            (seconds - days.astype("datetime64[s]")).astype(np.int64) / 3600.0,
        ]
    )
    numbers[np.isnat(when)] = np.nan
    return numbers


class TextEncoder(ColumnEncoder):
    """Encode text: a feature of 0 and 1 for each term; a missing text has none of them.

    Parameters
    ----------
    max_features : int, default=10000
        The number of terms; of more, the most frequent ones.

    Attributes
    ----------
    terms_ : list of str
        The terms, sorted.
    """

    kind = "text"

    def __init__(self, max_features: int = 10_000) -> None:
        self.max_features = max_features

    def fit(self, X: Texts, y: Any = None, sample_weight: Any = None) -> TextEncoder:
        """Learn the terms."""
        vectorizer = CountVectorizer(binary=True, max_features=self.max_features)
        self.terms_ = vectorizer.fit(X.strings("")).get_feature_names_out().tolist()
        return self

    def transform(self, X: Texts) -> Any:
        """Return the features of texts, a sparse matrix."""
        vectorizer = CountVectorizer(binary=True, vocabulary=self.terms_, dtype=np.float64)
        return sparse.csr_array(vectorizer.transform(X.strings("")))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return names such as ``review: good``."""
        return np.array([f"{input_features[0]}: {term}" for term in self.terms_], dtype=object)
