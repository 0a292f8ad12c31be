"""How commands behave: exit codes, one line for an error, JSON, help at once, suggestions, completion."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import dropmargin
from command_line import environment, run_script, spawn
from datasets import make_binary
from dealing import together
from dropmargin.cli.main import COMMANDS, available_commands, main, make_parser

needs_posix = pytest.mark.skipif(os.name != "posix", reason="pipes and devices of POSIX")


@pytest.fixture
def data(tmp_path):
    """Write data.svm and data.csv."""
    X, y = make_binary()
    rows = [" ".join(f"{j + 1}:{v:.4f}" for j, v in enumerate(row)) for row in X]
    (tmp_path / "data.svm").write_text("".join(f"{label} {row}\n" for label, row in zip(y, rows, strict=True)))
    lines = [",".join([*(f"{v:.4f}" for v in row[:2]), str(label)]) for row, label in zip(X, y, strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["alpha,beta,label", *lines]) + "\n")


# Help -----------------------------------------------------------------------------------------------------------------

_HEAVY = """
import sys
from dropmargin.cli.main import main
assert main(sys.argv[1:]) == 0
heavy = {"numpy", "scipy", "sklearn", "joblib", "pandas", "pyarrow", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
"""


@pytest.mark.parametrize("command", ["", *available_commands()])
def test_help_imports_nothing_heavy(command):
    assert run_script(_HEAVY, *([command] if command else []), "--help").startswith("usage: dropmargin")


def test_version_completion_and_wrong_use_import_nothing_heavy():
    assert run_script(_HEAVY, "--version") == f"dropmargin {dropmargin.__version__}\n"
    assert "_dropmargin" in run_script(_HEAVY, "completion", "bash")


def test_overview_lists_the_commands_that_are_there(run, monkeypatch):
    assert all(f"  {name} " in run("--help").out for name in available_commands())
    assert "usage: dropmargin COMMAND" in run(code=2).err
    monkeypatch.setitem(COMMANDS, "later", COMMANDS["train"]._replace(module="dropmargin.cli.not_written_yet"))
    assert "later" not in run("--help").out
    assert "there is no command 'later'" in run("later", code=2).error


def test_every_option_is_explained():
    for command in available_commands():
        for action in make_parser(command).actions():
            assert action.help or action.choices, (command, action.dest)


# Wrong use ------------------------------------------------------------------------------------------------------------


@together(
    ("arguments", "message"),
    [
        (["trian"], "there is no command 'trian'; did you mean train?"),
        (["xyz"], "the commands are train, "),
        (["--json", "train"], "the first argument is the command, got --json"),
        (["train", "--nois", "0.5"], "dropmargin train has no option --nois; did you mean --noise?"),
        (["train", "data.svm", "m.json", "--lss=hinge"], "no option --lss; did you mean --loss?"),
        (["predict", "data.svm"], "the following arguments are required: model"),
        (["train", "a", "b", "c"], "does not know what to do with 'c'"),
        (["train", "data.svm", "m.json", "--loss", "hing"], "did you mean hinge?"),
        (["train", "data.svm", "m.json", "--noise", "dropuot=1"], "the noise is none, a dropout rate"),
        (
            ["train", "data.svm", "m.json", "--noise", "1.5"],
            "argument --noise: a dropout rate is from 0 to below 1, got '1.5'",
        ),
        (["train", "data.svm", "m.json", "--noise", "gaussian=x"], "the noise is none, a dropout rate"),
        (["train", "data.svm", "m.json", "-c", "0"], "expected a number above 0, got '0'"),
        (["train", "data.svm", "m.json", "--max-iter", "0"], "expected a whole number of at least 1, got '0'"),
        (
            ["train", "data.svm", "m.json", "--approximation", "gaussian", "--loss", "quadratic"],
            "--approximation gaussian is for --loss hinge and logistic, not for quadratic",
        ),
        (["train", "data.csv", "m.json"], "the columns of data.csv are 'alpha', 'beta', 'label'"),
        (["train", "data.svm", "-"], "a model cannot be written to standard output"),
        (["train", "data.xyz", "m.json"], "its name should end in one of .svm"),
        (["train", "data.svm", "m.json", "--zero-based", "--one-based"], "not allowed with"),
        (["cv", "data.svm", "--scoring", "acuracy"], "did you mean accuracy?"),
        (["cv", "data.svm", "--folds", "1"], "argument --folds: expected a whole number from 2"),
        (
            ["cv", "data.svm", "--cs", "1,x"],
            "argument --cs: expected numbers above 0 with commas between them, got '1,x'",
        ),
        (["predict", "data.svm", "m.json", "--output", "labels"], "expected some of label, decision"),
        (["predict", "data.svm", "m.json", "--json"], "--json needs -o FILE"),
        (["export", "m.json", "m.xyz"], "say --to liblinear or --to onnx"),
    ],
)
def test_wrong_use_is_2_and_says_what_is_right(run, data, tmp_path, arguments, message):
    before = set(tmp_path.iterdir())
    done = run(*arguments, code=2)
    assert message in done.error
    assert done.out == ""
    assert set(tmp_path.iterdir()) == before


@together(
    ("arguments", "message"),
    [
        (["train", "nowhere.svm", "m.json"], "nowhere.svm: No such file or directory"),
        (["train", "data.svm", "nowhere/m.json"], "nowhere/m.json: cannot write: there is no folder"),
        (["train", "data.svm", "."], "it is a folder"),
        (
            ["train", "data.csv", "m.json", "--target", "lable"],
            "data.csv:1: there is no column 'lable' (--target); did you",
        ),
        (["train", "bad.svm", "m.json"], "bad.svm:2:3: "),
        (["train", "zero.svm", "m.json", "--one-based"], "feature index 0, but indices start at 1 (use --zero-based)"),
        (
            ["train", "data.svm", "m.json", "--max-features", "3"],
            "at most 3 features are allowed (raise --max-features",
        ),
        (["train", "one.svm", "m.json"], "at least 2 classes"),
        (["predict", "data.svm", "nowhere.json"], "nowhere.json: No such file or directory"),
        (["predict", "data.svm", "data.csv"], "data.csv: "),
        (["info", "data.csv"], "data.csv: "),
    ],
)
def test_failures_are_1_in_one_line(run, data, tmp_path, arguments, message):
    (tmp_path / "bad.svm").write_text("1 1:1\n1 x\n")
    (tmp_path / "zero.svm").write_text("1 1:1\n-1 0:1\n")
    (tmp_path / "one.svm").write_text("1 1:1\n1 2:1\n")
    before = set(tmp_path.iterdir())
    done = run(*arguments, code=1)
    assert message in done.error
    assert done.out == ""
    assert set(tmp_path.iterdir()) == before


def test_debug_shows_where(run, data):
    assert "Traceback" in run("info", "data.csv", "--debug", code=1).err


def test_not_converged_warns_and_is_3_if_strict(run, data, tmp_path):
    slow = ("--max-iter", "1", "--tol", "1e-12")
    done = run("train", "data.svm", "m.json", *slow)
    assert "dropmargin: warning: DropoutSVC did not converge" in done.err
    (tmp_path / "m.json").unlink()
    assert run("train", "data.svm", "m.json", *slow, "--strict", "--json", code=3).json["model"] is None
    assert not (tmp_path / "m.json").exists()
    run("train", "data.svm", "m.json", "--strict")
    found = run("cv", "data.svm", *slow, "--noises", "0.5", "--cs", "10", "--strict", "-o", "n.json", code=3)
    assert "warning" in found.err
    assert not (tmp_path / "n.json").exists()


def test_interrupt_is_130(run, data, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("dropmargin.estimators.DropoutSVC.fit", interrupt)
    assert run("train", "data.svm", "m.json", code=130).error == "interrupted"


# What is said, and where ----------------------------------------------------------------------------------------------


def test_notes_go_to_standard_error_unless_quiet(run, data):
    done = run("train", "data.svm", "m.json")
    assert "60 rows, 8 features" in done.err
    assert "saved m.json" in done.out
    assert run("train", "data.svm", "m.json", "--quiet").err == ""


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (
            ["train", "data.svm", "m.json"],
            {"rows", "features", "classes", "seconds", "converged", "objective", "model"},
        ),
        (["cv", "data.svm", "--noises", "0,0.5", "--cs", "0.1,1"], {"noise", "C", "score", "standard_error", "noises"}),
        (["predict", "data.svm", "m.json", "-o", "out.csv"], {"rows", "columns", "out", "seconds"}),
        (["evaluate", "data.svm", "m.json"], {"rows", "accuracy", "error", "classes", "confusion", "unknown_labels"}),
        (["info", "m.json"], {"model", "parameters", "classes", "n_features", "summary", "top_features", "data_hash"}),
        (["export", "m.json", "m.model"], {"to", "out", "bytes"}),
        (["completion", "fish"], {"shell", "script"}),
    ],
)
def test_json_is_one_object(run, data, arguments, keys):
    run("train", "data.svm", "m.json")
    result = run(*arguments, "--json").json
    assert keys <= result.keys()
    json.dumps(result, allow_nan=False)


def test_a_share_of_nothing_is_null_and_unknown_labels_are_errors(run, data, tmp_path):
    run("train", "data.svm", "m.json")
    (tmp_path / "other.svm").write_text("7 1:1\n7 2:1\n1 1:1\n")
    done = run("evaluate", "other.svm", "m.json", "--json")
    assert done.json["unknown_labels"] == 2
    assert done.json["accuracy"] <= 1 / 3
    assert done.json["classes"][0]["recall"] is None
    assert "2 rows have labels that m.json does not know" in done.err
    assert "accuracy" in run("evaluate", "other.svm", "m.json").out


def test_control_characters_of_a_file_do_not_reach_the_terminal(run, tmp_path):
    names = ["\x1b[31mred", "b\x07"]
    np.savez(
        tmp_path / "d.npz", X=np.array([[1.0, 0.5], [0.2, 1.0]]), y=np.array(["\x1b]0;x", "b"]), feature_names=names
    )
    run("train", "d.npz", "m.json")
    for done in (run("info", "m.json"), run("evaluate", "d.npz", "m.json")):
        assert not set("\x1b\x07") & set(done.out + done.err)
    assert "\\x1b[31mred" in run("info", "m.json").out


@needs_posix
def test_a_reader_that_has_seen_enough(data, tmp_path):
    assert main(["train", str(tmp_path / "data.svm"), str(tmp_path / "m.json"), "--quiet"]) == 0
    (tmp_path / "long.svm").write_text("1 1:1\n" * 200_000)
    command = [sys.executable, "-m", "dropmargin.cli", "predict", "long.svm", "m.json", "--output", "decision"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), **pipes) as process:
        assert process.stdout.readline() == b"decision\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full")
def test_full_standard_output(data, tmp_path):
    assert main(["train", str(tmp_path / "data.svm"), str(tmp_path / "m.json"), "--quiet"]) == 0
    with open("/dev/full", "w") as full:
        done = spawn("predict", tmp_path / "data.svm", tmp_path / "m.json", stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


# Completion -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["pre"], ["predict"]),
        (["train", "--los"], ["--loss"]),
        (["train", "--loss", "qu"], ["quadratic"]),
        (["train", "--noise", ""], []),
        (["completion", "z"], ["zsh"]),
    ],
)
def test_completion_in_bash(run, tmp_path, words, expected):
    (tmp_path / "script").write_text(run("completion", "bash").out)
    line = " ".join(f"'{word}'" for word in ["dropmargin", *words])
    code = f"source ./script; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _dropmargin; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_of_other_shells_names_everything(run, shell):
    script = run("completion", shell).out
    for command in available_commands():
        assert command in script
        for name in make_parser(command).option_names():
            assert name.lstrip("-") in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


# The package ----------------------------------------------------------------------------------------------------------


def test_names_of_the_package_come_when_they_are_asked_for():
    assert set(dropmargin.__all__) <= set(dir(dropmargin))
    assert run_script("import dropmargin, sys; print('numpy' in sys.modules, dropmargin.__version__)").startswith(
        "False"
    )
    script = "from dropmargin import *; import pickle; print(pickle.loads(pickle.dumps(DropoutSVC(C=2))).C)"
    assert run_script(script) == "2\n"
    assert run_script("import dropmargin; print(dropmargin.noise.DropoutNoise is dropmargin.DropoutNoise)") == "True\n"
    with pytest.raises(AttributeError, match="no attribute 'DropoutSVM'"):
        dropmargin.DropoutSVM  # noqa: B018
    with pytest.raises(ImportError):
        from dropmargin import DropoutSVM  # noqa: F401
