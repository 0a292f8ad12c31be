"""The checks of scikit-learn."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from dropmargin import FourierFeatures, TableClassifier, TableRegressor

_FIXED = {"basis": "linear", "noise": 0.1, "C": 1.0, "random_state": 0, "verbose": 0}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [TableClassifier(**_FIXED), TableRegressor(**_FIXED), FourierFeatures(n_components=20, random_state=0)]
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)
