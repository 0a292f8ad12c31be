"""``dropmargin demo``: the commands, the files, and folders with other files."""

from __future__ import annotations

import json
import re
import shlex

import pytest

import dropmargin
from dropmargin.cli.demo import digits_tables
from dropmargin.cli.main import main
from pages import assert_self_contained

FILES = ["chosen.safetensors", "model.safetensors", "predictions.csv", "report.html", "test.csv", "train.csv"]


@pytest.mark.slow  # a minute: the stress test fits seven methods
def test_demo(tmp_path, capsys):
    folder = tmp_path / "new" / "folder"
    assert main(["demo", str(folder), "--json"]) == 0
    out, err = capsys.readouterr()

    # With --json, standard output has one object, with the path of every file.
    files = json.loads(out)["files"]
    assert sorted(files.values()) == sorted(str(path) for path in folder.iterdir())
    assert sorted(path.name for path in folder.iterdir()) == FILES
    # Each command is shown as it would be typed.
    commands = [shlex.split(line[2:]) for line in err.splitlines() if line.startswith("$ ")]
    assert [command[:2] for command in commands] == [
        ["dropmargin", name] for name in ("cv", "train", "predict", "evaluate", "stress")
    ]
    # The model has the chosen settings, and there is a prediction for each row.
    model, chosen = (dropmargin.load(folder / name)[-1] for name in ("model.safetensors", "chosen.safetensors"))
    assert (model.missing, model.noise.rate, model.C) == ("rescale", chosen.noise.rate, chosen.C)
    assert len((folder / "predictions.csv").read_text().splitlines()) == 900
    # The report has the first sentence about the results.
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert_self_contained(page)
    sentence = re.search(r"^With half of the features .*$", err, re.M)[0]
    assert sentence in page.replace("\N{NO-BREAK SPACE}", " ")


def test_a_repeated_demo_ends_with_the_first_command_that_fails(tmp_path, capsys):
    for name, content in digits_tables().items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "chosen.safetensors").mkdir()
    assert main(["demo", str(tmp_path), "--quiet"]) == 1
    out, err = capsys.readouterr()
    assert "chosen.safetensors: cannot write: it is a folder" in err
    assert out.count("$ dropmargin") == 1


@pytest.mark.parametrize("name", ["train.csv", "test.csv", "model.safetensors", "report.html"])
def test_a_folder_with_other_files_of_these_names_is_refused(tmp_path, capsys, name):
    (tmp_path / name).write_text("mine")
    assert main(["demo", str(tmp_path)]) == 2
    assert f"{tmp_path / name} exists and is not from an earlier demo" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]
