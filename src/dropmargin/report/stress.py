"""The report of a stress test (`dropmargin.evaluation.stress`): verdict, error curves, tables, chosen parameters.

Errors are shares of wrong labels, in percent, or root mean squared errors (RMSE) in the units of the targets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from dropmargin.evaluation.stress import MethodResult
from dropmargin.model_selection.base import MarginalisedModelCV
from dropmargin.noise import DropoutNoise
from dropmargin.plotting import DeletionCurveDisplay, NoisePathDisplay
from dropmargin.plotting.noise_path import panels_of
from dropmargin.plotting.score_grid import ScoreGrid
from dropmargin.plotting.style import LEGEND, by_height
from dropmargin.report.page import Plot, Section, Table, draw_svg

_TITLES = {"zero": "Deleted features are zeros", "missing": "Deleted features are known to be missing"}
_NOTES = {
    "zero": "No method knows which features were deleted.",
    "missing": (
        "{ours} and methods that are rescaled have the same rule; conditional scores are expectations given the "
        "observed features. Means and iterative: imputation. HistGradientBoosting accepts missing values, and learns "
        "from deleted cells of its training rows if that is better in cross-validation."
    ),
}
_CONDITIONS = {"zero": "set to zero", "missing": "missing"}
_CLOSE = "too close to call"
# Plots of more methods have no bands.
_MAX_BANDS = 3


def by_treatment(results: Sequence[MethodResult]) -> dict[str, list[MethodResult]]:
    """Return the results of each treatment, in their order."""
    return {name: list(group) for name, group in groupby(results, key=lambda result: result.treatment)}


def percent(share: float) -> str:
    """Return a share in percent, with one decimal if it is needed."""
    return f"{100.0 * share:.1f}".removesuffix(".0") + " %"


def _is_regression(results: Sequence[MethodResult]) -> bool:
    return results[0].target_deviation is not None


def _formatter(results: Sequence[MethodResult], unit: str = "") -> Callable[[float], str]:
    """Return a function that formats errors: in percent with one decimal and the unit, or RMSE with three digits."""
    if not _is_regression(results):
        return lambda error: f"{100.0 * error:.1f}{unit}"
    largest = max(float(result.error.max()) for result in results)
    digits = 2 - math.floor(math.log10(largest)) if 0.0 < largest < math.inf else 0
    return lambda error: f"{error:.{max(digits, 0)}f}" if abs(digits) < 8 else f"{error:.3g}"


def verdict(results: Sequence[MethodResult]) -> str:
    """Return the main result in one sentence: the errors with about half of the features deleted.

    It has the best of ours, the best and the worst of the others, with the last treatment of the results.
    """
    treatment, group = list(by_treatment(results).items())[-1]
    levels = group[0].curve.levels.tolist()
    at = min(range(len(levels)), key=lambda i: (abs(levels[i] - 0.5), levels[i]))
    start = levels.index(0.0) if 0.0 in levels[:at] else None
    show = _formatter(results, " %")

    def change(result: MethodResult) -> str:
        before = "" if start is None else f"from {show(result.error[start])} to "
        return f"{before}{show(result.error[at])} for {result.method}"

    ranked = sorted(group, key=lambda result: float(result.error[at]))
    ours = next(result for result in ranked if result.is_ours)
    best, *_, worst = [result for result in ranked if not result.is_ours] * 2
    listed = f"{change(ours)}, {change(best)}, the best other"
    if worst is not best and worst.error[at] > ours.error[at]:
        listed += f", and {change(worst)}, the worst"
    close = f" The first two are {_CLOSE}." if _is_close(ours, best, at) else ""
    share = "half" if levels[at] == 0.5 else percent(levels[at])
    what, verb = "RMSE" if _is_regression(results) else "error", "is" if start is None else "goes"
    return f"With {share} of the features {_CONDITIONS[treatment]}, the {what} {verb} {listed}.{close}"


def _is_close(first: MethodResult, second: MethodResult, at: int) -> bool:
    """Return whether two errors differ by at most a standard error, as if they were of two samples of rows."""
    difference = abs(float(first.error[at]) - float(second.error[at]))
    return difference <= math.hypot(first.standard_error[at], second.standard_error[at])


def error_tables(results: Sequence[MethodResult]) -> list[Table]:
    """Return a table of the errors for each treatment; of a regression also one of R^2.

    An error is in bold where it is lower than all others by more than a standard error.
    """
    tables, show = [], _formatter(results)
    for treatment, group in by_treatment(results).items():
        header = ["deleted", *(percent(float(level)) for level in group[0].curve.levels)]
        bold = set()
        for at in range(len(header) - 1):
            lowest, *others = sorted(group, key=lambda result: float(result.error[at]))
            if not any(_is_close(lowest, other, at) for other in others):
                bold.add((group.index(lowest), at + 1))
        what = "RMSE" if _is_regression(group) else "error in percent"
        rows = [[result.method, *map(show, result.error)] for result in group]
        caption = f"{_TITLES[treatment]}: {what}; bold if it is lower than all others and not {_CLOSE}"
        tables.append(Table(caption, header, rows, frozenset(bold)))
        r2 = [[result.method, *(f"{value:.3f}" for value in result.r2)] for result in group if result.r2 is not None]
        if r2:
            tables.append(Table(f"{_TITLES[treatment]}: R\N{SUPERSCRIPT TWO}", header, r2))
    return tables


def stress_sections(
    results: Sequence[MethodResult], *, chosen_at: str, deletion: str, facts: Mapping[str, str], command: str
) -> list[Section]:
    """Return the sections of the report; ``chosen_at`` and ``deletion`` are the levels and the deletion in words."""
    groups = by_treatment(results)
    limits = _error_limits(results)
    what, metric = ("RMSE", "RMSE") if _is_regression(results) else ("Error", "accuracy")
    errors = Section(
        f"{what} by share of features deleted",
        plots=[_curve_plot(name, group, limits) for name, group in groups.items()],
        tables=error_tables(results),
    )
    parameters = Section(
        "Choice of parameters",
        plots=_search_plots(results),
        paragraphs=[
            f"Parameters were chosen by cross-validation on the training rows, by the {metric} {chosen_at}. The test "
            "rows were not used. All methods had the same folds and deletions, and the linear ones the same values of "
            "C, unless the command says otherwise."
        ],
        tables=[_parameter_table(results)],
    )
    measurement = Section("Measurement", paragraphs=[deletion, _precision(results)], facts=facts)
    return [errors, parameters, measurement, Section("Command", command=command)]


def _precision(results: Sequence[MethodResult]) -> str:
    spread = _formatter(results, " points")(max(float(result.curve.std.max()) for result in results))
    n_repeats = results[0].curve.scores.shape[1]
    mean = "of one deletion" if n_repeats == 1 else f"the mean over {n_repeats} deletions, the same for all methods"
    return (
        f"An error is {mean}. Its standard deviation over the deletions, the band in a plot of few methods, is at most "
        f"{spread}. Two errors are {_CLOSE} if they differ by at most one standard error of the difference of two "
        "samples of as many rows as the test file has; this is conservative, as all methods have the same test rows."
    )


# Plots and tables ---------------------------------------------------------------------------------------------------


def _error_limits(results: Sequence[MethodResult]) -> tuple[float, float]:
    """Return the ends of the axis of errors: from zero, or of RMSE, which rarely come near it, from the lowest."""
    highest = max(float((result.error + result.curve.std).max()) for result in results)
    lowest = min(float((result.error - result.curve.std).min()) for result in results)
    return (max(0.95 * lowest, 0.0) if _is_regression(results) else 0.0), 1.05 * highest or 1.0


def _curve_plot(treatment: str, group: Sequence[MethodResult], limits: tuple[float, float]) -> Plot:
    name = "RMSE" if _is_regression(group) else "error"

    def draw(figure: Any) -> None:
        ax = figure.subplots()
        # The bands of many methods would cover each other, and a legend in the axes their lines.
        spread = "band" if len(group) <= _MAX_BANDS else "none"
        display = DeletionCurveDisplay({result.method: result.curve for result in group}).plot(ax, spread=spread)
        ax.get_legend().remove()
        figure.legend(handles=by_height(display.lines_), loc="outside lower center", ncols=2, fontsize=8.5, **LEGEND)
        ax.set_ylabel(f"{name} on the test rows")
        ax.set_ylim(*limits)

    levels, show = group[0].curve.levels, _formatter(group, " %")
    ends = [
        f"at {percent(float(levels[at]))} deleted "
        + ", ".join(f"{result.method} {show(float(result.error[at]))}" for result in group)
        for at in (0, -1)
    ]
    description = f"{name[0].upper()}{name[1:]} by share of features deleted: {'; '.join(ends)}."
    size = (4.9, 3.5 + 0.2 * math.ceil(len(group) / 2))
    svg = draw_svg(draw, title=_TITLES[treatment], description=description, size=size)
    return Plot(svg, _TITLES[treatment], _NOTES[treatment].format(ours=group[0].method))


def _parameter_table(results: Sequence[MethodResult]) -> Table:
    rows = []
    for result in results:
        parameters = ", ".join(f"{name} = {_short(value)}" for name, value in result.parameters.items())
        cells = [parameters, f"{sum(result.seconds):.1f} s", "yes" if result.converged else "no"]
        rows.append([result.method, result.treatment, *cells])
    header = ["method", "deleted =", "parameters", "processor time", "converged"]
    return Table("Chosen parameters; time of the choice, the fit and the predictions", header, rows, is_text=True)


def _short(value: Any) -> str:
    if isinstance(value, DropoutNoise):
        value = DropoutNoise(value.rate, reference=value.reference)  # a group per feature would be a long list
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _search_plots(results: Sequence[MethodResult]) -> list[Plot]:
    """Return a plot of the searches over noise and C, if there are any: the error of each noise, at its best C."""
    name = "RMSE" if _is_regression(results) else "error"
    # The scorer of the searches is a function; its scores are accuracies, or minus root mean squared errors.
    metric = "neg_root_mean_squared_error" if _is_regression(results) else "accuracy"
    grids = {
        f"{result.method}, deleted = {result.treatment}": replace(ScoreGrid.of_estimator(result.search), metric=metric)
        for result in results
        if isinstance(result.search, MarginalisedModelCV) and result.search.scores_[0].size > 1
    }
    if not grids:
        return []

    def draw(figure: Any) -> None:
        display = NoisePathDisplay(grids).plot(figure.subplots(1, len(panels_of(grids)), sharey=True), spread="none")
        legend = display.ax_.get_legend()
        legend.remove()
        figure.legend(handles=legend.legend_handles, loc="outside lower center", fontsize=8.5, **LEGEND)
        display.ax_.set_ylabel(f"cross-validated {name}")

    chosen = [f"{key}: {grid.describe_chosen()}" for key, grid in grids.items()]
    title, size = f"Cross-validated {name} by noise", (4.9, 3.3 + 0.2 * len(grids))
    svg = draw_svg(draw, title=title, description=f"{title}, at the best C. Chosen: {'; '.join(chosen)}.", size=size)
    return [Plot(svg, title, f"The {name} of each noise at its best C, with a ring around the chosen point.")]
