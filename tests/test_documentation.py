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


@pytest.mark.parametrize("thing", PUBLIC)
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


def test_there_are_examples():
    """The test above would pass without any."""
    finder = doctest.DocTestFinder()
    for thing in [*PLAIN, dropmargin.DropoutSVCCV, dropmargin.noise_path, dropmargin.DropoutNoise]:
        assert any(test.examples for test in finder.find(thing))
