"""``dropmargin demo``: runs from end to end, and leaves the files that it names."""

from __future__ import annotations

import json
import re
import shlex

import dropmargin
from dropmargin.cli import demo
from dropmargin.cli.main import main
from pages import assert_self_contained


def test_the_main_job_from_end_to_end(tmp_path, capsys, monkeypatch):
    # One test, not one per claim: a run takes seconds, even with a grid of one point.
    monkeypatch.setattr(demo, "_GRID", ("--noises", "0.1", "--cs", "1", "--folds", "2"))
    folder = tmp_path / "new" / "folder"
    assert main(["demo", str(folder)]) == 0
    out = capsys.readouterr().out

    # Every file that is named is there, and no other.
    named = re.findall(r"^  \S.*?  (/.*)$", out, re.M)
    assert sorted(named) == sorted(str(path) for path in folder.iterdir())
    names = "chosen.safetensors", "model.safetensors", "predictions.csv", "report.html", "test.csv", "train.csv"
    assert sorted(path.name for path in folder.iterdir()) == list(names)
    # Each command is shown as it would be typed.
    commands = [shlex.split(line[2:]) for line in out.splitlines() if line.startswith("$ ")]
    assert [command[:2] for command in commands] == [
        ["dropmargin", name] for name in ("cv", "train", "predict", "evaluate", "stress")
    ]
    # The model is the one that was chosen, and there is a prediction for each row.
    model = dropmargin.load(folder / "model.safetensors")
    assert (model[-1].missing, model[-1].noise.rate, model[-1].C) == ("rescale", 0.1, 1.0)
    assert len((folder / "predictions.csv").read_text().splitlines()) == 900
    # The page says what was gained, in the words of the terminal, which ends with the table and the paths.
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert_self_contained(page)
    sentences = [line for line in out.splitlines() if line.startswith(("With ", "If all"))]
    assert len(sentences) == 4
    assert all(sentence in page.replace("\N{NO-BREAK SPACE}", " ") for sentence in sentences)
    assert 0 < out.index("features deleted  Dropout-SVM") < out.index("Written:")
    assert out.rstrip().endswith(str(folder / "report.html"))


def test_a_step_that_fails_ends_the_demo(tmp_path, capsys, monkeypatch):
    def broken(folder):
        return f"{folder}/none.csv", f"{folder}/none.csv"

    monkeypatch.setattr(demo, "_write_digits", broken)
    assert main(["demo", str(tmp_path), "--json", "--quiet"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "none.csv" in err
    assert "stress" not in err


def test_json_is_one_object(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo._Steps, "run", lambda self, why, *arguments: print("a command"))
    monkeypatch.setattr(demo._Steps, "settings", lambda self, path: ())
    assert main(["demo", str(tmp_path), "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert files["report"] == str(tmp_path / "report.html")
