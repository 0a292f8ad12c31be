"""Standard streams that are closed, full, not UTF-8 or terminals, and inputs that are not regular files.

Every case starts a process. One case of each kind runs by default, the others are slow tests.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from command_line import environment
from dropmargin import load
from dropmargin.cli.main import main
from dropmargin.io.data import ReadOptions, read_data

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes, devices and terminals of POSIX")

NOT_UTF_8 = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
TRAIN = "train data.csv new.safetensors --target label"
PREDICT = "predict data.csv model.safetensors"
EVALUATE = "evaluate data.csv model.safetensors"


def slow(*values):
    """Return a case that `make test` does not run."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with data and models; names and labels are not ASCII or have control characters."""
    folder = tmp_path_factory.mktemp("streams")
    rows = [f"{i % 2 + i / 100},{('grün', '赤')[i % 2]}" for i in range(20)]
    (folder / "data.csv").write_text("\n".join(["größe,label", *rows]) + "\n", encoding="utf-8")
    X = np.array([[1.0, 0.0], [0.0, 1.0]] * 8)
    y = np.array(["\x1b[31mred", "\x1b]0;title\x07\x9b2J"] * 8)
    np.savez(folder / "escapes.npz", X=X, y=y, feature_names=np.array(["a\x1b[1m", "\x07b"]))
    for data, model, target in (
        ("data.csv", "model.safetensors", "label"),
        ("escapes.npz", "escapes.safetensors", "y"),
    ):
        assert main(["train", str(folder / data), str(folder / model), "--target", target, "--quiet"]) == 0
    (folder / "empty").touch()
    return folder


@pytest.fixture
def shell(folder):
    """Return a function that runs a command line in bash, and returns the exit code, the output and the errors."""

    def shell(line, **more):
        for name in ("new.safetensors", "new.csv"):
            (folder / name).unlink(missing_ok=True)
        code = f"set -o pipefail; {sys.executable} -m dropmargin {line}"
        done = subprocess.run(["bash", "-c", code], cwd=folder, env=environment() | more, capture_output=True)
        assert b"Traceback" not in done.stderr
        assert b"Exception ignored" not in done.stderr
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    return shell


# Encodings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        slow(TRAIN, "saved new.safetensors"),
        slow(f"{TRAIN} --json", '"new.safetensors"'),
        slow("cv data.csv --target label --noises 0.1 --cs 1 --folds 2", "accuracy"),
        slow(EVALUATE, "gr\\xfcn"),
        ("info model.safetensors", "for \\u8d64"),
    ],
)
def test_output_that_is_not_utf_8(shell, line, shown):
    code, out, err = shell(line, **NOT_UTF_8)
    assert code == 0, err
    assert (out + err).isascii()
    assert shown in out


@pytest.mark.slow
def test_an_error_about_names_that_are_not_ascii(shell):
    code, out, err = shell("train data.csv new.safetensors --target label2", **NOT_UTF_8)
    assert (code, out) == (1, "")
    assert "'gr\\xf6\\xdfe'" in err


@pytest.mark.slow
def test_predictions_in_a_file_or_pipe_are_utf_8_whatever_the_locale(shell, folder):
    code, out, _ = shell(PREDICT, **NOT_UTF_8)
    assert (code, out.split()[:3]) == (0, ["label", "grün", "赤"])
    assert shell(f"{PREDICT} -o new.csv", **NOT_UTF_8)[0] == 0
    assert (folder / "new.csv").read_text(encoding="utf-8") == out


# Closed, full and broken streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("train --help >/dev/full", None),
        slow(f"{EVALUATE} >/dev/full", None),
        (f"{TRAIN} >/dev/full", "new.safetensors"),
        slow(f"{PREDICT} -o new.csv >/dev/full", "new.csv"),
    ],
)
def test_a_result_that_cannot_be_printed_is_an_error_but_files_are_written(shell, folder, line, file):
    code, _, err = shell(line)
    assert code == 1
    assert "error: [Errno 28] No space left on device" in err
    assert file is None or (folder / file).stat().st_size > 0


