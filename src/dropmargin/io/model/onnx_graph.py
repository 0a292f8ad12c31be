"""A linear model as a graph of ONNX: plain operators, in the precision of its coefficients."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx.helper import make_node, np_dtype_to_tensor_dtype
from onnx.numpy_helper import from_array

from dropmargin.io.model.exports import is_multinomial, is_one_vs_one
from dropmargin.typing import Array


def make_graph(model: Any) -> Any:
    """Return the graph from the features ``X`` to the outputs."""
    graph = Graph(model.coef_.dtype)
    outputs = _add_outputs(graph, _add_scores(graph, model), model)
    number = np_dtype_to_tensor_dtype(graph.dtype)
    given = helper.make_tensor_value_info("X", number, [None, model.n_features_in_])
    values = [helper.make_tensor_value_info(name, kind or number, shape) for name, kind, shape in outputs]
    return helper.make_graph(graph.nodes, "dropmargin", [given], values, graph.constants)


class Graph:
    """Collects operators and constants; numbers are of one type."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: str | float | Array, output: str | None = None, **attributes: Any) -> str:
        """Add an operator, and return the name of its result; inputs are names, or numbers and arrays."""
        names = [given if isinstance(given, str) else self.constant(given, self.dtype) for given in inputs]
        name = output or f"{operator}_{len(self.nodes)}"
        self.nodes.append(make_node(operator, names, [name], **attributes))
        return name

    def constant(self, value: float | Array, dtype: Any = np.float64) -> str:
        """Add a constant, and return its name; floating-point numbers get this type."""
        array = np.atleast_1d(value)
        array = array.astype(dtype) if array.dtype.kind == "f" else array
        self.constants.append(from_array(np.ascontiguousarray(array), f"constant_{len(self.constants)}"))
        return self.constants[-1].name

    def as_numbers(self, name: str) -> str:
        """Add the conversion of true and false to numbers."""
        return self.add("Cast", name, to=np_dtype_to_tensor_dtype(self.dtype))


def _add_scores(graph: Graph, model: Any) -> str:
    """Add the scores of the outputs; see `dropmargin.estimators.missing` for the formulas of missing values."""
    if getattr(model, "missing", "error") == "error":
        return graph.add("Add", graph.add("MatMul", "X", model.coef_.T), model.intercept_)
    n_features = model.coef_.shape[1]
    is_missing = graph.add("IsNaN", "X")
    missing = graph.as_numbers(is_missing)
    filled = graph.add("Where", is_missing, 0.0, "X")
    count = graph.add("MatMul", missing, np.ones((n_features, 1)))
    contribution = np.abs(model.coef_) * model.feature_deviations_
    total = contribution.sum(axis=1, keepdims=True)
    weights = np.where(total > 0.0, contribution / np.where(total > 0.0, total, 1.0), 1.0 / n_features)
    at_mean = model.feature_means_ * model.coef_.astype(np.float64)
    anchor = at_mean.sum(axis=1)
    observed = graph.add("Sub", 1.0, graph.add("Div", count, float(n_features)))
    share = graph.add("Sub", 1.0, graph.add("MatMul", missing, weights.T))
    share = graph.add("Max", share, graph.add("Mul", observed, 0.5))
    factor = graph.add("Where", graph.add("Greater", observed, 0.0), graph.add("Div", 1.0, share), 0.0)
    shift = graph.add("Mul", factor, graph.add("Sub", anchor, graph.add("MatMul", missing, at_mean.T)))
    shift = graph.add("Add", model.intercept_, graph.add("Sub", anchor, shift))
    product = graph.add("Mul", factor, graph.add("MatMul", filled, model.coef_.T))
    return graph.add("Add", product, graph.add("Where", graph.add("Greater", count, 0.0), shift, model.intercept_))


def _add_outputs(graph: Graph, scores: str, model: Any) -> list[Any]:
    """Add the outputs; return their names, types (None for the type of the coefficients) and shapes."""
    flat = np.array([-1])
    if not hasattr(model, "classes_"):
        graph.add("Reshape", scores, flat, output="prediction")
        return [("prediction", None, [None])]
    n_classes, labels = len(model.classes_), _storable_labels(model.classes_)
    scores = _add_votes(graph, scores, model) if is_one_vs_one(model) else scores
    if n_classes == 2:
        index = graph.add("Cast", graph.add("Greater", scores, 0.0), to=_type_of(flat))
        index = graph.add("Reshape", index, flat)
        graph.add("Reshape", scores, flat, output="decision")
    else:
        index = graph.add("ArgMax", scores, axis=1, keepdims=0)
        graph.add("Identity", scores, output="decision")
    label = graph.add("Gather", graph.constant(labels), index, output="label")
    outputs: list[Any] = [
        (label, _type_of(labels), [None]),
        ("decision", None, [None] if n_classes == 2 else [None, n_classes]),
    ]
    if hasattr(model, "predict_proba"):
        _add_probabilities(graph, scores, model)
        outputs.append(("probability", None, [None, n_classes]))
    return outputs


def _add_votes(graph: Graph, scores: str, model: Any) -> str:
    """Add the votes of one-vs-one pairs, and less than half a vote from the sums of the scores to break ties."""
    first, second = (np.zeros((len(model.coef_), len(model.classes_))) for _ in range(2))
    for pair, (low, high) in enumerate(combinations(range(len(model.classes_)), 2)):
        first[pair, low] = second[pair, high] = 1.0
    won = graph.as_numbers(graph.add("Greater", scores, 0.0))
    lost = graph.add("Sub", 1.0, won)
    votes = graph.add("Add", graph.add("MatMul", won, second), graph.add("MatMul", lost, first))
    sums = graph.add("MatMul", scores, second - first)
    bound = graph.add("Mul", graph.add("Add", graph.add("Abs", sums), 1.0), 3.0)
    return graph.add("Add", votes, graph.add("Div", sums, bound))


def _add_probabilities(graph: Graph, scores: str, model: Any) -> None:
    """Add the softmax of the scores, or their ``expit``, normalised: by logarithms, which do not underflow."""
    if len(model.classes_) == 2:
        parts = graph.add("Sigmoid", graph.add("Neg", scores)), graph.add("Sigmoid", scores)
        graph.add("Concat", *parts, axis=1, output="probability")
        return
    if not is_multinomial(model):
        decay = graph.add("Exp", graph.add("Neg", graph.add("Abs", scores)))
        log1p = graph.add("Log", graph.add("Add", decay, 1.0))
        scores = graph.add("Sub", graph.add("Min", scores, 0.0), log1p)
    graph.add("Softmax", scores, axis=1, output="probability")


def _storable_labels(classes: Array) -> Array:
    """Return labels as 64-bit integers, doubles, booleans or strings."""
    if classes.dtype.kind in "iu":
        if classes.max() > np.iinfo(np.int64).max:
            raise ValueError(f"Integer labels of an ONNX model must be below 2**63, got {classes.max()}.")
        return classes.astype(np.int64)
    return classes.astype({"f": np.float64, "b": bool}.get(classes.dtype.kind, object))


def _type_of(array: Array) -> int:
    return TensorProto.STRING if array.dtype.kind == "O" else np_dtype_to_tensor_dtype(array.dtype)
