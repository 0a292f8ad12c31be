"""The checks of scikit-learn."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from dropmargin import FourierFeatures, TableClassifier, TableRegressor

_FIXED = {"basis": "linear", "noise": 0.1, "C": 1.0, "random_state": 0, "verbose": 0}
_EXPECTED = {"check_sample_weight_equivalence_on_dense_data": "columns are scaled without the weights of the rows"}


def _expected(estimator):
    return {} if isinstance(estimator, FourierFeatures) else _EXPECTED


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [TableClassifier(**_FIXED), TableRegressor(**_FIXED), FourierFeatures(n_components=20, random_state=0)],
    expected_failed_checks=_expected,
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)
