"""An output that is also an input is refused, by whatever name, and nothing is written."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from command_line import environment
from datasets import make_binary
from dropmargin import load
from stream_data import make_rows, write_parts

SMALL = ("--noises", "0.1", "--cs", "1", "--folds", "2")


@pytest.fixture
def files(run, tmp_path):
    """Write data, a list of names, a model, and a folder of parts, and return what is in each file."""
    X, y = make_binary()
    lines = [",".join([*(f"{v:.4f}" for v in row[:2]), str(label)]) for row, label in zip(X, y, strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,y", *lines]) + "\n")
    rows = [f"{label} 1:{row[0]:.4f} 2:{row[1]:.4f}\n" for row, label in zip(X, y, strict=True)]
    (tmp_path / "data.svm").write_text("".join(rows))
    (tmp_path / "names.txt").write_text("a\nb\n")
    write_parts(tmp_path / "parts", *make_rows())
    (tmp_path / "results").mkdir()
    run("train", "data.csv", "model.json", "--target", "y")
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
            ["train", "parts", "m.json", "--memory-limit", "1GB", "--checkpoint", "parts/part-0.svm"],
            "--checkpoint parts/part-0.svm",
        ),
        (["train", "parts", "m.json", "--memory-limit", "1GB", "--checkpoint", "./m.json"], "--checkpoint ./m.json"),
        (["cv", "data.csv", "--target", "y", *SMALL, "-o", "link.csv"], "--out link.csv"),
        (["cv", "data.svm", *SMALL, "-o", "names.txt", "--feature-names", "names.txt"], "--out names.txt"),
        (["predict", "data.csv", "model.json", "-o", "data.csv"], "--out data.csv"),
        (["predict", "data.csv", "model.json", "-o", "hard.csv"], "--out hard.csv"),
        (["predict", "data.csv", "model.json", "-o", "model.json"], "--out model.json"),
        (["export", "model.json", "model.json", "--to", "onnx"], "OUT model.json"),
        (["nightmare", "data.csv", "hard.csv", "--target", "y", *SMALL, "--html", "data.csv"], "--html data.csv"),
        (["nightmare", "data.svm", "data.csv", "--target", "y", *SMALL, "--html", "link.csv"], "--html link.csv"),
    ],
)
def test_an_input_is_not_replaced(run, files, tmp_path, arguments, option):
    done = run(*arguments, code=2)
    assert option in done.error
    assert done.out == ""
    assert contents(tmp_path) == files


@pytest.mark.skipif(os.name != "posix", reason="redirections of a shell")
@pytest.mark.parametrize(
    "line",
    [
        "train - data.csv --format csv --target y < data.csv",
        "predict - model.json --format csv -o link.csv < data.csv",
        "predict data.csv model.json >> data.csv",
    ],
)
def test_a_file_that_the_shell_has_opened_is_not_replaced(files, tmp_path, line):
    command = f"{sys.executable} -m dropmargin.cli {line}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "data.csv" in done.stderr or "standard input" in done.stderr
    assert contents(tmp_path) == files


def test_an_older_output_is_replaced(run, files, tmp_path):
    for name in ("new.json", "labels.csv"):
        (tmp_path / name).write_text("from before\n")
    run("train", "data.csv", "new.json", "--target", "y")
    run("predict", "data.csv", "new.json", "-o", "labels.csv")
    new, old = (load(tmp_path / name) for name in ("new.json", "model.json"))
    assert new[-1].coef_.tobytes() == old[-1].coef_.tobytes()
    labels = (tmp_path / "labels.csv").read_text()
    assert "from before" not in labels
    assert labels == run("predict", "data.csv", "model.json").out
    run("predict", "data.csv", "new.json", "-o", os.devnull)
    assert {path: data for path, data in contents(tmp_path).items() if path in files} == files
