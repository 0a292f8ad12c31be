"""`save`, `load` and `describe`: fitted models in files."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy
import sklearn
from sklearn.pipeline import Pipeline

from dropmargin.io.atomic import Path, write_atomically
from dropmargin.io.model import container
from dropmargin.io.model.checks import ModelFormatError, check_fields, check_type, to_plain
from dropmargin.io.model.estimators import decode_classifier, encode_classifier, plain_model
from dropmargin.io.model.packing import decode_preprocessing, encode_preprocessing, encoder_kind
from dropmargin.typing import Array

_ENTRIES = ("written_by", "model", "preprocessing", "steps", "summary", "data_hash")


def save(model: Any, path: Path, *, summary: Mapping[str, Any] | None = None, data_hash: str | None = None) -> None:
    """Save a fitted model as a safetensors file.

    The file is written atomically: if anything fails, an existing file is unchanged. The same model always gives the
    same bytes.

    Parameters
    ----------
    model : estimator
        A fitted classifier of dropmargin, or a `Pipeline` of a `TableEncoder`, `TextEncoder` or `FrameEncoder` and such
        a classifier. Of a search over parameters, such as `sklearn.model_selection.GridSearchCV`, the refitted model is
        saved.
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
        If a file cannot hold the model, for example because its noise is a class of your own.

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
    model = getattr(model, "best_estimator_", model)
    steps, encoder, classifier = _split_pipeline(model) if isinstance(model, Pipeline) else (None, None, model)
    classifier_entries, arrays = encode_classifier(plain_model(classifier, "Model files"))
    entries = {
        "written_by": versions(),
        "model": classifier_entries,
        "preprocessing": None if encoder is None else encode_preprocessing(encoder, arrays),
        "steps": to_plain(steps, "steps"),
        "summary": to_plain(summary, "summary"),
        "data_hash": to_plain(data_hash, "data_hash"),
    }
    content = container.encode(entries, arrays)
    try:
        _decode_model(entries, arrays)
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
        The fitted classifier, or the `Pipeline` of an encoder and a classifier.

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
        ``classes``, ``n_features``, ``n_nonzero``, ``dtype``, ``feature_names``, ``preprocessing``, ``summary`` and
        ``data_hash``. A noise or loss in ``parameters`` is ``{"class": name, "parameters": {...}}``.
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
    classifier = model[-1] if isinstance(model, Pipeline) else model
    names = getattr(classifier, "feature_names_in_", None) if classifier is model else model[0].get_feature_names_out()
    return model, {
        "format": container.FORMAT,
        "container": "safetensors",
        "bytes": os.stat(path).st_size,
        "model": entries["model"]["class"],
        **{name: entries["model"][name] for name in ("parameters", "fitted")},
        "classes": classifier.classes_.tolist() if hasattr(classifier, "classes_") else None,
        "n_features": classifier.n_features_in_,
        "n_nonzero": int(np.count_nonzero(classifier.coef_)),
        "dtype": str(classifier.coef_.dtype),
        "feature_names": None if names is None else [str(name) for name in names],
        **{name: entries[name] for name in ("written_by", "preprocessing", "summary", "data_hash")},
    }


def versions() -> dict[str, str]:
    """Return the versions of dropmargin, Python and the libraries below dropmargin."""
    from dropmargin import __version__  # imports this module

    return {
        "dropmargin": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def _read(path: Path) -> tuple[Any, dict[str, Any]]:
    """Return the model and the JSON entries of a file."""
    try:
        entries, arrays = container.decode(path)
        return _decode_model(entries, arrays), entries
    except ModelFormatError as error:
        raise ModelFormatError(f"{os.fspath(path)}: {str(error).removesuffix('.')}.") from None


def _decode_model(entries: dict[str, Any], arrays: dict[str, Array]) -> Any:
    """Return the model of JSON entries and arrays, all checked."""
    check_fields(entries, "the file", _ENTRIES)
    for name, version in check_fields(entries["written_by"], "written_by", versions()).items():
        check_type(version, f"version of {name}", str)
    check_type(entries["data_hash"], "data_hash", str, type(None))
    check_type(entries["summary"], "summary", dict, type(None))
    arrays = dict(arrays)
    model = decode_classifier(entries["model"], arrays)
    if entries["preprocessing"] is not None:
        encoder = decode_preprocessing(entries["preprocessing"], arrays)
        n_features = len(encoder.get_feature_names_out())
        if n_features != model.n_features_in_:
            takes = f"its model takes {model.n_features_in_}"
            raise ModelFormatError(f"its preprocessing has {n_features} output features, and {takes}")
        model = _join_pipeline(entries["steps"], encoder, model)
    elif entries["steps"] is not None:
        raise ModelFormatError("it has the steps of a pipeline, but no preprocessing")
    if arrays:
        raise ModelFormatError(f"it has the array {next(iter(arrays))!r}, which its model does not use")
    return model


def _split_pipeline(pipeline: Pipeline) -> tuple[list[str], Any, Any]:
    """Return the names of the steps, the encoder and the classifier of a pipeline that a file can hold."""
    if len(pipeline.steps) != 2 or encoder_kind(pipeline.steps[0][1]) is None:
        steps = [type(step).__name__ for _, step in pipeline.steps]
        raise ValueError(
            f"A Pipeline can be saved if it is a TableEncoder, TextEncoder or FrameEncoder and a classifier, got "
            f"{steps}. Save the classifier alone, pipeline[-1], and the other steps by other means."
        )
    (first, encoder), (second, classifier) = pipeline.steps
    return [first, second], encoder, classifier


def _join_pipeline(steps: Any, encoder: Any, classifier: Any) -> Pipeline:
    names = [check_type(name, "the name of a step", str) for name in check_type(steps, "steps", list)]
    reserved = set(Pipeline([]).get_params(deep=False))
    if len(names) != 2 or names[0] == names[1] or any(not name or "__" in name or name in reserved for name in names):
        raise ModelFormatError("the steps of its pipeline must have two different names, without '__'")
    return Pipeline([(names[0], encoder), (names[1], classifier)])
