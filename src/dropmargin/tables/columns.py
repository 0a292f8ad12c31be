"""The encoder of each kind of column: a small transformer of one column, built on the parts of scikit-learn.

An encoder takes the cells of one column (`cells.Cells`) and returns a matrix with a row per cell. A missing cell is NaN
in all features; a missing text has none of the terms. Fitted attributes are plain values: `get_state` returns them with
the parameters, and `from_state` makes the encoder again.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.special import ndtri
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import OneHotEncoder, SplineTransformer

from dropmargin.tables.cells import Texts
from dropmargin.typing import Array

#: The parts of a date: decimal year, month from 1, weekday from 0 (Monday), hour with its fraction.
PARTS = ("year", "month", "weekday", "hour")
_N_QUANTILES = 100


class ColumnEncoder(TransformerMixin, BaseEstimator):
    """Base of the encoders of one column."""

    kind: ClassVar[str]
    #: The fitted attributes, which are plain values.
    fitted: ClassVar[tuple[str, ...]]

    def fit(self, X: Any, y: Any = None) -> ColumnEncoder:
        """Learn the features from the cells of a column."""
        raise NotImplementedError

    def transform(self, X: Any) -> Any:
        """Return the features of the cells."""
        raise NotImplementedError

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the features of a column; ``input_features`` has its name."""
        raise NotImplementedError

    def in_kernel(self) -> Array:
        """Return whether each feature enters the kernel of ``basis="fourier"``."""
        return np.ones(len(self.get_feature_names_out([""])), dtype=bool)

    def get_state(self) -> dict[str, Any]:
        """Return kind, parameters and fitted attributes: numbers, strings, lists, dicts and arrays."""
        fitted = {name: getattr(self, name) for name in self.fitted}
        return {"kind": self.kind, "parameters": self.get_params(), **fitted}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> ColumnEncoder:
        """Return the fitted encoder with a state of `get_state`."""
        made_class = {encoder.kind: encoder for encoder in (NumberEncoder, CategoryEncoder, DateEncoder, TextEncoder)}[
            state["kind"]
        ]
        made = made_class(**state["parameters"])
        for name in made_class.fitted:
            setattr(made, name, state[name])
        return made


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
        The quantiles for ``scaling="quantile"``, else empty.
    """

    kind = "number"
    fitted = ("knots_", "mean_", "scale_", "quantiles_")

    def __init__(self, basis: str = "spline", scaling: str = "standard", n_knots: int = 8) -> None:
        self.basis = basis
        self.scaling = scaling
        self.n_knots = n_knots

    def fit(self, X: Array, y: Any = None) -> NumberEncoder:
        """Learn knots and scale from an array of numbers."""
        observed = np.asarray(X, dtype=np.float64)
        observed = observed[~np.isnan(observed)]
        self.mean_, self.scale_ = float(observed.mean()), float(observed.std()) or 1.0
        self.knots_ = self.quantiles_ = np.empty(0)
        knots = _knots(observed, self.n_knots) if self.basis != "linear" else self.knots_
        if len(knots) > 2:
            self.knots_ = knots
        if self.scaling == "quantile" and self.has_scaled:
            n_quantiles = min(_N_QUANTILES, len(observed))
            self.quantiles_ = np.quantile(observed, np.linspace(0.0, 1.0, n_quantiles))
        return self

    @property
    def has_scaled(self) -> bool:
        """Whether the scaled number is a feature."""
        return self.basis == "fourier" or not len(self.knots_)

    def transform(self, X: Array) -> Array:
        """Return the features of an array of numbers."""
        column = np.asarray(X, dtype=np.float64)[:, None]
        parts = [self._scaled(column)] if self.has_scaled else []
        if len(self.knots_):
            knots = self.knots_[:, None]
            splines = SplineTransformer(degree=2, knots=knots, extrapolation="constant").fit(knots)
            is_missing = np.isnan(column[:, 0])
            parts.append(splines.transform(np.where(is_missing[:, None], knots[0], column)))
            parts[-1][is_missing] = np.nan
        return np.hstack(parts)

    def _scaled(self, column: Array) -> Array:
        if not len(self.quantiles_):
            return (column - self.mean_) / self.scale_
        # Between the ends of a run of equal quantiles, the middle, as scikit-learn's QuantileTransformer.
        levels, quantiles = np.linspace(0.0, 1.0, len(self.quantiles_)), self.quantiles_
        up, down = np.interp(column, quantiles, levels), np.interp(-column, -quantiles[::-1], -levels[::-1])
        return ndtri(np.clip(0.5 * (up - down), 1e-7, 1.0 - 1e-7))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the name of the column for the scaled number, and with ``[0]``, ``[1]`` and so on for a spline."""
        name, n_splines = input_features[0], len(self.knots_) + 1 if len(self.knots_) else 0
        return np.array([name] * self.has_scaled + [f"{name}[{i}]" for i in range(n_splines)], dtype=object)

    def in_kernel(self) -> Array:
        """Return whether each feature enters the kernel of ``basis="fourier"``: not those of a spline."""
        return np.arange(len(self.get_feature_names_out([""]))) < self.has_scaled


