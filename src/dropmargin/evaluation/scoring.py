"""Scores of a fitted model on corrupted test rows: checks, one score, and the scores of all levels and repeats."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.utils import _safe_indexing, check_consistent_length, check_random_state
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from dropmargin.data.deletion import has_other_than_numbers, is_documents, is_frame
from dropmargin.data.inputs import check_rows, check_unmasked
from dropmargin.estimators.validation import check_integer, check_n_jobs
from dropmargin.progress import Progress
from dropmargin.typing import Array


@dataclass(frozen=True, eq=False)
class ScoreCurve:
    """Scores of one model at several levels of corruption, of shape (n_levels, n_repeats), and their metric."""

    scores: Array
    scoring: Any

    @property
    def mean(self) -> Array:
        """Mean score of each level over the repeats."""
        return self.scores.mean(axis=1)

    @property
    def std(self) -> Array:
        return np.std(self.scores, axis=1)


@dataclass(frozen=True)
class ScoringCase:
    """A fitted model and its test rows, the same for every level of a curve."""

    estimator: Any
    X: Any  # as given
    values: Any  # the entries of X; X itself if it has other columns than numbers, or documents
    y: Any
    scoring: Any  # a name in place of "auto"
    scorer: Callable[..., Any]
    sample_weight: Any

    def score(self, values: Any = None) -> float:
        """Return the score of corrupted rows, or of the given ones."""
        X = self.X if values is None else self.in_container(values)
        weights = {} if self.sample_weight is None else {"sample_weight": self.sample_weight}
        try:
            score = self.scorer(self.estimator, X, self.y, **weights)
        except (ValueError, TypeError, AttributeError) as error:
            if values is None or not is_frame(values):
                raise
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"Deleted cells are missing values, and {type(self.estimator).__name__} does not predict with them "
                f"({reason}). Add an imputer to the pipeline, or use TableEncoder and DropoutSVC(missing='rescale')."
            ) from error
        if not isinstance(score, Real):
            raise ValueError(f"scoring must give one number per data set, got {score!r}. Choose a single metric.")
        return float(score)

    def subset(self, rows: Array) -> ScoringCase:
        """Return the case of some of the rows."""
        parts = {name: _safe_indexing(getattr(self, name), rows) for name in ("X", "values", "y")}
        weights = None if self.sample_weight is None else _safe_indexing(self.sample_weight, rows)
        return replace(self, **parts, sample_weight=weights)

    def in_container(self, values: Any) -> Any:
        """Return values as a data frame if ``X`` is one, with its columns, else unchanged."""
        if is_frame(values) or is_documents(values):
            return values
        if hasattr(self.X, "iloc"):  # pandas
            return type(self.X)(values, columns=self.X.columns, index=self.X.index)
        if hasattr(self.X, "column_names"):  # pyarrow
            return type(self.X).from_arrays(list(values.T), names=self.X.column_names)
        if hasattr(self.X, "columns") and hasattr(self.X, "schema"):  # polars
            return type(self.X)(values, schema=list(self.X.columns), orient="row")
        return values


def make_case(
    estimator: Any, X: Any, y: Any, scoring: Any, sample_weight: Any, caller: str, *, any_type: bool = False
) -> ScoringCase:
    """Return the test case of an estimator after checking that it is fitted and has the features of ``X``.

    With ``any_type``, ``X`` may be a data frame with columns that are not numbers, or a sequence of documents.
    """
    if isinstance(estimator, type) or not hasattr(estimator, "predict"):
        raise TypeError(f"{caller} needs a fitted model with predict(), got {estimator!r}.")
    check_is_fitted(estimator, msg=f"{caller} needs a fitted model; this %(name)s is not fitted yet.")
    if any_type and (is_documents(X) or (is_frame(X) and has_other_than_numbers(X))):
        values = X
    else:
        values = check_rows(X, ensure_all_finite=False)  # some models accept NaN; others raise their own error
    n_expected = None if is_documents(values) else getattr(estimator, "n_features_in_", values.shape[1])
    if n_expected is not None and n_expected != values.shape[1]:
        name = type(estimator).__name__
        raise ValueError(f"X has {values.shape[1]} features, but {name} was fitted with {n_expected}.")
    check_unmasked(y, "y")
    check_consistent_length(values, y)
    if isinstance(scoring, str) and scoring == "auto":
        scoring = "neg_root_mean_squared_error" if is_regressor(estimator) else "accuracy"
    # Imported here because the scorers take a large part of a second to import.
    from sklearn.metrics import check_scoring

    scorer = check_scoring(estimator, scoring=scoring)
    if sample_weight is not None and not _takes(scorer, "sample_weight"):
        raise ValueError(f"scoring={scoring!r} takes no sample_weight: make a scorer by make_scorer, or omit it.")
    return ScoringCase(estimator, X, values, y, scoring, scorer, sample_weight)


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function has a parameter of this name, or ``**kwargs``."""
    parameters = inspect.signature(function).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def repeat_seeds(n_repeats: Any, random_state: Any) -> Array:
    """Return one seed per repeat; the corruption of a repeat depends on nothing else that is random."""
    n_repeats = check_integer("n_repeats", n_repeats, 1)
    return check_random_state(random_state).randint(np.iinfo(np.int32).max, size=n_repeats)


def score_levels(
    case: ScoringCase,
    corrupt: Callable[[int, int], Any],
    is_plain: Array,
    seeds: Array,
    *,
    n_jobs: int | None,
    verbose: int,
    label: str,
) -> Array:
    """Return the scores of the rows ``corrupt(level, seed)`` for each level and each seed, by ``n_jobs`` threads.

    The scores of levels that are plain, without corruption, are those of the given rows.
    """
    check_n_jobs("n_jobs", n_jobs)
    scores = np.empty((len(is_plain), len(seeds)))
    if is_plain.any():
        scores[is_plain] = case.score()
    cells = [(level, repeat) for level in np.flatnonzero(~is_plain) for repeat in range(len(seeds))]

    def score_cell(level: int, repeat: int) -> float:
        return case.score(corrupt(int(level), int(seeds[repeat])))

    # Threads share the data; each has one corrupted copy at a time.
    run = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    results: Iterator[float] = run(delayed(score_cell)(*cell) for cell in cells)
    with Progress(len(cells), label, verbose=verbose) as progress:
        for cell, score in zip(cells, results, strict=True):
            scores[cell] = score
            progress.advance()
    return scores
