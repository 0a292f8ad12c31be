"""Every option of every command refuses wrong values: exit code 2, the option's name, and nothing written."""

from __future__ import annotations

import re

import pytest

from dealing import together
from dropmargin.cli.main import available_commands

NOISES = ("x", "", "1", "-0.1", "nan", "inf", "gaussian=-1", "gaussian=1e400", "laplace=x", "poisson=1", "uniform=1")
COUNTS = ("0", "-1", "1.5", "x", "", "inf")
NUMBERS = ("0", "-1", "nan", "inf", "x", "")
LEVELS = ("x", "", "1.5", "-0.1", "nan", "0:1", "0:1:1", "0:1:x", "0.5,0.5")

#: Wrong values of each option that takes one, whatever the command.
WRONG = {
    "--C": NUMBERS,
    "--approximation": ("exact",),
    "--categorical": ("", " "),
    "--choose-at": LEVELS,
    "--class-weight": ("x",),
    "--cs": (*NUMBERS[1:], "1,0", "1,,2", "1,1", "1,nan", "100000"),
    "--delete": LEVELS,
    "--folds": (*COUNTS, "1", "123456"),
    "--format": ("xls",),
    "--ignore": ("",),
    "--l1-ratio": ("-0.1", "1.1", "nan", "x", ""),
    "--loss": ("hing",),
    "--max-categories": COUNTS,
    "--max-features": COUNTS,
    "--max-iter": COUNTS,
    "--max-ratio": COUNTS,
    "--memory-limit": ("lots", "0", "0GB", "-1GB", "1XB", ""),
    "--min-df": ("0", "-1", "1.5", "nan", "x", ""),
    "--missing": ("zero",),
    "--multi-class": ("x",),
    "--n-jobs": ("0", "1.5", "x", "", "99999999999999999999"),
    "--ngrams": ("0", "2,1", "0,1", "1,100", "1,2,3", "x", ""),
    "--noise": NOISES,
    "--noises": (*NOISES[:2], "0.1,1", "0.1,x", "0.1,0.1", "0.1,dropout=0.1", "none,0", "100000", "9" * 30),
    "--output": ("labels", "", "label,"),
    "--repeats": COUNTS,
    "--rule": ("worst",),
    "--scoring": ("acuracy", ""),
    "--seed": ("-1", "1.5", "x", "", "4294967296"),
    "--separator": ("", "ab", '"', "\n"),
    "--strategy": ("x",),
    "--stability-noise": NOISES,
    "--target": ("",),
    "--text": ("",),
    "--to": ("pmml",),
    "--tol": NUMBERS,
    "--top": COUNTS,
    "--treatment": ("x",),
    "--weighting": ("x",),
}
#: Options whose values are names of files and folders, or any text; whether a file is there is no matter of use.
ANY_TEXT = {"--out", "--html", "--checkpoint", "--cache", "--feature-names", "--missing-values"}
FLAGS = {
    *("--help", "--json", "--quiet", "--debug", "--verbose", "--strict", "--no-intercept", "--zero-based"),
    *("--one-based", "--no-header", "--ignore-extra", "--safe-csv", "--complete-rows"),
}
POSITIONALS = {
    "train": ["data.svm", "model.json"],
    "cv": ["data.svm"],
    "predict": ["data.svm", "model.json"],
    "evaluate": ["data.svm", "model.json"],
    "nightmare": ["data.svm", "test.svm"],
    "info": ["model.json"],
    "export": ["model.json", "model.onnx"],
    "demo": ["folder"],
    "completion": ["bash"],
}


def options_of(run, command):
    """Return the options that the help of a command lists."""
    return set(re.findall(r"^  (?:-\w[^,]*, )?(--[A-Za-z][\w-]*)", run(command, "--help").out, re.MULTILINE))


@pytest.mark.parametrize("command", available_commands())
def test_wrong_values_are_refused_before_anything_is_read(run, tmp_path, command):
    options = options_of(run, command)
    unknown = options - set(WRONG) - ANY_TEXT - FLAGS
    assert not unknown, f"give wrong values of {unknown} in WRONG, or say in ANY_TEXT or FLAGS that there are none"
    for option in sorted(options & set(WRONG)):
        for value in WRONG[option]:
            done = run(command, *POSITIONALS[command], f"{option}={value}", code=2)
            assert option in done.error, (option, value, done.error)
            if "-" in option[2:]:
                assert option[2:].replace("-", "_") not in done.error
            assert done.out == ""
    assert list(tmp_path.iterdir()) == []


def test_the_table_names_options_that_there_are(run):
    known = set().union(*(options_of(run, command) for command in available_commands()))
    assert set(WRONG) | ANY_TEXT | FLAGS <= known


@pytest.mark.parametrize("command", sorted(POSITIONALS.keys() - {"demo"}))
def test_a_missing_argument_is_wrong_use(run, tmp_path, command):
    run(command, code=2)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def tables(tmp_path):
    """Write a table and an svmlight file."""
    rows = [f"{i % 2 + i / 50},{'ab'[i % 2]},{i % 2}" for i in range(20)]
    (tmp_path / "data.csv").write_text("\n".join(["size,kind,label", *rows]) + "\n")
    (tmp_path / "data.svm").write_text("".join(f"{i % 2} 1:{i}\n" for i in range(20)))


@together(
    ("arguments", "message"),
    [
        (["train", "data.svm", "m.json", "--target", "label"], "--target is for csv"),
        (["train", "data.svm", "m.json", "--separator", ";"], "--separator is for csv, tsv files"),
        (["train", "data.svm", "m.json", "--ignore", "size"], "--ignore is for csv"),
        (
            ["train", "data.csv", "m.json", "--target", "label", "--zero-based"],
            "--zero-based or --one-based is for svm",
        ),
        (["train", "data.csv", "m.json", "--target", "label", "--ignore", "label"], "--ignore label is the column of"),
        (["train", "data.csv", "m.json", "--target", "label", "--categorical", "label"], "--categorical label"),
        (["train", "data.csv", "m.json", "--target", "label", "--text", "label"], "--text label"),
        (
            ["train", "data.csv", "m.json", "--target", "label", "--max-categories", "1"],
            "--max-categories: column 'kind'",
        ),
        (["cv", "data.csv", "--target", "label", "--folds", "11"], "--folds 11 is too many"),
        (["cv", "data.csv", "--target", "label", "--scoring", "neg_log_loss"], "--scoring: it needs probabilities"),
        (["nightmare", "data.csv", "data.csv", "--target", "label", "--folds", "11"], "--folds 11 is too many"),
        (["nightmare", "data.csv", "data.csv", "--noise", "0.1", "--noises", "0.1,0.2"], "--noise is the noise to use"),
        (["predict", "data.svm", "m.json", "--separator", ";"], "--separator is for csv, tsv files"),
    ],
)
def test_options_that_do_not_go_with_the_data_or_with_others(run, tables, tmp_path, arguments, message):
    if arguments[0] == "predict":
        run("train", "data.svm", "m.json")
    before = sorted(tmp_path.iterdir())
    done = run(*arguments, code=2)
    assert message in done.error
    assert done.out == ""
    assert sorted(tmp_path.iterdir()) == before
