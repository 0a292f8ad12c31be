"""The command line: from a data file to a model, predictions, scores and explanations, and one line for a mistake."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess

import numpy as np
import pytest

import dropmargin
from command_line import spawn
from dropmargin.io.model import describe

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
_FAST = ("--basis", "linear", "--noise", "0.1", "-c", "1", "--quiet", "--n-jobs", "1")


@pytest.fixture(scope="module")
def table():
    """A table with every kind of column, ids, labels with leading zeros, and a quantity."""
    rng = np.random.default_rng(0)
    size = rng.normal(size=120)
    frame = pd.DataFrame({"id": [f"{index:019d}" for index in range(120)], "size": size.round(3)})
    frame["price"] = [f"${1000 + 100 * value:,.2f}" for value in size + rng.normal(0, 0.1, 120)]
    frame["city"] = np.where(size + rng.normal(0, 0.5, 120) > 0, "Oslo", "Rome")
    frame["label"] = np.where(size > 0, "007", "7")
    frame["amount"] = (100 * size).round(1)
    frame.loc[::9, "size"] = np.nan
    return frame


@pytest.fixture
def files(table, tmp_path):
    """The table as train.csv and test.csv, and a model of it."""
    table[:80].to_csv(tmp_path / "train.csv", index=False)
    table[80:].to_csv(tmp_path / "test.csv", index=False)
    return tmp_path


@pytest.fixture
def model(files, run):
    """A trained model."""
    return run("train", "train.csv", "m", "--target", "label", "--ignore", "amount", *_FAST, "--json").json


def rows_of(text):
    return list(csv.reader(io.StringIO(text)))


def test_a_matrix_with_names_trains_a_linear_model(run, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    np.savez(tmp_path / "a.npz", X=X, y=(X[:, 0] > 0).astype(int), feature_names=np.array(["u", "v", "w"]))
    run("train", "a.npz", "model.safetensors", "--noise", "0.1", "-c", "1")
    model = dropmargin.load(tmp_path / "model.safetensors")
    assert type(model).__name__ == "DropoutLogisticRegression"
    assert model.feature_names_in_.tolist() == ["u", "v", "w"]
    labels = run("predict", "a.npz", "model.safetensors").out.split()[1:]
    assert np.mean([int(label) for label in labels] == (X[:, 0] > 0)) > 0.9


def test_train_predict_evaluate(model, files, run):
    assert (model["rows"], model["class"], model["noise"], model["C"]) == (80, "TableClassifier", 0.1, 1.0)
    assert "id" in model["left_out"]
    assert describe(files / "m")["data_hash"].startswith("sha256:")
    header, *rows = rows_of(run("predict", "test.csv", "m", "--output", "label,probability", "--ids", "id").out)
    assert header == ["id", "label", "probability_007", "probability_7"]
    assert [row[0] for row in rows] == [f"{index:019d}" for index in range(80, 120)]
    assert {row[1] for row in rows} == {"007", "7"}
    found = run("evaluate", "test.csv", "m", "--json").json
    assert found["accuracy"] > 0.8
    assert list(found["classes"]) == ["007", "7"]
    loaded = dropmargin.load(files / "m")
    frame = pd.read_csv(files / "test.csv", dtype=str)
    assert loaded.predict(frame).tolist() == [row[1] for row in rows]


def test_info_explain_and_cv(model, run):
    assert "left out" in run("info", "m").out
    assert run("info", "m", "--json", "--top", "2").json["chosen"]["basis"] == "linear"
    out = run("explain", "test.csv", "m", "--rows", "3", "-o", "why.csv").out
    assert out.startswith("row 1: ")
    assert "row 3: " in out
    assert "row 4: " not in out
    assert len(pd.read_csv("why.csv")) == 40
    found = run("cv", "train.csv", "--target", "label", "--ignore", "amount", *_FAST, "-o", "chosen", "--json").json
    assert found["model"] == "chosen"
    assert dropmargin.load("chosen").C_ == 1.0


def test_cv_says_what_a_fourier_basis_learns_from(run, tmp_path):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 60)).round(3)
    pd.DataFrame({"a": a, "b": b, "label": np.where(a * b > 0, "in", "out")}).to_csv(tmp_path / "a.csv", index=False)
    for options in ((), ("-c", "1"), ("--noise", "0.1", "-c", "1")):
        out = run("cv", "a.csv", "--target", "label", "--basis", "fourier", "--quiet", *options).out
        assert "basis fourier, copies with deleted cells, C " in out
        assert "nan" not in out.split("chosen")[1]


def test_numbers_and_intervals(files, run):
    run("train", "train.csv", "m", "--target", "amount", "--ignore", "label", *_FAST)
    header, *rows = rows_of(run("predict", "test.csv", "m", "--interval", "--coverage", "0.8").out)
    assert header == ["prediction", "interval_low", "interval_high"]
    assert all(float(low) < float(middle) < float(high) for middle, low, high in rows)
    assert run("evaluate", "test.csv", "m", "--json").json["r2"] > 0.5
    assert "predicts numbers" in run("predict", "test.csv", "m", "--output", "label", code=2).error
    run("train", "train.csv", "m", "--target", "price", "--ignore", "label,amount", "--force", *_FAST)
    assert run("evaluate", "test.csv", "m", "--json").json["rmse"] < 100


def test_the_first_index_of_a_model_is_that_of_its_file_and_unknown_labels_are_errors(tmp_path, run):
    (tmp_path / "a.svm").write_text("1 0:1 1:3\n-1 0:2 1:1\n" * 20)
    (tmp_path / "b.svm").write_text("1 1:3\n2 1:3\n")  # without an index 0
    run("train", "a.svm", "m", "--noise", "0.1", "-c", "1")
    assert run("predict", "b.svm", "m", "--no-header").out.split() == ["1", "1"]
    outcome = run("evaluate", "b.svm", "m", "--json")
    assert (outcome.json["accuracy"], outcome.json["unknown_labels"]) == (0.5, 1)
    assert "has labels that the model does not know, such as 2" in outcome.err


@pytest.mark.parametrize("form", ["svm", "npz"])
def test_matrices_train_the_linear_models(form, files, run):
    rng = np.random.default_rng(1)
    X = np.abs(rng.normal(size=(60, 6))).round(2)
    y = np.where(X[:, 0] > X[:, 1], 3, -1)
    if form == "npz":
        np.savez(files / "a.npz", X=X, y=y)
    else:
        lines = [
            f"{label} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(row)) for row, label in zip(X, y, strict=True)
        ]
        (files / "a.svm").write_text("\n".join(lines))
    run("train", f"a.{form}", "m", "--noise", "0.1", "-c", "1", "--loss", "hinge")
    assert run("evaluate", f"a.{form}", "m", "--json").json["accuracy"] > 0.8
    labels = run("predict", f"a.{form}", "m", "--no-header").out.split()
    assert labels == [str(label) for label in dropmargin.load("m").predict(X)]
    assert "svmlight or npz" in run("predict", "test.csv", "m", code=1).error
    assert run("info", "m", "--json").json["model"] == "DropoutSVC"
    run("cv", f"a.{form}", "--noise", "0.1", "--folds", "2", "--quiet")


def test_text_of_lines_folders_and_columns(files, run):
    rng = np.random.default_rng(2)
    documents = [("good " if k % 2 else "bad ") + " ".join(rng.choice(list("abcdefgh"), 5)) for k in range(40)]
    labels = ["yes" if k % 2 else "no" for k in range(40)]
    lines = "".join(f"{label}\t{text}\n" for label, text in zip(labels, documents, strict=True))
    (files / "a.txt").write_text(lines)
    (files / "new.txt").write_text("good film\nbad film\n")
    for k, (label, text) in enumerate(zip(labels, documents, strict=True)):
        (files / "docs" / label).mkdir(parents=True, exist_ok=True)
        (files / "docs" / label / f"{k}.txt").write_text(text)
    for data in ("a.txt", "docs"):
        run("train", data, "m", *_FAST, "--force")
        assert run("predict", "new.txt", "m", "--no-header").out.split() == ["yes", "no"]
        assert run("evaluate", data, "m", "--json").json["accuracy"] > 0.9


def test_stress_and_report(files, run):
    options = ("--target", "label", "--ignore", "id,amount", "--delete", "0,0.5", "--repeats", "2", *_FAST)
    found = run("stress", "train.csv", "test.csv", "--html", "r.html", *options, "--json").json
    assert found["verdict"].startswith("With 50% of the columns lost, the error is: dropmargin ")
    assert {len(errors) for errors in found["results"].values()} == {2}
    assert found["verdict"] in (files / "r.html").read_text()


def test_separators_encodings_names_and_parquet_folders(table, files, run):
    frame = table[:80].rename(columns={"size": "größe"})
    content = frame.to_csv(index=False, sep=";").encode("latin-1")
    (files / "a.csv").write_bytes(content.replace(b"city", b"", 1))
    options = ("--target", "label", "--ignore", "id,amount", "--basis", "linear", "--noise", "0.1", "-c", "1")
    assert "--encoding latin-1" in run("train", "a.csv", "m", *options, code=1).error
    err = run("train", "a.csv", "m", "--encoding", "latin-1", *options).err
    assert "column 4 has no name" in err
    assert "separated by ';'" in err
    (files / "parts").mkdir()
    for k in range(2):
        table[40 * k : 40 * k + 40].to_parquet(files / "parts" / f"{k}.parquet")
    assert run("train", "parts", "p", *options, "--json").json["rows"] == 80


def test_no_file_is_overwritten_without_force(model, files, run):
    before = (files / "m").read_bytes()
    for command in (
        ("train", "train.csv", "m", "--target", "label"),
        ("predict", "test.csv", "m", "-o", "train.csv"),
        ("explain", "test.csv", "m", "-o", "train.csv"),
        ("export", "m", "train.csv"),
        ("cv", "train.csv", "--target", "label", "-o", "m"),
        ("stress", "train.csv", "test.csv", "--target", "label", "--html", "m"),
    ):
        assert "--force" in run(*command, code=2).error
    assert "is an input" in run("predict", "test.csv", "m", "-o", "test.csv", "--force", code=2).error
    assert (files / "m").read_bytes() == before
    run("predict", "test.csv", "m", "-o", "out.csv.gz")
    run("predict", "test.csv", "m", "-o", "out.csv.gz", "--force")
    assert gzip.decompress((files / "out.csv.gz").read_bytes()).startswith(b"label\n")


def test_formulas_are_quoted_on_request(files, run):
    frame = pd.DataFrame({"a": [0.0, 1.0, 2.0] * 20, "label": ["=1+1", "-2", "@A1"] * 20})
    frame.to_csv(files / "f.csv", index=False)
    run("train", "f.csv", "m", "--target", "label", *_FAST)
    assert set(run("predict", "f.csv", "m", "--no-header", "--safe-csv").out.split()) == {"'=1+1", "-2", "'@A1"}


def test_mistakes_are_one_line(model, files, run):
    (files / "bad.csv").write_text("a,b\n1,2\n3\n")
    for command, code, words in (
        (("train", "train.csv", "x"), 2, "--target must name"),
        (("train", "train.csv", "x", "--target", "lable"), 1, "did you mean 'label'?"),
        (("train", "absent.csv", "x", "--target", "label"), 1, "absent.csv: No such file"),
        (("train", "\x1b[2J.csv", "x", "--target", "label"), 1, "\\x1b[2J.csv: No such file"),
        (("train", "bad.csv", "x", "--target", "b"), 1, "bad.csv:3: "),
        (("train", "train.csv", "x", "--target", "label", "--noise", "2"), 2, "--noise"),
        (("train", "train.csv", "x", "--target", "city", "--task", "numbers"), 1, "not numbers"),
        (("train", "train.csv", "no/x", "--target", "label"), 1, "there is no folder"),
        (("predict", "test.csv", "train.csv"), 1, "not a model file"),
        (("predict", "test.csv", "m", "--ids", "nr"), 1, "no column 'nr' (--ids)"),
        (("predict", "test.csv", "m", "--output", "nothing"), 2, "none of label"),
        (("predict", "-", "m"), 2, "--format"),
        (("nothing",), 2, "nothing"),
    ):
        assert words in run(*command, code=code).error, command
    assert not (files / "x").exists()


def test_categories_that_are_numbers_in_csv_and_json_lines(tmp_path, run):
    rows = [{"zip": 10 + i % 3, "x": i % 7, "label": "ab"[i % 3 == 1]} for i in range(60)]
    pd.DataFrame(rows).to_csv(tmp_path / "train.csv", index=False)
    pd.DataFrame(rows).drop(columns="label").to_json(tmp_path / "test.jsonl", orient="records", lines=True)
    run("train", "train.csv", "m", "--target", "label", "--categorical", "zip", *_FAST)
    assert run("predict", "test.jsonl", "m").out.split()[1:] == [row["label"] for row in rows]


def test_a_table_is_exported(model, files, run):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("skl2onnx")
    run("export", "m", "m.onnx")
    inputs = {given.name for given in onnx.load(files / "m.onnx").graph.input}
    assert inputs == {column[0] for column in describe(files / "m")["columns"] if not column[3]}


def test_standard_input_and_absent_columns(model, files, run):
    content = pd.read_csv(files / "test.csv", dtype=str)[["size", "id"]].to_csv(index=False).encode()
    outcome = run("predict", "-", "m", "--format", "csv", "--ids", "id", stdin=content)
    assert len(outcome.out.splitlines()) == 41
    assert "warning: X lacks" in outcome.err


def test_a_reader_that_closes_the_output_ends_the_command(model, files):
    read, write = os.pipe()
    os.close(read)
    data, saved = (str(files / name) for name in ("test.csv", "m"))
    assert spawn("predict", data, saved, stdout=write, stderr=subprocess.PIPE).returncode == 141
    os.close(write)


def test_help_and_usage_errors_need_no_heavy_imports():
    for arguments in (("--help",), ("train", "--help"), ("train",), ("--version",)):
        done = spawn(*arguments, env={"PYTHONPROFILEIMPORTTIME": "1"})
        assert done.returncode == (2 if arguments == ("train",) else 0)
        loaded = {
            line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time")
        }
        assert not loaded & {"numpy", "pandas", "sklearn", "scipy"}


def test_stream(files, run):
    rng = np.random.default_rng(1)
    X = np.abs(rng.normal(size=(200, 4))).round(2)
    lines = [f"{int(row[0] > row[1])} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(row)) for row in X]
    (files / "a.svm").write_text("\n".join(lines))
    run("train", "a.svm", "m", "--stream", "--noise", "0.1", "-c", "1")
    assert json.loads(run("evaluate", "a.svm", "m", "--json").out)["accuracy"] > 0.8
