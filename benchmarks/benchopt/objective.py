"""Regularised hinge and logistic losses without noise and intercept, as a problem of benchopt."""

import numpy as np
from benchopt import BaseObjective


class Objective(BaseObjective):
    """``|w|^2 / 2 + C sum_i loss(y_i x_i.w)``, with labels -1 and +1."""

    name = "linear classifiers"
    url = "https://pypi.org/project/dropmargin"
    min_benchopt_version = "1.6"
    requirements = ["pip::numpy"]
    parameters = {"loss": ["hinge", "logistic"], "C": [0.01, 1.0]}

    def set_data(self, X, y):
        self.X, self.y = X, y

    def get_objective(self):
        return {"X": self.X, "y": self.y, "C": self.C, "loss": self.loss}

    def evaluate_result(self, w):
        margins = self.y * (self.X @ w)
        losses = np.maximum(0.0, 1.0 - margins) if self.loss == "hinge" else np.logaddexp(0.0, -margins)
        return {"value": 0.5 * float(w @ w) + self.C * float(losses.sum())}

    def get_one_result(self):
        return {"w": np.zeros(self.X.shape[1])}
