"""Life inside scikit-learn: pipelines, searches, clones and pickles; and which attributes are there and which not."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV

from datasets import make_binary, make_multiclass
from dealing import deal
from dropmargin import DropoutSVC, MCFClassifier, NoisyLinearClassifier

# Life inside scikit-learn -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
def test_calibration_gives_the_hinge_its_probabilities(multi_class):
    X, y = make_multiclass(n_samples=120)
    model = CalibratedClassifierCV(DropoutSVC(multi_class=multi_class), cv=3).fit(X, y)
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert np.mean(model.predict(X) == y) > 0.5


# What is and is not there -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "method"),
    deal(
        [DropoutSVC(), MCFClassifier("quadratic"), MCFClassifier("exponential"), NoisyLinearClassifier("hinge")],
        ["predict_proba", "predict_log_proba"],
    ),
    ids=str,
)
def test_scores_that_are_no_log_odds_have_no_probabilities_and_say_where_to_get_them(estimator, method):
    X, y = make_binary()
    for model in (estimator, clone(estimator).fit(X, y)):
        assert not hasattr(model, method)
        with pytest.raises(AttributeError) as caught:
            getattr(model, method)
        reasons = f"{caught.value} {caught.value.__cause__}"
        assert type(model).__name__ in reasons
        assert "probability='sigmoid'" in reasons
