"""What the table models share: parameters, encoding, search and fit, and what they say about columns."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import _num_samples, check_is_fitted

from dropmargin.estimators.parameters import Parameters, boolean, check_parameters, parameter
from dropmargin.estimators.validation import (
    check_choice,
    check_n_jobs,
    check_number,
    check_weights,
    unchanged_on_failure,
)
from dropmargin.evaluation import Explanation, TopFeatures
from dropmargin.progress import Progress
from dropmargin.tables import effects, search
from dropmargin.tables.cells import missing
from dropmargin.tables.cells import take as take_cells
from dropmargin.tables.encoder import TableEncoder, column_names, columns_html, columns_text, read_table
from dropmargin.tables.groups import EncoderAdapter, GroupedMatrix, grouped
from dropmargin.threads import one_blas_thread
from dropmargin.typing import Array

BASES = ("auto", "linear", "spline", "fourier")


def _check_noise(name: str, value: Any) -> Any:
    if value is None or isinstance(value, Mapping) or (isinstance(value, str) and value == "auto"):
        return value
    return check_rate(name, value, "'auto', None, a dict of columns to rates, or a ")


def check_rate(name: str, value: Any, others: str = "a ") -> float:
    if value is None:
        return 0.0
    if isinstance(value, Real) and not isinstance(value, bool) and 0.0 <= float(value) < 1.0:
        return float(value)
    raise ValueError(f"{name} must be {others}rate in [0, 1), the share of columns that are missing, got {value!r}.")


def _check_c(name: str, value: Any) -> float | None:
    return None if value is None else check_number(name, value, 0.0, low_open=True)


class TableParameters(Parameters):
    """The parameters of both table models."""

    basis: str = parameter(default="auto", choices=BASES)
    noise: Any = parameter(default="auto", check=_check_noise)
    C: float | None = parameter(default=None, check=_check_c)
    target_noise: float | None = parameter(default=0.3, check=check_rate)
    text: Any = parameter(default=())
    cv: Any = parameter(default=None)
    random_state: Any = parameter(default=None)
    n_jobs: int | None = parameter(default=None, check=check_n_jobs)
    verbose: int = parameter(default=1)
    encoder: Any = parameter(default=None)
    groups: Any = parameter(default=None)
    conformal: bool = parameter(default=False, check=boolean)


class TableModel(TableParameters, BaseEstimator):
    """Base of the two table models: encoding, search, final fit, and what they say about columns."""

    #: The losses, and the linear model of each.
    _losses: ClassVar[dict[str, Any]]
    #: The value of a deleted cell, for `dropmargin.deletion_curve`.
    deleted_fill: ClassVar[float] = float("nan")
    loss: str

    def _check_targets(self, y: Any) -> Array:
        raise NotImplementedError

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Decide the kinds of the columns, choose the model by cross-validation, and fit it.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, dict of columns, or array of shape (n_samples, n_columns)
            Training rows. NaN and None are missing values.
        y : array-like of shape (n_samples,)
            Labels for a classifier, numbers for a regressor.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        with unchanged_on_failure(self):
            self._fit(X, y, sample_weight)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        given = check_parameters(self)
        check_choice("loss", self.loss, tuple(self._losses))
        names, take = column_names(X), take_cells if self._is_own else _safe_indexing
        table = read_table(X) if self._is_own else X
        encoder: Any = EncoderAdapter(self.encoder, self.groups)
        if self._is_own:
            encoder = clone(self.encoder or TableEncoder()).set_params(basis="fourier", scaling="quantile")
            encoder.set_params(**{"text": self.text} if len(self.text) else {})
        n_rows = len(missing(next(iter(table.values())))) if self._is_own and table else _num_samples(X)
        y = self._check_targets(y)
        if len(y) != n_rows:
            raise ValueError(f"X and y have inconsistent numbers of rows: {n_rows} and {len(y)}.")
        weight = check_weights(sample_weight, n_rows)
        if not weight.all():
            table, y, weight = take(table, np.flatnonzero(weight)), y[weight > 0.0], weight[weight > 0.0]
            y = self._check_targets(y)
        encoder.fit(table, sample_weight=weight)
        if names is None and self._is_own:
            del encoder.feature_names_in_

        def encode(basis: str, scaling: str, rows: Any = None) -> GroupedMatrix:
            own = encoder.with_basis(basis, scaling)
            return grouped(own, own.transform(table if rows is None else take(table, rows)))

        plain = self._losses[self.loss](missing="conditional", n_jobs=self.n_jobs)
        if hasattr(plain, "epsilon"):
            plain.epsilon = 0.1 * float(np.std(y))
        n_splines = sum(kind != "category" for kind in encoder.column_kinds_.values()) if self._is_own else 0
        self._check_basis(bool(encoder.is_word_.any()))
        bases, is_small = search.candidates(self.basis, encoder.with_basis("linear", "standard"), n_splines)
        bases = self._without_fourier(bases) if self.conformal else bases
        scalings = ("standard", "quantile") if n_splines else ("standard",)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        n_steps = 1 + len(scalings if is_small else bases)
        with one_blas_thread(), Progress(n_steps, "fitting the table", verbose=self.verbose) as progress:
            task = search.Task(
                encode, y, weight, plain, given["noise"], given["C"], given["target_noise"], self.cv, rng, bases,
                scalings, is_small, progress,
            )  # fmt: skip
            best, self.cv_scores_ = search.choose(task)
            plain.set_params(**{name: given[name] for name in ("probability", "conformal") if name in given})
            self.fourier_, self.model_, self.C_ = search.fit_setting(task, best)
        self.encoder_ = encoder.with_basis(best.basis, best.scaling)
        self.basis_, self.scaling_ = best.basis, best.scaling
        self.noise_ = best.noise if self.fourier_ is None else None
        self.set_columns()

    def set_columns(self) -> None:
        """Set the attributes that follow from the encoder."""
        for name in ("columns_", "n_features_in_", "feature_names_in_"):
            if hasattr(self.encoder_, name):
                setattr(self, name, getattr(self.encoder_, name))
            elif hasattr(self, name):
                delattr(self, name)

    @property
    def _is_own(self) -> bool:
        return self.encoder is None or isinstance(self.encoder, TableEncoder)

    def _check_basis(self, has_text: bool) -> None:
        if self.basis == "spline" and not self._is_own:
            raise ValueError("basis='spline' needs the encoder of this package: leave out encoder, or basis='linear'.")
        if self.basis == "fourier" and has_text:
            raise ValueError("basis='fourier' has no features of text: leave out text, or use basis='spline'.")

    def _without_fourier(self, bases: tuple[str, ...]) -> tuple[str, ...]:
        if bases == ("fourier",):
            raise ValueError("conformal=True needs basis='linear', 'spline' or 'auto', got 'fourier'.")
        return tuple(basis for basis in bases if basis != "fourier")

    def _features(self, X: Any) -> Any:
        """Return the features of the linear model."""
        check_is_fitted(self, "model_")
        encoded = self.encoder_.transform(X)
        return encoded if self.fourier_ is None else self.fourier_.transform(encoded)

    @property
    def best_estimator_(self) -> Pipeline:
        """The encoder, the Fourier features if there are any, and the linear model, as a fitted pipeline."""
        check_is_fitted(self, "model_")
        steps = [("encoder", self.encoder_), ("fourier", self.fourier_), ("model", self.model_)]
        return Pipeline([step for step in steps if step[1] is not None])

    def explain(self, X: Any, n: int = 10) -> Explanation:
        """Return what each prediction leans on, and how many columns must vanish before its label flips.

        Parameters
        ----------
        X : table
            Rows, as for `predict`.
        n : int, default=10
            How many columns to list for each row.

        Returns
        -------
        explanation : Explanation
            As that of `dropmargin.explain`, with columns in place of features.
        """
        return effects.explain(self, X, n)

    def top_features(self, n: int = 20) -> TopFeatures:
        """Return the columns that carry most of the score of each class, and of text the words.

        Parameters
        ----------
        n : int, default=20
            The number of columns of each class.

        Returns
        -------
        top : TopFeatures
            The strength of a column is the standard deviation that it gives to the score.
        """
        return effects.top_columns(self, n)

    def plot_effects(self, columns: Any = None, ax: Any = None) -> Any:
        """Plot the effect of each column on the score, with the share of the score that it carries.

        The effect of a column is the change of the score from that of the average row, one line per class. For
        ``basis="fourier"``, which is not additive, it is the expected score if this column alone is observed.

        Parameters
        ----------
        columns : list of str, default=None
            The columns; by default the twelve with the largest shares.
        ax : array of matplotlib Axes, default=None
            Axes to plot on, one for each column; ``None`` for a new figure.

        Returns
        -------
        axes : ndarray of matplotlib Axes
            The axes, one for each column.
        """
        return effects.plot_effects(self, columns, ax)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        text = super().__repr__(N_CHAR_MAX=N_CHAR_MAX)
        if not hasattr(self, "model_"):
            return text
        return f"{text}\n  basis: {self.basis_}, {self._chosen()}\n{columns_text(self.columns_)}"

    def _chosen(self) -> str:
        rate = "copies with deleted cells" if self.basis_ == "fourier" else f"noise {self.noise_}"
        return f"{rate}, C {self.C_:.3g}"

    def _repr_html_inner(self) -> str:
        text = super()._repr_html_inner()
        if not hasattr(self, "model_"):
            return text
        return f"{text}<p>basis: {self.basis_}, {self._chosen()}</p>{columns_html(self.columns_)}"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:  # what a notebook shows, before any _repr_html_
        shown = super()._repr_mimebundle_(**kwargs)
        return shown | ({"text/html": self._repr_html_inner()} if "text/html" in shown else {})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags
