"""Docstrings, the code and commands of the pages, and the page of errors: what they say is so, and runs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import shlex
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import dropmargin
from dropmargin import DropoutLogisticRegressionCV, DropoutSVC, PoissonNoise, estimators, load, model_selection
from dropmargin.cli import commands

PLAIN = [getattr(estimators, name) for name in estimators.__all__]


def _modules_with_examples():
    """Return the modules that have examples, found without an import."""
    root = Path(dropmargin.__file__).parent
    paths = [path for path in root.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8")]
    return [".".join(("dropmargin", *path.relative_to(root).with_suffix("").parts)) for path in sorted(paths)]


def _documented(cls, section):
    """Return the names that a section of a class's docstring documents."""
    text = inspect.getdoc(cls)
    found = re.search(rf"^{section}\n-+\n(.*?)(?=\n\n\S[^\n]*\n---|\Z)", text, flags=re.DOTALL | re.MULTILINE)
    entries = re.findall(r"^(\w[\w, *]*?)(?: :.*)?$", found[1], flags=re.MULTILINE)
    return {name for entry in entries for name in entry.split(", ")}


@pytest.mark.parametrize("cls", PLAIN)
def test_parameters_and_fitted_attributes_are_documented(cls):
    assert _documented(cls, "Parameters") == set(cls().get_params())
    # More rows than coefficients, which the deviation of the residuals of a regressor needs.
    frame = pytest.importorskip("pandas").DataFrame(np.tile(np.eye(4), (2, 1)), columns=list("abcd"))
    model = cls(missing="rescale", conformal=True)
    if "probability" in model.get_params():
        model.set_params(probability="isotonic")
    model.fit(frame, [0, 1, 0, 1] * 2)
    names = set(vars(model)) | set(vars(clone(model).set_params(missing="conditional").fit(frame, [0, 1, 0, 1] * 2)))
    assert _documented(cls, "Attributes") == {name for name in names if name.endswith("_")}


@pytest.mark.parametrize("cls", [getattr(model_selection, name) for name in model_selection.__all__ if "CV" in name])
def test_a_search_documents_its_own_parameters_and_names_the_class_of_the_others(cls):
    plain = cls._plain_class
    own = cls().get_params().keys() - (plain().get_params().keys() - {"n_jobs", "verbose"})
    assert _documented(cls, "Parameters") == own
    assert f"not listed here are those of `{plain.__name__}`" in inspect.getdoc(cls)
    model = cls(noises=[0, 0.5], Cs=[0.1, 1.0], cv=2).fit(np.eye(8), [0, 1] * 4)
    assert _documented(cls, "Attributes") - {"feature_names_in_"} == {
        name for name in vars(model) if name.endswith("_")
    }


# Every check of numpydoc holds for every public object and method, but for these.
NOT_CHECKED = {
    "ES01",  # a summary of one sentence is enough where there is no more to say
    "GL01",  # the summary is on the line of the quotes, which earlier versions of numpydoc refuse
    "PR03",  # parameters that estimators share are declared in base classes, and documented in the order of importance
    "RT02",  # return values have names, as in scikit-learn
}
# Related objects and examples are in the docstring of the class.
NOT_CHECKED_OF_METHODS = {"EX01", "SA01"}
# A search documents its own parameters and names the class of the others: tested above.
NOT_CHECKED_OF_SEARCHES = {"PR01"}

MEMBERS = (property, classmethod, staticmethod)


def _public_objects():
    """Return the names of all public objects, and of their methods and properties where these are documented."""
    names = [f"dropmargin.{name}" for name in dropmargin.__all__]
    names += ["dropmargin.dask.fit", "dropmargin.dask.predict", "dropmargin.streaming.fit"]
    names += [f"dropmargin.io.data.{name}" for name in ("read_data", "read_chunks")]
    members = set()
    for name in names:
        package, _, last = name.rpartition(".")
        thing = getattr(importlib.import_module(package), last)
        for key in dir(thing) if inspect.isclass(thing) else ():
            # A method without a docstring has that of its base class.
            owners = [cls for cls in thing.__mro__ if getattr(vars(cls).get(key), "__doc__", None)]
            is_member = any(callable(vars(cls).get(key)) or isinstance(vars(cls).get(key), MEMBERS) for cls in owners)
            if not key.startswith("_") and is_member and owners[0].__module__.startswith("dropmargin"):
                members.add(f"{owners[0].__module__}.{owners[0].__qualname__}.{key}")
    return names, sorted(members)


OBJECTS, METHODS = _public_objects()


@pytest.mark.parametrize("name", OBJECTS + METHODS)
def test_numpydoc_validates(name):
    validate = pytest.importorskip("numpydoc.validate").validate
    left_out = NOT_CHECKED | (NOT_CHECKED_OF_METHODS if name in METHODS else set())
    left_out |= NOT_CHECKED_OF_SEARCHES if name.endswith("CV") else set()
    assert [error for error in validate(name)["errors"] if error[0] not in left_out] == []


def test_the_reference_lists_every_public_object():
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^   ([\w.]+)$", page, flags=re.MULTILINE))
    assert listed == {re.sub(r"^dropmargin\.(io\.data\.)?", "", name) for name in OBJECTS}


@pytest.mark.parametrize("name", _modules_with_examples())
def test_examples_of_docstrings_run(name):
    for package in ("dask", "torch"):
        if f".{package}" in name:
            pytest.importorskip(package)
    module = importlib.import_module(name.removesuffix(".__init__"))
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    if "```python" in page.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.filterwarnings("ignore::dropmargin.errors.ParameterWarning")
def test_the_snippets_of_a_page_run(name, tmp_path, monkeypatch, draw_in_memory):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "docs" / "customers.csv", tmp_path)  # the table of first_model.md
    text = (ROOT / name).read_text(encoding="utf-8")
    scope: dict = {"__name__": "__main__"}
    blocks = list(re.finditer(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE))
    assert len(blocks) == text.count("```python")
    for block in blocks:
        first = text[: block.start(1)].count("\n")
        exec(compile("\n" * first + block[1], name, "exec"), scope)  # the lines of errors are those of the page


# Commands -------------------------------------------------------------------------------------------------------------


def _commands(name):
    """Return the arguments of the commands of ``dropmargin`` that a page prints, each on a line of its own."""
    text = (ROOT / name).read_text(encoding="utf-8")
    lines = re.findall(
        r"^ {4}dropmargin ((?:train|cv|predict|explain|evaluate|stress|info|export) .*)$", text, re.MULTILINE
    )
    return [shlex.split(line.split(" > ")[0], comments=True) for line in lines]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        (page.name, command)
        for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
        for command in _commands(page)
    ],
)
def test_the_options_of_a_printed_command_exist(name, command):
    first, *rest = command
    context = commands.dropmargin.commands[first].make_context(first, rest)  # a wrong value is an exception
    assert context.args == []


def test_the_commands_of_the_readme_run(run, tmp_path):
    for name in ("customers.csv", "new.csv"):
        shutil.copy(ROOT / "docs" / "customers.csv", tmp_path / name)
    for command in _commands("README.md"):
        run(*command)
    assert set((tmp_path / "labels.csv").read_text().split()) == {"label", "yes", "no"}


def test_the_commands_of_the_first_page_run(run, tmp_path):
    shutil.copy(ROOT / "docs" / "customers.csv", tmp_path)
    outputs = [run(*command).out for command in _commands("docs/first_model.md")]
    assert "chosen: TableClassifier" in outputs[0]
    assert "visits" in outputs[1]
    assert len((tmp_path / "labels.csv").read_text().split()) == 201


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
