"""Choice of noise and ``C``: cross-validation along a path over the grid, and the solutions of the path."""

from dropmargin.model_selection.classifiers import DropoutLogisticRegressionCV, DropoutSVCCV, NoisyLinearClassifierCV
from dropmargin.model_selection.noise_path import NoisePath, noise_path
from dropmargin.model_selection.regressors import DropoutRidgeCV, DropoutSVRCV

__all__ = [
    "DropoutLogisticRegressionCV",
    "DropoutRidgeCV",
    "DropoutSVCCV",
    "DropoutSVRCV",
    "NoisePath",
    "NoisyLinearClassifierCV",
    "noise_path",
]
