"""TextEncoder and FrameEncoder: their output, their use in pipelines, and their fitted states."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline

from dealing import round_robin, together
from dropmargin import DropoutLogisticRegression, DropoutNoise, DropoutSVC, load, save
from dropmargin.io.data import FrameEncoder, ReadOptions, TableEncoder, TextEncoder, read_data

DOCUMENTS = ["A good, good film", "Bad film: not good", "", "Ein schöner Film"]
TABLE = {
    "review": ["good, good film", "bad film", None, "not so bad"],
    "title": ["wow", "", "meh", "film"],
    "age": [1.0, None, 3.0, 0.0],
    "colour": ["red", "blue", None, "red"],
}


# Text -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "weighting"),
    round_robin(
        [
            {},
            {"lowercase": False, "ngram_range": (1, 2)},
            {"min_df": 2},
            {"max_features": 3, "stop_words": "english"},
            {"ngram_range": (1, 2), "stop_words": ["film", "good"]},
            {"analyzer": "char", "ngram_range": (1, 3), "min_df": 0.3},
            {"analyzer": "char_wb", "ngram_range": (2, 4)},
        ],
        ["presence", "counts", "tfidf"],
    ),
)
def test_text_is_encoded_as_by_scikit_learn(options, weighting):
    make = {"presence": CountVectorizer, "counts": CountVectorizer, "tfidf": TfidfVectorizer}[weighting]
    wanted = make(binary=weighting == "presence", dtype=np.float64, **options).fit(DOCUMENTS)
    encoder = TextEncoder(weighting, **options)
    first = encoder.fit_transform(DOCUMENTS)
    assert encoder.get_feature_names_out().tolist() == wanted.get_feature_names_out().tolist()
    assert first.toarray().tobytes() == wanted.transform(DOCUMENTS).toarray().tobytes()
    new = ["good bad unseen", *DOCUMENTS]
    found = encoder.transform(new)
    assert found.toarray().tobytes() == wanted.transform(new).toarray().tobytes()
    for matrix in (first, found):
        assert matrix.has_sorted_indices
        assert (matrix.indices.dtype, matrix.indptr.dtype, matrix.dtype) == (np.int32, np.int32, np.float64)


def test_presence_is_the_default():
    assert TextEncoder().weighting == "presence"
    assert TextEncoder().fit(["good good film"]).transform(["good good good film"]).toarray().tolist() == [[1.0, 1.0]]


def test_documents_in_tables():
    pd, pl, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    table = {"review": [*DOCUMENTS[:3], None], "stars": [1, 2, 3, 4]}
    wanted = TextEncoder().fit([*DOCUMENTS[:3], ""]).transform([*DOCUMENTS[:3], ""]).toarray()
    encoder = TextEncoder(column="review")
    for make in (dict, pd.DataFrame, pl.DataFrame, pa.table):
        np.testing.assert_array_equal(encoder.fit(make(table)).transform(make(table)).toarray(), wanted)
    for documents in (table["review"], np.array(table["review"], dtype=object), pd.Series(table["review"])):
        np.testing.assert_array_equal(encoder.transform(documents).toarray(), wanted)
    with pytest.raises(ValueError, match=r"X has no column 'review', but \['text'\]"):
        encoder.transform({"text": ["x"]})
    with pytest.raises(ValueError, match=r"X is a table .*: set column to the name of"):
        TextEncoder().fit(pd.DataFrame(table))


@together(
    ("options", "match"),
    [
        ({"weighting": "bm25"}, "weighting must be one of"),
        ({"analyzer": str.split}, "analyzer must be one of"),
        ({"ngram_range": (2, 1)}, "ngram_range must be two integers, in ascending order"),
        ({"ngram_range": (1, 10**9)}, "ngram_range must be two integers, in ascending order, at most 20"),
        ({"min_df": 0}, "'min_df' parameter of CountVectorizer must be .* Got 0"),
        ({"min_df": 1.5}, "'min_df' parameter of CountVectorizer must be .* Got 1.5"),
        ({"min_df": 4}, "min_df must be smaller"),
        ({"min_df": 5}, "min_df must be smaller"),
        ({"max_features": 0}, "'max_features' parameter of CountVectorizer must be an int"),
        ({"lowercase": "yes"}, "'lowercase' parameter of CountVectorizer must be"),
        ({"column": 3}, "column must be a string"),
        ({"stop_words": "german"}, "'stop_words' parameter of CountVectorizer must be"),
        ({"stop_words": ["a", 1]}, "stop_words must be 'english'"),
        ({"stop_words": "english", "analyzer": "char"}, "stop_words must be None with analyzer='char'"),
        ({"stop_words": ["good", "film", "bad", "not", "ein", "schöner"]}, "have no terms"),
    ],
)
def test_errors_of_parameters(options, match):
    encoder = TextEncoder(**options)
    with pytest.raises(ValueError, match=match):
        encoder.fit(DOCUMENTS)
    assert not hasattr(encoder, "terms_")


def test_errors_of_documents():
    with pytest.raises(ValueError, match="got str"):
        TextEncoder().fit("one document")
    with pytest.raises(ValueError, match="Document 1 must be a string, got int"):
        TextEncoder().fit(["a document", 3])
    with pytest.raises(ValueError, match="The documents of column 'a' have no terms"):
        TextEncoder(column="a").fit({"a": ["", None]})
    for encoder in (TextEncoder(), FrameEncoder(["review"])):
        with pytest.raises(NotFittedError):
            encoder.transform(TABLE)


def test_a_pipeline_on_reviews(tmp_path):
    path = tmp_path / "reviews.csv"
    rows = ['"a good film, really",5', '"bad, bad film",1', "very good,5", "not bad at all,5", "so bad,1"] * 3
    path.write_text("review,stars\n" + "\n".join(rows))
    data = read_data(path, ReadOptions(text="review", target="stars"))
    model = make_pipeline(TextEncoder(column="review"), DropoutLogisticRegression(noise=0.3)).fit(data.X, data.y)
    assert model.predict(["good film", "bad film"]).tolist() == [5, 1]
    assert model.predict({"review": ["good film", "bad film"]}).tolist() == [5, 1]


# Text and other columns -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighting", ["presence", "tfidf"])
def test_text_and_other_columns_are_side_by_side(weighting):
    pd, pl, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    others = {name: TABLE[name] for name in ("age", "colour")}
    table = TableEncoder().fit(others)
    parts = [TextEncoder(weighting, name).fit(TABLE) for name in ("review", "title")]
    wanted = np.hstack([table.transform(others), *(part.transform(TABLE).toarray() for part in parts)])
    names = [*table.get_feature_names_out(), *(f"{p.column}: {term}" for p in parts for term in p.terms_)]
    for make in (dict, pd.DataFrame, pl.DataFrame, pa.table):
        encoder = FrameEncoder(["review", "title"], TextEncoder(weighting))
        for found in (encoder.fit_transform(make(TABLE)), encoder.transform(make(TABLE))):
            np.testing.assert_array_equal(found.toarray(), wanted)
            assert (found.indices.dtype, found.indptr.dtype, found.dtype) == (np.int32, np.int32, np.float64)
        assert encoder.get_feature_names_out().tolist() == names


def test_groups_of_features():
    """The features of a column of the table may be one group; each term is a group of its own."""
    encoder = FrameEncoder(["review", "title"]).fit(TABLE)
    n_features, n_terms = encoder.transform(TABLE).shape[1], sum(len(one.terms_) for one in encoder.text_encoders_)
    groups = encoder.feature_groups_
    assert groups.shape == (n_features,)
    of_table, of_terms = np.split(groups, [n_features - n_terms])
    assert len(set(of_terms.tolist())) == n_terms
    assert of_terms.min() == of_table.max() + 1
    columns = encoder.feature_columns_.tolist()
    assert [columns[i] == columns[i + 1] for i in range(n_features - 1)] == (np.diff(groups) == 0).tolist()
    model = DropoutSVC(noise=DropoutNoise(0.3, groups=groups), missing="rescale")
    assert model.fit(encoder.transform(TABLE), [0, 1, 0, 1]).n_features_in_ == n_features
    only_text = FrameEncoder(["review", "title"]).fit({name: TABLE[name] for name in ("review", "title")})
    assert only_text.feature_groups_.tolist() == list(range(n_terms))


def test_absent_columns():
    encoder = FrameEncoder(["review"]).fit({name: TABLE[name] for name in ("age", "review", "colour")})
    row = encoder.transform({"colour": ["red"], "review": ["bad"], "new": [3]}).toarray()[0]
    names = encoder.get_feature_names_out().tolist()
    assert np.isnan(row[names.index("age")])
    assert row[names.index("review: bad")] == 1.0
    row = encoder.transform({"review": ["bad", "good"]}).toarray()
    assert np.isnan(row[:, :3]).all()
    assert row[:, 3:].sum(axis=1).tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="X has no column 'review'"):
        encoder.transform({"age": [1.0]})


def test_errors_of_frames():
    for text in ("review", (), ["review", "review"], [3]):
        with pytest.raises(ValueError, match="text must"):
            FrameEncoder(text).fit(TABLE)
    for method in ("fit", "fit_transform"):
        with pytest.raises(ValueError, match="X must be a table with named columns, got ndarray"):
            getattr(FrameEncoder(["review"]), method)(np.eye(3))
    with pytest.raises(ValueError, match="X must be a table"):
        FrameEncoder(["review"]).fit(TABLE).transform(np.eye(3))


def test_a_frame_model_is_saved(tmp_path):
    rng = np.random.default_rng(0)
    n = 60
    stars = rng.integers(0, 2, n)
    review = [f"{'good' if s else 'bad'} word{rng.integers(9)}" if i % 3 else None for i, s in enumerate(stars)]
    table = {"price": rng.normal(size=n) + stars, "review": review, "shop": rng.choice(["a", "b"], n).tolist()}
    text = TextEncoder("tfidf", stop_words=["word3"])
    model = make_pipeline(FrameEncoder(["review"], text, TableEncoder()), DropoutSVC(noise=0.3)).fit(table, stars)
    assert model.score(table, stars) > 0.8
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert loaded.decision_function(table).tobytes() == model.decision_function(table).tobytes()
    assert loaded[0].text_encoder.get_params() == text.get_params()
    assert loaded[0].get_feature_names_out().tolist() == model[0].get_feature_names_out().tolist()


# States ---------------------------------------------------------------------------------------------------------------


def through_json(facts):
    return json.loads(json.dumps(facts))


def test_encoders_can_be_cloned():
    encoder = TextEncoder("counts", "review", ngram_range=(1, 2), stop_words=["a"])
    assert clone(encoder).get_params() == encoder.get_params()
    frame = clone(FrameEncoder(["a"], encoder))
    assert frame.set_params(text_encoder__weighting="tfidf").text_encoder.weighting == "tfidf"
    assert encoder.weighting == "counts"


@pytest.mark.parametrize(
    "encoder",
    [
        TextEncoder(),
        TextEncoder("counts", "review", False, (1, 3), 0.1, 30, "english"),
        TextEncoder("tfidf", stop_words=["bad", "bad", "ein"]),
        TextEncoder(analyzer="char_wb", ngram_range=(2, 5)),
    ],
)
def test_state_of_a_text_encoder(encoder):
    encoder.fit(DOCUMENTS)
    state = encoder.get_state()
    again = TextEncoder.from_state(state)
    assert again.get_params() == encoder.get_params()
    assert again.transform(DOCUMENTS).toarray().tobytes() == encoder.transform(DOCUMENTS).toarray().tobytes()
    assert "token_pattern" not in state


@pytest.mark.parametrize("has_table", [True, False])
def test_state_of_a_frame_encoder(has_table):
    table = TABLE if has_table else {name: TABLE[name] for name in ("title", "review")}
    encoder = FrameEncoder(["title", "review"], TextEncoder("tfidf", ngram_range=(1, 2))).fit(table)
    state = encoder.get_state()
    again = FrameEncoder.from_state(state)
    np.testing.assert_array_equal(again.transform(table).toarray(), encoder.transform(table).toarray())
    assert again.feature_groups_.tolist() == encoder.feature_groups_.tolist()
    assert again.column_kinds_ == encoder.column_kinds_
    np.testing.assert_equal(again.get_state(), state)


def _changed(state, names, value):
    out = copy.deepcopy(state)
    *path, last = names.split(".")
    inner = out
    for name in path:
        inner = inner[name]
    inner[last] = value
    return out


@together(
    ("name", "value"),
    [
        ("terms", []),
        ("terms", ["a", "a"]),
        ("terms", [1]),
        ("terms", {"a": 0}),
        ("weighting", "pickle"),
        ("weighting", ["tfidf"]),
        ("analyzer", "os.system"),
        ("analyzer", None),
        ("stop_words", {"a": 1}),
        ("stop_words", [["a"]]),
        ("stop_words", "(a+)+$"),
        ("ngram_range", (1, 1000)),
        ("ngram_range", (1, 10**400)),
        ("ngram_range", (1,)),
        ("ngram_range", [1, 2]),
        ("ngram_range", 3),
        ("min_df", float("nan")),
        ("token_pattern", "(a+)+$"),
        ("binary", True),
        ("column", 5),
        ("lowercase", 1),
        ("max_features", 1.5),
    ],
)
def test_wrong_states_of_a_text_encoder(name, value):
    state = TextEncoder("tfidf").fit(DOCUMENTS).get_state()
    with pytest.raises(ValueError, match="must"):
        TextEncoder.from_state(_changed(state, name, value))


def test_wrong_arrays_of_a_text_encoder():
    state = TextEncoder("tfidf").fit(DOCUMENTS).get_state()
    idf = state["idf"]
    for wrong in (
        {"idf": None},
        {"idf": idf[:-1]},
        {"idf": idf * np.nan},
        {"idf": idf.astype("f4")},
        {"idf": idf.tolist()},
        {"idf": idf, "x": idf},
    ):
        with pytest.raises(ValueError, match="must"):
            TextEncoder.from_state(state | wrong)
    with pytest.raises(ValueError, match="must"):
        TextEncoder.from_state({**state, "weighting": "presence"})
    for wrong in (None, [], {"terms": ["a"]}):
        with pytest.raises(ValueError, match="must"):
            TextEncoder.from_state(wrong)


@together(
    ("name", "value"),
    [
        ("text", {}),
        ("text", []),
        ("text", ["review"]),
        ("text", None),
        ("text.age", {}),
        ("text.age", None),
        ("table", False),
        ("table", {}),
        ("table.names", ["review", "colour"]),
        ("text.review.ngram_range", (1, 1000)),
        ("text.review.column", "other"),
        ("text.review.weighting", "counts"),
        ("text.review.idf", np.ones(1)),
        ("text.title.min_df", 3),
        ("text.title.terms", None),
        ("text.title.x", np.ones(1)),
        ("other", 3),
    ],
)
def test_wrong_states_of_a_frame_encoder(name, value):
    state = FrameEncoder(["review", "title"], TextEncoder("tfidf")).fit(TABLE).get_state()
    with pytest.raises(ValueError, match="must"):
        FrameEncoder.from_state(_changed(state, name, value))
    for wrong in (None, [], {1: 2}):
        with pytest.raises(ValueError, match="must"):
            FrameEncoder.from_state(wrong)
