"""Text on the command line: its options, text beside other columns, and wrong use of the options."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from dealing import together
from dropmargin import DropoutNoise, DropoutSVC, load
from dropmargin.io.data import FrameEncoder, ReadOptions, TableEncoder, TextEncoder, read_data

N = 48


def make_columns():
    """Return columns of reviews: words, a title, a price, a shop, and stars that depend on all of them."""
    rng = np.random.default_rng(0)
    good = rng.integers(0, 2, N)
    words = [["awful", "bad", "the film"], ["great", "good", "the film"]]
    review = [" ".join(rng.choice(words[g if rng.random() < 0.8 else 1 - g], 3)) for g in good]
    title = ["" if i % 7 == 0 else rng.choice([["no", "so so"], ["yes", "so so"]][g]) for i, g in enumerate(good)]
    price = [str(round(float(p), 3)) if i % 5 else "" for i, p in enumerate(rng.normal(size=N) + good)]
    shop = rng.choice(["north", "south"], N).tolist()
    return {"review": review, "title": title, "price": price, "shop": shop, "stars": np.where(good, 5, 1).tolist()}


@pytest.fixture
def reviews(tmp_path):
    columns = make_columns()
    with open(tmp_path / "reviews.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return columns


def decisions(run, *arguments):
    rows = run("predict", "reviews.csv", "m.safetensors", "--output", "decision", *arguments).out.splitlines()[1:]
    return np.array([float(row) for row in rows])


@pytest.mark.usefixtures("reviews")
@together(
    ("arguments", "expected"),
    [
        ((), {"weighting": "presence", "ngram_range": (1, 1), "analyzer": "word", "stop_words": None}),
        (("--weighting", "counts", "--min-df", "2"), {"weighting": "counts", "min_df": 2}),
        (("--weighting", "tfidf", "--max-features", "3"), {"weighting": "tfidf", "max_features": 3}),
        (("--stop-words", "english", "--ngrams", "1,2"), {"stop_words": "english", "ngram_range": (1, 2)}),
        (("--stop-words", "words.txt"), {"stop_words": ["film", "ist", "the", "übel"]}),
        (("--analyzer", "char"), {"analyzer": "char", "ngram_range": (2, 5)}),
        (("--analyzer", "char_wb", "--ngrams", "3"), {"analyzer": "char_wb", "ngram_range": (3, 3)}),
    ],
)
def test_options_of_text_are_parameters_of_the_encoder(arguments, expected, run, tmp_path):
    (tmp_path / "words.txt").write_text("The film\nÜBEL, ist\n", encoding="utf-8")
    where = ("--text", "review", "--ignore", "title,price,shop", "--target", "stars")
    run("train", "reviews.csv", "m.safetensors", *where, *arguments)
    encoder = load("m.safetensors")[0]
    assert isinstance(encoder, TextEncoder)
    assert {name: getattr(encoder, name) for name in expected} == expected
    X = read_data("reviews.csv", ReadOptions(text="review")).X
    fitted = TextEncoder(**encoder.get_params()).fit(X)
    assert encoder.terms_ == fitted.terms_
    model = make_pipeline(fitted, DropoutSVC()).fit(X, np.array(make_columns()["stars"]))
    np.testing.assert_array_equal(decisions(run), model.decision_function(X))


@pytest.mark.usefixtures("reviews")
def test_text_beside_other_columns(run, tmp_path):
    done = run("train", "reviews.csv", "m.safetensors", "--text", "review", "--text", "title", "--target", "stars")
    assert "columns besides the text are features of their own (--ignore leaves them out): 'price', 'shop'" in done.err
    assert done.err.count("there are missing values") == 1
    data = read_data("reviews.csv", ReadOptions(text=("review", "title"), target="stars"))
    assert list(data.X.columns) == ["price", "shop", "review", "title"]
    encoder = FrameEncoder(("review", "title"), TextEncoder(), TableEncoder())
    X = encoder.fit_transform(data.X)
    # The features of a column of the table are lost together; terms are features of their own.
    model = DropoutSVC(noise=DropoutNoise(0.1, groups=encoder.feature_groups_), missing="rescale").fit(X, data.y)
    np.testing.assert_array_equal(decisions(run), model.decision_function(X))
    names = load("m.safetensors")[0].get_feature_names_out().tolist()
    assert {"price", "shop=north", "review: good", "title: yes"} <= set(names)
    assert run("evaluate", "reviews.csv", "m.safetensors", "--json").json["accuracy"] > 0.8
    run("train", "reviews.csv", "m.safetensors", "--text", "review,title", "--ignore", "price", "--target", "stars")
    assert [*load("m.safetensors")[0].column_kinds_] == ["shop"]
    rows = [{"review": "great", "title": "yes", "shop": "moon"}, {"review": "awful", "shop": "north"}]
    (tmp_path / "new.jsonl").write_text("\n".join(str(row).replace("'", '"') for row in rows) + "\n")
    assert run("predict", "new.jsonl", "m.safetensors").out.split() == ["label", "5", "1"]


@pytest.mark.usefixtures("reviews")
def test_files_without_columns_of_the_training_data(run, tmp_path):
    run("train", "reviews.csv", "m.safetensors", "--text", "review", "--text", "title", "--target", "stars")
    (tmp_path / "less.csv").write_text("title,review,price\nyes,good,1\n")
    done = run("predict", "less.csv", "m.safetensors")
    assert "less.csv lacks columns of the training data, which are taken as missing: 'shop'" in done.err
    assert done.out.split() == ["label", "5"]
    (tmp_path / "none.csv").write_text("price,shop,title\n1,north,yes\n")
    assert (
        "there is no column 'review', as in the training data of m.safetensors"
        in run("predict", "none.csv", "m.safetensors", code=1).error
    )
    error = run("predict", "less.csv", "m.safetensors", "--text", "title", code=2).error
    assert "m.safetensors was trained on text of the columns 'review', 'title'" in error


@pytest.mark.usefixtures("reviews")
@together(
    ("arguments", "message"),
    [
        (("--text", "review", "--stop-words", "english", "--analyzer", "char"), "--stop-words: these are for"),
        (("--text", "review", "--stop-words", "empty.txt"), "--stop-words empty.txt: there are no words"),
        (("--text", "review", "--stop-words", "binary.txt"), "--stop-words binary.txt: this is not a text file"),
        (("--text", "review", "--stop-words", "w.txt", "-o", "w.txt"), "this command reads that file"),
        (("--text", "review", "--min-df", "1000"), "--min-df: no term"),
        (("--text", "review", "--ignore", "review"), "--ignore review: --text names this column"),
        (("--text", "stars"), "--text stars: --target names this column"),
    ],
)
def test_wrong_use_of_text_options(arguments, message, run, tmp_path):
    (tmp_path / "empty.txt").write_text(" ,\n")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "w.txt").write_text("the\n")
    assert message in run("cv", "reviews.csv", "--target", "stars", *arguments, code=2).error
    assert (tmp_path / "w.txt").read_text() == "the\n"


@pytest.mark.usefixtures("reviews")
def test_files_of_stop_words_that_do_not_exist(run):
    arguments = ("reviews.csv", "m.safetensors", "--target", "stars", "--text", "review", "--stop-words", "german")
    assert "german: No such file" in run("train", *arguments, code=1).error
    assert "--weighting" in run("train", *arguments[:-2], "--weighting", "auto", code=2).error


@pytest.mark.usefixtures("reviews")
def test_stress_of_text_beside_other_columns(run):
    arguments = ("--target", "stars", "--text", "review,title", "--delete", "0,0.5", "--treatment", "zero")
    done = run("stress", "reviews.csv", "reviews.csv", *arguments, "--noise", "0.5", "-c", "0.1", "--json")
    assert done.json["features"] == load_features(run)


def load_features(run):
    run("train", "reviews.csv", "m.safetensors", "--target", "stars", "--text", "review,title")
    return load("m.safetensors")[-1].n_features_in_
