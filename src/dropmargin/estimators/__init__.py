"""The scikit-learn estimators: parameters, checks, fit and prediction."""

from dropmargin.estimators.classifiers import (
    DropoutLogisticRegression,
    DropoutSVC,
    MCFClassifier,
    NoisyLinearClassifier,
)
from dropmargin.estimators.regressors import DropoutRidge, DropoutSVR, NoisyLinearRegressor

__all__ = [
    "DropoutLogisticRegression",
    "DropoutRidge",
    "DropoutSVC",
    "DropoutSVR",
    "MCFClassifier",
    "NoisyLinearClassifier",
    "NoisyLinearRegressor",
]
