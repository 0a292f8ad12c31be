"""Base class of the noises: unbiased distributions ``x~`` around each row, independent per feature, ``E[x~] = x``."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from inspect import signature
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from dropmargin.data import canonical, entry_range, entry_rows, map_entries, one_partition, stores_zeros
from dropmargin.data.inputs import check_rows
from dropmargin.data.missing_values import feature_means
from dropmargin.data.variance import Variance
from dropmargin.noise.groups import short_text
from dropmargin.typing import Array


class Noise(BaseEstimator):
    """Base class of the noise distributions.

    A subclass defines `variance`. It also defines `log_mgf` for the losses that need the moment generating function,
    `draw` for sampling, and `check` if it has parameters. The constructor stores its parameters unchanged, as those of
    scikit-learn do; each is a number or one number per feature.

    Attributes
    ----------
    allows_negative : bool
        Whether the distribution is defined for negative entries. A class attribute.

    See Also
    --------
    DropoutNoise : Sets features to zero.
    GaussianNoise : Adds normal noise.
    LaplaceNoise : Adds Laplace noise.
    PoissonNoise : Draws counts.

    Examples
    --------
    >>> import numpy as np
    >>> from dropmargin import DropoutSVC
    >>> from dropmargin.noise import Noise, Variance
    >>> class SpeckleNoise(Noise):
    ...     def __init__(self, scale=0.1):
    ...         self.scale = scale
    ...
    ...     def variance(self):
    ...         return Variance(quadratic=np.square(self.scale))
    >>> X = np.array([[1.0, 2.0], [2.0, 1.0], [-1.0, 1.0], [-2.0, -1.0]])
    >>> DropoutSVC(noise=SpeckleNoise(scale=0.3)).fit(X, [1, 1, 0, 0]).predict(X)
    array([1, 1, 0, 0])
    """

    allows_negative = True

    def __repr__(self) -> str:
        """Return the noise with its rate or scale, and with other parameters that differ from their default.

        Of many values, such as the group of each feature, it has the number.
        """
        given = {name: (getattr(self, name), own.default) for name, own in signature(type(self)).parameters.items()}
        shown = [
            f"{name}={short_text(name, value)}"
            for name, (value, default) in given.items()
            if name == self.level_name or not (value is default or (isinstance(value, str) and value == default))
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def variance(self) -> Variance:
        """Return the variance of a corrupted feature as a function of its value.

        Returns
        -------
        Variance
            The variance, without a copy of the data.
        """
        raise NotImplementedError(f"{type(self).__name__} must define variance().")

    def log_mgf(self, t: Array, x: Array) -> tuple[Array, Array, Array]:
        """Return the log moment generating function of a corrupted feature and its derivatives.

        Parameters
        ----------
        t : ndarray
            The argument, element by element.
        x : ndarray of the same shape
            The values of the features.

        Returns
        -------
        value, first, second : ndarray
            ``K(t) = log E exp(t x~)`` and its first and second derivative by ``t``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no log_mgf().")

    def draw(self, x: Array, rng: np.random.RandomState) -> Array:
        """Return one corrupted copy of the values.

        Parameters
        ----------
        x : ndarray
            The values of the features; parameters with one number per feature must have its shape, see `take`.
        rng : numpy.random.RandomState
            The source of random numbers.

        Returns
        -------
        ndarray of the shape of ``x``
            The corrupted values.
        """
        raise NotImplementedError(f"{type(self).__name__} has no draw().")

    def check(self, n_features: int) -> None:
        """Check the parameters.

        Parameters
        ----------
        n_features : int
            The number of features of the data.

        Raises
        ------
        ValueError
            If a parameter is out of range or has the wrong length.
        """

    @property
    def level_name(self) -> str | None:
        """The name of the rate or scale, the first parameter of the constructor; ``None`` if it has none."""
        return next(iter(signature(type(self)).parameters), None)

    @property
    def level(self) -> Any:
        """The rate or scale; 1 if the noise has no parameter."""
        return 1.0 if self.level_name is None else getattr(self, self.level_name)

    @property
    def needs_means(self) -> bool:
        """Whether the noise depends on the means of the features in the training data, see `with_means`."""
        return False

    @property
    def missing_values(self) -> Array | None:
        """The value of each feature that a missing entry of the training data takes; ``None``: zero.

        The noise has no variance there.
        """
        return None

    def resolve(self, n_features: int, feature_names: Sequence[str] | None = None) -> Noise:
        """Check the parameters against the features, and return the noise with one number per feature where names were.

        Parameters
        ----------
        n_features : int
            The number of features of the data.
        feature_names : sequence of str, default=None
            Their names.

        Returns
        -------
        Noise
            The noise itself, or an equivalent one.
        """
        self.check(n_features)
        return self

    def with_means(self, feature_means: Array) -> Noise:
        """Return the noise for training data with these feature means.

        Parameters
        ----------
        feature_means : ndarray of shape (n_features,)
            Weighted means of the observed entries.

        Returns
        -------
        Noise
            The noise itself unless it `needs_means`.
        """
        return self

    def shifted(self, feature_means: Array) -> Noise | None:
        """Return the noise of ``X - feature_means``, or ``None`` if it is not one of this class.

        Parameters
        ----------
        feature_means : ndarray of shape (n_features,)
            What is subtracted from the features.

        Returns
        -------
        Noise or None
            The noise itself if its variance does not depend on ``X``.
        """
        return None if self.variance().depends_on_x else self

    @property
    def corrupts_zeros(self) -> bool:
        """Whether an entry that is zero has a variance."""
        variance = self.variance()
        return not variance.is_zero and (self.needs_means or bool(np.any(variance.of_zero)))

    @property
    def has_log_mgf(self) -> bool:
        """Whether the class defines `log_mgf`."""
        return type(self).log_mgf is not Noise.log_mgf

    @property
    def has_draw(self) -> bool:
        """Whether the class defines `draw`."""
        return type(self).draw is not Noise.draw

    def take(self, features: Any, rows: Array | None = None) -> Noise:
        """Return the noise of some features, or of entries.

        Parameters
        ----------
        features : slice, array of bool or array of int
            The features.
        rows : ndarray of int, default=None
            The row of each of these, if they are the features of entries of several rows.

        Returns
        -------
        Noise
            A copy. A parameter with one number per feature is indexed; a single number is copied.
        """
        taken = copy.copy(self)
        for name, value in self.get_params(deep=False).items():
            if np.ndim(value):
                setattr(taken, name, np.asarray(value, dtype=np.float64)[features])
        return taken

    def sample(self, X: Any, random_state: Any = None) -> Any:
        """Return a corrupted copy of ``X``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows to corrupt. They are not changed.
        random_state : int, RandomState instance or None, default=None
            The seed.

        Returns
        -------
        ndarray or sparse array of shape (n_samples, n_features)
            The corrupted rows; sparse if ``X`` is.

        Examples
        --------
        >>> import numpy as np
        >>> from dropmargin import DropoutNoise
        >>> DropoutNoise(rate=0.5, reference="zero").sample(np.ones((2, 4)), random_state=0)
        array([[2., 2., 2., 2.],
               [0., 2., 0., 2.]])
        """
        X = check_rows(X)
        noise = self.resolve(X.shape[1])
        if noise.needs_means and stores_zeros(X):
            noise = noise.with_means(feature_means(one_partition(X), has_missing=False))
        check_sign(self, entry_range(X)[0])
        rng = check_random_state(random_state)

        def corrupt(values: Array, features: Any) -> Array:
            return noise.take(features, entry_rows(canonical(X))).draw(values, rng).astype(values.dtype)

        sampled = map_entries(X, corrupt, zeros_stay=not noise.corrupts_zeros, what=f"A sample of {self!r}")
        return sampled.copy()  # no index arrays shared with X: the caller may eliminate zeros in place

    def _parameter(self, name: str, n_features: int, low: float, high: float, range_: str) -> Array:
        """Return a parameter as an array after checking its length, its finiteness and its range."""
        given, label = getattr(self, name), f"{name} of {type(self).__name__}"
        try:
            value = np.asarray(given)
        except ValueError:  # a ragged list
            value = np.asarray(None)
        if value.dtype.kind not in "fiu" or value.shape not in ((), (n_features,)):
            got = f"{name} has shape {value.shape}" if value.dtype.kind in "fiu" else f"got {given!r}"
            raise ValueError(f"{label} must be a number or one number per feature: X has {n_features} features, {got}.")
        value = value.astype(np.float64)
        wrong = ~((value >= low) & (value < high))  # also true for NaN
        if wrong.any():
            first = int(np.argmax(wrong))
            where = f" at feature {first}" if value.ndim else ""
            raise ValueError(f"{label} must be in {range_}, got {float(value.flat[first])!r}{where}.")
        return value


