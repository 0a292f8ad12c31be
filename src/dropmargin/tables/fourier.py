r"""Random Fourier features of rows with missing entries.

The features ``phi_j(x) = sqrt(2 / D) cos(omega_j.x + b_j)``, with ``omega_j ~ N(0, 2 gamma I)`` and ``b_j`` uniform on
``[0, 2 pi]``, have inner products close to the Gaussian kernel ``exp(-gamma |x - x'|^2)`` (Rahimi and Recht 2007).
A row with missing entries takes their expected value given its observed entries. Under a Gaussian distribution of the
rows, ``x`` given ``x_o`` is normal with mean ``m`` and covariance ``S`` (zero for observed entries), and::

    E[phi_j(x) | x_o] = sqrt(2 / D) exp(-omega_j' S omega_j / 2) cos(omega_j.m + b_j)

With the covariance ``U U' + Psi`` of the rows, ``M = I + U_o' Psi_o^-1 U_o`` and
``z = M^-1 U_o' Psi_o^-1 (x_o - mu_o)``::

    m_m = mu_m + U_m z,      omega' S omega = sum_m psi_m omega_m^2 + (U_m' omega_m)' M^-1 (U_m' omega_m)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data

from dropmargin.estimators import DropoutRidge
from dropmargin.estimators.conditional import FactorModel
from dropmargin.estimators.validation import check_integer, check_number
from dropmargin.typing import Array

# Numbers that a chunk of patterns of missing entries takes.
_CHUNK = 2**22
# Rows whose features are computed together.
_BATCH = 8192


class FourierFeatures(TransformerMixin, BaseEstimator):
    """Random Fourier features of the Gaussian kernel, for rows with missing entries.

    A linear model of these features approximates a model with the kernel ``exp(-gamma |x - x'|^2)``. NaN is a missing
    entry: its row takes the expected features given the observed entries, in closed form, under a Gaussian
    distribution of the rows with low-rank plus diagonal covariance. Scale the columns of ``X`` first.

    Parameters
    ----------
    gamma : float or "scale", default="scale"
        The parameter of the kernel; ``"scale"`` is one over the sum of the variances of the features in the kernel.
    n_components : int, default=500
        The number of features.
    linear : bool, default=False
        Whether the expected entries of the row stand beside them, as further features.
    in_kernel : array-like of bool of shape (n_features,), default=None
        The features of ``X`` that enter the kernel, all by default. The others help to predict missing entries, and
        stand beside the Fourier features with ``linear=True``.
    rank : int or None, default=None
        Number of factors of the covariance of the rows; ``None`` chooses it by the likelihood of held-out rows.
    random_state : int, RandomState instance or None, default=None
        Seed of the features.

    Attributes
    ----------
    kernel_features_ : ndarray of int of shape (n_kernel_features,)
        The features that enter the kernel.
    omegas_, phases_ : ndarray of shape (n_kernel_features, n_components) and (n_components,)
        The random frequencies and phases.
    feature_means_, feature_factors_, residual_variances_ : ndarray
        The Gaussian distribution of the rows: its mean, and ``U`` and the diagonal of ``Psi`` of its covariance
        ``U U' + Psi``.
    gamma_ : float
        The parameter of the kernel.
    projection_ : ndarray of shape (n_features_out + 1, n_scores) or None
        In a table model, the coefficients and (last row) intercepts of least squares: `transform` returns its scores.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of str
        Names of the features, only if ``X`` has column names that are all strings.

    See Also
    --------
    TableClassifier : Has these features with ``basis="fourier"``.
    sklearn.kernel_approximation.RBFSampler : The same features without missing entries.

    References
    ----------
    .. [1] A. Rahimi and B. Recht, "Random Features for Large-Scale Kernel Machines", NeurIPS 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from dropmargin import FourierFeatures
    >>> X, y = load_iris(return_X_y=True)
    >>> X[::3, 2] = np.nan
    >>> model = make_pipeline(StandardScaler(), FourierFeatures(random_state=0), LogisticRegression(C=10.0))
    >>> model.fit(X, y).score(X, y) > 0.95
    True
    """

    def __init__(
        self,
        gamma: float | str = "scale",
        n_components: int = 500,
        linear: bool = False,
        in_kernel: Any = None,
        rank: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.gamma = gamma
        self.n_components = n_components
        self.linear = linear
        self.in_kernel = in_kernel
        self.rank = rank
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> FourierFeatures:
        """Draw the features, and fit the Gaussian distribution of the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows; NaN is a missing entry.
        y : object, default=None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, for their Gaussian distribution.

        Returns
        -------
        self : object
            The fitted transformer.
        """
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan")
        n_components = check_integer("n_components", self.n_components, 1)
        in_kernel = np.ones(X.shape[1], dtype=bool) if self.in_kernel is None else np.asarray(self.in_kernel)
        if in_kernel.shape != (X.shape[1],) or in_kernel.dtype != bool or not in_kernel.any():
            raise ValueError(f"in_kernel must have a bool for each of {X.shape[1]} features, got {self.in_kernel!r}.")
        self.kernel_features_ = np.flatnonzero(in_kernel)
        # The Gaussian is that of missing="conditional", whatever the targets are; those of zero need no solver.
        gaussian = DropoutRidge(noise=None, missing="conditional", missing_rank=self.rank)
        gaussian.fit(X, np.zeros(len(X)), sample_weight=sample_weight)
        for name in ("feature_means_", "feature_factors_", "residual_variances_"):
            setattr(self, name, np.asarray(getattr(gaussian, name)))
        variances = np.square(self.feature_factors_).sum(axis=1) + self.residual_variances_
        if isinstance(self.gamma, str):
            if self.gamma != "scale":
                raise ValueError(f"gamma must be a number above 0 or 'scale', got {self.gamma!r}.")
            self.gamma_ = 1.0 / (float(variances[in_kernel].sum()) or 1.0)
        else:
            self.gamma_ = check_number("gamma", self.gamma, 0.0, low_open=True)
        rng = check_random_state(self.random_state)
        self.omegas_ = np.sqrt(2.0 * self.gamma_) * rng.standard_normal((in_kernel.sum(), n_components))
        self.phases_ = rng.uniform(0.0, 2.0 * np.pi, n_components)
        self.projection_: Array | None = None
        return self

    def transform(self, X: Any) -> Array:
        """Return the features of rows, expected ones where entries are missing.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; NaN is a missing entry.

        Returns
        -------
        features : ndarray of shape (n_samples, n_components) or (n_samples, n_components + n_features)
            The features; with ``linear=True`` followed by the row with expected entries.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        parts = [self.combined(*self.terms(X[part])) for part in gen_batches(len(X), _BATCH)]
        return np.vstack(parts)

    def terms(self, X: Array) -> tuple[Array, Array, Array]:
        """Return what the features of rows are made of, for any ``gamma``.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            Rows; NaN is a missing entry.

        Returns
        -------
        filled : ndarray of shape (n_samples, n_features)
            The rows with their conditional means in place of missing entries.
        products : ndarray of shape (n_samples, n_components)
            Their products with the frequencies.
        exponents : ndarray of shape (n_samples, n_components) or (1, 1)
            The exponents of the factors for the conditional covariances; zero if no entry is missing.
        """
        filled, exponents, gaussian = X.copy(), np.zeros((1, 1)), self.gaussian
        omegas = self.omegas_.astype(np.float32)  # the exponents need few digits
        loadings = self.feature_factors_[self.kernel_features_].T.astype(np.float32)
        for rows, which, missing, inverses in self._conditionals(X, gaussian):
            filled[rows] = _expected(X[rows], gaussian, inverses[which])
            missing = missing[:, self.kernel_features_].astype(np.float32)
            projected = (missing[:, None, :] * loadings) @ omegas
            quadratic = (missing * self.residual_variances_[self.kernel_features_]) @ np.square(self.omegas_)
            quadratic += np.einsum("prj,prj->pj", projected, inverses.astype(np.float32) @ projected)
            if len(exponents) == 1:
                exponents = np.zeros((len(X), self.omegas_.shape[1]))
            exponents[rows] = -0.5 * quadratic[which]
        return filled, filled[:, self.kernel_features_] @ self.omegas_, exponents

    def combined(self, filled: Array, products: Array, exponents: Array, factor: float = 1.0) -> Array:
        """Return the features that are made of `terms`.

        Parameters
        ----------
        filled, products, exponents : ndarray
            What `terms` returns.
        factor : float, default=1.0
            The factor of ``gamma``.

        Returns
        -------
        features : ndarray of shape (n_samples, n_features_out)
            The features of the rows.
        """
        features = np.sqrt(factor) * products
        features += self.phases_
        np.cos(features, out=features)
        features *= np.sqrt(2.0 / features.shape[1])
        if exponents.any():
            features *= np.exp(factor * exponents)
        features = np.hstack([features, filled]) if self.linear else features
        return features if self.projection_ is None else features @ self.projection_[:-1] + self.projection_[-1]

    def sample(self, X: Any, rng: np.random.Generator) -> Array:
        """Return rows whose missing entries are drawn from their distribution given the observed ones.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; NaN is a missing entry.
        rng : numpy.random.Generator
            The source of random numbers.

        Returns
        -------
        rows : ndarray of shape (n_samples, n_features)
            Complete rows.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        drawn, deviations, gaussian = X.copy(), np.sqrt(self.residual_variances_), self.gaussian
        for rows, which, _, inverses in self._conditionals(X, gaussian):
            factors = np.linalg.cholesky(inverses)[which] @ rng.standard_normal((len(rows), inverses.shape[1], 1))
            noise = factors[:, :, 0] @ self.feature_factors_.T + deviations * rng.standard_normal(
                (len(rows), X.shape[1])
            )
            drawn[rows] = np.where(np.isnan(X[rows]), _expected(X[rows], gaussian, inverses[which]) + noise, X[rows])
        return drawn

    @property
    def gaussian(self) -> FactorModel:
        """The Gaussian distribution of the rows."""
        return FactorModel(self.feature_means_, self.feature_factors_, self.residual_variances_)

    def _conditionals(self, X: Array, gaussian: FactorModel) -> Iterator[tuple[Array, Array, Array, Array]]:
        """Yield incomplete rows, the pattern of each, and of each pattern its missing entries (0 or 1) and ``M^-1``."""
        incomplete = np.flatnonzero(np.isnan(X).any(axis=1))
        if not len(incomplete):
            return
        is_missing = np.isnan(X[incomplete])
        _, first, numbers = np.unique(np.packbits(is_missing, axis=1), axis=0, return_index=True, return_inverse=True)
        patterns, numbers = is_missing[first], numbers.ravel()
        size = max(1, _CHUNK // (max(1, gaussian.rank) * (X.shape[1] + self.omegas_.shape[1])))
        for part in gen_batches(len(patterns), size):
            missing = patterns[part].astype(np.float64)
            own = np.flatnonzero((numbers >= part.start) & (numbers < part.stop))
            yield incomplete[own], numbers[own] - part.start, missing, np.linalg.inv(gaussian.matrices(missing))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the features: ``fourier0``, ``fourier1`` and so on, and those of the row beside them.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the features of ``X``.

        Returns
        -------
        names : ndarray of str
            The names.
        """
        check_is_fitted(self)
        if self.projection_ is not None:
            return np.array([f"score{j}" for j in range(self.projection_.shape[1])], dtype=object)
        names = [f"fourier{j}" for j in range(self.omegas_.shape[1])]
        given = getattr(self, "feature_names_in_", None) if input_features is None else input_features
        own = [f"x{d}" for d in range(self.n_features_in_)] if given is None else list(given)
        return np.array([*names, *own] if self.linear else names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _expected(X: Array, gaussian: FactorModel, inverses: Array) -> Array:
    """Return rows with the expected values of their missing entries."""
    is_missing = np.isnan(X)
    deviations = np.where(is_missing, 0.0, X - gaussian.mean)
    factors = np.einsum("nr,nrs->ns", deviations @ gaussian.precision_factors, inverses)
    return np.where(is_missing, gaussian.mean + factors @ gaussian.factors.T, X)
