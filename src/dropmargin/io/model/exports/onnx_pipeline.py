"""Conversion of a fitted pipeline by skl2onnx: its steps as skl2onnx can convert them, and the inputs of the graph."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, StringTensorType
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from dropmargin.io.model.exports.onnx_converters import register
from dropmargin.io.model.preprocessing import KINDS, encoder_kind

_TARGET_OPSET = {"": 17, "ai.onnx.ml": 3}
_OUTPUTS = ("label", "decision", "probability")
# Words of two letters or more in the syntax of RE2, whose ``\w`` is ASCII only.
_RE2_WORD = r"[\p{L}\p{N}_]{2,}"
_SCALERS = (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler)


def convert_pipeline(pipeline: Pipeline, classifier: Any) -> Any:
    """Return the ONNX model of a fitted pipeline that ends with a classifier."""
    options: dict[int, dict[str, Any]] = {}
    prepared = [
        (name, _prepare(name, step, options, is_first=index == 0))
        for index, (name, step) in enumerate(pipeline.steps[:-1])
    ]
    is_regression = not hasattr(classifier, "classes_")
    register(classifier)
    prepared.append((pipeline.steps[-1][0], classifier))
    number = DoubleTensorType if classifier.coef_.dtype == np.float64 else FloatTensorType
    inputs = _inputs(pipeline[0], number)
    converted = convert_sklearn(Pipeline(prepared), "dropmargin", inputs, options=options, target_opset=_TARGET_OPSET)
    _restore_names(converted.graph, [name for name, _ in inputs], ("prediction",) if is_regression else _OUTPUTS)
    return converted


def _prepare(name: str, step: Any, options: dict[int, dict[str, Any]], *, is_first: bool) -> Any:
    """Return a step as skl2onnx can convert it, and add the options of its converter."""
    kind = encoder_kind(step)
    if kind is None:
        if type(step) not in _SCALERS:
            known = ", ".join(sorted([*KINDS, *(cls.__name__ for cls in _SCALERS)]))
            what = f"Step {name!r} ({type(step).__name__}) cannot be exported to ONNX"
            raise ValueError(
                f"{what}; supported are {known}. Export pipeline[-1], which takes the result of the steps."
            )
        return step
    if not is_first:
        raise ValueError(f"Step {name!r} cannot be exported to ONNX: a {kind} must be the first step.")
    if kind == "TextEncoder":
        step = _as_vectorizer(name, step)
        # The locale C is on every machine. Lower case of other than ASCII letters needs a locale of Unicode.
        is_ascii = all(word.isascii() for term in step.vocabulary_ for word in term)
        options[id(step)] = {"tokenexp": _RE2_WORD, "locale": "C" if is_ascii else "C.UTF-8"}
        return step
    register(step)
    if kind == "FrameEncoder":
        parts = [] if step.table_encoder_ is None else [(step.table_encoder_, list(step.column_kinds_))]
        parts += [(encoder, [encoder.column]) for encoder in step.text_encoders_]
        step = copy(step)
        step.parts = [(_prepare(name, part, options, is_first=True), columns) for part, columns in parts]
    return step


def _as_vectorizer(name: str, encoder: Any) -> Any:
    """Return the fitted vectorizer of scikit-learn that is equivalent to a `TextEncoder`; terms are tuples of words."""
    terms = {tuple(term.split(" ")): index for index, term in enumerate(encoder.terms_)}
    # The terms do not include stop words, so these matter only between the words of a longer term.
    if encoder.analyzer != "word" or (encoder.stop_words is not None and encoder.ngram_range[1] > 1):
        what = "analyzer" if encoder.analyzer != "word" else "stop_words"
        raise ValueError(
            f"Step {name!r} cannot be exported to ONNX: the operators cannot express {what}={getattr(encoder, what)!r}"
            f"{' with terms of several words' if what == 'stop_words' else ''}."
        )
    is_tfidf = encoder.idf_ is not None
    vectorizer = (TfidfVectorizer if is_tfidf else CountVectorizer)(
        lowercase=encoder.lowercase,
        ngram_range=(min(map(len, terms)), max(map(len, terms))),
        binary=encoder.weighting == "presence",
        dtype=np.float64,
    )
    vectorizer.vocabulary_, vectorizer.fixed_vocabulary_ = terms, True
    if is_tfidf:
        vectorizer.idf_ = encoder.idf_
    return vectorizer


def _inputs(first: Any, number: Any) -> list[tuple[str, Any]]:
    """Return the names and types of the inputs of the graph; ``number`` is the type of numbers."""
    kind = encoder_kind(first)
    if kind is None:
        return [("X", number([None, first.n_features_in_]))]
    if kind == "TextEncoder":
        return [(first.column or "X", StringTensorType([None, 1]))]
    kinds = first.column_kinds_ | dict.fromkeys(first.text if kind == "FrameEncoder" else (), "text")
    return [(name, (number if kind == "number" else StringTensorType)([None, 1])) for name, kind in kinds.items()]


def _restore_names(graph: Any, names: list[str], outputs: tuple[str, ...]) -> None:
    """Name the inputs like the columns and the outputs as documented, as skl2onnx changes names; drop unused inputs."""
    used = {name for node in graph.node for name in node.input}
    renamed = {}
    for given, name in zip(list(graph.input), names, strict=True):
        if given.name in used:
            renamed[given.name] = name
        else:
            graph.input.remove(given)
    taken = sorted(set(outputs) & set(renamed.values()))
    if taken:
        raise ValueError(f"The outputs of an ONNX model are named {', '.join(outputs)}, got columns {taken}.")
    renamed |= {result.name: name for result, name in zip(graph.output, outputs, strict=False)}
    for value in (*graph.input, *graph.output):
        value.name = renamed[value.name]
    for node in graph.node:
        for listed in (node.input, node.output):
            listed[:] = [renamed.get(name, name) for name in listed]
