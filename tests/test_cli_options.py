"""Options of the commands: wrong values are refused, lists and orders are free, some cannot be combined."""

from __future__ import annotations

import click
import pytest

from dealing import together
from dropmargin import load
from dropmargin.cli.commands import dropmargin

NOISES = ("x", "", "1", "-0.1", "nan", "inf", "gaussian=-1", "gaussian=1e400", "laplace=x", "poisson=1", "uniform=1")
COUNTS = ("0", "-1", "1.5", "x", "", "inf")
NUMBERS = ("0", "-1", "nan", "inf", "x", "")
LEVELS = ("x", "", "1.5", "-0.1", "nan", "0:1", "0:1:1", "0:1:x", "0.5,0.5")

#: Wrong values of each option, whatever the command.
WRONG = {
    "--C": NUMBERS,
    "--analyzer": ("x",),
    "--approximation": ("exact",),
    "--categorical": ("", " "),
    "--choose-at": LEVELS,
    "--class-weight": ("x",),
    "--coverage": ("0", "1", "30", "-0.1", "nan", "x", ""),
    "--cs": (*NUMBERS[1:], "1,0", "1,,2", "1,1", "1,nan", "100000"),
    "--decimal": (";", ""),
    "--delete": LEVELS,
    "--epsilon": NUMBERS[1:],
    "--folds": (*COUNTS, "1", "123456"),
    "--format": ("xls",),
    "--group-by": ("", " "),
    "--ids": ("",),
    "--ignore": ("",),
    "--keep": ("",),
    "--l1-ratio": ("-0.1", "1.1", "nan", "x", ""),
    "--loss": ("hing",),
    "--max-categories": COUNTS,
    "--max-features": COUNTS,
    "--max-iter": COUNTS,
    "--max-ratio": COUNTS,
    "--memory-limit": ("lots", "0", "0GB", "-1GB", "1XB", ""),
    "--min-df": ("0", "-1", "1.5", "nan", "x", ""),
    "--missing": ("zero",),
    "--missing-rate": ("0", "1", "30", "-0.1", "nan", "x", ""),
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
    "--row": COUNTS,
    "--rows": COUNTS,
    "--top": COUNTS,
    "--treatment": ("x",),
    "--weighting": ("x",),
}
#: Arguments of each command.
ARGUMENTS = {
    "train": ["data.svm", "model.safetensors"],
    "cv": ["data.svm"],
    "predict": ["data.svm", "model.safetensors"],
    "explain": ["data.svm", "model.safetensors"],
    "evaluate": ["data.svm", "model.safetensors"],
    "stress": ["data.svm", "test.svm"],
    "info": ["model.safetensors"],
    "export": ["model.safetensors", "model.onnx"],
    "demo": ["folder"],
}


def options_with_values(command):
    """Return the options of a command that take a value other than any text or path."""
    options = [param for param in dropmargin.commands[command].params if isinstance(param, click.Option)]
    paths = [option for option in options if isinstance(option.type, click.Path)]
    flags = [option for option in options if option.is_flag]
    return {max(option.opts, key=len) for option in options if option not in [*paths, *flags]} - {"--missing-values"}


@pytest.mark.parametrize("command", ARGUMENTS)
def test_wrong_values_are_refused_before_anything_is_read_or_written(run, tmp_path, command):
    for name in ("data.svm", "test.svm", "model.safetensors"):
        (tmp_path / name).touch()
    before = sorted(tmp_path.iterdir())
    for option in sorted(options_with_values(command)):
        for value in WRONG[option]:
            done = run(command, *ARGUMENTS[command], f"{option}={value}", code=2)
            assert option in done.error, (option, value, done.error)
            if "-" in option[2:]:
                assert option[2:].replace("-", "_") not in done.error
            assert done.out == ""
    assert sorted(tmp_path.iterdir()) == before


def test_the_table_of_wrong_values_has_no_other_options():
    assert set(ARGUMENTS) == set(dropmargin.commands)
    assert set(WRONG) == set().union(*map(options_with_values, ARGUMENTS))


@pytest.mark.parametrize("command", sorted(ARGUMENTS.keys() - {"demo"}))
def test_a_missing_argument_is_wrong_usage(run, tmp_path, command):
    assert "Missing argument" in run(command, code=2).error
    assert list(tmp_path.iterdir()) == []


# Order and lists ------------------------------------------------------------------------------------------------------