def check_sign(noise: Noise, lowest: float, where: str = "") -> None:
    """Raise a `ValueError` if the lowest entry of ``X`` is negative, and the distribution is not defined there."""
    if lowest < 0.0 and not noise.allows_negative:
        raise ValueError(
            f"{type(noise).__name__} needs X >= 0, but X has {lowest:g}{where}. "
            "For negative values choose DropoutNoise or GaussianNoise."
        )


def as_noise(noise: Any, reference: str = "mean") -> Noise | None:
    """Return the noise of a parameter ``noise``.

    Parameters
    ----------
    noise : float, Noise or None
        A number is a dropout rate.
    reference : {"mean", "zero"}, default="mean"
        The reference value of dropout for a number.

    Returns
    -------
    Noise or None
        ``DropoutNoise(rate=noise)`` for a number; anything else unchanged.

    Raises
    ------
    ValueError
        If ``noise`` is none of these. The range of a rate is checked by `Noise.check`.

    Examples
    --------
    >>> from dropmargin.noise import as_noise
    >>> as_noise(0.5)
    DropoutNoise(rate=0.5)
    """
    from dropmargin.noise.distributions import DropoutNoise

    if noise is None or isinstance(noise, Noise):
        return noise
    if isinstance(noise, Real) and not isinstance(noise, bool):
        return DropoutNoise(rate=float(noise), reference=reference)
    raise ValueError(
        f"noise must be None, a dropout rate in [0, 1), or a noise such as DropoutNoise(rate=0.5) or "
        f"GaussianNoise(scale=0.1); got {noise!r}. For one rate per feature, write DropoutNoise(rate=rates)."
    )
