"""The scikit-learn estimators: parameters, checks, fit and prediction."""

from dropmargin.estimators.classifiers import (
    DropoutLogisticRegression,
    DropoutSVC,
    MCFClassifier,
    NoisyLinearClassifier,
)

__all__ = ["DropoutLogisticRegression", "DropoutSVC", "MCFClassifier", "NoisyLinearClassifier"]
