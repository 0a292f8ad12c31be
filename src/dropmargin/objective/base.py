"""The interface between solvers and objectives.

Coefficients are arrays of shape ``(n_features + 1, n_outputs)``: one column per output (binary problem), and the last
row is the intercept. Values have one entry per output. The outputs share every product with the data and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import Partitions, Rows
from dropmargin.penalties import Penalty
from dropmargin.typing import Array


class DeflationSpace(NamedTuple):
    """Two directions per output whose products with a curvature are known: the coefficients, and the intercept alone.

    A hinge is nearly flat along the coefficients, and the intercept is coupled to all of them: a preconditioner of the
    features misses both.
    """

    coef: Array
    coef_image: Array
    intercept_image: Array

    def select(self, outputs: Any) -> DeflationSpace:
        """Return the directions of these outputs alone."""
        return DeflationSpace(*(np.ascontiguousarray(array[:, outputs]) for array in self))


class Curvature(ABC):
    """A positive definite model of the second derivative at a point, known by its products."""

    #: Directions with known products, which conjugate gradients need not search.
    deflation: DeflationSpace | None = None

    @abstractmethod
    def product(self, direction: Array) -> Array:
        """Return the matrix times ``direction``, output by output."""

    @abstractmethod
    def precondition(self, residual: Array) -> Array:
        """Return an approximate inverse times ``residual``."""

    @abstractmethod
    def select(self, outputs: Any) -> Curvature:
        """Return the curvature of these outputs alone."""


class Point(ABC):
    """The objective at given coefficients: ``coef``, ``value``, ``gradient`` (of the smooth part) and curvature."""

    objective: Objective
    coef: Array
    value: Array
    gradient: Array

    @abstractmethod
    def hessian(self, direct: bool = False) -> Curvature:
        """Return the second derivative; ``direct`` asks for a factorisation where the size of the data allows it."""

    def sampled_hessian(self) -> Curvature:
        """Return the second derivative estimated from a subsample of the rows, if the objective has one."""
        raise NotImplementedError

    @abstractmethod
    def majoriser(self, direct: bool = False) -> Curvature:
        """Return the curvature of the re-weighted least-squares problem, the paper's M-step.

        For a loss without a majoriser it is that of an upper bound of the loss: a line search is needed.
        """

    @abstractmethod
    def select(self, outputs: Any) -> Point:
        """Return the point of these outputs alone."""


class Objective(ABC):
    """A convex function of the coefficients, a sum over the rows of the data."""

    data: Partitions[Rows]
    n_features: int
    n_outputs: int
    penalty: Penalty
    #: Whether `Point.majoriser` exists: the majoriser of the loss, or of an upper bound of the loss that has one.
    has_quadratic_bound: bool
    #: Whether the curvature is so uneven (a kink, hardly smoothed) that conjugate gradients need a factorisation.
    is_stiff: bool
    #: Whether the data are so small that Hessians are always factorised.
    has_cheap_hessian: bool = False
    #: Whether preconditioned curvatures are close to the identity, so that the preconditioner can estimate a gap.
    is_well_preconditioned: bool
    #: Whether there is a subsample of the rows, for `Point.sampled_hessian`.
    has_subsample: bool = False
    #: Whether an output has several classes, whose coupling the preconditioner ignores.
    has_coupled_classes: bool = False
    #: Whether the loss is the hinge itself, with a kink and two targets: what methods in the dual need.
    is_noise_free_hinge: bool = False
    #: Whether one small Newton step does not show that the gap is small.
    needs_second_step: bool = False
    #: Whether there is `restricted`.
    can_restrict: bool = False

    @property
    def n_penalised(self) -> int:
        """The number of coefficients of an output that are penalised."""
        return self.n_features

    @abstractmethod
    def at(self, coef: Array) -> Point:
        """Return the point at ``coef``."""

    def restricted(self, features: Array) -> Objective:
        """Return the objective of some features, as if the coefficients of the others were zero.

        It has rows of its own, which are to be closed.
        """
        raise NotImplementedError

    def to_solver(self, coef: Array) -> Array:
        """Return coefficients of shape ``(n_features + 1, n_outputs)`` in the form that a solver uses."""
        return coef

    def from_solver(self, coef: Array) -> Array:
        """Return the coefficients of a solver in the shape ``(n_features + 1, n_outputs)``."""
        return coef

    @abstractmethod
    def value(self, coef: Array) -> Array:
        """Return the value at ``coef``, also where there is no gradient."""

    @property
    @abstractmethod
    def n_passes(self) -> float:
        """Passes over the data so far: a product with ``X`` and one with its transpose are one pass."""
