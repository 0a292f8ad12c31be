"""A model as an ONNX graph of ordinary operators (``ai.onnx`` 13): runtimes need no extension to run it.

``X @ coef.T + intercept`` are the scores, in the precision of the coefficients. Two classes compare the score with
zero, more take the largest; one-vs-one pairs vote, with two small matrices that say which pair speaks for which class.
"""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import numpy as np

from dropmargin.io.atomic import Path, write_atomically
from dropmargin.io.model.exports.linear import LinearModel, linear_model
from dropmargin.typing import Array

_OPSET, _IR_VERSION = 13, 8
# A protocol buffer ends at 2 GB.
_MAX_BYTES = 2**31 - 2**20


def export_onnx(model: Any, path: Path) -> None:
    """Write a fitted classifier as an ONNX model.

    The input ``X`` has shape ``(n, n_features)`` and the type of the coefficients, float or double. Outputs are
    ``label`` (integers, strings, booleans or floats, as the classes are), ``decision``, as `decision_function` returns
    it, and, if scores are log-odds, ``probability``, as `predict_proba` does.

    Parameters
    ----------
    model : a fitted classifier of dropmargin
    path : str or path-like
        Written atomically, as by `dropmargin.save`.
    """
    onnx = _import_onnx()
    plain = linear_model(model, "ONNX")
    if plain.coef.nbytes > _MAX_BYTES:
        raise ValueError(f"An ONNX file holds up to 2 GB, got coefficients of {plain.coef.nbytes} bytes.")
    graph = _Graph(onnx)
    graph.build(plain)
    write_atomically(path, [graph.finish(plain).SerializeToString()])


def _import_onnx() -> Any:
    """Return the package ``onnx``, or say how to install it."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError(
            "The export needs the package onnx, which is not installed. Install it with: pip install 'dropmargin[onnx]'"
        ) from error
    return onnx


class _Graph:
    """Nodes and constants in the making; methods add an operator and return the name of its result."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._outputs: list[Any] = []

    def _add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def _constant(self, array: Array) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def _output(self, name: str, result: str, dtype: int, shape: list[Any]) -> None:
        self._nodes.append(self._onnx.helper.make_node("Identity", [result], [name]))
        self._outputs.append(self._onnx.helper.make_tensor_value_info(name, dtype, shape))

    def build(self, plain: LinearModel) -> None:
        """Add all that leads from ``X`` to label, decision and probability."""
        dtype, number = plain.coef.dtype, self._type(plain.coef)
        n_classes = len(plain.classes)
        shape: list[Any] = ["n"] if n_classes == 2 else ["n", n_classes]
        product = self._add("MatMul", "X", self._constant(plain.coef.T))
        scores = self._add("Add", product, self._constant(plain.intercept))
        if plain.one_vs_one:
            scores = self._votes(scores, n_classes, dtype)
        if n_classes == 2:
            positive = self._add("Greater", scores, self._constant(np.zeros(1, dtype=dtype)))
            flat = self._constant(np.array([-1]))
            index = self._add("Reshape", self._add("Cast", positive, to=self._onnx.TensorProto.INT64), flat)
            decision = self._add("Reshape", scores, flat)
        else:
            index = self._add("ArgMax", scores, axis=1, keepdims=0)
            decision = scores
        labels = _storable_labels(plain.classes)
        self._output("label", self._add("Gather", self._constant(labels), index), self._type(labels), ["n"])
        self._output("decision", decision, number, shape)
        if plain.is_log_odds:
            self._output("probability", self._probabilities(scores, n_classes, dtype), number, ["n", n_classes])

    def _votes(self, scores: str, n_classes: int, dtype: Any) -> str:
        """Add the votes of one-vs-one pairs, with their sums squeezed to under half a vote to break ties."""
        n_pairs = n_classes * (n_classes - 1) // 2
        first, second = (np.zeros((n_pairs, n_classes), dtype=dtype) for _ in range(2))
        for pair, (low, high) in enumerate(combinations(range(n_classes), 2)):
            first[pair, low] = second[pair, high] = 1.0
        positive = self._add("Greater", scores, self._constant(np.zeros(1, dtype=dtype)))
        won = self._add("Cast", positive, to=self._onnx.helper.np_dtype_to_tensor_dtype(dtype))
        one = self._constant(np.ones(1, dtype=dtype))
        votes = self._add(
            "Add",
            self._add("MatMul", won, self._constant(second)),
            self._add("MatMul", self._add("Sub", one, won), self._constant(first)),
        )
        sums = self._add("MatMul", scores, self._constant(second - first))
        size = self._add("Add", self._add("Abs", sums), one)
        return self._add(
            "Add", votes, self._add("Div", sums, self._add("Mul", size, self._constant(3 * np.ones(1, dtype))))
        )

    def _probabilities(self, scores: str, n_classes: int, dtype: Any) -> str:
        """Add ``expit`` of the scores, normalised over the classes, by way of logarithms: they do not underflow."""
        if n_classes == 2:
            return self._add(
                "Concat", self._add("Sigmoid", self._add("Neg", scores)), self._add("Sigmoid", scores), axis=1
            )
        decay = self._add("Exp", self._add("Neg", self._add("Abs", scores)))
        log1p = self._add("Log", self._add("Add", decay, self._constant(np.ones(1, dtype=dtype))))
        negative_part = self._add("Min", scores, self._constant(np.zeros(1, dtype=dtype)))
        return self._add("Softmax", self._add("Sub", negative_part, log1p), axis=1)

    def _type(self, array: Array) -> int:
        return self._onnx.numpy_helper.from_array(array[:1]).data_type

    def finish(self, plain: LinearModel) -> Any:
        """Return the checked model."""
        from dropmargin import __version__

        helper = self._onnx.helper
        row = helper.make_tensor_value_info("X", self._type(plain.coef), ["n", plain.coef.shape[1]])
        graph = helper.make_graph(self._nodes, "dropmargin", [row], self._outputs, self._constants)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
            producer_name="dropmargin",
            producer_version=__version__,
        )
        if plain.feature_names is not None:
            names = json.dumps(plain.feature_names.tolist(), ensure_ascii=False)
            helper.set_model_props(model, {"feature_names": names})
        self._onnx.checker.check_model(model)
        return model


def _storable_labels(classes: Array) -> Array:
    """Return labels in a type that ONNX has for them: 64-bit integers, doubles, booleans, strings."""
    if classes.dtype.kind in "iu":
        if classes.max() > np.iinfo(np.int64).max:
            raise ValueError(f"ONNX's labels are integers below 2**63, got {classes.max()}.")
        return classes.astype(np.int64)
    if classes.dtype.kind == "f":
        return classes.astype(np.float64)
    return classes.astype(object) if classes.dtype.kind in "UO" else classes
