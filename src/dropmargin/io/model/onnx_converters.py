"""Converters of skl2onnx for the models of dropmargin and for `TableEncoder`.

A classifier becomes ordinary ONNX operators in the precision of its coefficients, because skl2onnx's own linear
classifiers compute in single precision and return either scores or probabilities.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from onnx import TensorProto
from onnx.helper import np_dtype_to_tensor_dtype
from skl2onnx import update_registered_converter
from skl2onnx._parse import _parse_sklearn
from skl2onnx.common.data_types import (
    BooleanTensorType,
    DoubleTensorType,
    FloatTensorType,
    Int64TensorType,
    StringTensorType,
)

from dropmargin.io.model.exports import is_multinomial, is_one_vs_one
from dropmargin.typing import Array


def register(step: Any) -> None:
    """Register the converter of the class of a model or an encoder with skl2onnx."""
    options = None
    if hasattr(step, "text_encoders_"):  # a FrameEncoder has no operator of its own, but those of its parts
        parse, convert = _parse_frame_encoder, _convert_table_encoder
    elif hasattr(step, "column_kinds_"):
        parse, convert = _parse_table_encoder, _convert_table_encoder
    elif hasattr(step, "classes_"):
        parse, convert = _parse_model, _convert_classifier
        options = {"zipmap": [True, False]}  # skl2onnx sets it for every classifier; it has no effect here
    else:
        parse, convert = _parse_model, _convert_regressor
    name = f"Dropmargin{type(step).__name__}"
    update_registered_converter(type(step), name, _keep_types, convert, parser=parse, options=options)


def _declare(scope: Any, model: Any, inputs: list[Any], outputs: dict[str, Any]) -> list[Any]:
    """Declare the operator of a model or an encoder, with the names and types of its outputs."""
    operator = scope.declare_local_operator(f"Dropmargin{type(model).__name__}", model)
    operator.inputs = inputs
    for name, kind in outputs.items():
        operator.outputs.append(scope.declare_local_variable(name, kind))
    return operator.outputs


def _table_columns(encoder: Any) -> list[tuple[str, ...] | None]:
    """Return the categories of each column of a `TableEncoder`, None for a column of numbers."""
    for column in encoder._columns:
        if column.kind == "date":
            raise ValueError(f"Column {column.name!r} of the TableEncoder holds dates, which ONNX cannot parse.")
    return [None if column.kind == "number" else column.parts for column in encoder._columns]


def _keep_types(operator: Any) -> None:
    """Leave the types of the outputs as the parsers declare them."""


class _Graph:
    """Adds operators to a graph of skl2onnx; each method returns the name of the result."""

    def __init__(self, scope: Any, container: Any) -> None:
        self._scope = scope
        self._container = container

    def add(self, operator: str, *inputs: str, domain: str = "", output: str | None = None, **attributes: Any) -> str:
        """Add an operator; ``output`` is the name of the result, if it has one already."""
        name = output or self._scope.get_unique_variable_name(operator.lower())
        self._container.add_node(operator, list(inputs), [name], op_domain=domain, **attributes)
        return name

    def constant(self, array: Array) -> str:
        name = self._scope.get_unique_variable_name("constant")
        is_text = array.dtype.kind in "UO"
        kind = TensorProto.STRING if is_text else np_dtype_to_tensor_dtype(array.dtype)
        content = [item.encode() for item in array.tolist()] if is_text else array.ravel()
        self._container.add_initializer(name, kind, list(array.shape), content)
        return name

    def cast(self, name: str, dtype: Any) -> str:
        return self.add("Cast", name, to=np_dtype_to_tensor_dtype(np.dtype(dtype)))


# Classifiers --------------------------------------------------------------------------------------------------------


def _parse_model(scope: Any, model: Any, inputs: list[Any], custom_parsers: Any = None) -> list[Any]:
    """Declare ``label``, ``decision`` and, if scores are log-odds, ``probability``; ``prediction`` of a regressor."""
    number = FloatTensorType if model.coef_.dtype == np.float32 else DoubleTensorType
    if not hasattr(model, "classes_"):
        return _declare(scope, model, inputs, {"prediction": number([None])})
    n_classes = len(model.classes_)
    labels = {"i": Int64TensorType, "u": Int64TensorType, "f": DoubleTensorType, "b": BooleanTensorType}
    types = {
        "label": labels.get(model.classes_.dtype.kind, StringTensorType)([None]),
        "decision": number([None] if n_classes == 2 else [None, n_classes]),
    }
    if hasattr(model, "predict_proba"):
        types["probability"] = number([None, n_classes])
    return _declare(scope, model, inputs, types)


def _convert_classifier(scope: Any, operator: Any, container: Any) -> None:
    """Add everything from the features to label, decision and probability."""
    model = operator.raw_operator
    graph = _Graph(scope, container)
    label, decision, *probability = (variable.full_name for variable in operator.outputs)
    scores = _add_scores(graph, operator)
    if is_one_vs_one(model):
        scores = _add_votes(graph, scores, model)
    if len(model.classes_) == 2:
        flat = graph.constant(np.array([-1]))
        positive = graph.add("Greater", scores, graph.constant(np.zeros(1, model.coef_.dtype)))
        index = graph.add("Reshape", graph.cast(positive, np.int64), flat)
        graph.add("Reshape", scores, flat, output=decision)
    else:
        index = graph.add("ArgMax", scores, axis=1, keepdims=0)
        graph.add("Identity", scores, output=decision)
    graph.add("Gather", graph.constant(_storable_labels(model.classes_)), index, output=label)
    if probability:
        _add_probabilities(graph, scores, model, probability[0])


def _convert_regressor(scope: Any, operator: Any, container: Any) -> None:
    graph = _Graph(scope, container)
    flat = graph.constant(np.array([-1]))
    graph.add("Reshape", _add_scores(graph, operator), flat, output=operator.outputs[0].full_name)


def _add_scores(graph: _Graph, operator: Any) -> str:
    model = operator.raw_operator
    X = graph.cast(operator.inputs[0].full_name, model.coef_.dtype)
    missing = getattr(model, "missing", "error")
    if missing == "conditional":
        raise ValueError(
            "export_onnx does not support missing='conditional', whose scores need a linear system per row. Export the "
            "model after model.set_params(missing='error'), for complete rows, or fit with missing='rescale'."
        )
    if missing == "rescale":
        return _add_rescaled_scores(graph, X, model)
    product = graph.add("MatMul", X, graph.constant(model.coef_.T))
    return graph.add("Add", product, graph.constant(model.intercept_))


def _add_rescaled_scores(graph: _Graph, X: str, model: Any) -> str:
    """Add the scores of rows with missing values; see `dropmargin.estimators.missing` for the formulas."""
    dtype, n_features = model.coef_.dtype, model.coef_.shape[1]
    is_missing = graph.add("IsNaN", X)
    missing = graph.cast(is_missing, dtype)
    filled = graph.add("Where", is_missing, graph.constant(np.zeros(1, dtype)), X)
    count = graph.add("MatMul", missing, graph.constant(np.ones((n_features, 1), dtype)))
    contribution = np.abs(model.coef_) * model.feature_deviations_
    total = contribution.sum(axis=1, keepdims=True)
    weights = np.where(total > 0.0, contribution / np.where(total > 0.0, total, 1.0), 1.0 / n_features)
    at_mean = model.feature_means_ * model.coef_.astype(np.float64)
    anchor = graph.constant(at_mean.sum(axis=1).astype(dtype))
    one, intercept = graph.constant(np.ones(1, dtype)), graph.constant(model.intercept_)

    lost = graph.add("MatMul", missing, graph.constant(weights.T.astype(dtype)))
    observed = graph.add("Sub", one, graph.add("Div", count, graph.constant(np.full(1, n_features, dtype))))
    half = graph.add("Mul", observed, graph.constant(np.full(1, 0.5, dtype)))
    share = graph.add("Max", graph.add("Sub", one, lost), half)
    has_observed = graph.add("Greater", observed, graph.constant(np.zeros(1, dtype)))
    factor = graph.add("Where", has_observed, graph.add("Div", one, share), graph.constant(np.zeros(1, dtype)))
    at_missing = graph.add("MatMul", missing, graph.constant(at_mean.T.astype(dtype)))
    shift = graph.add("Mul", factor, graph.add("Sub", anchor, at_missing))
    shift = graph.add("Add", intercept, graph.add("Sub", anchor, shift))
    is_incomplete = graph.add("Greater", count, graph.constant(np.zeros(1, dtype)))
    product = graph.add("Mul", factor, graph.add("MatMul", filled, graph.constant(model.coef_.T)))
    return graph.add("Add", product, graph.add("Where", is_incomplete, shift, intercept))


def _add_votes(graph: _Graph, scores: str, model: Any) -> str:
    """Add the votes of one-vs-one pairs, and less than half a vote from the sums of the scores to break ties."""
    dtype, n_classes = model.coef_.dtype, len(model.classes_)
    first, second = (np.zeros((len(model.coef_), n_classes), dtype) for _ in range(2))
    for pair, (low, high) in enumerate(combinations(range(n_classes), 2)):
        first[pair, low] = second[pair, high] = 1.0
    one = graph.constant(np.ones(1, dtype))
    won = graph.cast(graph.add("Greater", scores, graph.constant(np.zeros(1, dtype))), dtype)
    for_second = graph.add("MatMul", won, graph.constant(second))
    for_first = graph.add("MatMul", graph.add("Sub", one, won), graph.constant(first))
    sums = graph.add("MatMul", scores, graph.constant(second - first))
    bound = graph.add("Mul", graph.add("Add", graph.add("Abs", sums), one), graph.constant(np.full(1, 3.0, dtype)))
    return graph.add("Add", graph.add("Add", for_second, for_first), graph.add("Div", sums, bound))


def _add_probabilities(graph: _Graph, scores: str, model: Any, output: str) -> None:
    """Add the softmax of the scores, or their ``expit``, normalised: by logarithms, which do not underflow."""
    if len(model.classes_) == 2:
        parts = graph.add("Sigmoid", graph.add("Neg", scores)), graph.add("Sigmoid", scores)
        graph.add("Concat", *parts, axis=1, output=output)
        return
    if is_multinomial(model):
        graph.add("Softmax", scores, axis=1, output=output)
        return
    decay = graph.add("Exp", graph.add("Neg", graph.add("Abs", scores)))
    log1p = graph.add("Log", graph.add("Add", decay, graph.constant(np.ones(1, model.coef_.dtype))))
    negative_part = graph.add("Min", scores, graph.constant(np.zeros(1, model.coef_.dtype)))
    graph.add("Softmax", graph.add("Sub", negative_part, log1p), axis=1, output=output)


def _storable_labels(classes: Array) -> Array:
    """Return labels as 64-bit integers, doubles, booleans or strings."""
    if classes.dtype.kind in "iu":
        if classes.max() > np.iinfo(np.int64).max:
            raise ValueError(f"Integer labels of an ONNX model must be below 2**63, got {classes.max()}.")
        return classes.astype(np.int64)
    return classes.astype(np.float64) if classes.dtype.kind == "f" else classes


# TableEncoder -------------------------------------------------------------------------------------------------------


def _parse_table_encoder(scope: Any, model: Any, inputs: list[Any], custom_parsers: Any = None) -> list[Any]:
    return _declare(scope, model, inputs, {"encoded": DoubleTensorType([None, len(model.feature_columns_)])})


def _parse_frame_encoder(scope: Any, model: Any, inputs: list[Any], custom_parsers: Any = None) -> list[Any]:
    """Declare the operators of the parts, each with its columns, and their concatenation.

    ``model.parts`` has the parts as skl2onnx can convert them, and the names of their columns.
    """
    given = {variable.raw_name: variable for variable in inputs}
    outputs = []
    for part, columns in model.parts:
        outputs += _parse_sklearn(scope, part, [given[name] for name in columns], custom_parsers)
    operator = scope.declare_local_operator("SklearnConcat")
    operator.inputs = outputs
    operator.outputs.append(scope.declare_local_variable("encoded", outputs[0].type.__class__([None, None])))
    return operator.outputs


def _convert_table_encoder(scope: Any, operator: Any, container: Any) -> None:
    """Add scaled numbers, and categories as one feature each; missing values are NaN in all features.

    There is one operator per categorical column, and a few for all together: skl2onnx needs time that is quadratic in
    the number of operators.
    """
    graph = _Graph(scope, container)
    encoder = operator.raw_operator
    columns = list(zip(operator.inputs, _table_columns(encoder), strict=True))
    numbers = [variable.full_name for variable, categories in columns if categories is None]
    codes: list[str] = []
    features: list[int] = []
    missing: list[int] = []
    order: list[int] = []
    n_codes = n_numbers = 0
    for variable, categories in columns:
        if categories is None:
            order.append(n_numbers)
            n_numbers += 1
        elif categories:
            # The last code is that of a missing value: of the empty string, unless that is a category.
            known = [*categories, "\0" if "" in categories else ""]
            code = graph.add("OneHotEncoder", variable.full_name, domain="ai.onnx.ml", cats_strings=known, zeros=1)
            codes.append(code)
            order += range(len(numbers) + len(features), len(numbers) + len(features) + len(categories))
            features += range(n_codes, n_codes + len(categories))
            missing += [n_codes + len(categories)] * len(categories)
            n_codes += len(known)
    parts = [graph.cast(graph.add("Concat", *numbers, axis=1), np.float64)] if numbers else []
    if codes:
        shape = graph.constant(np.array([-1, n_codes]))
        encoded = graph.cast(graph.add("Reshape", graph.add("Concat", *codes, axis=-1), shape), np.float64)
        values, flags = (graph.add("Gather", encoded, graph.constant(np.array(k)), axis=1) for k in (features, missing))
        parts.append(graph.add("Where", graph.cast(flags, np.bool_), graph.constant(np.full(1, np.nan)), values))
    ordered = graph.constant(np.array(order))
    raw = graph.add("Gather", graph.add("Concat", *parts, axis=1), ordered, axis=1)
    centred = graph.add("Sub", raw, graph.constant(encoder.mean_))  # 0 and 1 where features are not scaled
    graph.add("Div", centred, graph.constant(encoder.scale_), output=operator.outputs[0].full_name)
