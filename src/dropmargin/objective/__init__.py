"""The objective ``J = R(w) + C sum_i s_i phi_i``: loss, noise and penalty over the data.

At a `Point` it has a value, a gradient, and products with the majoriser and the Hessian, with a preconditioner.
"""

from dropmargin.objective.base import Curvature, DeflationSpace, Objective, Point
from dropmargin.objective.classes import ClassObjective
from dropmargin.objective.moment import MomentObjective

__all__ = [
    "ClassObjective",
    "Curvature",
    "DeflationSpace",
    "MomentObjective",
    "Objective",
    "Point",
]