def test_options_and_arguments_in_any_order(run, tables, tmp_path):
    run("train", "--noise", "0.3", "data.csv", "--target", "label", "a.safetensors", "-c", "2")
    run("train", "data.csv", "b.safetensors", "--target", "label", "--noise", "0.3", "-c", "2")
    assert load("a.safetensors")[-1].coef_.tolist() == load("b.safetensors")[-1].coef_.tolist()


def test_lists_are_given_by_commas_or_by_repeated_options(run, tmp_path):
    rows = [f"{i},{i % 3},{i % 5},{i % 2}" for i in range(20)]
    (tmp_path / "data.csv").write_text("\n".join(['a,"b, ""c""",d,y', *rows]) + "\n")
    names = []
    for options in (['--ignore=a,"b, ""c"""'], ["--ignore", "a", "--ignore", '"b, ""c"""']):
        run("train", "data.csv", "m.safetensors", "--target", "y", *options)
        names.append(load("m.safetensors")[0].get_feature_names_out().tolist())
    assert names == [["d"], ["d"]]
    small = ("cv", "data.csv", "--target", "y", "--folds", "2", "--quiet", "--json")
    first = run(*small, "--noises", "0.1,gaussian=1", "--cs", "0.1,1").json
    second = run(*small, "--noises", "0.1", "--cs", "0.1", "--noises", "gaussian=1", "--cs", "1").json
    assert first["noises"] == second["noises"]
    assert [level["noise"] for level in first["noises"]] == ["dropout=0.1", "gaussian=1"]
    done = run("predict", "data.csv", "m.safetensors", "--output", "label", "--output", "decision")
    assert done.out.startswith("label,decision\n")


# Combinations ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def tables(tmp_path):
    """Write a table and an svmlight file."""
    rows = [f"{i % 2 + i / 50},{'ab'[i % 2]},{i % 2}" for i in range(20)]
    (tmp_path / "data.csv").write_text("\n".join(["size,kind,label", *rows]) + "\n")
    (tmp_path / "data.svm").write_text("".join(f"{i % 2} 1:{i}\n" for i in range(20)))


@together(
    ("arguments", "message"),
    [
        (["train", "data.svm", "m.safetensors", "--target", "label"], "--target: this is for csv"),
        (["train", "data.svm", "m.safetensors", "--separator", ";"], "--separator: this is for csv, tsv files"),
        (["train", "data.svm", "m.safetensors", "--ignore", "size"], "--ignore: this is for csv"),
        (
            ["train", "data.csv", "m.safetensors", "--target", "label", "--zero-based"],
            "--zero-based: this is for svm",
        ),
        (
            ["train", "data.csv", "m.safetensors", "--target", "label", "--ignore", "label"],
            "--ignore label: --target names this column, too",
        ),
        (["train", "data.csv", "m.safetensors", "--target", "label", "--categorical", "label"], "--categorical label"),
        (["train", "data.csv", "m.safetensors", "--target", "label", "--text", "label"], "--text label"),
        (["train", "data.csv", "m.safetensors", "--target", "label", "--keep", "label"], "--keep label"),
        (["train", "data.svm", "m.safetensors", "--keep", "size"], "--keep: this is for csv"),
        (["train", "data.svm", "m.safetensors", "--skip-unlabelled"], "--skip-unlabelled: this is for csv"),
        (
            ["train", "data.csv", "m.safetensors", "--target", "label", "--ignore", "size", "--max-categories", "1"],
            "there is no column to learn from in 20 samples ('kind': it has 2 categories, more than 1)",
        ),
        (
            ["train", "data.csv", "m.safetensors", "--target", "label", "--noise", "gaussian=1", "--group-by", "_"],
            "--group-by is for dropout",
        ),
        (["cv", "data.csv", "--target", "label", "--folds", "11"], "--folds 11 is too many"),
        (["cv", "data.csv", "--target", "label", "--scoring", "neg_log_loss"], "--scoring: it needs probabilities"),
        (["stress", "data.csv", "data.csv", "--target", "label", "--folds", "11"], "--folds 11 is too many"),
        (
            ["stress", "data.csv", "data.csv", "--noise", "0.1", "--noises", "0.1,0.2"],
            "--noise and --noises cannot be combined",
        ),
        (["predict", "data.svm", "m.safetensors", "--separator", ";"], "--separator: this is for csv, tsv files"),
    ],
)
def test_options_that_do_not_fit_the_data_or_other_options(run, tables, tmp_path, arguments, message):
    if arguments[0] == "predict":
        run("train", "data.svm", "m.safetensors")
    before = sorted(tmp_path.iterdir())
    done = run(*arguments, code=2)
    assert message in done.error
    assert done.out == ""
    assert sorted(tmp_path.iterdir()) == before