def _knots(observed: Array, n_knots: int) -> Array:
    """Return different quantiles; of the different numbers, where one number is more frequent than a quantile."""
    levels = np.linspace(0.0, 1.0, n_knots)
    knots = np.unique(np.quantile(observed, levels))
    if len(knots) < n_knots:
        knots = np.unique(np.quantile(np.unique(observed), levels))
    return knots


class CategoryEncoder(ColumnEncoder):
    """Encode categories: a feature of 0 and 1 for each; a category that `fit` has not seen is a missing value.

    Attributes
    ----------
    categories_ : list of str
        The categories, sorted.
    """

    kind = "category"
    fitted = ("categories_",)

    def fit(self, X: Texts, y: Any = None) -> CategoryEncoder:
        """Learn the categories."""
        self.categories_ = X.present()
        return self

    def transform(self, X: Texts) -> Array:
        """Return the features of texts."""
        places = {name: i for i, name in enumerate(self.categories_)}
        codes = np.array([*(places.get(name, -1) for name in X.names), -1])[X.codes]
        one_hot = OneHotEncoder(
            categories=[np.arange(len(self.categories_))], handle_unknown="ignore", sparse_output=False
        )
        features = one_hot.fit(codes[:1, None]).transform(codes[:, None])
        features[codes < 0] = np.nan
        return features

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
    parts_ : list of str
        The parts that vary; the month only if there are several years.
    states_ : list of dict
        The state of the `NumberEncoder` of each part.
    """

    kind = "date"
    fitted = ("parts_", "states_")

    def __init__(self, basis: str = "spline", scaling: str = "standard", n_knots: int = 8) -> None:
        self.basis = basis
        self.scaling = scaling
        self.n_knots = n_knots

    def fit(self, X: Array, y: Any = None) -> DateEncoder:
        """Learn the parts that vary, and their scales."""
        numbers = date_parts(X[~np.isnat(X)])
        varying = {part: len(np.unique(column)) > 1 for part, column in zip(PARTS, numbers.T, strict=True)}
        varying |= {"year": True, "month": varying["month"] and len(np.unique(np.floor(numbers[:, 0]))) > 1}
        self.parts_ = [part for part in PARTS if varying[part]]
        columns = [numbers[:, PARTS.index(part)] for part in self.parts_]
        self.states_ = [NumberEncoder(self.basis, self.scaling, self.n_knots).fit(x).get_state() for x in columns]
        return self

    def transform(self, X: Array) -> Array:
        """Return the features of dates."""
        numbers, encoders = date_parts(X), map(self.from_state, self.states_)
        columns = [numbers[:, PARTS.index(part)] for part in self.parts_]
        return np.hstack([encoder.transform(column) for encoder, column in zip(encoders, columns, strict=True)])

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return names such as ``born:year``."""
        encoders = zip(self.parts_, map(self.from_state, self.states_), strict=True)
        return np.concatenate([e.get_feature_names_out([f"{input_features[0]}:{part}"]) for part, e in encoders])

    def in_kernel(self) -> Array:
        """Return whether each feature enters the kernel of ``basis="fourier"``."""
        return np.concatenate([self.from_state(state).in_kernel() for state in self.states_])


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
    fitted = ("terms_",)

    def __init__(self, max_features: int = 10_000) -> None:
        self.max_features = max_features

    def fit(self, X: Texts, y: Any = None) -> TextEncoder:
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
