"""`explain`: what the label of each row leans on, and how many features must vanish before it flips."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.validation import check_integer
from dropmargin.estimators.vanishing import PresentUnits, VanishingFeatures
from dropmargin.explanation.units import Units, find_units, name_features, split_estimator
from dropmargin.plotting.display import Display, draw_bars
from dropmargin.plotting.style import COLOURS, plain_text
from dropmargin.progress import Progress
from dropmargin.typing import Array

# Rows that the text of an explanation shows.
_MAX_ROWS = 5


@dataclass(frozen=True, eq=False, repr=False)
class RowExplanation:
    """What the prediction of one row leans on.

    Parameters
    ----------
    label : object
        The predicted label, or number.
    margin : float
        The score of the label against the runner-up; of a number, its difference to the prediction if all features
        vanish, which is the mean prediction where these take their training means.
    features : list of str
        The features, groups or columns with the largest contributions in absolute value, in descending order.
    contributions : ndarray of shape (n_listed,)
        The decrease of the margin, or of the number, if each of them alone vanishes.
    n_present : int
        The number of features, groups or columns that can vanish.
    runner_up : object
        The label with the second highest score; ``None`` for a number.
    flip_count : int or None
        How many must vanish before the label flips, in the order of their contributions; ``None`` if it never flips.
    flips_to : object
        The label after that; ``None`` if it never flips.
    least_count : int or None
        The least number of any of them that must vanish before the label flips, for ``missing="error"`` except for
        one-vs-one votes, where scores are sums over the features; ``None`` if it never flips, and for other models,
        where ``flip_count`` is an upper bound.
    """

    label: Any
    margin: float
    features: list[str]
    contributions: Array
    n_present: int
    runner_up: Any = None
    flip_count: int | None = None
    flips_to: Any = None
    least_count: int | None = None

    @property
    def text(self) -> str:
        """The label, and how many features must vanish before it flips, in words."""
        if self.runner_up is None:
            return f"{self.label:.6g} ({self.margin:+.4g} from {self.label - self.margin:.6g}, if all vanish)"
        flip = f"does not flip when {self.n_present} vanish one after the other"
        if self.flip_count is not None:
            verb = "vanishes" if self.flip_count == 1 else "vanish"
            flip = f"flips to {self.flips_to} when the strongest {self.flip_count} of {self.n_present} {verb}"
        if self.least_count not in (None, self.flip_count):
            flip += f"; the least number is {self.least_count}"
        return f"{self.label} (by {self.margin:.4g} against {self.runner_up}) {flip}"

    @property
    def flip_is_listed(self) -> bool:
        """Whether the listed features begin with those that must vanish before the label flips."""
        is_whole = len(self.features) == self.n_present
        n_first = self.n_present if is_whole else int(np.count_nonzero(self.contributions > 0.0))
        return self.flip_count is not None and self.flip_count <= n_first

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as plain values; a number has no runner-up and no flips."""
        if self.runner_up is None:
            facts: dict[str, Any] = {"prediction": self.label, "difference": self.margin}
        else:
            names = ("label", "runner_up", "margin", "flip_count", "flips_to", "least_count")
            facts = {name: getattr(self, name) for name in names}
        listed = {"features": list(self.features), "contributions": self.contributions.tolist()}
        return facts | {"n_present": self.n_present} | listed

    def __repr__(self) -> str:
        pairs = zip(self.features, self.contributions, strict=True)
        lines = [f"  {contribution:+10.4g}  {name}" for name, contribution in pairs]
        if self.flip_count is not None and self.flip_is_listed:
            lines[self.flip_count - 1] += f"  <- flips to {self.flips_to}"
        return "\n".join([self.text, *lines])


