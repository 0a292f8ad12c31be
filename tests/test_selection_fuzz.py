"""Searches claim the scores that plain models have on the folds: a sample of ``python -m tests.fuzz.selection``."""

from __future__ import annotations

import pytest

from fuzz import selection

# Without those that take more than a second.
_QUICK = [0, 1, 3, 4, 5, 6, 8, 10, 17, 19, 20, 21, 22, 24, 26, 27, 28, 32]


@pytest.mark.parametrize("index", _QUICK)
def test_a_search_claims_what_plain_models_have(index):
    outcome = selection.run(0, index)
    assert not outcome.findings, selection.describe(0, outcome)
