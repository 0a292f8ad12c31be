"""The objective ``J = R(w) + C sum_i s_i loss(z_i)``: scores of the rows, a loss of them, and a penalty.

`Point` has value and gradient at some coefficients; a `Model` is a quadratic model there, which it can minimise.
"""

from dropmargin.objective.hessians import weighted_gram
from dropmargin.objective.model import IterativeModel, Model, Solution, is_sharp, make_model
from dropmargin.objective.objective import Objective, Point
from dropmargin.objective.row_losses import MGFRows, MomentRows, SoftmaxRows
from dropmargin.objective.scores import GroupScores, LogMGF, Moments, Scores

__all__ = [
    "GroupScores",
    "IterativeModel",
    "LogMGF",
    "MGFRows",
    "Model",
    "MomentRows",
    "Moments",
    "Objective",
    "Point",
    "Scores",
    "SoftmaxRows",
    "Solution",
    "is_sharp",
    "make_model",
    "weighted_gram",
]
