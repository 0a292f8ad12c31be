"""The scikit-learn estimators: a thin shell over noise, loss, objective and solver."""

from dropmargin.classifiers.estimators import (
    DropoutLogisticRegression,
    DropoutSVC,
    MCFClassifier,
    NoisyLinearClassifier,
)

__all__ = ["DropoutLogisticRegression", "DropoutSVC", "MCFClassifier", "NoisyLinearClassifier"]
