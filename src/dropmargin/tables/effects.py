"""What a table model says about columns: their strengths and effects, explanations, and the stability of labels."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import check_random_state

from dropmargin import evaluation
from dropmargin.estimators.validation import check_integer
from dropmargin.estimators.vanishing import VanishingFeatures
from dropmargin.evaluation import Explanation, TopFeatures
from dropmargin.evaluation.explanation import explain_rows
from dropmargin.evaluation.units import Units
from dropmargin.plotting.style import COLOURS, import_matplotlib, plain_text, tidy
from dropmargin.tables.cells import Texts
from dropmargin.tables.groups import grouped
from dropmargin.typing import Array

_N_GRID, _MAX_PANELS, _MAX_BARS, _MAX_ROW = 60, 12, 12, 4
# Draws of complete rows for the variance of a prediction of a Fourier basis.
_N_SAMPLES = 32


class Effect(NamedTuple):
    """The scores of a column at some of its values: numbers, or texts."""

    name: str
    values: Any
    scores: Array  # (n_values, n_outputs)


def _scores(table: Any, encoded: Any) -> Array:
    """Return the scores of encoded rows, a column per output."""
    features = encoded if table.fourier_ is None else table.fourier_.transform(encoded)
    found = (table.model_.decision_function if is_classifier(table) else table.model_.predict)(features)
    return found[:, None] if found.ndim == 1 else found


def _outputs(table: Any) -> list[Any]:
    """Return a name for each column of the scores."""
    if not is_classifier(table):
        return ["prediction"]
    return [table.classes_[1]] if len(table.classes_) == 2 else table.classes_.tolist()


def _grid(encoder: Any) -> Any:
    """Return the cells of a column at which its effect is computed."""
    if encoder.kind in ("category", "text"):
        names = encoder.categories_ if encoder.kind == "category" else encoder.terms_
        return Texts(np.arange(len(names)), list(names))
    if encoder.kind == "date":
        low, high = _limits(encoder.encoders_["year"])
        start, end = ((year - 1970.0) * 365.2425 * 86400.0 for year in (low, high))
        return np.linspace(start, end, _N_GRID).astype("datetime64[s]")
    return np.linspace(*_limits(encoder), _N_GRID)


def _limits(encoder: Any) -> tuple[float, float]:
    """Return the ends of the training numbers, or two deviations from their mean."""
    ends = encoder.knots_ if len(encoder.knots_) else encoder.quantiles_
    if not len(ends):
        ends = encoder.mean_ + 2.0 * encoder.scale_ * np.array([-1.0, 1.0])
    return float(ends[0]), float(ends[-1])


def effect(table: Any, name: str) -> Effect:
    """Return the effect of a column: of an additive model the change from the average row, else the expected score."""
    encoder = getattr(table.encoder_, "encoders_", {}).get(name)
    if encoder is None:
        raise ValueError(f"Column {name!r} has no effect to show: it is left out, or another package encodes it.")
    cells = _grid(encoder)
    own = np.flatnonzero(table.encoder_.feature_columns_ == name)
    values = cells.names if isinstance(cells, Texts) else cells
    if encoder.kind == "text":
        return Effect(name, values, np.atleast_2d(table.model_.coef_)[:, own].T)
    part = encoder.transform(cells)
    if table.fourier_ is None:
        means = table.model_.feature_means_[own]
        return Effect(name, values, (part - means) @ np.atleast_2d(table.model_.coef_)[:, own].T)
    rows = np.full((len(part), len(table.encoder_.feature_columns_)), np.nan)
    empty = _scores(table, rows[:1])
    rows[:, own] = part
    return Effect(name, values, _scores(table, rows) - empty)


def strengths(table: Any, groups: Array) -> tuple[list[str], Array]:
    """Return the different groups of features, and the standard deviation that each gives to each output.

    That of an additive model follows from the Gaussian distribution of its features; that of a Fourier basis is the
    deviation of the expected score if the column alone is observed, over the values of its effect.
    """
    names = list(dict.fromkeys(groups.tolist()))
    if table.fourier_ is not None:
        return names, np.array([np.std(effect(table, name).scores, axis=0) for name in names])
    model, coef = table.model_, np.atleast_2d(table.model_.coef_)
    variances = np.empty((len(names), len(coef)))
    for place, name in enumerate(names):
        own = np.flatnonzero(groups == name)
        common = coef[:, own] @ model.feature_factors_[own]
        variances[place] = np.square(common).sum(axis=1) + np.square(coef[:, own]) @ model.residual_variances_[own]
    return names, np.sqrt(variances)


def top_columns(table: Any, n: int) -> TopFeatures:
    """Return the strongest columns of each output."""
    names, found = strengths(table, table.encoder_.feature_groups_)
    top, n = TopFeatures(_outputs(table), [], [], True), check_integer("n", n, 1)
    for own in found.T:
        order = [int(place) for place in np.argsort(-own, kind="stable")[:n] if own[place] > 0.0]
        top.names.append([names[place] for place in order])
        top.strengths.append(own[order])
    return top


def plot_effects(table: Any, columns: Any = None, ax: Any = None) -> Any:
    """Plot the effect of each column, with the share of the score that it carries."""
    names, found = strengths(table, table.encoder_.feature_columns_)
    totals = found.sum(axis=1)
    shares = dict(zip(names, (totals / max(totals.sum(), 1e-300)).tolist(), strict=True))
    if columns is None:
        columns = sorted(names, key=lambda name: -shares[name])[:_MAX_PANELS]
    shown = [effect(table, name) for name in columns]
    if ax is None:
        n_row = min(len(shown), _MAX_ROW)
        n_lines = math.ceil(len(shown) / n_row)
        size = {"figsize": (3.2 * n_row, 2.6 * n_lines), "squeeze": False, "layout": "constrained"}
        _, grid = import_matplotlib().subplots(n_lines, n_row, **size)
        for empty in grid.ravel()[len(shown) :]:
            empty.remove()
        ax = grid.ravel()[: len(shown)]
    axes = np.atleast_1d(ax).ravel()
    if len(axes) != len(shown):
        raise ValueError(f"ax must have one Axes per column, {len(shown)} in all, got {len(axes)}.")
    outputs = _outputs(table)
    label = f"effect on: {outputs[0]}" if len(outputs) == 1 else "effect on the score"
    for own, one in zip(axes, shown, strict=True):
        _draw(own, one, outputs)
        (own.set_xlabel if isinstance(one.values, list) else own.set_ylabel)(plain_text(label))
        own.set_title(plain_text(f"{one.name} ({100.0 * shares[one.name]:.0f} %)"), fontsize="medium")
    return axes


def _draw(ax: Any, one: Effect, outputs: list[Any]) -> None:
    """Draw an effect: a line per output over numbers and dates, bars for categories and words."""
    if not isinstance(one.values, list):
        for place, label in enumerate(outputs):
            ax.plot(one.values, one.scores[:, place], color=COLOURS[place % len(COLOURS)], label=plain_text(label))
        ax.tick_params(axis="x", labelrotation=30 if one.values.dtype.kind == "M" else 0)
    else:
        order = np.argsort(-np.abs(one.scores).max(axis=1), kind="stable")[:_MAX_BARS][::-1]
        height = 0.8 / len(outputs)
        for place, label in enumerate(outputs):
            where = np.arange(len(order)) + height * (place - 0.5 * (len(outputs) - 1))
            colour = COLOURS[place % len(COLOURS)]
            ax.barh(where, one.scores[order, place], height, color=colour, label=plain_text(label))
        ax.set_yticks(np.arange(len(order)), [plain_text(one.values[i]) for i in order])
    if 1 < len(outputs) <= len(COLOURS):
        ax.legend(fontsize="x-small", frameon=False)
    tidy(ax)


# Rows -----------------------------------------------------------------------------------------------------------------


class _VanishingColumns(VanishingFeatures):
    """The scores of a Fourier basis for encoded rows of which columns vanish."""

    def __init__(self, table: Any, numbers: Array) -> None:
        super().__init__(table.model_, numbers, np.empty(0, dtype=int))
        self._fourier, self._vanished = table.fourier_, np.full(len(numbers), np.nan)

    def check(self, X: Any) -> Any:
        return X

    def outputs(self, X: Any) -> Array:
        return super().outputs(self._fourier.transform(X))


def explain(table: Any, X: Any, n: int) -> Explanation:
    """Return the explanations of rows; those of a Fourier basis by deleting one column after the other."""
    if table.fourier_ is None:
        return evaluation.explain(table.best_estimator_, X, n=n)
    names, numbers = np.unique(table.encoder_.feature_groups_.astype(str), return_inverse=True)
    units = Units(numbers, names.tolist(), np.empty(0, dtype=int))
    return explain_rows(_VanishingColumns(table, numbers), units, table.encoder_.transform(X), n)


def stability(table: Any, X: Any, rate: float, n_draws: int, random_state: Any) -> Array:
    """Return the share of draws in which rows that lose columns have the label of the rows as they are."""
    n_draws, encoded = check_integer("n_draws", n_draws, 1), table.encoder_.transform(X)
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    matrix = grouped(table.encoder_, encoded)
    labels, same = _labels(table, encoded), np.zeros(encoded.shape[0])
    for _ in range(n_draws):
        same += _labels(table, matrix.lost(rate, rng)) == labels
    return same / n_draws


def _labels(table: Any, encoded: Any) -> Array:
    return table.model_.predict(encoded if table.fourier_ is None else table.fourier_.transform(encoded))


def drawn_deviations(table: Any, X: Any) -> Array:
    """Return the standard deviations of the predictions of complete rows given the observed columns, by draws."""
    encoded, rng = table.encoder_.transform(X), np.random.default_rng(0)
    draws = [_scores(table, table.fourier_.sample(encoded, rng))[:, 0] for _ in range(_N_SAMPLES)]
    return np.std(draws, axis=0)
