"""The scikit-learn estimators: a thin shell over noise, loss, objective and solver."""

from dropmargin.estimators.classifiers import (
    DropoutLogisticRegression,
    DropoutSVC,
    MCFClassifier,
    NoisyLinearClassifier,
)

__all__ = ["DropoutLogisticRegression", "DropoutSVC", "MCFClassifier", "NoisyLinearClassifier"]
