"""Outputs that would replace an input, or a file that is not an earlier output, are refused; nothing is written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from command_line import environment
from datasets import make_binary
from dropmargin import load
from stream_data import make_rows, write_parts

SMALL = ("--noises", "0.1", "--cs", "1", "--folds", "2")
QUICK = ("--delete", "0.5", "--repeats", "1")


@pytest.fixture
def files(run, tmp_path):
    """Write data, a list of names, a model and a folder of parts, and return the content of each file."""
    X, y = make_binary()
    lines = [",".join([*(f"{v:.4f}" for v in row[:2]), str(label)]) for row, label in zip(X, y, strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,y", *lines]) + "\n")
    rows = [f"{label} 1:{row[0]:.4f} 2:{row[1]:.4f}\n" for row, label in zip(X, y, strict=True)]
    (tmp_path / "data.svm").write_text("".join(rows))
    (tmp_path / "names.txt").write_text("a\nb\n")
    write_parts(tmp_path / "parts", *make_rows())
    (tmp_path / "results").mkdir()
    run("train", "data.csv", "model.safetensors", "--target", "y")
    os.symlink("data.csv", tmp_path / "link.csv")
    os.link(tmp_path / "data.csv", tmp_path / "hard.csv")
    return contents(tmp_path)


def contents(folder):
    """Return the bytes of every file below a folder."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["train", "data.csv", "data.csv", "--target", "y"], "MODEL data.csv"),
        (["train", "data.csv", "./parts/../data.csv", "--target", "y"], "MODEL ./parts/../data.csv"),
        (["train", "data.csv", "link.csv", "--target", "y"], "MODEL link.csv"),
        (["train", "link.csv", "data.csv", "--target", "y"], "MODEL data.csv"),
        (["train", "data.csv", "hard.csv", "--target", "y"], "MODEL hard.csv"),
        (["train", "data.svm", "names.txt", "--feature-names", "names.txt"], "MODEL names.txt"),
        (["train", "parts", "parts/part-0.svm", "--memory-limit", "1GB"], "MODEL parts/part-0.svm"),
        (
            ["train", "parts", "m.safetensors", "--memory-limit", "1GB", "--checkpoint", "parts/part-0.svm"],
            "--checkpoint parts/part-0.svm",
        ),
        (
            ["train", "parts", "m.safetensors", "--memory-limit", "1GB", "--checkpoint", "./m.safetensors"],
            "--checkpoint ./m.safetensors",
        ),
        (["train", "data.csv", "names.txt", "--target", "y", "--groups", "names.txt"], "MODEL names.txt"),
        (["cv", "data.csv", "--target", "y", *SMALL, "--groups", "names.txt", "-o", "names.txt"], "--out names.txt"),
        (["cv", "data.csv", "--target", "y", *SMALL, "-o", "link.csv"], "--out link.csv"),
        (["cv", "data.svm", *SMALL, "-o", "names.txt", "--feature-names", "names.txt"], "--out names.txt"),
        (["predict", "data.csv", "model.safetensors", "-o", "data.csv"], "--out data.csv"),
        (["predict", "data.csv", "model.safetensors", "-o", "hard.csv"], "--out hard.csv"),
        (["predict", "data.csv", "model.safetensors", "-o", "model.safetensors"], "--out model.safetensors"),
        (["explain", "data.csv", "model.safetensors", "-o", "link.csv"], "--output link.csv"),
        (["export", "model.safetensors", "model.safetensors", "--to", "onnx"], "OUT model.safetensors"),
        (["stress", "data.csv", "hard.csv", "--target", "y", *SMALL, "--html", "data.csv"], "--html data.csv"),
        (["stress", "data.svm", "data.csv", "--target", "y", *SMALL, "--html", "link.csv"], "--html link.csv"),
    ],
)
def test_an_input_is_not_replaced(run, files, tmp_path, arguments, option):
    done = run(*arguments, code=2)
    assert option in done.error
    assert done.out == ""
    assert contents(tmp_path) == files


def test_a_file_that_is_not_a_checkpoint_is_not_replaced(run, files, tmp_path):
    arguments = ("train", "parts", "m.safetensors", "--memory-limit", "1GB", "--checkpoint", "names.txt")
    assert "--checkpoint: names.txt is not a checkpoint" in run(*arguments, code=2).error
    assert (tmp_path / "names.txt").read_bytes() == files[tmp_path / "names.txt"]


@pytest.mark.skipif(os.name != "posix", reason="redirections of a shell")
@pytest.mark.parametrize(
    "line",
    [
        "train - data.csv --format csv --target y < data.csv",
        "predict - model.safetensors --format csv -o link.csv < data.csv",
        "predict data.csv model.safetensors >> data.csv",
    ],
)
def test_a_file_that_the_shell_has_opened_is_not_replaced(files, tmp_path, line):
    command = f"{sys.executable} -m dropmargin {line}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "data.csv" in done.stderr or "standard input" in done.stderr
    assert contents(tmp_path) == files


def test_an_older_model_or_prediction_is_replaced(run, files, tmp_path):
    shutil.copy(tmp_path / "model.safetensors", tmp_path / "new.safetensors")
    (tmp_path / "empty.csv").touch()
    for options in ([], ["--no-header", "--force"]):
        run("train", "data.csv", "new.safetensors", "--target", "y", "-c", "2")
        for name in ("labels.csv", "labels.tsv.gz", "empty.csv"):
            run("predict", "data.csv", "new.safetensors", "-o", name, "--output", "label,decision", *options)
    assert load(tmp_path / "new.safetensors")[-1].C == 2.0
    assert (tmp_path / "labels.csv").read_text().count("\n") == 60
    run("predict", "data.csv", "new.safetensors", "-o", os.devnull)
    assert {path: data for path, data in contents(tmp_path).items() if path in files} == files


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["train", "data.csv", "other.csv", "--target", "y"], "a model"),
        (["cv", "data.csv", "--target", "y", *SMALL, "-o", "other.csv"], "a model"),
        (["predict", "data.csv", "model.safetensors", "-o", "other.csv"], "a file of predictions"),
        (["predict", "data.csv", "model.safetensors", "-o", "other.csv.gz"], "a file of predictions"),
        (["predict", "other.csv", "model.safetensors", "-o", "names.txt"], "a file of predictions"),
        (["explain", "data.csv", "model.safetensors", "-o", "other.csv"], "a file of explanations"),
        (["explain", "data.csv", "model.safetensors", "-o", "other.csv.gz"], "a file of explanations"),
        (["export", "model.safetensors", "names.txt", "--to", "liblinear"], "an export for liblinear"),
        (["export", "model.safetensors", "names.txt", "--to", "onnx"], "an export for onnx"),
        (["stress", "data.csv", "data.csv", "--target", "y", *SMALL, *QUICK, "--html", "names.txt"], "a report"),
    ],
)
def test_an_existing_file_of_another_kind_is_replaced_only_by_force(run, files, tmp_path, arguments, kind):
    (tmp_path / "other.csv").write_text("label,a,b\n1,2,3\n")
    (tmp_path / "other.csv.gz").write_bytes(b"not compressed")
    before = contents(tmp_path)
    output = arguments[-1] if {"-o", "--html"} & set(arguments) else arguments[2]
    done = run(*arguments, code=2)
    assert f" {output}: this file exists and is not {kind}" in done.error
    assert contents(tmp_path) == before
    run(*arguments, "--force")
    written = (tmp_path / output).read_bytes()
    assert written != before[tmp_path / output]
    if not output.startswith("other"):  # of the same kind now
        run(*arguments)
