"""Paths over noise and ``C``: one walk over the grid, cross-validation, and the classifiers that choose by it."""

from dropmargin.model_selection.estimators import DropoutLogisticRegressionCV, DropoutSVCCV, NoisyLinearClassifierCV
from dropmargin.model_selection.noise_path import NoisePath, noise_path

__all__ = ["DropoutLogisticRegressionCV", "DropoutSVCCV", "NoisePath", "NoisyLinearClassifierCV", "noise_path"]
