"""The choice of a search is the best one: a sample of the searches of ``python -m tests.fuzz.selection``."""

from __future__ import annotations

import numpy as np
import pytest

from dropmargin import DropoutSVRCV
from fuzz import selection

# Searches that take less than half a second each, and those that once had a finding: two classes with a softmax (22),
# labels with equal scores (21), equal means by the rule of one standard error (55), constant models of the folds (65).
_QUICK = [0, 3, 6, 17, 20, 21, 22, 26, 27, 41, 46, 49, 55, 65, 70]
_MORE = [pytest.param(range(first, first + 10), marks=pytest.mark.slow) for first in range(0, 100, 10)]


@pytest.mark.parametrize("indices", [_QUICK[::3], *_MORE], ids=lambda indices: str([*indices]))
def test_no_search_has_a_finding(indices):
    outcomes = [selection.run(0, index) for index in indices]
    wrong = [outcome for outcome in outcomes if outcome.findings]
    assert not wrong, "\n".join(selection.describe(0, outcome) for outcome in wrong)


def _change_score(search):
    search.scores_[(0, *search.best_index_)] += 0.01


def _change_coefficients(search):
    search.coefs_paths_[(0, *search.best_index_)] *= 1.05


def _change_choice(search):
    search.best_index_ = tuple(np.unravel_index(search.scores_.mean(axis=0).argmin(), search.refined_.shape))


def _prune_the_best(search):
    """Change the search as if pruning had missed the chosen point, and chosen the next one."""
    search.scores_[(slice(None), *search.best_index_)] = search.scores_.min() - 1.0
    search.refined_[search.best_index_] = False
    mean = np.where(search.refined_, search.scores_.mean(axis=0), -np.inf)
    search.best_index_ = tuple(int(k) for k in np.unravel_index(mean.argmax(), mean.shape))


def _forget_coefficients(search):
    search.coef_ = np.zeros_like(search.coef_)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("claimed", _change_score),
        ("claimed", _change_coefficients),
        ("chosen", _change_choice),
        ("chosen", _prune_the_best),
        ("constant", _forget_coefficients),
        ("crash", lambda search: search.no_such_attribute),
    ],
)
def test_the_harness_sees_a_wrong_search(kind, change, monkeypatch):
    whole = DropoutSVRCV.fit

    def wrong(self, *given, **options):
        change(whole(self, *given, **options))
        return self

    monkeypatch.setattr(DropoutSVRCV, "fit", wrong)
    assert kind in {found for found, _ in selection.run(0, 46).findings}


def test_the_harness_chooses_as_documented():
    scores = np.array([[[0.7, 0.78, 0.7], [0.6, 0.77, 0.7]], [[0.7, 0.78, 0.9], [0.6, 0.79, 0.9]]])
    assert selection.choose(scores, "best") == (0, 2)  # of equal scores, the first noise
    assert selection.choose(scores, "one-se") == (0, 0)  # the standard error is 0.1: 0.7 is enough
    scores[:, 0, 0] -= 0.01
    assert selection.choose(scores, "one-se") == (0, 1)
