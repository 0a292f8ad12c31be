"""The report of a stress test (`dropmargin.evaluation.stress`): verdict, error curves, tables, chosen parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from dropmargin.evaluation.stress import METHODS, MethodResult
from dropmargin.plotting import DeletionCurveDisplay, NoiseGridDisplay
from dropmargin.plotting.score_grid import ScoreGrid
from dropmargin.report.page import Plot, Section, Table
from dropmargin.report.svg import draw_svg

_TITLES = {"zero": "Deleted features are zeros", "missing": "Deleted features are known to be missing"}
_NOTES = {
    "zero": "No method knows which features were deleted.",
    "missing": "Every method predicts by the rule for missing features of DropoutSVC (missing='rescale').",
}
_CONDITIONS = {"zero": "set to zero", "missing": "known to be missing"}
_CLOSE = "too close to call"


def by_treatment(results: Sequence[MethodResult]) -> dict[str, list[MethodResult]]:
    """Return the results of each treatment, in their order."""
    groups: dict[str, list[MethodResult]] = {}
    for result in results:
        groups.setdefault(result.treatment, []).append(result)
    return groups


def percent(share: float) -> str:
    """Return a share in percent, with one decimal if it is needed."""
    return f"{100.0 * share:.1f}".removesuffix(".0") + " %"


def findings(results: Sequence[MethodResult], n_test: int) -> list[str]:
    """Return the results in words: a verdict on the level nearest to 50 %, and a sentence per treatment on all levels.

    Parameters
    ----------
    results : sequence of MethodResult
        As `dropmargin.evaluation.stress.stress_test` returns them.
    n_test : int
        Number of test rows.

    Returns
    -------
    list of str
        The verdict first.
    """
    groups = by_treatment(results)
    levels = results[0].curve.levels.tolist()
    at = min(range(len(levels)), key=lambda i: (abs(levels[i] - 0.5), levels[i]))
    clauses = []
    for treatment, group in groups.items():
        other = _best_other(group, at)
        ours, theirs = _points(group[0].error[at]), _points(other.error[at])
        if _is_close(group[0], other, at, n_test):
            comparison = f"{_CLOSE}: the best other, {other.method}, has {theirs} %"
        else:
            difference = float(ours) - float(theirs)  # of the printed numbers
            word = "less" if group[0].error[at] < other.error[at] else "more"
            comparison = f"{abs(difference):.1f} points {word} than the best other, {other.method}"
        clauses.append(f"{ours} % if they are {_CONDITIONS[treatment]} ({comparison})")
    verdict = f"Error of {METHODS[0]} with {percent(levels[at])} of the features deleted: {'; '.join(clauses)}."
    return [verdict, *(f"{_TITLES[name]}: {_all_levels(group, n_test)}" for name, group in groups.items())]


def stress_sections(
    results: Sequence[MethodResult],
    *,
    n_test: int,
    chosen_at: str,
    deletion: str,
    facts: Mapping[str, str],
    command: str,
) -> list[Section]:
    """Return the sections of the report.

    Parameters
    ----------
    results : sequence of MethodResult
        As `dropmargin.evaluation.stress.stress_test` returns them.
    n_test : int
        Number of test rows.
    chosen_at : str
        The levels of deletion at which parameters were chosen, in words.
    deletion : str
        What was deleted, in words.
    facts : mapping of str to str
        Data, parameters and versions.
    command : str
        The command that made the report.

    Returns
    -------
    list of Section
    """
    groups = by_treatment(results)
    highest = max(float((result.error + result.curve.std).max()) for result in results)
    errors = Section(
        "Error by share of features deleted",
        plots=[_curve_plot(name, group, n_test, highest) for name, group in groups.items()],
        tables=[_error_table(name, group, n_test) for name, group in groups.items()],
    )
    parameters = Section(
        "Choice of parameters",
        plots=[_search_plot(result) for result in results if result.search is not None],
        paragraphs=[
            f"Noise and C were chosen by cross-validation on the training rows, by the accuracy {chosen_at}. The test "
            "rows were not used. All methods had the same folds, deletions and values of C, unless the command says "
            "otherwise."
        ],
        tables=[_parameter_table(results)],
    )
    measurement = Section("Measurement", paragraphs=[deletion, _precision(results, n_test)], facts=facts)
    return [errors, parameters, measurement, Section("Command", command=command)]


# Words --------------------------------------------------------------------------------------------------------------


def _all_levels(group: Sequence[MethodResult], n_test: int) -> str:
    """Return at which levels `DropoutSVC` has a lower or higher error than the best other method."""
    lower: list[int] = []
    higher: list[int] = []
    close: list[int] = []
    n_levels = len(group[0].curve.levels)
    for at in range(n_levels):
        other = _best_other(group, at)
        is_lower = group[0].error[at] < other.error[at]
        (close if _is_close(group[0], other, at, n_test) else lower if is_lower else higher).append(at)
    parts = [
        f"{METHODS[0]} has a {word} error than {whom} at {len(where)} of {n_levels} levels ({_ranges(group, where)})"
        for word, whom, where in (("lower", "all others", lower), ("higher", "the best other", higher))
        if where
    ]
    if close:
        verb = "is" if len(close) == 1 else "are"
        parts.append(f"{len(close)} of {n_levels} levels {verb} {_CLOSE} ({_ranges(group, close)})")
    return "; ".join(parts) + "."


def _ranges(group: Sequence[MethodResult], where: Sequence[int]) -> str:
    """Return levels as ranges, such as ``10 % to 30 %, 90 %``."""
    texts = []
    for _, run in groupby(enumerate(where), key=lambda pair: pair[1] - pair[0]):
        ends = [percent(float(group[0].curve.levels[at])) for _, at in run]
        texts.append(ends[0] if len(ends) == 1 else f"{ends[0]} to {ends[-1]}")
    return ", ".join(texts)


def _best_other(group: Sequence[MethodResult], at: int) -> MethodResult:
    return min(group[1:], key=lambda result: float(result.error[at]))


def _is_close(first: MethodResult, second: MethodResult, at: int, n_test: int) -> bool:
    """Return whether two errors differ by at most a standard error, as if they were of two samples of rows."""
    a, b = float(first.error[at]), float(second.error[at])
    return abs(a - b) <= math.sqrt((a * (1.0 - a) + b * (1.0 - b)) / n_test)


def _points(share: float) -> str:
    return f"{100.0 * share:.1f}"


def _precision(results: Sequence[MethodResult], n_test: int) -> str:
    spread = max(float(result.curve.std.max()) for result in results)
    n_repeats = results[0].curve.scores.shape[1]
    mean = "of one deletion" if n_repeats == 1 else f"the mean over {n_repeats} deletions, the same for all methods"
    return (
        f"An error is {mean}. The bands in the plots are one standard deviation over the deletions, at most "
        f"{_points(spread)} points. Two errors are {_CLOSE} if they differ by at most one standard error of the "
        f"difference of two samples of {n_test} rows; this is conservative, as all methods have the same test rows."
    )


# Plots and tables ---------------------------------------------------------------------------------------------------


def _curve_plot(treatment: str, group: Sequence[MethodResult], n_test: int, highest: float) -> Plot:
    def draw(figure: Any) -> None:
        ax = figure.subplots()
        DeletionCurveDisplay({result.method: result.curve for result in group}).plot(ax)
        ax.set_ylabel("error on the test rows")
        ax.set_ylim(0.0, 1.05 * highest or 1.0)

    levels = group[0].curve.levels
    ends = [
        f"at {percent(float(levels[at]))} deleted "
        + ", ".join(f"{result.method} {percent(float(result.error[at]))}" for result in group)
        for at in (0, -1)
    ]
    svg = draw_svg(
        draw, title=_TITLES[treatment], description=f"Error by share of features deleted: {'; '.join(ends)}."
    )
    return Plot(svg, _TITLES[treatment], f"{_NOTES[treatment]} {_all_levels(group, n_test)}")


def _error_table(treatment: str, group: Sequence[MethodResult], n_test: int) -> Table:
    """Return the errors, in bold where one is lower than all others by more than a standard error."""
    levels = range(len(group[0].curve.levels))
    bold = set()
    for at in levels:
        lowest, *others = sorted(group, key=lambda result: float(result.error[at]))
        if not any(_is_close(lowest, other, at, n_test) for other in others):
            bold.add((group.index(lowest), at + 1))
    rows = [[result.method, *(_points(result.error[at]) for at in levels)] for result in group]
    header = ["deleted", *(percent(float(level)) for level in group[0].curve.levels)]
    caption = f"{_TITLES[treatment]}: error in percent; bold if it is lower than all others and not {_CLOSE}"
    return Table(caption, header, rows, frozenset(bold))


def _parameter_table(results: Sequence[MethodResult]) -> Table:
    rows = [
        [
            result.method,
            result.treatment,
            "" if result.noise is None else str(result.noise),
            f"{result.C:.3g}",
            "yes" if result.converged else "no, stopped at the limit of iterations",
        ]
        for result in results
    ]
    return Table("Chosen parameters", ["method", "deleted =", "noise", "C", "converged"], rows, is_text=True)


def _search_plot(result: MethodResult) -> Plot:
    """Return the heat map of cross-validated accuracy by noise and C."""
    # The scorer of the search is a function; its scores are accuracies.
    grid = replace(ScoreGrid.of_estimator(result.search), metric="accuracy")
    rows = [len(kind.indices) for kind in grid.kinds()]

    def draw(figure: Any) -> None:
        axes = figure.subplots(len(rows), 1, sharex=True, squeeze=False, height_ratios=rows)
        NoiseGridDisplay(grid).plot(axes[:, 0])

    i, j = result.search.best_index_  # type: ignore[union-attr]
    title = f"{result.method}, deleted = {result.treatment}"
    description = (
        f"Cross-validated accuracy by noise and C. Chosen: {grid.describe(i)}, C = {grid.Cs[j]:.3g}, with "
        f"{percent(float(grid.mean[i, j]))}."
    )
    svg = draw_svg(draw, title=title, description=description, size=(4.9, 1.6 + 0.28 * max(6, sum(rows))))
    return Plot(svg, title, "Accuracy in cross-validation by noise and C, with a frame around the chosen point.")
