"""Marks and patterns that the tests of bad input share."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import sparse

from datasets import (
    estimators,
)

ESTIMATORS = estimators()
every_loss = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS.keys())
dense_or_sparse = pytest.mark.parametrize("make", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])


def says(*parts):
    """Return a pattern that finds all of these texts, in any order."""
    return "(?s)" + "".join(f"(?=.*{re.escape(part)})" for part in parts)
