"""The report of a stress test (`dropmargin.evaluation.stress`): verdict, error curves, tables, chosen parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dropmargin.evaluation.methods import OURS
from dropmargin.evaluation.stress import MethodResult
from dropmargin.model_selection import DropoutSVCCV
from dropmargin.noise import DropoutNoise
from dropmargin.plotting import DeletionCurveDisplay, NoiseGridDisplay
from dropmargin.plotting.score_grid import ScoreGrid
from dropmargin.plotting.style import LEGEND, by_height
from dropmargin.report.page import Plot, Section, Table
from dropmargin.report.svg import draw_svg

_TITLES = {"zero": "Deleted features are zeros", "missing": "Deleted features are known to be missing"}
_NOTES = {
    "zero": "No method knows which features were deleted.",
    "missing": (
        "Rescaled: the rule for missing features of DropoutSVC. Means and iterative: imputation before the classifier. "
        "HistGradientBoosting accepts missing values."
    ),
}
_CONDITIONS = {"zero": "set to zero", "missing": "missing"}
_CLOSE = "too close to call"
# Plots of more methods have no bands.
_MAX_BANDS = 3


def by_treatment(results: Sequence[MethodResult]) -> dict[str, list[MethodResult]]:
    """Return the results of each treatment, in their order."""
    groups: dict[str, list[MethodResult]] = {}
    for result in results:
        groups.setdefault(result.treatment, []).append(result)
    return groups


def percent(share: float) -> str:
    """Return a share in percent, with one decimal if it is needed."""
    return f"{100.0 * share:.1f}".removesuffix(".0") + " %"


def verdict(results: Sequence[MethodResult], n_test: int) -> str:
    """Return the main result in one sentence: the errors with about half of the features deleted.

    It has the best of ours, the best and the worst of the others, with the last treatment of the results.

    Parameters
    ----------
    results : sequence of MethodResult
        As `dropmargin.evaluation.stress.stress_test` returns them.
    n_test : int
        Number of test rows.

    Returns
    -------
    str
    """
    treatment, group = list(by_treatment(results).items())[-1]
    levels = group[0].curve.levels.tolist()
    at = min(range(len(levels)), key=lambda i: (abs(levels[i] - 0.5), levels[i]))
    start = levels.index(0.0) if 0.0 in levels[:at] else None
    ranked = sorted(group, key=lambda result: float(result.error[at]))
    ours = next(result for result in ranked if _is_ours(result))
    best, *_, worst = [result for result in ranked if not _is_ours(result)] * 2
    listed = f"{_change(ours, start, at)}, {_change(best, start, at)}, the best other"
    if worst is not best and worst.error[at] > ours.error[at]:
        listed += f", and {_change(worst, start, at)}, the worst"
    close = f" The first two are {_CLOSE}." if _is_close(ours, best, at, n_test) else ""
    share = "half" if levels[at] == 0.5 else percent(levels[at])
    verb = "is" if start is None else "goes"
    return f"With {share} of the features {_CONDITIONS[treatment]}, the error {verb} {listed}.{close}"


def _is_ours(result: MethodResult) -> bool:
    return result.method.startswith(OURS)


def _change(result: MethodResult, start: int | None, at: int) -> str:
    """Return the error of a method at a level, and at the level ``start`` if there is one."""
    before = "" if start is None else f"from {_points(result.error[start])} % to "
    return f"{before}{_points(result.error[at])} % for {result.method}"


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
        plots=[_curve_plot(name, group, highest) for name, group in groups.items()],
        tables=[_error_table(name, group, n_test) for name, group in groups.items()],
    )
    parameters = Section(
        "Choice of parameters",
        plots=[_search_plot(result) for result in results if _has_grid(result.search)],
        paragraphs=[
            f"Parameters were chosen by cross-validation on the training rows, by the accuracy {chosen_at}. The test "
            "rows were not used. All methods had the same folds and deletions, and the linear ones the same values of "
            "C, unless the command says otherwise."
        ],
        tables=[_parameter_table(results)],
    )
    measurement = Section("Measurement", paragraphs=[deletion, _precision(results, n_test)], facts=facts)
    return [errors, parameters, measurement, Section("Command", command=command)]


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
        f"An error is {mean}. Its standard deviation over the deletions, the band in a plot of few methods, is at most "
        f"{_points(spread)} points. Two errors are {_CLOSE} if they differ by at most one standard error of the "
        f"difference of two samples of {n_test} rows; this is conservative, as all methods have the same test rows."
    )


# Plots and tables ---------------------------------------------------------------------------------------------------


def _curve_plot(treatment: str, group: Sequence[MethodResult], highest: float) -> Plot:
    def draw(figure: Any) -> None:
        ax = figure.subplots()
        # The bands of many methods would cover each other, and a legend in the axes their lines.
        spread = "band" if len(group) <= _MAX_BANDS else "none"
        display = DeletionCurveDisplay({result.method: result.curve for result in group}).plot(ax, spread=spread)
        ax.get_legend().remove()
        figure.legend(handles=by_height(display.lines_), loc="outside lower center", ncols=2, fontsize=8.5, **LEGEND)
        ax.set_ylabel("error on the test rows")
        ax.set_ylim(0.0, 1.05 * highest or 1.0)

    levels = group[0].curve.levels
    ends = [
        f"at {percent(float(levels[at]))} deleted "
        + ", ".join(f"{result.method} {percent(float(result.error[at]))}" for result in group)
        for at in (0, -1)
    ]
    svg = draw_svg(
        draw,
        title=_TITLES[treatment],
        description=f"Error by share of features deleted: {'; '.join(ends)}.",
        size=(4.9, 3.5 + 0.2 * math.ceil(len(group) / 2)),
    )
    return Plot(svg, _TITLES[treatment], _NOTES[treatment])


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
            ", ".join(f"{name} = {_short(value)}" for name, value in result.parameters.items()),
            f"{sum(result.seconds):.1f} s",
            "yes" if result.converged else "no",
        ]
        for result in results
    ]
    header = ["method", "deleted =", "parameters", "processor time", "converged"]
    return Table("Chosen parameters; time of the choice, the fit and the predictions", header, rows, is_text=True)


def _short(value: Any) -> str:
    if isinstance(value, DropoutNoise):
        value = DropoutNoise(value.rate, reference=value.reference)  # a group per feature would be a long list
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _has_grid(search: Any) -> bool:
    return isinstance(search, DropoutSVCCV) and search.cv_results_["mean_test_score"].size > 1


def _search_plot(result: MethodResult) -> Plot:
    """Return the heat map of cross-validated accuracy by noise and C."""
    # The scorer of the search is a function; its scores are accuracies.
    grid = replace(ScoreGrid.of_estimator(result.search), metric="accuracy")
    rows = [len(kind.indices) for kind in grid.kinds()]

    def draw(figure: Any) -> None:
        axes = figure.subplots(len(rows), 1, sharex=True, squeeze=False, height_ratios=rows)
        NoiseGridDisplay(grid).plot(axes[:, 0])

    i, j = result.search.best_index_
    title = f"{result.method}, deleted = {result.treatment}"
    description = (
        f"Cross-validated accuracy by noise and C. Chosen: {grid.describe(i)}, C = {grid.Cs[j]:.3g}, with "
        f"{percent(float(grid.mean[i, j]))}."
    )
    svg = draw_svg(draw, title=title, description=description, size=(4.9, 1.6 + 0.28 * max(6, sum(rows))))
    return Plot(svg, title, "Accuracy in cross-validation by noise and C, with a frame around the chosen point.")
