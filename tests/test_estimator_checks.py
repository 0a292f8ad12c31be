"""scikit-learn's own checks of an estimator, all of them, with no expected failure.

Poisson noise is left out: the checks feed it negative data, which it refuses.
"""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from dropmargin import (
    Dropout,
    DropoutLogisticRegression,
    DropoutSVC,
    Gaussian,
    Laplace,
    MCFClassifier,
    NoisyLinearClassifier,
)

_ESTIMATORS = [
    DropoutSVC(),
    DropoutLogisticRegression(),
    MCFClassifier("quadratic"),
    MCFClassifier("exponential"),
    MCFClassifier("logistic"),
    NoisyLinearClassifier(),
    DropoutSVC(noise=None, tol=1e-12),  # coordinate descent goes another way for a row twice than for one of weight 2
    DropoutSVC(noise=Dropout(rate=0.5)),
    DropoutSVC(noise=Gaussian(scale=0.5)),
    DropoutSVC(approximation="gaussian"),
    # with 30 features for 15 rows and no ridge, rounding is felt at the default tolerance: here and below
    DropoutSVC(penalty="l1", tol=1e-16),
    DropoutSVC(multi_class="ovo"),
    DropoutSVC(solver="irls"),
    DropoutLogisticRegression(penalty="elasticnet"),
    DropoutLogisticRegression(approximation="gaussian", multi_class="ovo"),
    MCFClassifier("quadratic", solver="closed-form"),
    MCFClassifier("logistic", noise=Laplace(scale=0.1), penalty="l1", tol=1e-12),
    DropoutSVC(missing="drop"),
    DropoutLogisticRegression(noise=Gaussian(scale=0.5), missing="drop"),
    DropoutSVC(multi_class="ovo", missing="drop"),
    MCFClassifier("exponential", missing="drop"),
]


# Some checks ask for max_iter=1 or for unscaled data, where a warning is the right answer.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(_ESTIMATORS)
def test_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
