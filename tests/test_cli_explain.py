"""``dropmargin explain``: tables, text, svmlight and numbers; output files, plots, and errors."""

from __future__ import annotations

import csv
import gzip
import json

import numpy as np
import pytest

from dropmargin import explain, load


@pytest.fixture
def table(run, tmp_path):
    """Write a table with a missing cell and train a model on it."""
    rng = np.random.default_rng(0)
    lines = [f"{rng.normal(2.0 * (i % 2)):.3f},{rng.choice(['red', 'blue'])},{'yn'[i % 2]}" for i in range(40)]
    lines[1] = lines[1].replace("red", "").replace("blue", "")
    (tmp_path / "rows.csv").write_text("size,colour,label\n" + "\n".join(lines) + "\n")
    run("train", "rows.csv", "m.safetensors", "--target", "label")


def test_the_rows_of_a_table_are_explained_by_its_columns(run, table, tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.read_csv(tmp_path / "rows.csv")
    expected = explain(load(tmp_path / "m.safetensors"), frame[["size", "colour"]])
    done = run("explain", "rows.csv", "m.safetensors", "-o", "out.jsonl", "--json", "--rows", "3")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert lines == [{"row": i, **row.to_dict()} for i, row in enumerate(expected, 1)]
    assert done.json["rows"] == lines[:3]
    assert [line["n_present"] for line in lines[:3]] == [2, 1, 2]
    assert set(lines[0]["features"]) == {"size", "colour"}
    text = run("explain", "rows.csv", "m.safetensors", "--rows", "2", "--top", "1").out.splitlines()
    assert text[0].split() == ["row", "label", "runner-up", "margin", "flips", "after", "leans", "on"]
    assert len(text) == 3
    assert "size" in text[2]


@pytest.mark.parametrize("name", ["out.csv", "out.tsv.gz"])
def test_tables_of_explanations(run, table, tmp_path, name):
    for _ in range(2):  # an earlier file of explanations is replaced
        run("explain", "rows.csv", "m.safetensors", "-o", name, "--top", "2")
    content = (tmp_path / name).read_bytes()
    text = (gzip.decompress(content) if name.endswith(".gz") else content).decode()
    records = list(csv.DictReader(text.splitlines(), delimiter="\t" if "tsv" in name else ","))
    assert [int(record["row"]) for record in records] == list(range(1, 41))
    whole = run("explain", "rows.csv", "m.safetensors", "--rows", "40", "--json").json["rows"]
    for record, row in zip(records, whole, strict=True):
        assert record["flip_count"] == ("" if row["flip_count"] is None else str(row["flip_count"]))
        assert float(record["contribution_1"]) == row["contributions"][0]
        assert record["feature_2"] == (row["features"][1] if len(row["features"]) > 1 else "")


def test_names_that_are_formulas(run, tmp_path):
    (tmp_path / "d.csv").write_text("=1+1,b,label\n" + "1,2,-a\n2,1,b\n" * 10)
    run("train", "d.csv", "m.safetensors", "--target", "label")
    run("explain", "d.csv", "m.safetensors", "-o", "out.csv", "--safe-csv")
    records = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert records[0]["label"] == "'-a"
    assert "'=1+1" in (records[0]["feature_1"], records[0]["feature_2"])


def test_words_and_numbered_features(run, tmp_path):
    (tmp_path / "reviews.csv").write_text("review,stars\n" + "a great film,5\nsuch a bore,1\n" * 10)
    run("train", "reviews.csv", "t.safetensors", "--text", "review", "--target", "stars")
    first, _ = run("explain", "reviews.csv", "t.safetensors", "--rows", "2", "--json").json["rows"]
    assert first["label"] == 5
    assert set(first["features"]) == {"great", "film"}
    for begin, name in ((0, "zero.svm"), (1, "one.svm")):
        (tmp_path / name).write_text(f"1 {begin}:1\n-1 {begin + 1}:1\n" * 10)
        run("train", name, "s.safetensors")
        (row,) = run("explain", name, "s.safetensors", "--rows", "1", "--json").json["rows"]
        assert row["features"] == [str(begin)]


def test_numbers(run, tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 2))
    lines = [f"{a:.3f},{b:.3f},{2 * a - b:.3f}" for a, b in rows]
    (tmp_path / "d.csv").write_text("a,b,price\n" + "\n".join(lines) + "\n")
    run("train", "d.csv", "m.safetensors", "--target", "price")
    done = run("explain", "d.csv", "m.safetensors", "-o", "out.csv")
    assert done.out.split("\n")[0].split() == ["row", "prediction", "difference", "leans", "on"]
    assert (tmp_path / "out.csv").read_text().startswith("row,prediction,difference,n_present,feature_1,")
    run("explain", "d.csv", "m.safetensors", "-o", "out.csv")


@pytest.mark.parametrize(("name", "start"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml"), ("p.pdf", b"%PDF")])
def test_a_plot_of_one_row(run, table, tmp_path, name, start):
    pytest.importorskip("matplotlib")
    for _ in range(2):
        assert f"saved {name}" in run("explain", "rows.csv", "m.safetensors", "--plot", name, "--row", "12").out
    assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "out.txt"], "--output out.txt: expected a name that ends in .csv, .tsv, .tab, .jsonl"),
        (["--plot", "p.jpg"], "--plot p.jpg: expected a name that ends in .png, .svg, .pdf"),
        (["--plot", "p.png", "--row", "41"], "--row 41: rows.csv has 40 rows"),
        (["--plot", "plot.png"], "--plot plot.png: this file exists and is not a plot"),
    ],
)
def test_errors(run, table, tmp_path, options, message):
    (tmp_path / "plot.png").write_text("notes")
    before = sorted(tmp_path.iterdir())
    done = run("explain", "rows.csv", "m.safetensors", *options, code=2)
    assert message in done.error
    assert done.out == ""
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "plot.png").read_text() == "notes"


def test_missing_cells_need_a_model_that_accepts_them(run, tmp_path):
    (tmp_path / "d.csv").write_text("a,b,label\n" + "1,2,x\n2,1,y\n" * 10)
    (tmp_path / "holes.csv").write_text("a,b\n1,\n")
    run("train", "d.csv", "m.safetensors", "--target", "label")
    assert "train it with --missing rescale" in run("explain", "holes.csv", "m.safetensors", code=1).error
