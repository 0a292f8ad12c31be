"""Deletion curves of tables with texts and categories, and of documents."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from dropmargin import DropoutSVC, deletion_curve
from dropmargin.io.data import TableEncoder


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


def test_groups_of_the_columns_of_a_table():
    table, y = a_table()
    recorder = TableRecorder().fit(table, y)
    groups = {"left": "left_*", "text": ["kind", "name"]}
    deletion_curve(recorder, table, y, levels=[0.5], n_repeats=4, strategy="columns", groups=groups, random_state=0)
    patterns = {tuple(seen.isna().all()) for seen in recorder.seen_}
    assert patterns == {(True, True, False, False), (False, False, True, True)}


def test_pipelines_on_tables():
    table, y = a_table()
    ours = make_pipeline(TableEncoder(), DropoutSVC(missing="rescale")).fit(table, y)
    curve = deletion_curve(ours, table, y, levels=[0.0, 1.0], random_state=0)
    assert curve.mean[0] == ours.score(table, y)
    assert np.isnan(curve.fill)
    encoder = make_column_transformer((OneHotEncoder(), ["kind", "name"]), remainder="passthrough")
    plain = make_pipeline(encoder, LogisticRegression()).fit(table, y)
    with pytest.raises(ValueError, match=r"Pipeline does not predict with them .* Add an imputer to the pipeline"):
        deletion_curve(plain, table, y, random_state=0)
    for settings in ({"fill": 0.0}, {"rescale": True}):
        with pytest.raises(ValueError, match="a deleted cell is a missing value"):
            deletion_curve(ours, table, y, **settings)
    with pytest.raises(ValueError, match="X has 3 features"):
        deletion_curve(ours, table.drop(columns="kind"), y)


def test_words_of_documents_are_deleted():
    documents = ["good film", "bad  film", "a good film of a good director", "so bad"]
    y = [1, 0, 1, 0]
    recorder = TableRecorder().fit(documents, y)
    deletion_curve(recorder, documents, y, levels=[0.3, 0.6, 1.0], n_repeats=1, random_state=0)
    little, much, all_ = ([text.split() for text in seen] for seen in recorder.seen_)
    for given, some, fewer in zip(documents, little, much, strict=True):
        for long, short in ((given.split(), some), (some, fewer)):
            rest = iter(long)
            assert all(word in rest for word in short)  # in the same order
    assert all_ == [[], [], [], []]
    assert 0 < sum(map(len, much)) < sum(map(len, little)) <= 13
    model = make_pipeline(CountVectorizer(), LogisticRegression()).fit(documents, y)
    expected = deletion_curve(model, documents, y, random_state=0).scores
    assert_array_equal(deletion_curve(model, pd.Series(documents), y, random_state=0).scores, expected)
    for settings in ({"strategy": "columns"}, {"groups": [0, 1]}):
        with pytest.raises(ValueError, match=r"Words of documents are deleted one by one"):
            deletion_curve(model, documents, y, **settings)


class TableRecorder(ClassifierMixin, BaseEstimator):
    """Predicts the first class, and keeps the rows that it is given."""

    def fit(self, X, y):
        self.classes_, self.seen_ = np.unique(y), []
        return self

    def predict(self, X):
        self.seen_.append(X)
        return np.full(len(X), self.classes_[0])
