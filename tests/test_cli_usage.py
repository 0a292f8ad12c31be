"""Behaviour of all commands: help, exit codes, errors in one line, JSON, suggestions, completion."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest

import dropmargin
from command_line import environment, run_script, spawn
from datasets import make_binary
from dealing import together
from dropmargin.cli.commands import dropmargin as group
from dropmargin.cli.main import main

COMMANDS = group.commands

needs_posix = pytest.mark.skipif(os.name != "posix", reason="pipes and devices of POSIX")


@pytest.fixture
def data(tmp_path):
    """Write data.svm, data.csv and data.xyz."""
    X, y = make_binary()
    rows = [" ".join(f"{j + 1}:{v:.4f}" for j, v in enumerate(row)) for row in X]
    (tmp_path / "data.svm").write_text("".join(f"{label} {row}\n" for label, row in zip(y, rows, strict=True)))
    lines = [",".join([*(f"{v:.4f}" for v in row[:2]), str(label)]) for row, label in zip(X, y, strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["alpha,beta,label", *lines]) + "\n")
    (tmp_path / "data.xyz").touch()


# Help -----------------------------------------------------------------------------------------------------------------

_LIGHT = """
import sys
from dropmargin.cli.main import main
code = main(sys.argv[2:])
heavy = {"numpy", "scipy", "sklearn", "joblib", "pandas", "pyarrow", "matplotlib"} & set(sys.modules)
assert (code, heavy) == (int(sys.argv[1]), set()), (code, heavy)
"""


@together(
    ("code", "arguments", "start"),
    [
        (0, ["--help"], "Usage: dropmargin [OPTIONS] COMMAND"),
        (0, ["help", "train"], "Usage: dropmargin train [OPTIONS] DATA [MODEL]"),
        *((0, [command, "--help"], f"Usage: dropmargin {command} ") for command in COMMANDS),
        (0, ["--version"], f"dropmargin {dropmargin.__version__}\n"),
        (2, ["train", "--nois", "0.5"], ""),
        (2, ["train", "data.svm", "--noise", "x"], ""),
        (1, ["train", "nowhere.svm"], ""),
    ],
)
def test_help_and_usage_errors_import_nothing_heavy(code, arguments, start):
    assert run_script(_LIGHT, code, *arguments).startswith(start)


def test_the_help_lists_the_commands(run):
    assert all(f"  {name} " in run("--help").out for name in COMMANDS)
    assert "Usage: dropmargin [OPTIONS] COMMAND" in run(code=2).err


def test_every_option_has_a_help_text():
    for name, command in COMMANDS.items():
        for param in command.params:
            assert isinstance(param, click.Argument) or param.help, (name, param.name)


def test_a_missing_click_is_one_sentence_with_the_pip_command(tmp_path):
    (tmp_path / "click.py").write_text("raise ModuleNotFoundError(\"No module named 'click'\", name='click')\n")
    done = spawn("--help", env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{environment()['PYTHONPATH']}"})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "dropmargin: error: the command line needs click: pip install 'dropmargin[cli]'\n"


def test_a_missing_package_of_a_command_is_one_sentence_with_the_pip_command(data, tmp_path):
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "sklearn.py").write_text("raise ModuleNotFoundError(\"No module named 'sklearn'\", name='sklearn')\n")
    path = f"{folder}{os.pathsep}{environment()['PYTHONPATH']}"
    done = spawn("train", tmp_path / "data.svm", tmp_path / "m", env={"PYTHONPATH": path})
    assert done.returncode == 1
    assert done.stderr == "dropmargin: error: the package sklearn is not installed: pip install 'dropmargin[cli]'\n"


# Errors ---------------------------------------------------------------------------------------------------------------


@together(
    ("arguments", "message"),
    [
        (["trian"], "No such command 'trian'."),
        (["xyz"], "(Usage: dropmargin [OPTIONS] COMMAND"),
        (["--json", "train"], "No such option"),
        (["train", "--nois", "0.5"], "--noise"),
        (["train", "data.svm", "m.safetensors", "--lss=hinge"], "--loss"),
        (["predict", "data.svm"], "Missing argument 'MODEL'. (Usage: dropmargin predict [OPTIONS] DATA MODEL"),
        (["train", "a", "b", "c"], "unexpected extra argument (c)"),
        (["train", "data.svm", "m.safetensors", "--loss", "hing"], "did you mean hinge?"),
        (["train", "data.svm", "m.safetensors", "--noise", "dropuot=1"], "expected a noise (none, 0.5 or dropout=0.5"),
        (
            ["train", "data.svm", "m.safetensors", "--noise", "1.5"],
            "--noise: a dropout rate is at least 0 and below 1, got '1.5'",
        ),
        (["train", "data.svm", "m.safetensors", "--noise", "gaussian=x"], "expected a noise (none, 0.5 or dropout=0.5"),
        (["train", "data.svm", "m.safetensors", "-c", "0"], "expected a number above 0, got '0'"),
        (
            ["train", "data.svm", "m.safetensors", "--max-iter", "0"],
            "--max-iter: expected an integer of at least 1, got '0'",
        ),
        (
            ["train", "data.svm", "m.safetensors", "--approximation", "gaussian", "--loss", "quadratic"],
            "--approximation gaussian is for --loss hinge and logistic",
        ),
        (["train", "data.csv", "m.safetensors"], "the columns of data.csv are 'alpha', 'beta', 'label'"),
        (["train", "data.svm", "-"], "MODEL: this cannot be written to standard output"),
        (["train", "data.xyz", "m.safetensors"], "use a file name that ends in one of .svm"),
        (["cv", "data.svm", "--scoring", "acuracy"], "did you mean accuracy?"),
        (["cv", "data.svm", "--folds", "1"], "--folds: expected an integer from 2 to 9999"),
        (
            ["cv", "data.svm", "--cs", "1,x"],
            "--cs: expected a number above 0, got 'x'",
        ),
        (["predict", "data.svm", "m.safetensors", "--output", "labels"], "expected some of label, decision"),
        (["predict", "data.svm", "m.safetensors", "--json"], "--json needs -o FILE"),
        (["export", "m.safetensors", "m.xyz"], "add --to liblinear or --to onnx"),
    ],
)
def test_wrong_usage_is_code_2_and_one_line(run, data, tmp_path, arguments, message):
    before = set(tmp_path.iterdir())
    done = run(*arguments, code=2)
    assert message in done.error
    assert done.out == ""
    assert set(tmp_path.iterdir()) == before


@together(
    ("arguments", "message"),
    [
        (["train", "nowhere.svm", "m.safetensors"], "nowhere.svm: No such file or directory"),
        (["train", "data.svm", "nowhere/m.safetensors"], "nowhere/m.safetensors: cannot write: there is no folder"),
        (["train", "data.svm", "."], "it is a folder"),
        (
            ["train", "data.csv", "m.safetensors", "--target", "lable"],
            "data.csv:1: there is no column 'lable' (--target); did you",
        ),
        (["train", "bad.svm", "m.safetensors"], "bad.svm:2:3: "),
        (
            ["train", "zero.svm", "m.safetensors", "--one-based"],
            "feature index 0, but indices start at 1 (use --zero-based)",
        ),
        (
            ["train", "data.svm", "m.safetensors", "--max-features", "3"],
            "at most 3 features are allowed (raise --max-features",
        ),
        (["train", "one.svm", "m.safetensors"], "at least 2 classes"),
        (["predict", "data.svm", "nowhere.safetensors"], "nowhere.safetensors: No such file or directory"),
        (["predict", "data.svm", "data.csv"], "data.csv: "),
        (["info", "data.csv"], "data.csv: "),
    ],
)
def test_a_failure_is_code_1_and_one_line(run, data, tmp_path, arguments, message):
    (tmp_path / "bad.svm").write_text("1 1:1\n1 x\n")
    (tmp_path / "zero.svm").write_text("1 1:1\n-1 0:1\n")
    (tmp_path / "one.svm").write_text("1 1:1\n1 2:1\n")
    before = set(tmp_path.iterdir())
    done = run(*arguments, code=1)
    assert message in done.error
    assert done.out == ""
    assert set(tmp_path.iterdir()) == before


def test_debug_shows_the_traceback(run, data):
    assert "Traceback" in run("info", "data.csv", "--debug", code=1).err


def test_a_fit_that_does_not_converge_is_a_warning_and_with_strict_code_3(run, data, tmp_path):
    slow = ("--max-iter", "1", "--tol", "1e-12")
    done = run("train", "data.svm", "m.safetensors", *slow)
    assert "dropmargin: warning: DropoutSVC did not converge" in done.err
    (tmp_path / "m.safetensors").unlink()
    assert run("train", "data.svm", "m.safetensors", *slow, "--strict", "--json", code=3).json["model"] is None
    assert not (tmp_path / "m.safetensors").exists()
    run("train", "data.svm", "m.safetensors", "--strict")
    found = run("cv", "data.svm", *slow, "--noises", "0.5", "--cs", "10", "--strict", "-o", "n.safetensors", code=3)
    assert "warning" in found.err
    assert not (tmp_path / "n.safetensors").exists()


def test_an_interrupt_is_code_130(run, data, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("dropmargin.estimators.DropoutSVC.fit", interrupt)
    assert run("train", "data.svm", "m.safetensors", code=130).error == "interrupted"


# Output ---------------------------------------------------------------------------------------------------------------


def test_notes_are_on_standard_error_unless_quiet(run, data):
    done = run("train", "data.svm", "m.safetensors")
    assert "60 rows, 8 features" in done.err
    assert "saved m.safetensors" in done.out
    assert run("train", "data.svm", "m.safetensors", "--quiet").err == ""


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (
            ["train", "data.svm", "m.safetensors"],
            {"rows", "features", "classes", "seconds", "converged", "objective", "model"},
        ),
        (["cv", "data.svm", "--noises", "0,0.5", "--cs", "0.1,1"], {"noise", "C", "score", "standard_error", "noises"}),
        (["predict", "data.svm", "m.safetensors", "-o", "out.csv"], {"rows", "columns", "out", "seconds"}),
        (["explain", "data.svm", "m.safetensors"], {"data", "model", "rows", "output", "plot"}),
        (
            ["evaluate", "data.svm", "m.safetensors"],
            {"rows", "accuracy", "error", "classes", "confusion", "unknown_labels"},
        ),
        (
            ["info", "m.safetensors"],
            {"model", "parameters", "classes", "n_features", "summary", "top_features", "data_hash"},
        ),
        (["export", "m.safetensors", "m.model"], {"to", "out", "bytes"}),
    ],
)
def test_json_is_one_object(run, data, arguments, keys):
    run("train", "data.svm", "m.safetensors")
    result = run(*arguments, "--json").json
    assert keys <= result.keys()
    json.dumps(result, allow_nan=False)


def test_a_recall_without_rows_is_null_and_unknown_labels_are_errors(run, data, tmp_path):
    run("train", "data.svm", "m.safetensors")
    (tmp_path / "other.svm").write_text("7 1:1\n7 2:1\n1 1:1\n")
    done = run("evaluate", "other.svm", "m.safetensors", "--json")
    assert done.json["unknown_labels"] == 2
    assert done.json["accuracy"] <= 1 / 3
    assert done.json["classes"][0]["recall"] is None
    assert "2 rows have labels that m.safetensors does not know" in done.err
    assert "accuracy" in run("evaluate", "other.svm", "m.safetensors").out


def test_control_characters_of_a_file_do_not_reach_the_terminal(run, tmp_path):
    names = ["\x1b[31mred", "b\x07"]
    np.savez(
        tmp_path / "d.npz", X=np.array([[1.0, 0.5], [0.2, 1.0]]), y=np.array(["\x1b]0;x", "b"]), feature_names=names
    )
    run("train", "d.npz", "m.safetensors")
    for done in (run("info", "m.safetensors"), run("evaluate", "d.npz", "m.safetensors")):
        assert not set("\x1b\x07") & set(done.out + done.err)
    assert "\\x1b[31mred" in run("info", "m.safetensors").out


@pytest.mark.slow
@needs_posix
def test_a_reader_that_closes_the_pipe(data, tmp_path):
    assert main(["train", str(tmp_path / "data.svm"), str(tmp_path / "m.safetensors"), "--quiet"]) == 0
    (tmp_path / "long.svm").write_text("1 1:1\n" * 200_000)
    command = [sys.executable, "-m", "dropmargin", "predict", "long.svm", "m.safetensors", "--output", "decision"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), **pipes) as process:
        assert process.stdout.readline() == b"decision\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full")
def test_full_standard_output(data, tmp_path):
    assert main(["train", str(tmp_path / "data.svm"), str(tmp_path / "m.safetensors"), "--quiet"]) == 0
    with open("/dev/full", "w") as full:
        done = spawn("predict", tmp_path / "data.svm", tmp_path / "m.safetensors", stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


# Completion -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@together(
    ("words", "expected"),
    [
        (["pre"], {"plain,predict"}),
        (["train", "--los"], {"plain,--loss"}),
        (["train", "--loss", "qu"], {"plain,quadratic"}),
        (["train", "--noise", ""], set()),
        (["train", ""], {"file,"}),
        (["predict", "data.svm", "--out", "l"], {"file,l"}),
    ],
)
def test_completion_suggests_commands_options_choices_and_files(words, expected):
    line = {"COMP_WORDS": " ".join(["dropmargin", *words]), "COMP_CWORD": str(len(words))}
    done = spawn(env=line | {"_DROPMARGIN_COMPLETE": "bash_complete"})
    assert (done.returncode, set(done.stdout.split())) == (0, expected)


@together("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell):
    done = spawn(env={"_DROPMARGIN_COMPLETE": f"{shell}_source"})
    assert done.returncode == 0, done.stderr
    assert f"_DROPMARGIN_COMPLETE={shell}_complete" in done.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True)


# The package ----------------------------------------------------------------------------------------------------------


def test_dir_lists_public_names():
    packages = {
        "baselines",
        "dask",
        "estimators",
        "evaluation",
        "explanation",
        "io",
        "model_selection",
        "noise",
        "plotting",
        "streaming",
    }
    importlib.import_module("dropmargin.threads")  # a module that is imported is an attribute, too
    assert {name for name in dir(dropmargin) if not name.startswith("__")} == packages | set(dropmargin.__all__)
    assert {"__all__", "__doc__", "__version__"} <= set(dir(dropmargin))
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    for name in dropmargin.__all__:
        assert getattr(dropmargin, name).__doc__
        assert f"   {name}\n" in page
    for name in packages:
        assert importlib.util.find_spec(f"dropmargin.{name}").submodule_search_locations


@pytest.mark.slow
def test_names_of_the_package_are_imported_at_first_use():
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
