"""`save`, `load` and `describe`: models in files that are plain data, written atomically and checked when read."""

from __future__ import annotations

import os
import platform
import stat
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy
import sklearn
from sklearn.pipeline import Pipeline

from dropmargin.io.atomic import Path, write_atomically
from dropmargin.io.model import container
from dropmargin.io.model.container import Document
from dropmargin.io.model.estimators import decode_classifier, encode_classifier, plain_classifier
from dropmargin.io.model.preprocessing import decode_preprocessing, encode_preprocessing, is_encoder
from dropmargin.io.model.schema import ModelFormatError, fields, from_plain, items, text, to_plain

# Models with more numbers than this are archives.
_WIDE = 2**20
_ARCHIVE_ENDINGS = (".zip", ".dropmargin")
_FACTS = ("written_by", "model", "preprocessing", "steps", "summary", "data_hash")


def save(model: Any, path: Path, *, summary: Mapping[str, Any] | None = None, data_hash: str | None = None) -> None:
    """Save a fitted model as plain data: JSON, or a zip archive if the model is wide.

    The file is written whole or not at all: if anything fails, an older file of that name is as it was. The same model
    always gives the same bytes.

    Parameters
    ----------
    model : a fitted classifier of dropmargin, or a Pipeline of a TableEncoder or TextEncoder and such a classifier
        Of a search over parameters, such as `sklearn.model_selection.GridSearchCV`, the refitted model is saved.
    path : str or path-like
        ``.zip`` and ``.dropmargin`` always give an archive; with any other ending a model of more than 1 MB of numbers
        does. A symbolic link is followed; an existing file keeps its permissions.
    summary : dict of plain data or None, default=None
        Whatever the file is to tell of the training; `describe` returns it.
    data_hash : str or None, default=None
        A hash of the training data; `describe` returns it.
    """
    document = _to_document(model, summary, data_hash)
    specs = container.describe_arrays(document)
    try:
        _from_document(document)
    except ModelFormatError as error:
        raise ValueError(
            f"This {type(model).__name__} cannot be saved, since it could not be loaded: {error}."
        ) from None
    wide = sum(spec.n_bytes for spec in specs) > _WIDE
    as_zip = wide or os.fspath(path).lower().endswith(_ARCHIVE_ENDINGS)
    write_atomically(path, container.write(document, specs, as_zip=as_zip))


def load(path: Path) -> Any:
    """Return the model of a file, which predicts as the saved one did, to the last bit.

    No code is run from a file, whatever it says. Anything wrong in it is a `ModelFormatError`.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    The fitted classifier, or the Pipeline of an encoder and a classifier.
    """
    return _read(path)[0]


def describe(path: Path) -> dict[str, Any]:
    """Return what a file says of its model, as plain data; the file is checked as in `load`.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    dict with the keys ``format``, ``container``, ``bytes``, ``written_by``, ``model``, ``parameters``, ``fitted``,
    ``classes``, ``n_features``, ``n_nonzero``, ``dtype``, ``feature_names``, ``preprocessing``, ``summary`` and
    ``data_hash``. ``parameters`` are as the file has them: a noise is ``{"noise": name, "parameters": {...}}``.
    """
    return load_described(path)[1]


def load_described(path: Path) -> tuple[Any, dict[str, Any]]:
    """Return what `load` and what `describe` return, and read the file once."""
    model, document, kind = _read(path)
    classifier = model[-1] if isinstance(model, Pipeline) else model
    facts = from_plain(document.facts, "facts")
    names = getattr(classifier, "feature_names_in_", None) if classifier is model else model[0].get_feature_names_out()
    return model, {
        "format": container.VERSION,
        "container": kind,
        "bytes": os.stat(path).st_size,
        "written_by": facts["written_by"],
        "model": facts["model"]["class"],
        "parameters": facts["model"]["parameters"],
        "fitted": facts["model"]["fitted"],
        "classes": classifier.classes_.tolist(),
        "n_features": classifier.n_features_in_,
        "n_nonzero": int(np.count_nonzero(classifier.coef_)),
        "dtype": str(classifier.coef_.dtype),
        "feature_names": None if names is None else [str(name) for name in names],
        "preprocessing": facts["preprocessing"],
        "summary": facts["summary"],
        "data_hash": facts["data_hash"],
    }


