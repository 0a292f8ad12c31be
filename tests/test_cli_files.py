"""Every data format in train, predict and evaluate: predictions equal those of Python to the last bit."""

from __future__ import annotations

import csv
import gzip
import io
import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline

from datasets import make_binary, make_multiclass
from dropmargin import DropoutLogisticRegression, DropoutNoise, DropoutSVC, load
from dropmargin.io.data import ReadOptions, TableEncoder, TextEncoder, read_data

LABELS = {"binary": ["nein", "ja"], "multi-class": ["rot", "grün, hell", 'bl"au']}


def problem(kind, labels):
    """Return rows and labels, integers or strings."""
    X, codes = make_binary() if kind == "binary" else make_multiclass()
    return X, np.array(LABELS[kind], dtype=object)[codes] if labels == "strings" else 3 * codes - 1


def write_csv(path, names, columns):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerow(names)
        writer.writerows(zip(*columns, strict=True))


def write_svmlight(path, X, y, first=1):
    lines = [
        f"{label} " + " ".join(f"{j + first}:{value!r}" for j, value in enumerate(row) if value)
        for label, row in zip(y.tolist(), X.tolist(), strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")


def table(text):
    """Return the rows of a csv text."""
    return list(csv.reader(io.StringIO(text)))


def numbers(text):
    """Return the header and the numbers of a csv text."""
    header, *rows = table(text)
    return header, np.array(rows, dtype=float)


def assert_same(run, data, model, X, options=()):
    """Compare labels, scores and probabilities of the command with those of a model in Python."""
    rows = table(run("predict", data, "model.safetensors", *options).out)
    assert rows[0] == ["label"]
    assert [row[0] for row in rows[1:]] == [str(label) for label in model.predict(X).tolist()]
    header, values = numbers(run("predict", data, "model.safetensors", "--output", "decision", *options).out)
    expected = model.decision_function(X)
    np.testing.assert_array_equal(values, expected.reshape(len(expected), -1))
    texts = [str(label) for label in model.classes_.tolist()]
    assert header == (["decision"] if len(texts) == 2 else [f"decision_{label}" for label in texts])
    header, values = numbers(run("predict", data, "model.safetensors", "--output", "probability", *options).out)
    np.testing.assert_array_equal(values, model.predict_proba(X))
    assert header == [f"probability_{label}" for label in texts]
    result = run("evaluate", data, "model.safetensors", *options, "--json").json
    assert result["rows"] == len(expected)


@pytest.mark.parametrize("kind", ["binary", "multi-class"])
@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("first", [0, 1])
def test_svmlight(run, tmp_path, kind, packed, first):
    X, y = problem(kind, "integers")
    path = tmp_path / "data.svm"
    write_svmlight(path, X, y, first)
    if packed:
        (tmp_path / "data.svm.gz").write_bytes(gzip.compress(path.read_bytes()))
        path = tmp_path / "data.svm.gz"
    run("train", path, "model.safetensors", "--loss", "logistic", "--noise", "0.3", "-c", "0.7")
    X = sparse.csr_array(X)
    model = DropoutLogisticRegression(noise=0.3, C=0.7).fit(X, y)
    assert load("model.safetensors").coef_.tolist() == model.coef_.tolist()
    assert_same(run, path, model, X)


@pytest.mark.parametrize("kind", ["binary", "multi-class"])
@pytest.mark.parametrize("labels", ["integers", "strings"])
@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "parquet", "arrow"])
def test_tables_with_unicode_names(run, tmp_path, kind, labels, ending):
    X, y = problem(kind, labels)
    names = [f"größe {j}" for j in range(X.shape[1])] + ["色", 'mark, "x"']
    colours = np.array(["赤", "青", "緑"], dtype=object)[np.arange(len(y)) % 3]
    columns = [*X.T.tolist(), colours.tolist(), y.tolist()]
    path = tmp_path / f"data.{ending}"
    if ending in ("parquet", "arrow"):
        pa = pytest.importorskip("pyarrow")
        parquet, feather = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow.feather")
        write = parquet.write_table if ending == "parquet" else feather.write_feather
        write(pa.table(dict(zip(names, columns, strict=True))), path)
    else:
        plain = tmp_path / f"data.{ending.removesuffix('.gz')}"
        write_csv(plain, names, columns)
        if ending.endswith("gz"):
            path.write_bytes(gzip.compress(plain.read_bytes()))
            plain.unlink()
    run("train", path, "model.safetensors", "--target", names[-1], "--loss", "logistic", "--noise", "dropout=0.3")
    frame = read_data(path, ReadOptions(target=names[-1])).X
    columns = TableEncoder().fit(frame).feature_columns_
    noise = DropoutNoise(0.3, groups=columns)  # the categories of a column are lost together
    model = make_pipeline(TableEncoder(), DropoutLogisticRegression(noise=noise)).fit(frame, y)
    assert load("model.safetensors")[-1].coef_.tolist() == model[-1].coef_.tolist()
    assert_same(run, path, model, frame)


