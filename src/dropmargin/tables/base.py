"""What the table models share: parameters, encoding, search and fit, and what they say about columns."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from dropmargin.estimators.parameters import Parameters, boolean, check_parameters, parameter
from dropmargin.estimators.validation import check_choice, check_n_jobs, check_number, unchanged_on_failure
from dropmargin.evaluation import Explanation, TopFeatures
from dropmargin.tables import effects, search
from dropmargin.tables.encoder import TableEncoder, column_names, columns_html, columns_text, read_table
from dropmargin.tables.groups import EncoderAdapter, GroupedMatrix
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
        plain = self._losses[self.loss](missing="conditional", n_jobs=self.n_jobs)
        encoders: dict[tuple[str, str], Any] = {}
        encode = self._encoding(X, encoders)
        first = encode("linear", "standard")
        y = self._check_targets(y)
        check_consistent_length(first.X, y, sample_weight)
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        if hasattr(plain, "epsilon"):
            plain.epsilon = 0.1 * float(np.std(y))
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        rng, own = np.random.default_rng(seed), encoders["linear", "standard"]
        n_splines = sum(kind != "category" for kind in own.column_kinds_.values()) if self._is_own else 0
        is_auto = self.basis == "auto"
        bases = search.possible_bases(first, n_splines) if is_auto else (self._check_basis(first),)
        if self.conformal:
            bases = self._without_fourier(bases)
        task = search.Task(
            encode, y, weight, plain, given["noise"], given["C"], given["target_noise"], self.cv, rng,
            can_scale=bool(n_splines), encoded={("linear", "standard"): first},
        )  # fmt: skip
        with one_blas_thread():
            best, self.cv_scores_ = search.choose(task, bases, self.verbose)
            plain.set_params(**{name: given[name] for name in ("probability", "conformal") if name in given})
            fourier, model, C, deviation = search.fit_setting(task, best)
        self.encoder_ = encoders[search.encoding(best.basis, best.scaling)]
        self.fourier_, self.model_ = fourier, model
        if fourier is not None and not is_classifier(self):
            self.residual_deviation_ = deviation
        self.basis_, self.scaling_, self.noise_, self.C_ = best.basis, best.scaling, best.noise, C
        self.columns_ = self.encoder_.columns_
        self.n_features_in_ = self.encoder_.n_features_in_
        if hasattr(self.encoder_, "feature_names_in_"):
            self.feature_names_in_ = self.encoder_.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    @property
    def _is_own(self) -> bool:
        return self.encoder is None or isinstance(self.encoder, TableEncoder)

    def _check_basis(self, first: GroupedMatrix) -> str:
        if self.basis == "spline" and not self._is_own:
            raise ValueError("basis='spline' needs the encoder of this package: leave out encoder, or basis='linear'.")
        if self.basis == "fourier" and first.is_sparse:
            raise ValueError("basis='fourier' has no features of text: leave out text, or use basis='spline'.")
        return self.basis

    def _without_fourier(self, bases: tuple[str, ...]) -> tuple[str, ...]:
        if bases == ("fourier",):
            raise ValueError("conformal=True needs basis='linear', 'spline' or 'auto', got 'fourier'.")
        return tuple(basis for basis in bases if basis != "fourier")

    def _encoding(self, X: Any, encoders: dict[Any, Any]) -> Any:
        """Return the function that encodes the training rows in a basis, and adds its encoder to ``encoders``."""
        if not self._is_own:
            adapter = EncoderAdapter(clone(self.encoder), self.groups).fit(X)
            matrix = _grouped(adapter, adapter.transform(X))

            def encode(basis: str, scaling: str) -> GroupedMatrix:
                encoders[basis, scaling] = adapter
                return matrix

            return encode
        cells, template = read_table(X), TableEncoder() if self.encoder is None else self.encoder
        is_named = column_names(X) is not None

        def encode_cells(basis: str, scaling: str) -> GroupedMatrix:
            encoder = clone(template).set_params(basis=basis, scaling=scaling)
            if len(self.text):
                encoder.set_params(text=self.text)
            encoders[basis, scaling] = encoder.fit(cells)
            if not is_named:
                del encoder.feature_names_in_
            return _grouped(encoder, encoder.transform(cells))

        return encode_cells

    def _features(self, X: Any) -> Any:
        """Return the features of the linear model."""
        check_is_fitted(self, "model_")
        encoded = self.encoder_.transform(X)
        return encoded if self.fourier_ is None else self.fourier_.transform(encoded)

    def grouped(self, encoded: Any) -> GroupedMatrix:
        """Return rows of the encoder with the groups of their features.

        Parameters
        ----------
        encoded : ndarray or csr_array of shape (n_samples, n_features_out)
            Rows that ``encoder_`` has encoded.

        Returns
        -------
        matrix : GroupedMatrix
            The rows, with the group of each feature.
        """
        check_is_fitted(self, "model_")
        return _grouped(self.encoder_, encoded)

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags


def _grouped(encoder: Any, X: Any) -> GroupedMatrix:
    """Return the rows of an encoder with its groups."""
    return GroupedMatrix(X, encoder.feature_groups_, encoder.is_word_, encoder.in_kernel_)
