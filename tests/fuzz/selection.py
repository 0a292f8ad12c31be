"""Random searches over noise and ``C``, each compared with plain models on every fold: is the choice the best one?

``python -m tests.fuzz.selection N SEED`` draws ``N`` searches (`searches`): all CV estimators, losses, noises, scores,
folds, missing entries, target noises. A plain model is fitted to the training rows of every fold at every grid point,
to a small tolerance, and scored on the held-out rows through its public methods. Findings, one line each, with the
numbers that draw the search again (``python -m tests.fuzz.selection --show SEED INDEX``):

claimed
    A score is not that of its coefficients (``coefs_paths_``) on the held-out rows, as a plain model scores them; or
    these are not a solution: their objective is above that of the plain model by more than ten times the tolerance. So
    the label of a row may differ from that of the plain model only if solutions within the tolerance disagree on it.
chosen
    The choice is not that of the rule (the best score, or one standard error) from the scores. Points that pruning did
    not solve have the score of their plain model, fitted to a small tolerance and to that of the search: if the choice
    from both is better, pruning has missed it.
constant
    The chosen model has no coefficients, and no warning says so; or the warning is wrong.
crash
    An exception, or a warning that is not about the ends of the grid.

The exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import UndefinedMetricWarning

from dropmargin.errors import ParameterWarning

from .held_out import Fold
from .optima import ALLOWED, _time_limit
from .searches import Case, draw

# Points that may be chosen are solved to this share of the tolerance (documented with ``prune``).
_SHARE = 0.1
# The tolerance of the plain models.
_TIGHT = 1e-9
# Equal scores differ by less.
_EQUAL = 1e-12
# Two ways to compute the same score differ by less, and an integral over the score of a class by less.
_ROUNDING = 1e-8
_QUADRATURE = 5e-3
# A search with deleted features draws at least this many copies in all; means over draws differ by so many standard
# errors at most.
_SEARCH_COPIES = 8192
_STANDARD_ERRORS = 6.0


class Outcome(NamedTuple):
    """What came of a search: its findings, as pairs of a kind and a text, and what pruning did."""

    index: int
    findings: list[tuple[str, str]]
    seconds: float
    #: The share of the points that was solved precisely.
    refined: float
    #: How much higher the score of the best point is that pruning did not solve; 0 if the choice is right.
    missed: float
    #: The largest difference between a score and that of a plain model with a small tolerance.
    largest_difference: float
    described: str


def run(seed: int, index: int, seconds: int = 300) -> Outcome:
    """Run a search, for so many seconds at most, and compare it with plain models."""
    case = draw(seed, index)
    begun = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with _time_limit(seconds):
                search = case.search().fit(case.rows(), case.y, sample_weight=case.sample_weight)
        except Exception as error:
            return Outcome(index, [("crash", f"{type(error).__name__}: {error}")], 0.0, 0.0, 0.0, 0.0, case.described)
    taken = time.perf_counter() - begun
    findings = _warnings(search, caught)
    tol = min(_TIGHT, _SHARE * case.tol)
    folds = [Fold(case, train, test, search.noises_, search.Cs_, tol) for train, test in case.folds()]
    exact = np.array([[[fold.score(fold.models[point]) for point in row] for row in _grid(search)] for fold in folds])
    findings += _claimed(search, folds)
    problems, missed = _chosen(case, search, folds, exact)
    difference = np.abs(exact.mean(axis=-1) - search.scores_)[:, search.refined_].max(initial=0.0)
    findings += problems
    return Outcome(index, findings, taken, float(search.refined_.mean()), missed, float(difference), case.described)


def _grid(search: Any) -> list[list[tuple[int, int]]]:
    return [[(i, j) for j in range(len(search.Cs_))] for i in range(len(search.noises_))]


def _warnings(search: Any, caught: list[Any]) -> list[tuple[str, str]]:
    """Return the warnings that a search should not give, and that of a constant model if it is absent."""
    expected = ParameterWarning, UndefinedMetricWarning
    texts = [str(entry.message) for entry in caught]
    found = [
        ("crash", f"{entry.category.__name__}: {entry.message}")
        for entry, text in zip(caught, texts, strict=True)
        if not issubclass(entry.category, expected) and "y_pred contains classes" not in text
    ]
    is_said = any("no coefficients" in text for text in texts)
    if is_said == bool(np.any(search.coef_)):
        text = "no coefficients, and there is no warning" if not is_said else "coefficients, and a warning denies it"
        found.append(("constant", f"the chosen model has {text}"))
    mean = search.scores_.mean(axis=0)
    if any("scores higher" in text for text in texts) and mean[search.refined_].max() > search.best_score_ + _EQUAL:
        found.append(("constant", "a warning says that no point scores higher than the chosen one, and one does"))
    return found


def _claimed(search: Any, folds: list[Fold]) -> list[tuple[str, str]]:
    """Return the scores that are not those of a solution."""
    found, allowed = [], ALLOWED * _SHARE * search.tol
    if abs(search.best_score_ - search.scores_[(slice(None), *search.best_index_)].mean()) > _EQUAL:
        found.append(("claimed", "best_score_ is not the mean of scores_"))
    for k, fold in enumerate(folds):
        for point in (point for row in _grid(search) for point in row):
            where = f"fold {k}, noise {search.noises_[point[0]]}, C {search.Cs_[point[1]]:.4g}"
            coef, claimed = search.coefs_paths_[(k, *point)], search.scores_[(k, *point)]
            copies = fold.score(fold.with_coefficients(point, coef))
            own, error = copies.mean(), _error(fold.case, copies, len(fold.test))
            if not abs(own - claimed) <= error:
                found.append(("claimed", f"{where}: the score {claimed:.6g} is {own:.6g}, within {error:.1g}"))
            if fold.case.deletes and point == search.best_index_:
                own = fold.documented_score(fold.with_coefficients(point, coef))
                if not abs(own - claimed) <= _ROUNDING * max(1.0, abs(own)):
                    found.append(("claimed", f"{where}: the score {claimed:.6g} of the documented copies is {own:.6g}"))
            if search.refined_[point]:
                gap, error = fold.gap(point, coef)
                if gap > allowed:
                    found.append(("claimed", f"{where}: the relative gap is {gap:.1e}, allowed {allowed:.1e}"))
                if error > 1e-6:
                    found.append(("claimed", f"{where}: objective_ is off by {error:.1e}"))
    return found


def _error(case: Case, copies: np.ndarray, n_rows: int) -> float:
    """Return how far a score may be from that of a search; ``copies`` are those of `Fold.score`, or differences."""
    scale = max(1.0, float(np.abs(copies).max()))
    if case.deletes:  # two means over draws, and one copy of a row more
        n_drawn = int(np.ceil(_SEARCH_COPIES / len(case.y)))
        spread = copies.std(ddof=1) * np.sqrt(1.0 / len(copies) + 1.0 / n_drawn)
        return float(_STANDARD_ERRORS * spread + 3.0 * scale / (n_rows * min(len(copies), n_drawn)))
    if case.target_noise is not None and not case.is_regression and len(np.unique(case.y)) > 2:
        return _QUADRATURE
    return _ROUNDING * scale


def choose(scores: np.ndarray, rule: str) -> tuple[int, int]:
    """Return the choice from scores of shape (n_folds, n_noises, n_Cs), as the CV estimators document it."""
    mean = scores.mean(axis=0)
    threshold = mean.max()
    if rule == "one-se" and len(scores) > 1:
        best = choose(scores, "best")
        threshold = mean[best] - scores[(slice(None), *best)].std(ddof=1) / np.sqrt(len(scores))
    for column in range(mean.shape[1]):
        high = mean[:, column] >= threshold - _EQUAL
        if high.any():
            return int(np.argmax(high & (mean[:, column] >= mean[high, column].max() - _EQUAL))), column
    raise ValueError("no score is finite")


def _chosen(case: Case, search: Any, folds: list[Fold], exact: np.ndarray) -> tuple[list[tuple[str, str]], float]:
    """Return whether the choice is wrong, and by how much pruning has missed the best score."""
    chosen, refined = search.best_index_, search.refined_
    found = []
    if not refined[chosen]:
        found.append(("chosen", "the chosen point is not solved precisely"))
    own = choose(search.scores_, case.rule)
    if own != chosen:
        found.append(("chosen", f"{chosen} where the scores give {own}"))
    if refined.all():
        return found, 0.0
    # Scores on the same rows for all points: those of the search, or for copies those of its coefficients.
    scores = exact.copy()
    for k, fold in enumerate(folds):
        for point in _points(refined):
            own = search.scores_[(k, *point)]
            if case.deletes:
                own = fold.score(fold.with_coefficients(point, search.coefs_paths_[(k, *point)]))
            scores[(k, *point)] = own
    gain = _gain(case, scores, chosen, refined)
    if gain > 0.0:  # another solution within the tolerance may have another score
        for k, fold in enumerate(folds):
            for point in _points(~refined & (scores.mean(axis=(0, -1)) >= scores[(slice(None), *chosen)].mean())):
                other = fold.score(fold.fit(point, _SHARE * case.tol))
                scores[(k, *point)] = min(scores[(k, *point)], other, key=np.mean)
        gain = _gain(case, scores, chosen, refined)
    if gain > 0.0:
        better = choose(scores.mean(axis=-1), case.rule)
        found.append(("chosen", f"{chosen} where {better}, which pruning did not solve, scores {gain:.4g} more"))
    return found, gain


def _points(mask: np.ndarray) -> list[tuple[int, int]]:
    return [(int(i), int(j)) for i, j in zip(*np.nonzero(mask), strict=True)]


def _gain(case: Case, scores: np.ndarray, chosen: tuple[int, int], refined: np.ndarray) -> float:
    """Return how much more than the chosen point another scores that pruning did not solve, 0 if there is none.

    ``scores`` are of shape (n_folds, n_noises, n_Cs, n_copies). By the rule of one standard error the better point may
    have the lower score: then it is the difference to the lowest score that the rule accepts.
    """
    mean = scores.mean(axis=-1)
    better = choose(mean, case.rule)
    if refined[better] or better == chosen:
        return 0.0
    difference = scores[(slice(None), *better)] - scores[(slice(None), *chosen)]
    if case.rule == "one-se":
        best = choose(mean, "best")
        own = scores[(slice(None), *best)]
        difference = scores[(slice(None), *better)] - own + mean[(slice(None), *best)].std(ddof=1) / np.sqrt(len(own))
    gain, error = float(difference.mean()), _error(case, difference.mean(axis=0), len(case.y))
    return gain if gain > error else 0.0


def main(argv: list[str] | None = None) -> int:
    """Run the harness and print its summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.selection", description=__doc__.split("\n")[0])
    parser.add_argument("number", type=int, nargs="?", default=100, metavar="N", help="how many searches (100)")
    parser.add_argument("seed", type=int, nargs="?", default=0, metavar="SEED", help="which sequence of them (0)")
    parser.add_argument("--first", type=int, default=0, metavar="INDEX", help="the first search of the sequence (0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--seconds", type=int, default=300, help="a search that takes longer counts as a crash (300)")
    parser.add_argument("--show", type=int, nargs=2, metavar=("SEED", "INDEX"), help="run one search and print it")
    options = parser.parse_args(argv)
    if options.show:
        outcome = run(*options.show)
        print(*(f"{name}: {value}" for name, value in outcome._asdict().items()), sep="\n")
        return int(bool(outcome.findings))
    indices = range(options.first, options.first + options.number)
    outcomes = []
    jobs = (delayed(run)(options.seed, index, options.seconds) for index in indices)
    for outcome in Parallel(options.jobs, return_as="generator")(jobs):
        outcomes.append(outcome)
        if outcome.findings:
            print(f"\r{describe(options.seed, outcome)}", flush=True)
        elif sys.stderr.isatty():
            print(f"\r{len(outcomes)} of {options.number}", end="", file=sys.stderr, flush=True)
    _print_summary(options.seed, outcomes)
    return int(any(outcome.findings for outcome in outcomes))


def describe(seed: int, outcome: Outcome) -> str:
    """Return one line about the findings of a search, with the numbers that draw it again."""
    texts = [f"{kind}: {text}" for kind, text in outcome.findings[:3]]
    more = f"; and {len(outcome.findings) - 3} more" if len(outcome.findings) > 3 else ""
    return f"{seed} {outcome.index}: {'; '.join(texts)}{more}. {outcome.described}"


def _print_summary(seed: int, outcomes: list[Outcome]) -> None:
    counts = Counter(kind for outcome in outcomes for kind in {kind for kind, _ in outcome.findings})
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("claimed", "chosen", "constant", "crash"))
    print(f"\n{len(outcomes)} searches of seed {seed}, with findings: {kinds}.")
    pruned = [outcome for outcome in outcomes if 0.0 < outcome.refined < 1.0]
    missed = [outcome.missed for outcome in pruned if outcome.missed > 0.0]
    print(
        f"{len(pruned)} searches solved {np.mean([outcome.refined for outcome in pruned] or [1.0]):.0%} of their "
        f"points precisely; {len(missed)} of them missed a better one, by {max(missed, default=0.0):.4f} at most."
    )


if __name__ == "__main__":
    sys.exit(main())
