"""Conversion of a fitted pipeline by skl2onnx: its steps as skl2onnx can convert them, and the inputs of the graph."""

from __future__ import annotations

from copy import copy
from traceback import walk_tb
from typing import Any

import numpy as np
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)

from dropmargin.io.model.onnx_converters import register
from dropmargin.io.model.packing import KINDS, encoder_kind

_TARGET_OPSET = {"": 17, "ai.onnx.ml": 3}
_OUTPUTS = ("label", "decision", "probability")
_WORD = r"(?u)\b\w\w+\b"
# The same words in the syntax of RE2, whose ``\w`` is ASCII only.
_RE2_WORD = r"[\p{L}\p{N}_]{2,}"
# Steps of scikit-learn whose graphs agree with it, with numbers in double precision and in single precision.
_DOUBLE: set[type] = {StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler, OneHotEncoder, FunctionTransformer}
_DOUBLE |= {CountVectorizer, TfidfVectorizer, TfidfTransformer}
_SINGLE: set[type] = {SimpleImputer, Normalizer, PolynomialFeatures}
# What skl2onnx raises for a step that it cannot convert.
_CONVERSION_ERRORS = (RuntimeError, NotImplementedError, ValueError, TypeError, AssertionError, LookupError)


def convert_pipeline(pipeline: Pipeline, classifier: Any) -> Any:
    """Return the ONNX model of a fitted pipeline that ends with a classifier."""
    steps = _Steps()
    prepared = [
        (name, steps.prepare(name, step, is_first=index == 0)) for index, (name, step) in enumerate(pipeline.steps[:-1])
    ]
    is_regression = not hasattr(classifier, "classes_")
    register(classifier)
    prepared.append((pipeline.steps[-1][0], classifier))
    is_double = steps.is_double and classifier.coef_.dtype == np.float64
    inputs = _inputs(pipeline, DoubleTensorType if is_double else FloatTensorType)
    try:
        converted = convert_sklearn(
            Pipeline(prepared), "dropmargin", inputs, options=steps.options, target_opset=_TARGET_OPSET
        )
    except _CONVERSION_ERRORS as error:
        raise ValueError(f"{steps.failed(error)} cannot be exported to ONNX: {str(error).splitlines()[0]}") from error
    _restore_names(converted.graph, [name for name, _ in inputs], ("prediction",) if is_regression else _OUTPUTS)
    return converted


# Steps --------------------------------------------------------------------------------------------------------------


class _Steps:
    """The steps of a pipeline as skl2onnx can convert them, the options of their converters, and their names."""

    def __init__(self) -> None:
        self.options: dict[int, dict[str, Any]] = {}
        self.is_double = True
        self._names: dict[int, str] = {}

    def prepare(self, name: str, step: Any, *, is_first: bool = False) -> Any:
        """Return a step as skl2onnx can convert it; ``name`` includes the names of the steps around it."""
        if isinstance(step, str) or step is None:  # "passthrough" or "drop"
            return step
        if isinstance(step, Pipeline):
            return Pipeline([(inner, self.prepare(f"{name}.{inner}", part)) for inner, part in step.steps])
        if isinstance(step, ColumnTransformer | FeatureUnion):
            listed = "transformers_" if isinstance(step, ColumnTransformer) else "transformer_list"
            parts = [
                (inner, self.prepare(f"{name}.{inner}", part), *columns)
                for inner, part, *columns in getattr(step, listed)
            ]
            step = copy(step)
            setattr(step, listed, parts)
            return step
        kind = encoder_kind(step)
        if kind in ("TableEncoder", "FrameEncoder") and not is_first:
            raise ValueError(f"Step {name!r} cannot be exported to ONNX: a {kind} must be the first step.")
        if kind == "FrameEncoder":
            register(step)
            parts = [] if step.table_encoder_ is None else [(step.table_encoder_, list(step.column_kinds_))]
            parts += [(encoder, [encoder.column]) for encoder in step.text_encoders_]
            step = copy(step)
            step.parts = [(self.prepare(name, part, is_first=True), columns) for part, columns in parts]
            return step
        if kind == "TableEncoder":
            register(step)
        else:
            step = _as_vectorizer(step) if kind == "TextEncoder" else step
            _check_step(name, step)
        if isinstance(step, CountVectorizer):  # TfidfVectorizer is a subclass
            step, options = _prepare_vectorizer(step)
            self.options[id(step)] = options
        self.is_double &= type(step) not in _SINGLE
        self._names[id(step)] = name
        return step

    def failed(self, error: BaseException) -> str:
        """Return the step whose converter raised an error, for a message."""
        operators = [frame.f_locals.get("operator") for frame, _ in walk_tb(error.__traceback__)]
        found = [self._names.get(id(getattr(operator, "raw_operator", None))) for operator in operators]
        names = [name for name in found if name is not None]
        return f"Step {names[-1]!r}" if names else f"The model with the steps {list(self._names.values())}"