class Explanation(Display):
    """The explanations of rows: a sequence of `RowExplanation`.

    Parameters
    ----------
    rows : list of RowExplanation
        An explanation per row.
    """

    def __init__(self, rows: list[RowExplanation]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> RowExplanation:
        return self.rows[row]

    def __iter__(self) -> Iterator[RowExplanation]:
        return iter(self.rows)

    @property
    def labels(self) -> Array:
        """The predicted label, or number, of each row."""
        return np.array([row.label for row in self.rows])

    @property
    def flip_counts(self) -> Array:
        """The flip count of each row; infinity if its label never flips."""
        return np.array([np.inf if row.flip_count is None else float(row.flip_count) for row in self.rows])

    def __repr__(self) -> str:
        shown = [f"row {i}: {row!r}" for i, row in enumerate(self.rows[:_MAX_ROWS])]
        more = [f"... and {len(self) - _MAX_ROWS} more"] if len(self) > _MAX_ROWS else []
        return "\n".join([f"Explanation of {len(self)} rows", *shown, *more])

    def to_frame(self) -> Any:
        """Return a data frame with a line per row, and two columns for each of its listed features.

        Returns
        -------
        frame : pandas.DataFrame
            The attributes of `RowExplanation`; a count is missing if the label never flips.
        """
        import pandas as pd

        n_listed = max((len(row.features) for row in self.rows), default=0)
        frame = pd.DataFrame([flat_record(row, n_listed) for row in self.rows])
        counts = [name for name in ("flip_count", "least_count") if name in frame]
        return frame.astype(dict.fromkeys(counts, "Int64"))

    def plot(self, row: int = 0, ax: Any = None) -> Explanation:
        """Plot the contributions of one row as bars, with a line where the label flips.

        Parameters
        ----------
        row : int, default=0
            The row.
        ax : matplotlib Axes, default=None
            Axes to plot on; ``None`` for a new figure.

        Returns
        -------
        self : object
            The explanation, with its plot.
        """
        own = self.rows[row]
        self._set_axes(ax, figsize=(6.4, 1.4 + 0.28 * max(3, len(own.features))))
        draw_bars(self.ax_, own.features, own.contributions)
        self.ax_.set_xlabel(f"contribution to the {'prediction' if own.runner_up is None else 'margin'}")
        self.ax_.set_title(plain_text(own.text), fontsize="medium", wrap=True)
        if own.flip_count is not None and own.flip_is_listed:
            place, colour = own.flip_count - 0.5, COLOURS[-1]
            self.lines_.append(self.ax_.axhline(place, color=colour, linestyle="--", linewidth=1.4))
            box = {"facecolor": self.ax_.get_facecolor(), "edgecolor": "none", "alpha": 0.85, "pad": 1.0}
            style = {"color": colour, "ha": "right", "va": "top", "fontsize": "small", "bbox": box}
            where = self.ax_.get_yaxis_transform()
            self.ax_.text(1.0, place + 0.08, plain_text(f"flips to {own.flips_to}"), transform=where, **style)
        return self


def flat_record(row: RowExplanation, n_listed: int) -> dict[str, Any]:
    """Return an explanation as a flat record, with the feature and the contribution of ``n_listed`` places."""
    record = row.to_dict()
    names, contributions = record.pop("features"), record.pop("contributions")
    for place in range(n_listed):
        is_listed = place < len(names)
        record[f"feature_{place + 1}"] = names[place] if is_listed else None
        record[f"contribution_{place + 1}"] = contributions[place] if is_listed else None
    return record


def explain(estimator: Any, X: Any, feature_names: Any = None, n: int = 10, *, verbose: int = 1) -> Explanation:
    """Return what each prediction leans on, and how many features must vanish before its label flips.

    The margin of a row is the score of its label against that of the runner-up, the label with the second highest
    score (with ``multi_class="ovo"``, the score of this pair of classes). The contribution of a feature is the decrease
    of the margin if the feature vanishes. A vanished feature is one that is missing, by the model's own rule: NaN for
    ``missing="rescale"`` and ``missing="conditional"``; for ``missing="error"`` the reference value of the dropout
    noise, or zero without dropout.

    The flip count is how many features must vanish before the label changes, if they vanish in the order of these
    contributions, the largest first; scores are computed anew after each. It is an upper bound of the least number of
    features that changes the label, which ``least_count`` has for ``missing="error"`` (except for one-vs-one votes);
    for two classes these are equal.

    What can vanish are the features of a row that are not NaN; of a sparse row, those that it stores. If the noise has
    groups, a group vanishes as a whole; else, if a step of the pipeline is a `TableEncoder`, a column of the table.

    Parameters
    ----------
    estimator : estimator
        A fitted classifier or regressor of dropmargin, with or without cross-validation, or a pipeline that ends in
        one.
    X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
        Rows, as for ``estimator.predict``.
    feature_names : array-like of str, default=None
        The names of the features of the linear model. By default those of the steps before it
        (``get_feature_names_out``), or of the data frame of the fit, or ``x0``, ``x1`` and so on.
    n : int, default=10
        How many features to list for each row. All of them count for the flip count.
    verbose : int, default=1
        Whether to show a progress bar if it takes more than two seconds.

    Returns
    -------
    explanation : Explanation
        A sequence of explanations, one per row, with the attributes ``label``, ``runner_up``, ``margin``, ``features``,
        ``contributions``, ``n_present``, ``flip_count``, ``flips_to`` and ``least_count``. It has the arrays ``labels``
        and ``flip_counts`` (infinity for a label that never flips), and the methods ``to_frame()`` and ``plot(row)``.
        The prediction of a regressor has contributions, and no runner-up and no flips; its margin is the difference
        to the prediction if all features vanish.

    See Also
    --------
    top_features : The strongest features of each class.
    DropoutSVC.predict_stability : The probability that a label stays the same under noise.

    Examples
    --------
    >>> import numpy as np
    >>> from dropmargin import DropoutNoise, DropoutSVC, explain
    >>> X, y = np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 2.0]]), [1, 1, 0, 0]
    >>> model = DropoutSVC(noise=DropoutNoise(0.2, reference="zero")).fit(X, y)
    >>> explanation = explain(model, X, feature_names=["a", "b", "c"])
    >>> explanation.labels, explanation.flip_counts
    (array([1, 1, 0, 0]), array([ 1.,  1., inf, inf]))
    >>> explanation[0].features
    ['a', 'b']
    """
    encoder, model = split_estimator(estimator, "explain")
    units = find_units(encoder, model, name_features(encoder, model, feature_names))
    rows = X if encoder is None else encoder.transform(X)
    return explain_rows(model, rows, units, check_integer("n", n, 1), verbose)


def explain_rows(model: MarginalisedModel, X: Any, units: Units, n: int, verbose: int = 1) -> Explanation:
    """Return the explanations of rows that are encoded for the model."""
    vanishing = VanishingFeatures(model, units.numbers, units.always)
    X = vanishing.check(X)
    outputs, explained = vanishing.outputs(X), []
    if vanishing.is_regression:
        labels = rivals = np.zeros(len(outputs), dtype=int)
    else:
        labels, scores = vanishing.classes(outputs), vanishing.class_scores(outputs)
        scores[np.arange(len(labels)), labels] = -np.inf
        rivals = scores.argmax(axis=1)
    with Progress(len(outputs), "explaining rows", verbose=verbose) as progress:
        for row, label, rival in zip(vanishing.present(X), labels.tolist(), rivals.tolist(), strict=True):
            explained.append(_explain_row(vanishing, row, label, rival, units, n))
            progress.advance()
    return Explanation(explained)


def _explain_row(
    vanishing: VanishingFeatures, row: PresentUnits, label: int, rival: int, units: Units, n: int
) -> RowExplanation:
    direction, complete = vanishing.direction(label, rival), vanishing.complete(row)
    contributions = (complete - vanishing.without_each(row)) @ direction
    order = np.argsort(-contributions, kind="stable")
    largest = np.argsort(-np.abs(contributions), kind="stable")[:n]
    listed = order[np.isin(order, largest[contributions[largest] != 0.0])]
    names = [units.names[unit] for unit in row.units[listed].tolist()]
    found: dict[str, Any] = {"features": names, "contributions": contributions[listed], "n_present": len(order)}
    margin = float(complete @ direction)
    if vanishing.is_regression:
        return RowExplanation(margin, margin - float(vanishing.empty(row) @ direction), **found)
    after = vanishing.classes(vanishing.without_first(row, order))
    flip_count = _first(after != label)
    least = _least_count(vanishing, row, label) if vanishing.is_additive else None
    flips_to = None if flip_count is None else vanishing.labels[after[flip_count - 1]]
    found |= {"flip_count": flip_count, "flips_to": flips_to, "least_count": least}
    return RowExplanation(vanishing.labels[label], margin, runner_up=vanishing.labels[rival], **found)


def _least_count(vanishing: VanishingFeatures, row: PresentUnits, label: int) -> int | None:
    """Return the least number of units that must vanish before the label flips, for scores that are sums.

    The label flips when another class overtakes it, and for each of these the largest contributions vanish first.
    """
    others = np.array([k for k in range(len(vanishing.labels)) if k != label])
    directions = np.stack([vanishing.direction(label, other) for other in others.tolist()], axis=1)
    left = np.cumsum(np.sort(row.sums @ directions, axis=0), axis=0)[::-1]  # of 1, 2, ... units and those after them
    left = np.vstack([left[1:], np.zeros((min(1, len(left)), len(others)))])
    margins = vanishing.empty(row) @ directions + left
    return _first(np.where(others < label, margins <= 0.0, margins < 0.0).any(axis=1))  # the first class wins a tie


def _first(flipped: Array) -> int | None:
    return int(np.argmax(flipped)) + 1 if flipped.any() else None
