"""`top_features`: the strongest features of each class of a fitted model."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dropmargin.data import as_dense
from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.fitting import coefficients
from dropmargin.estimators.validation import check_integer
from dropmargin.evaluation.units import name_features, split_estimator
from dropmargin.plotting.display import Display, draw_bars
from dropmargin.plotting.style import plain_text
from dropmargin.typing import Array

# Features of a class in the text.
_MAX_TEXT = 8


@dataclass(eq=False, repr=False)
class TopFeatures(Display):
    """The strongest features of each class.

    Parameters
    ----------
    classes : list
        The classes. One-vs-one has two entries for each pair of classes, as ``"a, not b"``; a regressor ``"higher"``
        and ``"lower"``.
    names : list of list of str
        For each class, the names of the features that speak most for it, the strongest first.
    strengths : list of ndarray
        For each class, their strengths. They have the sign of the coefficients: negative for the first of two classes,
        and for ``"lower"``.
    is_scaled : bool
        Whether a strength is the coefficient times the standard deviation of the feature; else it is the coefficient.
    """

    classes: list[Any]
    names: list[list[str]]
    strengths: list[Array]
    is_scaled: bool

    @property
    def strength_text(self) -> str:
        """What a strength is, in words."""
        return "coefficient times standard deviation" if self.is_scaled else "coefficient"

    def __repr__(self) -> str:
        lines = [f"TopFeatures of {len(self.classes)} classes ({self.strength_text})"]
        for label, names, strengths in zip(self.classes, self.names, self.strengths, strict=True):
            listed = [f"{name} {value:+.3g}" for name, value in zip(names, strengths, strict=True)][:_MAX_TEXT]
            lines.append(f"  {label}: {', '.join(listed)}{', ...' if len(names) > _MAX_TEXT else ''}")
        return "\n".join(lines)

    def to_frame(self) -> Any:
        """Return a data frame with a line per class and feature.

        Returns
        -------
        frame : pandas.DataFrame
            The columns ``class``, ``feature`` and ``strength``.
        """
        import pandas as pd

        triples = zip(self.classes, self.names, self.strengths, strict=True)
        lines = [(k, *pair) for k, names, values in triples for pair in zip(names, values.tolist(), strict=True)]
        return pd.DataFrame(lines, columns=["class", "feature", "strength"])

    def plot(self, ax: Any = None) -> TopFeatures:
        """Plot the strengths as horizontal bars, a panel for each class, one below the other.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on, one for each class; ``None`` for a new figure.

        Returns
        -------
        self : object
            The features, with their plot.
        """
        heights = [1.0 + 0.25 * len(names) for names in self.names]
        size = {"nrows": len(heights), "height_ratios": heights, "figsize": (6.4, sum(heights))}
        self._set_axes(ax, map(str, self.classes), "class", **size)
        for own, label, names, values in zip(self.axes_, self.classes, self.names, self.strengths, strict=True):
            draw_bars(own, names, values)
            own.set_title(plain_text(label), fontsize="medium")
        self.axes_[-1].set_xlabel(self.strength_text)
        return self


def top_features(estimator: Any, feature_names: Any = None, n: int = 20) -> TopFeatures:
    """Return the features that speak most for each class of a fitted linear model.

    The strength of a feature is its coefficient times its standard deviation in the training data, the deviation that
    it gives to the score. A model has the standard deviations if it was fitted with ``missing="rescale"`` or
    ``missing="conditional"`` (where they are those of its Gaussian), or by the command line. The strength in other
    models is the coefficient: compare features only if they have a common scale.

    Parameters
    ----------
    estimator : estimator
        A fitted classifier or regressor of dropmargin, with or without cross-validation, or a pipeline that ends in
        one. A `TableClassifier` or `TableRegressor` has strengths of columns, which have no sign.
    feature_names : array-like of str, default=None
        The names of the features of the linear model. By default those of the steps before it
        (``get_feature_names_out``), or of the data frame of the fit, or ``x0``, ``x1`` and so on.
    n : int, default=20
        The number of features of each class.

    Returns
    -------
    top : TopFeatures
        Has the attributes ``classes``, ``names``, ``strengths`` and ``is_scaled``, and the methods ``to_frame()`` and
        ``plot()``. Two classes share one vector of coefficients: the features of the first are those with the most
        negative strengths, those of the second have the largest. Features of strength zero are left out.

    See Also
    --------
    explain : What the label of each row leans on.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> from dropmargin import DropoutSVC, top_features
    >>> reviews, stars = ["a great film", "great fun", "a bore", "what a bore"], [5, 5, 1, 1]
    >>> model = make_pipeline(CountVectorizer(), DropoutSVC(noise=0.3)).fit(reviews, stars)
    >>> top_features(model, n=1).names
    [['bore'], ['great']]
    """
    if hasattr(estimator, "top_features"):  # a model of a table, whose columns have several features
        check_is_fitted(estimator, msg="top_features needs a fitted model; this %(name)s is not fitted yet.")
        return estimator.top_features(n)
    encoder, model = split_estimator(estimator, "top_features")
    names, n = name_features(encoder, model, feature_names), check_integer("n", n, 1)
    strengths, is_scaled = feature_strengths(model)
    top = TopFeatures([], [], [], is_scaled)
    for label, output, sign in _directions(model):
        order = strongest(sign * strengths[output], n)
        top.classes.append(label)
        top.names.append([names[d] for d in order])
        top.strengths.append(strengths[output, order])
    return top


def feature_strengths(model: Any) -> tuple[Array, bool]:
    """Return coefficients, times standard deviations of the features if the model has these; and whether it has."""
    coef = as_dense(coefficients(model)[0]).astype(np.float64)
    if hasattr(model, "feature_deviations_"):
        return coef * model.feature_deviations_, True
    if hasattr(model, "feature_factors_"):
        return coef * np.sqrt(np.square(model.feature_factors_).sum(axis=1) + model.residual_variances_), True
    return coef, False


def strongest(strengths: Array, n: int) -> list[int]:
    """Return the features of the ``n`` largest strengths above zero, the largest first."""
    order = np.argsort(-strengths, kind="stable")[:n]
    return [int(d) for d in order if strengths[d] > 0.0]


def _directions(model: MarginalisedModel) -> list[tuple[Any, int, float]]:
    """Return a label for each class, and the output and the sign of the coefficients that speak for it."""
    if isinstance(model, RegressorMixin):
        return [("higher", 0, 1.0), ("lower", 0, -1.0)]
    labels = model.classes_.tolist()
    if len(labels) == 2:
        return [(labels[0], 0, -1.0), (labels[1], 0, 1.0)]
    if model.multi_class != "ovo":
        return [(label, output, 1.0) for output, label in enumerate(labels)]
    pairs = enumerate(itertools.combinations(labels, 2))
    both = [[(f"{a}, not {b}", output, -1.0), (f"{b}, not {a}", output, 1.0)] for output, (a, b) in pairs]
    return list(itertools.chain.from_iterable(both))
