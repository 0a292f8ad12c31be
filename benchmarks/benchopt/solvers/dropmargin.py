"""The solver of this package, without noise."""

from benchopt import BaseSolver
from benchopt.stopping_criterion import SufficientProgressCriterion

from dropmargin import DropoutLogisticRegression, DropoutSVC


class Solver(BaseSolver):
    name = "dropmargin"
    requirements = ["pip::dropmargin"]
    # Several tolerances in a row may give the same coefficients.
    stopping_criterion = SufficientProgressCriterion(strategy="tolerance", patience=10)

    def set_objective(self, X, y, C, loss):
        make = DropoutSVC if loss == "hinge" else DropoutLogisticRegression
        self.X, self.y = X, y
        self.model = make(noise=None, C=C, fit_intercept=False, max_iter=100_000)

    def run(self, tolerance):
        self.model.set_params(tol=max(tolerance, 1e-15)).fit(self.X, self.y)

    def get_result(self):
        return {"w": self.model.coef_.ravel()}
