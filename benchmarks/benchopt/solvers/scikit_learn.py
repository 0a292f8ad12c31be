"""The solvers of scikit-learn: LIBLINEAR's for the hinge, several for the logistic loss."""

import warnings

from benchopt import BaseSolver
from benchopt.stopping_criterion import SufficientProgressCriterion
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC


class Solver(BaseSolver):
    name = "scikit-learn"
    requirements = ["pip::scikit-learn"]
    # Several tolerances in a row may give the same coefficients.
    stopping_criterion = SufficientProgressCriterion(strategy="tolerance", patience=10)
    parameters = {"solver": ["liblinear", "lbfgs", "newton-cg", "newton-cholesky"]}

    def skip(self, X, y, C, loss):
        if loss == "hinge" and self.solver != "liblinear":
            return True, "the hinge is not smooth"
        if self.solver == "newton-cholesky" and X.shape[1] > 2_000:
            return True, "its Hessian is a matrix"
        return False, None

    def set_objective(self, X, y, C, loss):
        own = {"loss": "hinge"} if loss == "hinge" else {"solver": self.solver}
        make = LinearSVC if loss == "hinge" else LogisticRegression
        self.X, self.y = X, y
        self.model = make(C=C, fit_intercept=False, max_iter=100_000, **own)

    def run(self, tolerance):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model.set_params(tol=max(tolerance, 1e-15)).fit(self.X, self.y)

    def get_result(self):
        return {"w": self.model.coef_.ravel()}
