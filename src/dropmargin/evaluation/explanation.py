"""`explain`: what the label of each row leans on, and how many features must vanish before it flips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dropmargin.estimators.validation import check_integer
from dropmargin.estimators.vanishing import PresentUnits, VanishingFeatures
from dropmargin.evaluation.units import Units, find_units, name_features, split_estimator
from dropmargin.plotting.display import Display, draw_bars
from dropmargin.plotting.style import COLOURS, LEGEND, plain_text
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
    """

    label: Any
    margin: float
    features: list[str]
    contributions: Array
    n_present: int
    runner_up: Any = None
    flip_count: int | None = None
    flips_to: Any = None

    @property
    def text(self) -> str:
        """The label, and how many features must vanish before it flips, in words."""
        if self.runner_up is None:
            return f"{self.label:.6g} ({self.margin:+.4g} from {self.label - self.margin:.6g}, if all vanish)"
        flip = f"does not flip when {self.n_present} vanish one after the other"
        if self.flip_count is not None:
            verb = "vanishes" if self.flip_count == 1 else "vanish"
            flip = f"flips to {self.flips_to} when the strongest {self.flip_count} of {self.n_present} {verb}"
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
            names = ("label", "runner_up", "margin", "flip_count", "flips_to")
            facts = {name: getattr(self, name) for name in names}
        listed = {"features": list(self.features), "contributions": self.contributions.tolist()}
        return facts | {"n_present": self.n_present} | listed

    def __repr__(self) -> str:
        pairs = zip(self.features, self.contributions, strict=True)
        lines = [f"  {contribution:+10.4g}  {name}" for name, contribution in pairs]
        if self.flip_count is not None and self.flip_is_listed:
            lines[self.flip_count - 1] += f"  <- flips to {self.flips_to}"
        return "\n".join([self.text, *lines])


class Explanation(list[RowExplanation], Display):
    """The explanations of rows: a list of `RowExplanation`."""

    @property
    def labels(self) -> Array:
        """The predicted label, or number, of each row."""
        return np.array([row.label for row in self])

    @property
    def flip_counts(self) -> Array:
        """The flip count of each row; infinity if its label never flips."""
        return np.array([np.inf if row.flip_count is None else float(row.flip_count) for row in self])

    def __repr__(self) -> str:
        shown = [f"row {i}: {row!r}" for i, row in enumerate(self[:_MAX_ROWS])]
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

        n_listed = max((len(row.features) for row in self), default=0)
        frame = pd.DataFrame([flat_record(row, n_listed) for row in self])
        return frame.astype({"flip_count": "Int64"}) if "flip_count" in frame else frame

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
        own = self[row]
        self._set_axes(ax, figsize=(6.4, 1.4 + 0.28 * max(3, len(own.features))))
        draw_bars(self.ax_, own.features, own.contributions)
        self.ax_.set_xlabel(f"contribution to the {'prediction' if own.runner_up is None else 'margin'}")
        self.ax_.set_title(plain_text(own.text), fontsize="medium", wrap=True)
        if own.flip_count is not None and own.flip_is_listed:
            label = plain_text(f"flips to {own.flips_to}")
            self.lines_.append(self.ax_.axhline(own.flip_count - 0.5, color=COLOURS[-1], linestyle="--", label=label))
            self.ax_.legend(loc="lower right", **LEGEND)
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
    contributions, the largest first; scores are computed anew after each. No smaller number of features changes the
    label of two classes under ``missing="error"``; for other models it is an upper bound of the least number.

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
        ``contributions``, ``n_present``, ``flip_count`` and ``flips_to``. It has the arrays ``labels`` and
        ``flip_counts`` (infinity for a label that never flips), and the methods ``to_frame()`` and ``plot(row)``.
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
    if hasattr(estimator, "explain"):  # a model of a table, whose columns vanish
        check_is_fitted(estimator, msg="explain needs a fitted model; this %(name)s is not fitted yet.")
        return estimator.explain(X, n)
    encoder, model = split_estimator(estimator, "explain")
    units = find_units(encoder, model, name_features(encoder, model, feature_names))
    rows = X if encoder is None else encoder.transform(X)
    return explain_rows(VanishingFeatures(model, units.numbers, units.always), units, rows, n, verbose)


def explain_rows(vanishing: VanishingFeatures, units: Units, X: Any, n: int, verbose: int = 1) -> Explanation:
    """Return the explanations of the rows of a matrix, whose units of features vanish."""
    n, X = check_integer("n", n, 1), vanishing.check(X)
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
    n_units, direction = len(row.units), vanishing.direction(label, rival)
    is_lost = np.vstack([np.zeros(n_units), np.eye(n_units), np.ones(n_units)])  # none, each, all
    scores = vanishing.without(row, is_lost)
    contributions = (scores[0] - scores[1:-1]) @ direction
    order = np.argsort(-contributions, kind="stable")
    largest = np.argsort(-np.abs(contributions), kind="stable")[:n]
    listed = order[np.isin(order, largest[contributions[largest] != 0.0])]
    names = [units.names[unit] for unit in row.units[listed].tolist()]
    found: dict[str, Any] = {"features": names, "contributions": contributions[listed], "n_present": len(order)}
    margin = float(scores[0] @ direction)
    if vanishing.is_regression:
        return RowExplanation(margin, margin - float(scores[-1] @ direction), **found)
    after = vanishing.classes(vanishing.without(row, np.argsort(order) <= np.arange(n_units)[:, None]))
    flips = np.flatnonzero(after != label)
    if len(flips):
        found |= {"flip_count": int(flips[0]) + 1, "flips_to": vanishing.labels[after[flips[0]]]}
    return RowExplanation(vanishing.labels[label], margin, runner_up=vanishing.labels[rival], **found)