def _to_document(model: Any, summary: Mapping[str, Any] | None, data_hash: str | None) -> Document:
    if summary is not None and not isinstance(summary, Mapping):
        raise ValueError(f"summary must be a dict of plain data or None, got {summary!r}.")
    if data_hash is not None and not isinstance(data_hash, str):
        raise ValueError(f"data_hash must be a string or None, got {data_hash!r}.")
    model = getattr(model, "best_estimator_", model)
    steps, encoder, classifier = None, None, model
    if isinstance(model, Pipeline):
        steps, encoder, classifier = _split_pipeline(model)
    facts, arrays = encode_classifier(plain_classifier(classifier))
    preprocessing, more = (None, {}) if encoder is None else encode_preprocessing(encoder)
    return Document(
        {
            "written_by": versions(),
            "model": facts,
            "preprocessing": preprocessing,
            "steps": to_plain(steps, "steps"),
            "summary": to_plain(summary, "summary"),
            "data_hash": to_plain(data_hash, "data_hash"),
        },
        arrays | more,
    )


def _from_document(document: Document) -> Any:
    facts = fields(document.facts, "the file", _FACTS)
    fields(facts["written_by"], "written_by", versions())
    for name, found in facts["written_by"].items():
        text(found, f"version of {name}")
    if facts["data_hash"] is not None:
        text(facts["data_hash"], "data_hash")
    if facts["summary"] is not None and type(facts["summary"]) is not dict:
        raise ModelFormatError("summary must be an object or null")
    from_plain(facts["summary"], "summary")
    arrays = dict(document.arrays)
    model = decode_classifier(facts["model"], arrays)
    if facts["preprocessing"] is not None:
        encoder = decode_preprocessing(facts["preprocessing"], arrays)
        n_columns = len(encoder.get_feature_names_out())
        if n_columns != model.n_features_in_:
            raise ModelFormatError(
                f"its preprocessing makes {n_columns} features, its model takes {model.n_features_in_}"
            )
        model = _join_pipeline(facts["steps"], encoder, model)
    elif facts["steps"] is not None:
        raise ModelFormatError("it has steps of a pipeline, but no preprocessing")
    if arrays:
        raise ModelFormatError(f"it has an array {next(iter(arrays))!r}, which nothing uses")
    return model


def _read(path: Path) -> tuple[Any, Document, str]:
    try:
        document, kind = container.read(_content(path))
        return _from_document(document), document, kind
    except ModelFormatError as error:
        raise ModelFormatError(f"{os.fspath(path)}: {error}.") from None


def _content(path: Path) -> bytes:
    """Return the bytes of an ordinary file of possible size; a pipe or a device might never end."""
    with open(path, "rb", opener=_open_at_once) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ModelFormatError("it is not an ordinary file")
        container.kind_of(file.read(4), found.st_size)
        file.seek(0)
        return file.read(found.st_size)


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting: a named pipe would wait for its writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def versions() -> dict[str, str]:
    """Return the versions of this library and of those under it."""
    return {
        "dropmargin": _own_version(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def _own_version() -> str:
    from dropmargin import __version__  # which imports this module

    return __version__


# Pipelines ----------------------------------------------------------------------------------------------------------


def _split_pipeline(pipeline: Pipeline) -> tuple[list[str], Any, Any]:
    """Return names of the steps, the encoder and the classifier of a pipeline that a file can hold."""
    if len(pipeline.steps) != 2 or not is_encoder(pipeline.steps[0][1]):
        steps = [type(step).__name__ for _, step in pipeline.steps]
        raise ValueError(
            f"A Pipeline to be saved must be a TableEncoder or TextEncoder, and a classifier; got {steps}. Save the "
            "classifier alone, pipeline[-1], and keep other steps by other means."
        )
    (first, encoder), (second, classifier) = pipeline.steps
    return [first, second], encoder, classifier


def _join_pipeline(steps: Any, encoder: Any, classifier: Any) -> Pipeline:
    names = [text(name, "a step's name") for name in items(steps, "steps")]
    reserved = set(Pipeline([]).get_params(deep=False))
    if len(set(names)) != 2 or any(not name or "__" in name or name in reserved for name in names):
        raise ModelFormatError("the steps of its pipeline must have two different names, without '__'")
    return Pipeline([(names[0], encoder), (names[1], classifier)])
