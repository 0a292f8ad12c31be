"""`save`, `load` and `describe`: fitted models in files."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy
import sklearn

from dropmargin.io.atomic import Path, write_atomically
from dropmargin.io.model import container
from dropmargin.io.model.descriptions import pack_object, plain_model, unpack_model
from dropmargin.io.model.values import ModelFormatError, check_entries, check_type
from dropmargin.typing import Array

_ENTRIES = ("written_by", "model", "summary", "data_hash")


def save(model: Any, path: Path, *, summary: Mapping[str, Any] | None = None, data_hash: str | None = None) -> None:
    """Save a fitted model as a safetensors file.

    The file is written atomically: if anything fails, an existing file is unchanged. The same model always gives the
    same bytes.

    Parameters
    ----------
    model : estimator
        A fitted classifier or regressor of dropmargin. Of a search over parameters, such as `DropoutSVCCV` or
        `sklearn.model_selection.GridSearchCV`, the refitted model is saved.
    path : str or path-like
        The file, with any name; ``.safetensors`` is the usual ending. A symbolic link is followed; an existing file
        keeps its permissions.
    summary : dict or None, default=None
        Plain data about the training, for `describe`.
    data_hash : str or None, default=None
        A hash of the training data, for `describe`.

    Raises
    ------
    ValueError
        If a file cannot hold the model, for example because its noise is a class of your own, or because it is a
        `Pipeline`.

    See Also
    --------
    load : Load the model.

    Examples
    --------
    >>> import dropmargin, tempfile, os
    >>> model = dropmargin.DropoutSVC().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> dropmargin.save(model, path)
    >>> dropmargin.load(path).predict([[2.5]])
    array([1])
    """
    arrays: dict[str, Array] = {}
    entries = {
        "written_by": versions(),
        "model": pack_object(plain_model(model), "", arrays),
        "summary": None if summary is None else _plain(summary),
        "data_hash": data_hash,
    }
    content = container.encode(entries, arrays)
    try:
        _unpack(entries, arrays)
    except ModelFormatError as error:
        raise ValueError(f"This {type(model).__name__} cannot be saved, as it could not be loaded: {error}.") from None
    write_atomically(path, [content])


def load(path: Path) -> Any:
    """Load a model, whose predictions are those of the saved one to the last bit.

    Loading runs no code from the file.

    Parameters
    ----------
    path : str or path-like
        A file written by `save`.

    Returns
    -------
    estimator
        The fitted classifier or regressor. Its ``history_`` is empty.

    Raises
    ------
    ModelFormatError
        If the file is not a model file, is damaged, or does not hold a valid model.

    See Also
    --------
    save : Save a model.

    Examples
    --------
    >>> import os, tempfile
    >>> from dropmargin import DropoutSVC, load, save
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> save(DropoutSVC().fit([[0.0], [1.0]], ["no", "yes"]), path)
    >>> load(path).predict([[0.9]]).tolist()
    ['yes']
    """
    return _read(path)[0]


def describe(path: Path) -> dict[str, Any]:
    """Return the description of a model file as plain data. The file is checked as by `load`.

    Parameters
    ----------
    path : str or path-like
        A file written by `save`.

    Returns
    -------
    dict
        With the keys ``format``, ``container``, ``bytes``, ``written_by``, ``model``, ``parameters``, ``fitted``,
        ``classes``, ``n_features``, ``columns``, ``feature_names``, ``summary`` and ``data_hash``. A noise or loss in
        ``parameters`` is ``{"class": name, "parameters": {...}, ...}``.
    """
    return load_described(path)[1]


def load_described(path: Path) -> tuple[Any, dict[str, Any]]:
    """Return the results of `load` and `describe`, and read the file once.

    Parameters
    ----------
    path : str or path-like
        A file written by `save`.

    Returns
    -------
    model : estimator
    description : dict
    """
    model, entries = _read(path)
    names = getattr(model, "feature_names_in_", None)
    return model, {
        "format": container.FORMAT,
        "container": "safetensors",
        "bytes": os.stat(path).st_size,
        "model": entries["model"]["class"],
        **{name: entries["model"][name] for name in ("parameters", "fitted")},
        "classes": model.classes_.tolist() if hasattr(model, "classes_") else None,
        "n_features": model.n_features_in_,
        "columns": [list(column) for column in getattr(model, "columns_", ())],
        "feature_names": None if names is None else [str(name) for name in names],
        **{name: entries[name] for name in ("written_by", "summary", "data_hash")},
    }


def versions() -> dict[str, str]:
    """Return the versions of dropmargin, Python and the libraries below dropmargin."""
    from dropmargin import __version__  # imports this module

    libraries = {"numpy": np.__version__, "scipy": scipy.__version__, "scikit-learn": sklearn.__version__}
    return {"dropmargin": __version__, "python": platform.python_version(), **libraries}


def _plain(summary: Mapping[str, Any]) -> Any:
    """Return a summary as JSON has it; NumPy's numbers become Python's."""
    try:
        return json.loads(json.dumps(summary, default=lambda value: value.item()))
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"summary must be plain data to be stored (numbers, strings, lists, dicts): {error}."
        ) from None


def _read(path: Path) -> tuple[Any, dict[str, Any]]:
    """Return the model and the JSON entries of a file."""
    try:
        entries, arrays = container.decode(path)
        return _unpack(entries, arrays), entries
    except (ModelFormatError, RecursionError) as error:
        raise ModelFormatError(f"{os.fspath(path)}: {str(error).removesuffix('.')}.") from None


def _unpack(entries: dict[str, Any], arrays: dict[str, Array]) -> Any:
    """Return the model of JSON entries and arrays, all checked."""
    check_entries(entries, "the file", _ENTRIES)
    for name, version in check_entries(entries["written_by"], "written_by", versions()).items():
        check_type(version, f"version of {name}", str)
    check_type(entries["data_hash"], "data_hash", str, type(None))
    check_type(entries["summary"], "summary", dict, type(None))
    return unpack_model(entries["model"], dict(arrays))
