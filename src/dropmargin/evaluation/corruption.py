"""Scores of a model whose features are corrupted by noise at prediction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dropmargin.evaluation.scoring import ScoreCurve, make_case, repeat_seeds, score_levels
from dropmargin.noise import Noise, as_noise


@dataclass(frozen=True, eq=False)
class CorruptionCurve(ScoreCurve):
    """Scores of one model under several noises, as `corruption_curve` returns them.

    Attributes
    ----------
    noises : tuple of Noise or None
        One per level.
    scores : ndarray of shape (n_noises, n_repeats)
    mean, std : ndarray of shape (n_noises,)
        Mean and standard deviation over the repeats.
    scoring : str, callable or None
        As given.
    """

    noises: tuple[Noise | None, ...]


def corruption_curve(
    estimator: Any,
    X: Any,
    y: Any,
    noises: Any,
    *,
    n_repeats: int = 5,
    scoring: Any = "auto",
    sample_weight: Any = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    verbose: int = 1,
) -> CorruptionCurve:
    """Return the scores of a fitted model on rows that are corrupted by each of several noises.

    Parameters
    ----------
    estimator : classifier or regressor
        Any fitted scikit-learn classifier, regressor or pipeline.
    X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
        Test rows. They are not changed; a data frame is passed to the estimator as a data frame.
    y : array-like of shape (n_samples,)
        Their labels, or numbers.
    noises : sequence of Noise, float or None
        For example ``[None, GaussianNoise(scale=0.1), GaussianNoise(scale=0.2)]``. A number is the rate of dropout;
        ``None`` is no noise. Gaussian and Laplace noise would make a sparse ``X`` dense and raise an error.
    n_repeats : int, default=5
        Number of corrupted copies per noise.
    scoring : str, callable or None, default="auto"
        As for `deletion_curve`.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows in the score.
    random_state : int, RandomState instance or None, default=None
        Seed of the noise. With the same int, the corrupted rows are the same for every estimator; and the noises of a
        curve use the same random numbers, so that a larger scale is the same noise, multiplied.
    n_jobs : int, default=None
        Number of threads; it does not change the result.
    verbose : int, default=1
        0 for no progress bar, as for `deletion_curve`.

    Returns
    -------
    CorruptionCurve
        ``noises``, ``scores`` of shape (n_noises, n_repeats), ``mean``, ``std``.

    See Also
    --------
    deletion_curve : Scores on rows with deleted features.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dropmargin import DropoutSVC, GaussianNoise, corruption_curve
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DropoutSVC().fit(X, y)
    >>> curve = corruption_curve(model, X, y, [None, GaussianNoise(2.0)], random_state=0, verbose=0)
    >>> bool(curve.mean[0] > curve.mean[1])
    True
    """
    checked = _check_noises(noises)
    seeds = repeat_seeds(n_repeats, random_state)
    case = make_case(estimator, X, y, scoring, sample_weight, "corruption_curve")
    for noise in checked:
        if noise is not None:
            noise.check(case.values.shape[1])

    def corrupt(level: int, seed: int) -> Any:
        noise = checked[level]
        assert noise is not None  # levels without noise are not corrupted
        return noise.sample(case.values, seed)

    is_plain = np.array([noise is None for noise in checked])
    scores = score_levels(case, corrupt, is_plain, seeds, n_jobs=n_jobs, verbose=verbose, label="corruption curve")
    return CorruptionCurve(scores, case.scoring, checked)


def _check_noises(noises: Any) -> tuple[Noise | None, ...]:
    if isinstance(noises, Noise) or not isinstance(noises, Iterable) or isinstance(noises, str):
        raise ValueError(
            f"noises must be a list of noises such as [GaussianNoise(0.1), GaussianNoise(0.2)], got {noises!r}."
        )
    checked = tuple(as_noise(noise, reference="zero") for noise in noises)
    if not checked:
        raise ValueError("noises is empty: give at least one noise, such as [GaussianNoise(scale=0.1)].")
    return checked