def test_wide_tables_are_sparse(run, tmp_path):
    X, y = make_binary(150)
    names = [f"n{i % 140}" for i in range(len(y))]
    write_csv(tmp_path / "data.csv", ["a", "name", "y"], [X[:, 0].tolist(), names, y.tolist()])
    run("train", "data.csv", "model.safetensors", "--target", "y", "--loss", "logistic", "--keep", "name")
    frame = read_data("data.csv", ReadOptions(target="y")).X
    encoder = TableEncoder(keep=("name",)).fit(frame)
    noise = DropoutNoise(0.1, groups=encoder.feature_columns_)
    model = make_pipeline(encoder, DropoutLogisticRegression(noise=noise)).fit(frame, y)
    assert model[0].sparse_output_
    assert_same(run, "data.csv", model, frame)


def test_a_large_feature_index(run, tmp_path):
    (tmp_path / "wide.svm").write_text("1 1:1 2:1\n-1 2:1 30000000:1\n")
    error = run("train", "wide.svm", "m.safetensors", code=1).error
    assert error.startswith("wide.svm:2: feature index 30000000, but at most 4194304 features are allowed")
    assert error.endswith("(raise --max-features if that is intended)")
    # The limit can be raised. A model has a few numbers for each feature, and no text.
    (tmp_path / "wide.svm").write_text("1 1:1 2:1\n-1 2:1 4194305:1\n")
    tracemalloc.start()
    try:
        run("train", "wide.svm", "m.safetensors", "--max-features", "4194305")
        assert tracemalloc.get_traced_memory()[1] < 160 * 4194305
    finally:
        tracemalloc.stop()
    assert run("predict", "wide.svm", "m.safetensors").out.split() == ["label", "1", "-1"]


@pytest.mark.parametrize("kind", ["binary", "multi-class"])
@pytest.mark.parametrize("layout", ["dense", "sparse", "single"])
def test_npz(run, tmp_path, kind, layout):
    X, y = problem(kind, "strings")
    y = y.astype(str)
    if layout == "sparse":
        X = sparse.csr_array(X)
        arrays = {"X_data": X.data, "X_indices": X.indices, "X_indptr": X.indptr, "X_shape": X.shape}
    else:
        X = X.astype(np.float32) if layout == "single" else X
        arrays = {"X": X}
    np.savez(tmp_path / "data.npz", y=y, **arrays)
    run("train", "data.npz", "model.safetensors", "--loss", "logistic")
    assert_same(run, "data.npz", DropoutLogisticRegression().fit(X, y), X)


