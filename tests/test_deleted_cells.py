"""Deletion curves of tables with texts and categories, and of documents."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin

from dropmargin import deletion_curve


def a_table(n_rows=80):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "left_size": rng.standard_normal(n_rows),
            "left_count": rng.integers(5, size=n_rows),
            "kind": pd.Categorical(rng.choice(["p", "q", "r"], n_rows)),
            "name": rng.choice(["u", "v"], n_rows),
        }
    )
    return table, ((table.left_size > 0.0) ^ (table.name == "u")).to_numpy().astype(int)


@pytest.mark.parametrize("make", [lambda table: table, pl.from_pandas], ids=["pandas", "polars"])
@pytest.mark.parametrize("strategy", ["entries", "columns", "worst"])
def test_cells_of_a_table_are_deleted_before_encoding(make, strategy):
    table, y = a_table()
    recorder = TableRecorder().fit(make(table), y)
    deletion_curve(recorder, make(table), y, levels=[0.5], n_repeats=1, strategy=strategy, random_state=0)
    seen = recorder.seen_[-1]
    assert type(seen) is type(make(table))
    assert list(seen.columns) == list(table.columns)
    values = pl.DataFrame(seen).to_pandas() if make is pl.from_pandas else seen
    missing = values.isna().to_numpy()
    given = table.astype(object)
    assert (values.astype(object).mask(missing, given) == given).all(axis=None)
    if strategy == "entries":
        assert 0.4 < missing.mean() < 0.6
        assert 0 < missing[:, 0].sum() < len(y)
    else:
        assert sorted(missing.mean(axis=0)) == [0.0, 0.0, 1.0, 1.0]


class TableRecorder(ClassifierMixin, BaseEstimator):
    """Predicts the first class, and keeps the rows that it is given."""

    def fit(self, X, y):
        self.classes_, self.seen_ = np.unique(y), []
        return self

    def predict(self, X):
        self.seen_.append(X)
        return np.full(len(X), self.classes_[0])
