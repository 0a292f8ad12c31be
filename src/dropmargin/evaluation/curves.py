"""Scores of a model whose features are deleted (the "nightmare at test time") or corrupted by noise at prediction."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from dropmargin.data.deletion import delete_columns, delete_entries, is_documents, is_frame
from dropmargin.data.inputs import column_names
from dropmargin.estimators.validation import check_choice
from dropmargin.evaluation.scoring import ScoreCurve, ScoringCase, make_case, repeat_seeds, score_levels
from dropmargin.noise import Noise, as_noise
from dropmargin.noise.groups import group_features
from dropmargin.typing import Array

_STRATEGIES = ("entries", "columns", "worst")
# Rows on which columns are ranked.
_MAX_ROWS = 1000
DEFAULT_LEVELS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True, eq=False)
class DeletionCurve(ScoreCurve):
    """Scores of one model at several levels of deletion, as `deletion_curve` returns them.

    Attributes
    ----------
    levels : ndarray of shape (n_levels,)
        Shares of the features that are deleted, in the given order.
    scores : ndarray of shape (n_levels, n_repeats)
    mean, std : ndarray of shape (n_levels,)
        Mean and standard deviation over the repeats.
    strategy, fill, rescale, scoring
        As given.
    """

    levels: Array
    strategy: str
    fill: Any
    rescale: bool


def deletion_curve(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    levels: Any = DEFAULT_LEVELS,
    strategy: str = "entries",
    groups: Any = None,
    n_repeats: int = 5,
    fill: Any = None,
    rescale: bool = False,
    scoring: Any = "auto",
    sample_weight: Any = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    verbose: int = 1,
) -> DeletionCurve:
    """Return the scores of a fitted model when a share of its features is deleted.

    Cells of a data frame with texts, categories or dates are deleted before the pipeline encodes them, and become
    missing values; of documents, words are left out. In rows of numbers a deleted entry becomes ``fill``, and the
    others ``x``, or with ``rescale=True`` ``fill + (x - fill) / (1 - share deleted)``, which leaves their expectation
    as it was.

    Parameters
    ----------
    estimator : classifier or regressor
        Any fitted scikit-learn classifier, regressor or pipeline.
    X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features), or sequence of str
        Test rows as the estimator expects them: numbers, a data frame with columns of any type (pandas or polars), or
        documents. They are not changed; a data frame is passed to the estimator as a data frame.
    y : array-like of shape (n_samples,)
        Their labels, or numbers.
    levels : array-like of shape (n_levels,), default=(0, 0.1, ..., 0.9)
        Shares of the features to delete, each in [0, 1]. At 0 the score is that of the given rows. At 1 every entry is
        deleted, all rows are equal, and the score is that of a constant prediction.
    strategy : {"entries", "columns", "worst"}, default="entries"
        What is deleted:

        - ``"entries"``: each entry of ``X`` with probability ``level``, independently, as in the paper; of a data frame
          each cell, of a document each word;
        - ``"columns"``: ``level * n_features`` random columns, rounded, the same for all rows, as if sensors fail;
        - ``"worst"``: as many columns, in the order of the decrease of the score on ``X`` if the column alone is
          deleted (on 1,000 random rows, if there are more). As nothing else is random, there is one repeat.
    groups : array-like of shape (n_features,) or mapping, default=None
        Features that are deleted together, as for `DropoutNoise`: the group of each feature, or the features of each
        group by index, name or pattern. ``level`` is then the share of the groups.
    n_repeats : int, default=5
        Number of random deletions per level.
    fill : float, array-like of shape (n_features,) or None, default=None
        The value of deleted entries: 0 as in the paper, the means of the training columns for mean imputation, or NaN
        for a model that accepts missing values. ``None`` is NaN for a `TableClassifier` or `TableRegressor`; for other
        models 0 in rows of numbers, and a missing value in a data frame with other columns, where nothing else is
        possible. For a sparse ``X``, 0 or NaN; with NaN every deleted
        entry is stored, zeros included.
    rescale : bool, default=False
        Whether the other entries are scaled up, as above. With ``fill`` the training means this is
        *anchored* rescaling; a linear model then scores ``b + w.mu + sum_kept w_d (x_d - mu_d) / (1 - level)``.
        Not with NaN.
    scoring : str, callable or None, default="auto"
        One of scikit-learn's metrics by name, a callable ``scorer(estimator, X, y)``, or ``None`` for the estimator's
        own ``score``. ``"auto"`` is ``"accuracy"`` for a classifier, ``"neg_root_mean_squared_error"`` for a regressor.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows in the score.
    random_state : int, RandomState instance or None, default=None
        Seed of the deletions. With the same int and ``X`` of the same kind (dense or sparse) and shape, the deletions
        are the same for every estimator; entries that are deleted at one level are also deleted at higher ones.
    n_jobs : int, default=None
        Number of threads; it does not change the result.
    verbose : int, default=1
        0 for no progress bar. It is shown only in a terminal or a notebook, and if the work takes over two seconds.

    Returns
    -------
    DeletionCurve
        ``levels``, ``scores`` of shape (n_levels, n_repeats), ``mean``, ``std``.

    See Also
    --------
    corruption_curve : Scores on rows with other noise.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dropmargin import DropoutSVC, deletion_curve
    >>> X, y = load_digits(return_X_y=True)
    >>> model = DropoutSVC(noise=0.1).fit(X[:1000] / 16, y[:1000])
    >>> curve = deletion_curve(model, X[1000:] / 16, y[1000:], levels=[0.0, 0.5], random_state=0)
    >>> [f"{accuracy:.1f}" for accuracy in curve.mean]
    ['0.9', '0.6']

    A table with categories, whose cells are deleted before a pipeline encodes them:

    >>> import pandas as pd
    >>> from sklearn.pipeline import make_pipeline
    >>> from dropmargin.tables import TableEncoder
    >>> table = pd.DataFrame({"colour": ["red", "blue"] * 20, "size": [1.0, 2.0] * 20})
    >>> pipeline = make_pipeline(TableEncoder(basis="linear"), DropoutSVC(missing="rescale")).fit(table, [0, 1] * 20)
    >>> deletion_curve(pipeline, table, [0, 1] * 20, levels=[0.5], strategy="columns", random_state=0).mean
    array([1.])
    """
    levels = check_levels(levels)
    check_choice("strategy", strategy, _STRATEGIES)
    seeds = repeat_seeds(n_repeats, random_state)
    case = make_case(estimator, X, y, scoring, sample_weight, "deletion_curve", any_type=True)
    values = case.values
    n_features = 1 if is_documents(values) else values.shape[1]
    if is_documents(values) and (strategy != "entries" or groups is not None):
        given = f"got strategy={strategy!r}, groups={groups!r}"
        raise ValueError(f"Words of documents are deleted one by one, by strategy='entries' and groups=None; {given}.")
    if fill is None:
        fill = getattr(estimator, "deleted_fill", None)  # a model of a table: NaN
    is_other = is_documents(values) or is_frame(values)
    filling = _check_fill_of_other(fill, rescale) if is_other else _check_fill(fill, rescale, n_features)
    numbers, n_groups = np.arange(n_features), n_features
    if groups is not None:
        numbers, names = group_features(groups, n_features, column_names(X))
        n_groups = len(names)
    n_deleted = np.floor(levels * n_groups + 0.5).astype(int)
    shares = levels if strategy == "entries" else n_deleted / n_groups
    # At level 1 no entry is left to rescale.
    factors = [1.0 / (1.0 - share) if rescale and share < 1.0 else 1.0 for share in shares]
    if strategy == "worst":
        seeds = seeds[:1]
        most_useful_first = np.argsort(_scores_without(case, numbers, filling, int(seeds[0])), kind="stable")

    def delete(level: int, seed: int) -> Any:
        rng = np.random.default_rng(seed)
        if strategy == "entries":
            drawn = None if groups is None else numbers
            return delete_entries(values, levels[level], filling, factors[level], rng, drawn)
        order = most_useful_first if strategy == "worst" else rng.permutation(n_groups)
        features = np.flatnonzero(np.isin(numbers, order[: n_deleted[level]]))
        return delete_columns(values, features, filling, factors[level])

    scores = score_levels(case, delete, shares == 0.0, seeds, n_jobs=n_jobs, verbose=verbose, label="deletion curve")
    return DeletionCurve(scores, case.scoring, levels, strategy, filling if fill is None else fill, rescale)


def _scores_without(case: ScoringCase, groups: Array, fill: Any, seed: int) -> Array:
    """Return the score without each group of features, on at most 1,000 rows.

    scikit-learn's `permutation_importance` measures nearly the same, but neither of groups nor of sparse rows.
    """
    n_rows, some = case.values.shape[0], case
    if n_rows > _MAX_ROWS:
        some = case.subset(np.sort(np.random.default_rng(seed).choice(n_rows, _MAX_ROWS, replace=False)))
    features = (np.flatnonzero(groups == number) for number in range(groups.max() + 1))
    return np.array([some.score(delete_columns(some.values, own, fill, 1.0)) for own in features])


def check_levels(levels: Any) -> Array:
    """Return levels as an array after checking that each is a share."""
    try:
        checked = np.asarray(levels)
    except ValueError:  # a ragged list
        checked = np.asarray(None)
    if checked.ndim != 1 or checked.size == 0 or checked.dtype.kind not in "fiu":
        raise ValueError(f"levels must be a list of one or more numbers in [0, 1], got {levels!r}.")
    wrong = ~((checked >= 0) & (checked <= 1))  # also if NaN
    if wrong.any():
        raise ValueError(f"levels must be in [0, 1], got {checked[wrong][0]!r}. Write 0.3 for 30 % of the features.")
    return checked.astype(np.float64)


def _check_fill_of_other(fill: Any, rescale: Any) -> float:
    """Return NaN, the only fill of data frames with other columns than numbers, and of documents."""
    is_missing = fill is None or (isinstance(fill, float) and math.isnan(fill))
    if not is_missing or rescale:
        given = f"leave out fill and rescale, got fill={fill!r}, rescale={rescale!r}"
        raise ValueError(f"X has texts, categories or dates: a deleted cell is a missing value; {given}.")
    return math.nan


def _check_fill(fill: Any, rescale: Any, n_features: int) -> Any:
    """Return the fill as a number or an array of one number per feature."""
    if not isinstance(rescale, bool | np.bool_):
        raise ValueError(f"rescale must be True or False, got {rescale!r}; anchored: fill=X_train.mean(axis=0).")
    fill = 0.0 if fill is None else fill
    if isinstance(fill, Real) and not isinstance(fill, bool) and not math.isinf(fill):
        if rescale and math.isnan(fill):
            raise ValueError("rescale=True cannot be combined with fill=nan. Use rescale=False.")
        return float(fill)
    try:
        values = np.ravel(np.asarray(fill, dtype=np.float64))
    except (TypeError, ValueError):
        values = np.empty(0)
    if isinstance(fill, bool | str) or values.shape != (n_features,) or not np.isfinite(values).all():
        raise ValueError(f"fill must be a number, NaN or one number per feature ({n_features} of them), got {fill!r}.")
    return values


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
        raise ValueError(f"noises must be a list such as [GaussianNoise(0.1), GaussianNoise(0.2)], got {noises!r}.")
    checked = tuple(as_noise(noise, reference="zero") for noise in noises)
    if not checked:
        raise ValueError("noises is empty: give at least one noise, such as [GaussianNoise(scale=0.1)].")
    return checked