@pytest.mark.parametrize("options", [[], ["--memory-limit", "2GB"]], ids=["whole", "streamed"])
def test_npz_with_entries_out_of_order_and_twice(run, tmp_path, options):
    X, y = problem("binary", "integers")
    product = sparse.csr_array(X) @ sparse.csr_array(np.eye(X.shape[1])[::-1] + np.eye(X.shape[1], k=1))
    assert not product.has_sorted_indices
    data, indices = np.repeat(product.data / 2.0, 2), np.repeat(product.indices, 2)
    np.savez(tmp_path / "raw.npz", y=y, data=data, indices=indices, indptr=2 * product.indptr, shape=X.shape)
    product.sum_duplicates()
    parts = {"data": product.data, "indices": product.indices, "indptr": product.indptr}
    np.savez(tmp_path / "sorted.npz", y=y, shape=X.shape, **parts)
    scores = []
    for name in ("raw", "sorted"):
        run("train", f"{name}.npz", "m.safetensors", *options)
        scores.append(run("predict", f"{name}.npz", "m.safetensors", "--output", "decision").out)
    assert scores[0] == scores[1]


def test_feature_names_of_a_matrix_and_tables_with_them(run, tmp_path):
    X, y = make_binary()
    names = [f"größe {j}" for j in range(X.shape[1])]
    write_svmlight(tmp_path / "data.svm", X, y)
    (tmp_path / "names.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    run("train", "data.svm", "model.safetensors", "--feature-names", "names.txt")
    assert load("model.safetensors").feature_names_in_.tolist() == names
    write_csv(tmp_path / "data.csv", [*names[::-1], "extra"], [*X.T[::-1].tolist(), ["x"] * len(y)])
    by_name = run("predict", "data.csv", "model.safetensors", "--output", "decision")
    by_index = run("predict", "data.svm", "model.safetensors", "--output", "decision")
    np.testing.assert_allclose(numbers(by_name.out)[1], numbers(by_index.out)[1], rtol=1e-12)
    (tmp_path / "names.txt").write_text("a\nb\n")
    assert (
        "names.txt: 2 names, but the data have 8"
        in run("train", "data.svm", "x.safetensors", "--feature-names", "names.txt", code=1).error
    )


# Text -----------------------------------------------------------------------------------------------------------------

DOCUMENTS = ["a good, good day", "bad weather today", "good food", "a bad bad place", "not so good", "very bad"]
STARS = [5, 1, 5, 1, 5, 1]


def test_the_default_name_of_a_model_is_that_of_the_data(run, tmp_path):
    write_csv(tmp_path / "reviews.csv", ["review", "stars"], [DOCUMENTS, STARS])
    run("train", "reviews.csv", "--text", "review", "--target", "stars")
    assert (tmp_path / "reviews.safetensors").exists()
    assert "MODEL is missing" in run("train", "-", "--format", "svmlight", code=2, stdin=b"1 1:1\n").err


def test_a_column_of_documents_and_prediction_of_raw_text(run, tmp_path):
    write_csv(tmp_path / "reviews.csv", ["review", "when", "stars"], [DOCUMENTS, range(6), STARS])
    arguments = ("--text", "review", "--ignore", "when", "--target", "stars", "--loss", "logistic")
    run("train", "reviews.csv", "model.safetensors", *arguments)
    model = make_pipeline(TextEncoder(), DropoutLogisticRegression()).fit(DOCUMENTS, STARS)
    assert_same(run, "reviews.csv", model, DOCUMENTS)
    (tmp_path / "later.txt").write_text("such a good day\nwhat a bad idea\n")
    assert table(run("predict", "later.txt", "model.safetensors").out) == [["label"], ["5"], ["1"]]
    write_csv(tmp_path / "other.csv", ["words"], [["so good", "so bad"]])
    assert table(run("predict", "other.csv", "model.safetensors", "--text", "words").out) == [["label"], ["5"], ["1"]]
    assert (
        "there is no column 'review', as in the training data of model.safetensors (--text names another)"
        in run("predict", "other.csv", "model.safetensors", code=1).error
    )


def test_text_files_and_options_of_terms(run, tmp_path):
    lines = [f"{'good' if star == 5 else 'bad'}\t{text}" for star, text in zip(STARS, DOCUMENTS, strict=True)]
    (tmp_path / "data.txt").write_text("\n".join(lines) + "\n")
    arguments = ("--weighting", "counts", "--ngrams", "1,2", "--min-df", "2", "--max-features", "3")
    run("train", "data.txt", "model.safetensors", *arguments)
    encoder = load("model.safetensors")[0]
    assert (encoder.weighting, encoder.ngram_range, encoder.min_df) == ("counts", (1, 2), 2)
    assert encoder.terms_ == ["bad", "good"]
    assert run("evaluate", "data.txt", "model.safetensors", "--json").json["accuracy"] == 1.0
    (tmp_path / "plain.txt").write_text("\n".join(DOCUMENTS) + "\n")
    labelled = run("predict", "data.txt", "model.safetensors", "--target", "label")
    assert labelled.out == run("predict", "plain.txt", "model.safetensors").out


# Missing values -------------------------------------------------------------------------------------------------------


def test_missing_cells_are_missing_features(run, tmp_path):
    X, y = make_binary()
    cells = [[("" if (i + j) % 5 == 0 else value) for i, value in enumerate(column)] for j, column in enumerate(X.T)]
    names = [f"x{j}" for j in range(X.shape[1])]
    write_csv(tmp_path / "data.csv", [*names, "y"], [*cells, y.tolist()])
    done = run("train", "data.csv", "model.safetensors", "--target", "y", "--noise", "0.2")
    assert "there are missing values" in done.err
    frame = read_data("data.csv", ReadOptions(target="y")).X
    model = make_pipeline(TableEncoder(), DropoutSVC(noise=DropoutNoise(0.2), missing="rescale")).fit(frame, y)
    decisions = numbers(run("predict", "data.csv", "model.safetensors", "--output", "decision").out)[1]
    np.testing.assert_array_equal(decisions[:, 0], model.decision_function(frame))
    # A column that the file lacks is missing in all rows.
    write_csv(tmp_path / "less.csv", names[1:], X.T[1:].tolist())
    assert (
        "less.csv lacks columns of the training data, which are taken as missing: 'x0'"
        in run("predict", "less.csv", "model.safetensors").err
    )
    refused = run("train", "data.csv", "x.safetensors", "--target", "y", "--missing", "error", code=2)
    assert "--missing error: the data have missing values" in refused.error


def test_missing_values_without_rescaling_are_an_error_that_names_the_option(run, tmp_path):
    X, y = make_binary()
    write_csv(tmp_path / "data.csv", ["a", "b", "y"], [X[:, 0].tolist(), X[:, 1].tolist(), y.tolist()])
    run("train", "data.csv", "model.safetensors", "--target", "y")
    (tmp_path / "holes.csv").write_text("a,b\n1,\n")
    (tmp_path / "less.csv").write_text("a\n1\n")
    for name in ("holes.csv", "less.csv"):
        assert "train it with --missing rescale" in run("predict", name, "model.safetensors", code=1).error


# Streams and large files ----------------------------------------------------------------------------------------------


def test_standard_input_and_output(run, tmp_path):
    X, y = make_binary()
    write_svmlight(tmp_path / "data.svm", X, y)
    content = (tmp_path / "data.svm").read_bytes()
    run("train", "-", "model.safetensors", "--format", "svmlight", stdin=content)
    run("train", "data.svm", "other.safetensors")
    assert load("model.safetensors").coef_.tolist() == load("other.safetensors").coef_.tolist()
    through = run("predict", "-", "model.safetensors", "--format", "svmlight", "-o", "-", stdin=content)
    assert through.out == run("predict", "data.svm", "model.safetensors").out
    packed = run("predict", "-", "model.safetensors", "--format", "svmlight", stdin=gzip.compress(content))
    assert packed.out == through.out
    assert "--format" in run("predict", "-", "model.safetensors", stdin=content, code=2).error


@pytest.mark.slow
def test_a_file_of_several_parts_and_all_outputs(run, tmp_path):
    rng = np.random.RandomState(0)
    X, y = sparse.random(45_000, 50, 0.2, format="csr", random_state=rng), rng.randint(0, 3, 45_000)
    write_svmlight(tmp_path / "big.svm", X.toarray().round(4), y)
    assert (tmp_path / "big.svm").stat().st_size > 2**22  # two parts
    write_svmlight(tmp_path / "data.svm", X[:300].toarray().round(4), y[:300])
    run("train", "data.svm", "model.safetensors", "--noise", "0.5", "--loss", "logistic")
    rows = read_data("big.svm", ReadOptions(zero_based=False, n_features=50)).X
    model = load("model.safetensors")
    done = run(
        "predict", "big.svm", "model.safetensors", "-o", "out.csv", "--output", "label,decision,stability", "--json"
    )
    assert done.json["rows"] == 45_000
    header, values = numbers((tmp_path / "out.csv").read_text())
    assert header == done.json["columns"] == ["label", "decision_0", "decision_1", "decision_2", "stability"]
    np.testing.assert_array_equal(values[:, 0], model.predict(rows))
    np.testing.assert_array_equal(values[:, 1:4], model.decision_function(rows))
    np.testing.assert_allclose(values[:100, 4], model.predict_stability(rows[:100]), rtol=1e-12)
    result = run("evaluate", "big.svm", "model.safetensors", "--json").json
    assert result["accuracy"] == pytest.approx(model.score(rows, y), abs=1e-12)
    logs = model.predict_log_proba(rows)[np.arange(len(y)), y]
    assert result["log_loss"] == pytest.approx(-logs.mean(), rel=1e-12)


def test_the_name_of_the_output_gives_its_format(run, tmp_path):
    X, y = make_binary()
    write_svmlight(tmp_path / "data.svm", X, y)
    run("train", "data.svm", "model.safetensors")
    run("predict", "data.svm", "model.safetensors", "-o", "out.csv.gz")
    assert (
        gzip.decompress((tmp_path / "out.csv.gz").read_bytes()).decode()
        == run("predict", "data.svm", "model.safetensors").out
    )
    run("predict", "data.svm", "model.safetensors", "-o", "out.tsv", "--output", "label,decision", "--no-header")
    first = (tmp_path / "out.tsv").read_text().splitlines()[0].split("\t")
    assert float(first[1]) == load("model.safetensors").decision_function(X[:1])[0]
    run("predict", "data.svm", "model.safetensors", "-o", "/dev/null")


def test_safe_csv_protects_labels_that_are_formulas(run, tmp_path):
    labels = ['=HYPERLINK("x")', "+1+cmd", "-2", "@sum", "plain", "\t=1", "'quoted", "\uff1d1"]
    np.savez(tmp_path / "d.npz", X=np.eye(len(labels)), y=np.array(labels))
    run("train", "d.npz", "m.safetensors", "-c", "100")
    assert [row[0] for row in table(run("predict", "d.npz", "m.safetensors").out)[1:]] == labels
    expected = ['\'=HYPERLINK("x")', "'+1+cmd", "-2", "'@sum", "plain", "'\t=1", "'quoted", "'\uff1d1"]
    run("predict", "d.npz", "m.safetensors", "--safe-csv", "--output", "label,decision", "-o", "out.csv")
    assert [row[0] for row in table((tmp_path / "out.csv").read_text(encoding="utf-8"))[1:]] == expected
    # Numbers are not formulas.
    np.savez(tmp_path / "n.npz", X=np.array([[1.0], [-1.0]]), y=np.array([1, -1]))
    run("train", "n.npz", "n.safetensors")
    assert run("predict", "n.npz", "n.safetensors", "--safe-csv").out == "label\n1\n-1\n"
