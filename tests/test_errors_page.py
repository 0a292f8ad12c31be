"""docs/errors.md: every heading is the text of an error or warning that the library raises today."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from dropmargin import DropoutLogisticRegressionCV, DropoutSVC, PoissonNoise, load

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"
HEADINGS = re.findall(r"^### (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
Y = (X[:, 0] > 0).astype(int)
WITH_NAN = np.where(np.arange(120).reshape(40, 3) == 0, np.nan, X)


def load_other_file(folder):
    (folder / "model.safetensors").write_bytes(b"not a model")
    load(folder / "model.safetensors")


IN_PYTHON = {
    "Input X contains NaN": lambda folder: DropoutSVC().fit(WITH_NAN, Y),
    "... did not converge: stopped after max_iter=... iterations": lambda folder: DropoutSVC(max_iter=1).fit(X, Y),
    "The chosen C=... is the largest of Cs": lambda folder: DropoutLogisticRegressionCV(
        noises=[0.1], Cs=[0.001, 0.01, 0.1], scoring="neg_log_loss"
    ).fit(X, Y),
    "X has values up to ... in feature ..., whose squares overflow": lambda folder: DropoutSVC().fit(X * 1e200, Y),
    "could not convert string to float": lambda folder: DropoutSVC().fit([["red"], ["blue"]], [0, 1]),
    "Unknown label type: continuous": lambda folder: DropoutSVC().fit(X, X[:, 0]),
    "... needs samples of at least 2 classes": lambda folder: DropoutSVC().fit(X, np.zeros(40)),
    "This 'DropoutSVC' has no attribute 'predict_proba'": lambda folder: DropoutSVC().fit(X, Y).predict_proba(X),
    "PoissonNoise needs X >= 0": lambda folder: DropoutSVC(noise=PoissonNoise()).fit(X, Y),
    "missing=... needs statistics of the training data": lambda folder: (
        DropoutSVC().fit(X, Y).set_params(missing="rescale").predict(X)
    ),
    "X has ... features, but ... is expecting ... features": lambda folder: DropoutSVC().fit(X, Y).predict(X[:, :2]),
    "... it is not a model file of dropmargin": load_other_file,
}

# Exit code and command.
ON_THE_COMMAND_LINE = {
    "--target must name the column of the labels": (2, "train table.csv"),
    "there is no column ...": (1, "train table.csv --target lable"),
    "... of ... rows have no label": (1, "train unlabelled.csv --target label"),
    "Expected ... columns, got ...": (1, "train short.csv --target label"),
    "the labels are such as ..., not numbers": (1, "train table.csv --target label --task numbers"),
    "the format of ... is not known": (2, "train table.unknown"),
    "... is a model of tables or text, and the data are read as svmlight": (1, "predict rows.svm model.safetensors"),
    "... exists (--force replaces a file)": (2, "train table.csv rows.svm --target label"),
}


def assert_matches(heading, messages):
    pattern = ".*".join(re.escape(part) for part in heading.split("..."))
    assert any(re.search(pattern, message, re.DOTALL) for message in messages), (heading, messages)


def test_every_heading_is_tested():
    assert [*IN_PYTHON, *ON_THE_COMMAND_LINE, "the package ... is not installed"] == HEADINGS


@pytest.mark.parametrize("heading", IN_PYTHON)
def test_messages_in_python(heading, tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            IN_PYTHON[heading](tmp_path)
        except (ValueError, AttributeError) as error:
            assert_matches(heading, [str(error)])
        else:
            assert_matches(heading, [str(warning.message) for warning in caught])


@pytest.mark.parametrize("heading", ON_THE_COMMAND_LINE)
def test_messages_on_the_command_line(heading, run, tmp_path):
    lines = [f"{a:.3f},{b:.3f},{'yn'[c]}" for (a, b, _), c in zip(X, Y, strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(["a,b,label", *lines]) + "\n")
    (tmp_path / "table.unknown").write_text("1 1:1\n")
    (tmp_path / "unlabelled.csv").write_text("a,b,label\n1,2,y\n2,3,\n")
    (tmp_path / "short.csv").write_text("a,b,label\n1,2\n")
    (tmp_path / "rows.svm").write_text("1 1:1\n")
    code, command = ON_THE_COMMAND_LINE[heading]
    if command.startswith("predict"):
        run(
            "train",
            "table.csv",
            "model.safetensors",
            "--target",
            "label",
            "--basis",
            "linear",
            "--noise",
            "0.1",
            "-c",
            "1",
        )
    assert_matches(heading, [run(*command.split(), code=code).error])
