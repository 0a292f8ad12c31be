"""Docstrings: every parameter and fitted attribute of the classifiers is documented, and all examples run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import dropmargin
from dropmargin import estimators, model_selection, noise

PLAIN = [getattr(estimators, name) for name in estimators.__all__]
PUBLIC = [getattr(package, name) for package in (estimators, model_selection, noise) for name in package.__all__]


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
    model = cls(missing="rescale").fit(frame, [0, 1, 0, 1] * 2)
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


@pytest.mark.parametrize("thing", PUBLIC, ids=lambda thing: thing.__name__)
def test_public_functions_and_methods_document_their_parameters(thing):
    functions = [thing]
    if inspect.isclass(thing):
        functions = [
            member
            for name, member in inspect.getmembers(thing, callable)
            if not name.startswith("_") and str(getattr(member, "__module__", "")).startswith("dropmargin")
        ]
    for function in functions:
        text = inspect.getdoc(function) or ""
        for name in inspect.signature(function).parameters:
            assert name == "self" or re.search(rf"^(\w+, )*{name}(, \w+)* : ", text, flags=re.MULTILINE), (
                function,
                name,
            )


# Checks of numpydoc that hold for all public objects. Left out: See Also and Examples of every method, descriptions of
# every return value, and the order of parameters, which are keyword-only.
CHECKS = {"GL03", "GL05", "GL06", "GL08", "PR01", "PR02", "PR04", "RT01", "SS01", "SS02", "SS03", "SS04", "YD01"}


def _public_objects():
    """Return the names of all public objects and of their methods."""
    names = [f"dropmargin.{name}" for name in dropmargin.__all__]
    names += ["dropmargin.dask.fit", "dropmargin.dask.predict", "dropmargin.streaming.fit"]
    names += [f"dropmargin.io.data.{name}" for name in ("read_data", "TableEncoder", "TextEncoder", "FrameEncoder")]
    for name in tuple(names):
        package, _, last = name.rpartition(".")
        thing = getattr(importlib.import_module(package), last)
        if inspect.isclass(thing):
            # A method without a docstring has that of its base class.
            own = [key for key, value in vars(thing).items() if inspect.isfunction(value) and value.__doc__]
            names += [f"{name}.{key}" for key in own if not key.startswith("_")]
    return names


@pytest.mark.parametrize("name", _public_objects())
def test_numpydoc_validates(name):
    validate = pytest.importorskip("numpydoc.validate").validate
    # A search documents its own parameters and names the class of the others.
    checks = CHECKS - {"PR01"} if name.endswith("CV") else CHECKS
    assert [error for error in validate(name)["errors"] if error[0] in checks] == []


@pytest.mark.parametrize("name", _modules_with_examples())
def test_examples_of_docstrings_run(name):
    if ".dask" in name:
        pytest.importorskip("dask")
    module = importlib.import_module(name.removesuffix(".__init__"))
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


def test_there_are_examples():
    """The test above would pass without any."""
    finder = doctest.DocTestFinder()
    for thing in [*PLAIN, dropmargin.DropoutSVCCV, dropmargin.noise_path, dropmargin.DropoutNoise]:
        assert any(test.examples for test in finder.find(thing))