@pytest.mark.slow
@pytest.mark.parametrize("redirection", ["2>&-", ">&- 2>&-"])
def test_output_to_closed_streams_is_dropped(shell, folder, redirection):
    code, out, _ = shell(f"{TRAIN} {redirection}")
    assert code == 0
    assert "dropmargin: " not in out
    assert (folder / "new.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize("line", ["train - new.safetensors --target label", slow("predict - model.safetensors")])
def test_closed_standard_input(shell, line):
    code, out, err = shell(f"{line} --format csv <&-")
    assert (code, out) == (1, "")
    assert "standard input: it is closed" in err


@pytest.mark.slow
@pytest.mark.parametrize("line", ["train --help", slow(TRAIN), PREDICT])
def test_a_reader_that_closes_the_pipe_at_once(shell, folder, line):
    code, out, err = shell(f"{line} | head -0")
    assert (code, out) == (141, "")
    assert "error" not in err
    assert (folder / "new.safetensors").exists() == (line == TRAIN)


# Terminals ------------------------------------------------------------------------------------------------------------


def on_terminal(line, folder, **more):
    """Return the output of a command on a terminal."""
    pty = pytest.importorskip("pty")
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "dropmargin", *line.split()]
    with subprocess.Popen(command, cwd=folder, env=environment() | more, stdout=slave, stderr=slave) as process:
        os.close(slave)
        shown = b""
        try:
            while block := os.read(master, 2**16):
                shown += block
        except OSError:  # the end of a terminal
            pass
    os.close(master)
    assert process.returncode == 0, shown
    return shown


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "predict escapes.npz escapes.safetensors",
        slow("predict escapes.npz escapes.safetensors --output label,decision"),
        slow("evaluate escapes.npz escapes.safetensors"),
        slow("info escapes.safetensors"),
        slow("train escapes.npz new.safetensors"),
    ],
)
def test_control_characters_do_not_reach_a_terminal(folder, line):
    shown = on_terminal(line, folder, PYTHONIOENCODING="utf-8").decode()
    assert not set(shown) & {"\x1b", "\x07", "\x9b"}
    assert ("\\x1b[31mred" in shown) != line.startswith("train")


@pytest.mark.slow
def test_labels_on_a_terminal_that_is_not_utf_8(folder):
    assert b"gr\\xfcn\r\n\\u8d64\r\n" in on_terminal(PREDICT, folder, **NOT_UTF_8)
    assert "grün\r\n赤\r\n".encode() in on_terminal(PREDICT, folder, PYTHONIOENCODING="utf-8")


@pytest.mark.slow
def test_labels_in_a_pipe_are_not_escaped(shell):
    assert shell("predict escapes.npz escapes.safetensors")[1].splitlines()[1] == "\x1b[31mred"


# Inputs that are not regular files ------------------------------------------------------------------------------------


@pytest.fixture
def pipe():
    """Return a function that writes bytes to a pipe and returns its path, as a shell does for ``<(cat file)``."""
    opened = []

    def pipe(data):
        end, begin = os.pipe()
        opened.append(end)
        with open(begin, "wb") as file:
            file.write(data)  # less than the buffer of a pipe
        return f"/dev/fd/{end}"

    yield pipe
    for end in opened:
        os.close(end)


def test_an_empty_pipe_is_an_input_without_rows(run, pipe):
    done = run("train", pipe(b""), "new.safetensors", "--target", "label", "--format", "csv", code=1)
    assert done.out == ""
    assert "the file is empty" in done.error


def test_predictions_of_a_pipe(run, pipe, folder):
    model, rows = load(folder / "model.safetensors"), read_data(folder / "data.csv", ReadOptions(target="label"))
    data = pipe((folder / "data.csv").read_bytes())
    done = run("predict", data, folder / "model.safetensors", "--format", "csv")
    assert done.out.split() == ["label", *model.predict(rows.X)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "train <(true) new.safetensors --target label --format csv",
        slow("train /dev/null new.safetensors --target label --format csv"),
        slow("train empty new.safetensors --target label --format csv"),
        slow("train - new.safetensors --target label --format csv </dev/null"),
        slow("predict /dev/null model.safetensors --format csv"),
    ],
)
def test_input_without_rows(shell, line):
    code, out, err = shell(line)
    assert (code, out) == (1, "")
    assert "the file is empty" in err


@pytest.mark.slow
def test_a_folder_is_not_a_data_file(shell):
    code, _, err = shell("train . new.safetensors --format csv --target label")
    assert (code, "Is a directory" in err) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "predict <(cat data.csv) model.safetensors --format csv",
        slow("predict - model.safetensors --format csv < data.csv"),
    ],
)
def test_a_pipe_is_read_like_a_file(shell, folder, line):
    model = load(folder / "model.safetensors")
    rows = read_data(folder / "data.csv", ReadOptions(target="label"))
    assert shell(line)[1].split() == ["label", *model.predict(rows.X)]


@pytest.mark.slow
def test_training_on_a_pipe(shell):
    assert shell("train <(cat data.csv) new.safetensors --format csv --target label")[0] == 0
