"""The questions that a solver may ask of an objective, and the data that every objective is made of.

Coefficients are blocks of shape ``(n_features + 1, n_columns)``: one column per binary problem, the last row is the
offset. Values are vectors, one entry per column; the columns share every sweep over the data and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import Block, Partitions
from dropmargin.penalties import Penalty
from dropmargin.typing import Array


class Labelled:
    """A partition of the training data.

    Parameters
    ----------
    block : Block or callable
        The rows, or a function that fetches them. It is called whenever they are asked for, and not if only labels
        and weights are: rows that do not fit into memory are read for products with them and for nothing else. They
        are good until the mapped function returns: nothing that it returns may share memory with them.
    labels : ndarray of shape (n_rows, n_columns)
        -1 or +1, one column per binary problem.
    weights : ndarray of shape (n_rows, 1)
        ``C`` times the sample weight.
    """

    def __init__(self, block: Block | Callable[[], Block], labels: Array, weights: Array) -> None:
        self._block = block
        self.labels = labels
        self.weights = weights

    @property
    def block(self) -> Block:
        """The rows."""
        return self._block if isinstance(self._block, Block) else self._block()


class Shape(NamedTuple):
    """How many rows there are in all partitions, and the weight of the positive and of the negative label.

    The latter are a row each, with one column per column of the labels.
    """

    n_rows: int
    label_weights: Array

    @property
    def n_columns(self) -> int:
        return self.label_weights.shape[1]

    @property
    def weight(self) -> float:
        """The weight of all rows."""
        return float(self.label_weights[:, 0].sum())


def remember_shape(data: Partitions[Labelled], shape: Shape) -> None:
    """Save `shape_of` the question, if the answer is known."""
    data.cache["shape"] = shape


def shape_of(data: Partitions[Labelled]) -> Shape:
    """Return the shape of the labels, asked for once."""
    if "shape" not in data.cache:
        data.cache["shape"] = Shape(*data.map_sum(_shape))
    return data.cache["shape"]


def _shape(part: Labelled) -> Shape:
    positive, weights = part.labels > 0.0, part.weights[:, 0]
    return Shape(len(weights), np.stack([np.einsum("i,ik->k", weights, own) for own in (positive, ~positive)]))


class DeflationSpace(NamedTuple):
    """Two directions per column whose products with a curvature are known: the coefficients, and the offset alone.

    Along the coefficients a hinge is nearly flat, and the offset is tied to all of them: both are directions that a
    preconditioner of the features misses.
    """

    coef: Array
    coef_image: Array
    offset_image: Array

    def select(self, columns: Any) -> DeflationSpace:
        """Return the directions of these columns alone."""
        return DeflationSpace(*(np.ascontiguousarray(array[:, columns]) for array in self))


class Curvature(ABC):
    """A positive definite model of the second derivative at a point, known by its products."""

    #: Directions that conjugate gradients need not search, if any are known.
    coarse: DeflationSpace | None = None

    @abstractmethod
    def product(self, direction: Array) -> Array:
        """Return the matrix times ``direction``, column by column."""

    @abstractmethod
    def precondition(self, residual: Array) -> Array:
        """Return an approximate inverse times ``residual``."""

    @abstractmethod
    def select(self, columns: Any) -> Curvature:
        """Return the curvature of these columns alone."""


class Line(ABC):
    """The objective along a direction from a point."""

    @abstractmethod
    def value(self, step: Array) -> Array:
        """Return the value at ``coef + step * direction``, one step length per column."""

    @abstractmethod
    def point(self, step: Array) -> Point:
        """Return the point there."""


class ReevaluatedLine(Line):
    """The objective along a direction, by trial: each is the point there, with its gradient.

    Nothing is known of the line beforehand, and a step that is refused costs a whole pass. But most steps are taken at
    once, and then the point after it is there already: for rows that are read or asked for anew with each question,
    less work than the products along the line and those of the new point.
    """

    def __init__(self, objective: Objective, start: Point, direction: Array) -> None:
        self._objective, self._start, self._direction = objective, start, direction
        self._step, self._trial = np.zeros(len(start.value)), start

    def value(self, step: Array) -> Array:
        return self.point(step).value

    def point(self, step: Array) -> Point:
        if not np.array_equal(step, self._step):
            self._step, self._trial = step, self._objective.at(self._start.coef + step * self._direction)
        return self._trial


class Point(ABC):
    """The objective at given coefficients: ``coef``, ``value`` and ``gradient`` of the smooth part, and the answers."""

    coef: Array
    value: Array
    gradient: Array

    @abstractmethod
    def hessian(self, direct: bool = False) -> Curvature:
        """Return the second derivative; ``direct`` says that a factorisation is worth more passes than usual."""

    @abstractmethod
    def majoriser(self, direct: bool = False) -> Curvature:
        """Return the curvature of the re-weighted least-squares problem, the paper's M-step."""

    @abstractmethod
    def along(self, direction: Array) -> Line:
        """Return the objective on the line through this point."""

    @abstractmethod
    def select(self, columns: Any) -> Point:
        """Return the point of these columns alone."""


class Objective(ABC):
    """A convex function of a block of coefficients, a sum over the rows of the data."""

    n_features: int
    n_columns: int
    penalty: Penalty
    #: Whether `Point.majoriser` answers.
    has_weights: bool
    #: Whether the curvature is so uneven (a kink, hardly rounded off) that conjugate gradients alone would crawl.
    is_stiff: bool

    @abstractmethod
    def at(self, coef: Array) -> Point:
        """Return the point at ``coef``."""

    @abstractmethod
    def value(self, coef: Array) -> Array:
        """Return the value at ``coef``, also where there is no gradient."""

    @property
    @abstractmethod
    def n_passes(self) -> float:
        """The passes over the data so far: a product with ``X`` and one with its transpose are one pass."""
