"""The page on deleted features: what was gained, in sentences; curves, tables, and how settings were chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dropmargin.evaluation.nightmare import OURS, MethodResult
from dropmargin.report.chart import Line, heat_map, line_chart, percent, percent_to_a_tenth
from dropmargin.report.page import Code, Facts, Figure, Figures, Heading, Paragraphs, Part, Table

_TREATMENT_TITLES = {
    "zero": "A deleted feature reads as zero",
    "missing": "A deleted feature is known to be missing",
}
_TREATMENT_NOTES = {
    "zero": "Nobody knows that it is gone; each method predicts with what it sees.",
    "missing": "Every method, the others too, predicts by Dropout-SVM's rule for missing features (missing='rescale').",
}


def of_treatment(contestants: Sequence[MethodResult], treatment: str) -> list[MethodResult]:
    """Return the contestants under one treatment, in their order."""
    return [contestant for contestant in contestants if contestant.treatment == treatment]


def treatments_of(contestants: Sequence[MethodResult]) -> list[str]:
    """Return the treatments, each once, in their order."""
    return list(dict.fromkeys(contestant.treatment for contestant in contestants))


def nightmare_page(
    contestants: Sequence[MethodResult],
    *,
    n_test: int,
    chosen_at: str,
    deletion: str,
    facts: Mapping[str, str],
    command: str,
) -> list[Part]:
    """Return the parts of the page.

    Parameters
    ----------
    contestants : sequence of MethodResult
        As `run_nightmare` returns them.
    n_test : int
        Number of test rows.
    chosen_at : str
        At what deletion settings were chosen, in words.
    deletion : str
        What was deleted, in words.
    facts : mapping of str to str
        The data, the settings and the versions.
    command : str
        What made the page.
    """
    names = treatments_of(contestants)
    highest = max(float(contestant.error.max()) for contestant in contestants)
    parts: list[Part] = [
        Paragraphs(gains(contestants, n_test), lead=True),
        Heading("Error by share of features deleted"),
        Figures([_curves(of_treatment(contestants, name), highest) for name in names]),
        *(_error_table(of_treatment(contestants, name)) for name in names),
        Heading("How settings were chosen"),
        Paragraphs(
            [
                f"Noise and C were chosen by cross-validation on the training rows alone, by the accuracy {chosen_at}. "
                "The test rows took no part in it. Every method had the same folds, the same deletions and the same "
                "values of C to choose from, unless the command says otherwise."
            ]
        ),
        _settings_table(contestants),
    ]
    maps = [_search_map(contestant) for contestant in contestants if contestant.search is not None]
    if maps:
        parts.append(Figures(maps))
    return [
        *parts,
        Heading("What was measured"),
        Paragraphs([deletion, _precision(contestants, n_test)]),
        Facts(facts),
        Heading("The command"),
        Code(command),
    ]


# In words -----------------------------------------------------------------------------------------------------------


def gains(contestants: Sequence[MethodResult], n_test: int) -> list[str]:
    """Return what was gained, or lost, in sentences.

    The level that is looked at closely is the one nearest to a half, whatever came out there.
    """
    groups = [of_treatment(contestants, treatment) for treatment in treatments_of(contestants)]
    levels = groups[0][0].curve.levels.tolist()
    at = min(range(len(levels)), key=lambda i: (abs(levels[i] - 0.5), levels[i]))
    texts = [_headline(groups[0], groups[-1], at, n_test)] if len(groups) > 1 else []
    texts += [f"{_compared(group, at, n_test)} {_counted(group, n_test)}".rstrip() for group in groups]
    if 0.0 in levels and at != levels.index(0.0):
        texts.append(_price(groups[-1], levels.index(0.0), n_test))
    return texts


def _headline(first: list[MethodResult], last: list[MethodResult], at: int, n_test: int) -> str:
    """Say how far the peers fall as they are, and Dropout-SVM with its rule."""
    peers = [one for one in first if one.method != OURS]
    fallen = " and ".join(
        f"{peer.method} {'is wrong ' if i == 0 else ''}on {_points(peer.error[at])} %{' of the test rows' * (i == 0)}"
        for i, peer in enumerate(peers)
    )
    ours, best = float(_ours(last).error[at]), min(float(peer.error[at]) for peer in peers)
    change = f"{_points(abs(best - ours))} points {'less' if ours <= best else 'more'} than the best of them."
    if _is_close(ours, best, n_test):
        change = "too close to call."
    elif ours < best:
        change += " That has two parts, the training and the rule."
    return (
        f"With {_level(last, at)} of the features deleted, {fallen}. {OURS} with its rule for missing features is "
        f"wrong on {_points(ours)} %: {change}"
    )


def _compared(group: list[MethodResult], at: int, n_test: int) -> str:
    """Say what is between the methods if all treat deleted features in the same way."""
    ours, peer = float(_ours(group).error[at]), _best_peer(group, at)
    other = float(peer.error[at])
    how = "If all use the rule" if group[0].treatment == "missing" else "If all read deleted features as zeros"
    said = (
        f"{how}, {OURS} is wrong on {_points(ours)} % at {_level(group, at)} deleted and the best of the others, "
        f"{peer.method}, on {_points(other)} %: "
    )
    if _is_close(ours, other, n_test):
        return said + "too close to call."
    return said + f"{_points(abs(other - ours))} points {'gained' if ours < other else 'lost'} by the training."


def _counted(group: list[MethodResult], n_test: int) -> str:
    """Say at how many levels Dropout-SVM is ahead of all others, and where it is behind."""
    n_levels = len(group[0].curve.levels)
    if n_levels == 1:
        return ""
    found: dict[str, list[int]] = {"ahead": [], "behind": [], "too close to call": []}
    for at in range(n_levels):
        ours, other = float(_ours(group).error[at]), float(_best_peer(group, at).error[at])
        is_close = _is_close(ours, other, n_test)
        found["too close to call" if is_close else "ahead" if ours < other else "behind"].append(at)
    said = {word: where for word, where in found.items() if where}
    if len(said) == 1:
        return f"At all {n_levels} levels it is {next(iter(said))}."
    counts = ", ".join(f"{word} at {len(where)} ({_ranges(group, where)})" for word, where in said.items())
    return f"Of the {n_levels} levels it is {counts}."


def _ranges(group: list[MethodResult], where: list[int]) -> str:
    """Return levels in words; neighbours are joined."""
    runs: list[list[int]] = []
    for at in where:
        if runs and runs[-1][-1] == at - 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    return ", ".join(
        _level(group, run[0]) if len(run) == 1 else f"{_level(group, run[0])} to {_level(group, run[-1])}"
        for run in runs
    )


def _price(group: list[MethodResult], at: int, n_test: int) -> str:
    """Say what whole rows pay for it."""
    ours, peer = float(_ours(group).error[at]), _best_peer(group, at)
    other = float(peer.error[at])
    said = f"With nothing deleted, {OURS} is wrong on {_points(ours)} % and {peer.method} on {_points(other)} %: "
    if _is_close(ours, other, n_test):
        return said + "too close to call."
    points = _points(abs(other - ours))
    return said + (f"{points} points gained there, too." if ours < other else f"that is the price, {points} points.")


def _ours(group: Sequence[MethodResult]) -> MethodResult:
    return next(contestant for contestant in group if contestant.method == OURS)


def _best_peer(group: Sequence[MethodResult], at: int) -> MethodResult:
    return min((contestant for contestant in group if contestant.method != OURS), key=lambda one: float(one.error[at]))


def _is_close(first: float, second: float, n_test: int) -> bool:
    """Return whether two errors differ by less than a standard error, as if they were of two samples of rows."""
    return abs(first - second) <= math.sqrt((first * (1.0 - first) + second * (1.0 - second)) / n_test)


def _points(share: float) -> str:
    return f"{100.0 * share:.1f}"


def _level(group: Sequence[MethodResult], at: int) -> str:
    return percent(float(group[0].curve.levels[at]))


def _precision(contestants: Sequence[MethodResult], n_test: int) -> str:
    spread = max(float(contestant.curve.std.max()) for contestant in contestants)
    n_repeats = contestants[0].curve.scores.shape[1]
    how_often = (
        "one deletion" if n_repeats == 1 else f"the mean of {n_repeats} random deletions, the same for all methods"
    )
    return (
        f"An error is {how_often}; bands in the pictures are one standard deviation over them, which is at most "
        f"{_points(spread)} points. Too close to call means that two errors differ by less than a standard error of "
        f"the difference of two samples of {n_test} rows, a cautious measure, since all methods met the same rows."
    )


# Pictures and tables ------------------------------------------------------------------------------------------------


def _curves(group: Sequence[MethodResult], highest: float) -> Figure:
    lines = [Line(one.method, one.curve.levels.tolist(), one.error.tolist(), one.curve.std.tolist()) for one in group]
    last = ", ".join(f"{one.method} {percent(float(one.error[-1]))}" for one in group)
    first = ", ".join(f"{one.method} {percent(float(one.error[0]))}" for one in group)
    title = _TREATMENT_TITLES[group[0].treatment]
    where = _level(group, 0), _level(group, len(group[0].curve.levels) - 1)
    description = f"{title}. Error at {where[0]} deleted: {first}; at {where[1]}: {last}."
    svg = line_chart(
        lines, description=description, x_label="features deleted", y_label="error on the test rows", y_max=highest
    )
    return Figure(svg, title, _TREATMENT_NOTES[group[0].treatment])


def _error_table(group: Sequence[MethodResult]) -> Table:
    levels = range(len(group[0].curve.levels))
    rows = [[one.method, *(_points(one.error[at]) for at in levels)] for one in group]
    # As they are printed: what reads the same is marked the same.
    lowest = [min(float(row[at + 1]) for row in rows) for at in levels]
    best = {(i, at + 1) for i, row in enumerate(rows) for at in levels if float(row[at + 1]) == lowest[at]}
    caption = f"{_TREATMENT_TITLES[group[0].treatment]}: error in percent, the lowest of each column marked"
    return Table(caption, ["deleted", *(_level(group, at) for at in levels)], rows, frozenset(best))


def settings_text(contestant: MethodResult) -> str:
    """Return the settings of a contestant in words."""
    noise = "" if contestant.noise is None else f"noise {_noise_name(contestant.noise)}, "
    return f"{noise}C = {contestant.C:.3g}"


def _settings_table(contestants: Sequence[MethodResult]) -> Table:
    rows = [
        [
            one.method,
            one.treatment,
            settings_text(one),
            "yes" if one.converged else "no, at its limit of iterations",
        ]
        for one in contestants
    ]
    return Table("The settings that were used", ["method", "deleted =", "settings", "converged"], rows, words=True)


def _search_map(contestant: MethodResult) -> Figure:
    search: Any = contestant.search
    i, j = search.chosen
    noises = ["none" if noise is None else _noise_name(noise) for noise in search.noises]
    description = (
        f"Cross-validated accuracy by noise and C. Chosen: noise {noises[i]}, C {search.Cs[j]:.3g}, "
        f"with {percent(float(search.scores[i, j]))}."
    )
    svg = heat_map(
        search.scores.tolist(),
        description=description,
        rows=noises,
        columns=[f"{C:.3g}" for C in search.Cs],
        row_label="noise",
        column_label="C",
        chosen=(i, j),
        write=percent_to_a_tenth,
    )
    title = f"{contestant.method}, deleted = {contestant.treatment}"
    return Figure(
        svg, title, "Accuracy in cross-validation; the stronger the colour the better, the frame is the choice."
    )


def _noise_name(noise: Any) -> str:
    """Return the rate of dropout, or the name and the parameter of another noise."""
    values = list(noise.get_params(deep=False).values())
    number = f"{float(values[0]):g}" if values and not hasattr(values[0], "__len__") else ""
    return number if type(noise).__name__ == "DropoutNoise" and number else f"{type(noise).__name__} {number}".strip()