def _check_step(name: str, step: Any) -> None:
    """Refuse steps whose graph would not agree with scikit-learn."""
    if type(step) not in _DOUBLE | _SINGLE:
        known = ", ".join(sorted([*KINDS, *(cls.__name__ for cls in _DOUBLE | _SINGLE)]))
        raise ValueError(f"Step {name!r} ({type(step).__name__}) cannot be exported to ONNX; supported are {known}.")
    allowed: dict[str, Any] = {"sublinear_tf": False, "add_indicator": False}
    if isinstance(step, CountVectorizer):
        allowed |= {"analyzer": "word", "token_pattern": _WORD}
        allowed |= dict.fromkeys(("tokenizer", "preprocessor", "strip_accents"))
        allowed |= {"stop_words": None} if step.ngram_range[1] > 1 else {}
    for parameter, value in allowed.items():
        if getattr(step, parameter, value) != value:
            raise ValueError(
                f"Step {name!r} cannot be exported to ONNX: the operators cannot express "
                f"{parameter}={getattr(step, parameter)!r} of {type(step).__name__}."
            )


def _as_vectorizer(encoder: Any) -> Any:
    """Return the fitted vectorizer of scikit-learn that is equivalent to a `TextEncoder`."""
    is_tfidf = encoder.idf_ is not None
    vectorizer = (TfidfVectorizer if is_tfidf else CountVectorizer)(
        lowercase=encoder.lowercase,
        ngram_range=tuple(encoder.ngram_range),
        binary=encoder.weighting == "presence",
        # The terms do not include stop words, so these matter only between the words of a longer term.
        stop_words=encoder.stop_words if encoder.ngram_range[1] > 1 else None,
        analyzer=encoder.analyzer,
        dtype=np.float64,
    )
    vectorizer.vocabulary_ = {term: index for index, term in enumerate(encoder.terms_)}
    vectorizer.fixed_vocabulary_ = True
    if is_tfidf:
        vectorizer.idf_ = encoder.idf_
    return vectorizer


def _prepare_vectorizer(vectorizer: Any) -> tuple[Any, dict[str, Any]]:
    """Return a vectorizer whose terms are tuples of words, and the options of its converter."""
    terms = {tuple(term.split(" ")): index for term, index in vectorizer.vocabulary_.items()}
    vectorizer = copy(vectorizer)
    vectorizer.vocabulary_ = terms
    lengths = [len(term) for term in terms]
    vectorizer.ngram_range = min(lengths), max(lengths)
    # The locale C is on every machine. Lower case of other than ASCII letters needs a locale of Unicode.
    is_ascii = all(word.isascii() for term in terms for word in term)
    return vectorizer, {"tokenexp": _RE2_WORD, "locale": "C" if is_ascii else "C.UTF-8"}


# Inputs -------------------------------------------------------------------------------------------------------------


def _inputs(pipeline: Pipeline, number: Any) -> list[tuple[str, Any]]:
    """Return the names and types of the inputs of the graph; ``number`` is the type of numbers."""
    first = pipeline[0]
    if encoder_kind(first) in ("TableEncoder", "FrameEncoder"):
        is_text = {name: kind == "category" for name, kind in first.column_kinds_.items()}
        is_text |= dict.fromkeys(getattr(first, "text", ()), True)
    elif isinstance(first, ColumnTransformer) and hasattr(first, "feature_names_in_"):
        is_text = _text_columns(first)
    else:
        kind = StringTensorType if _takes_text(first, 0) else number
        return [(getattr(first, "column", None) or "X", kind([None, getattr(first, "n_features_in_", 1)]))]
    return [(name, (StringTensorType if text else number)([None, 1])) for name, text in is_text.items()]


def _takes_text(step: Any, index: int) -> bool:
    """Return whether a fitted transformer takes strings in a column."""
    if isinstance(step, Pipeline | FeatureUnion):
        return _takes_text(step.steps[0][1] if isinstance(step, Pipeline) else step.transformer_list[0][1], index)
    if encoder_kind(step) == "TextEncoder" or isinstance(step, CountVectorizer):
        return True
    learned = getattr(step, "categories_", None) or getattr(step, "statistics_", None)
    return learned is not None and np.asarray(learned[index]).dtype.kind in "OU"


def _text_columns(transformer: ColumnTransformer) -> dict[str, bool]:
    """Return for each column of a data frame whether a fitted `ColumnTransformer` takes it as strings."""
    names = transformer.feature_names_in_
    is_text = dict.fromkeys(names.tolist(), False)
    for _, step, columns in transformer.transformers_:
        has_names = not isinstance(columns, slice) and np.asarray(columns).dtype.kind in "UO"
        for index, name in enumerate(np.atleast_1d(columns if has_names else names[columns])):
            is_text[name] |= not isinstance(step, str) and _takes_text(step, index)
    return is_text


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
