"""The objective, ``J = R(w) + C sum_i s_i phi_i``: noise and loss put together over the data.

An objective answers what a solver may ask, at a `Point`: value and gradient, products with the majoriser and the
Hessian, a preconditioner, and the value along a line. Each class of a one-vs-rest problem is a column of one block.
"""

from dropmargin.objective.base import (
    Curvature,
    DeflationSpace,
    Labelled,
    Line,
    Objective,
    Point,
    Shape,
    remember_shape,
)
from dropmargin.objective.mgf import MGFObjective
from dropmargin.objective.moment import MomentObjective

__all__ = [
    "Curvature",
    "DeflationSpace",
    "Labelled",
    "Line",
    "MGFObjective",
    "MomentObjective",
    "Objective",
    "Point",
    "Shape",
    "remember_shape",
]
