"""Export to ONNX: a converter of skl2onnx for the linear models, in plain operators.

skl2onnx's own linear classifiers compute in single precision and return either scores or probabilities.
"""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import numpy as np

from dropmargin.io.atomic import Path, write_atomically
from dropmargin.io.model.descriptions import MODELS, plain_model
from dropmargin.typing import Array

_TARGET_OPSET = {"": 17, "ai.onnx.ml": 3}
_INSTALL = "The export to ONNX needs the packages onnx and skl2onnx: pip install 'dropmargin[onnx]'"
# A protocol buffer is limited to 2 GB.
_MAX_BYTES = 2**31 - 2**20


def export_onnx(model: Any, path: Path) -> None:
    """Write a fitted classifier or regressor as an ONNX model.

    The graph has one input ``X`` of shape ``(n, n_features)``, double, or float if the coefficients are float. NaN is a
    missing value. Outputs are ``label``, ``decision``, as `decision_function` returns it, and, if scores are log-odds
    and the parameter ``probability`` is None, ``probability``, as `predict_proba` returns it. That of a regressor is
    ``prediction``.

    Parameters
    ----------
    model : estimator
        A fitted model of dropmargin, or a search over these. For a `Pipeline` of scikit-learn, call
        `register_onnx_converters` and then ``skl2onnx.to_onnx``.
    path : str or path-like
        Written atomically, as by `dropmargin.save`.

    Raises
    ------
    ValueError
        If the model cannot be expressed in ONNX.
    ImportError
        If skl2onnx is not installed.

    Notes
    -----
    The graph of a model with ``missing="error"`` raises no error for missing values: the scores of such rows are NaN.
    """
    register_onnx_converters()
    import onnx
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType

    from dropmargin import __version__

    model = plain_model(model)
    if not hasattr(model, "coef_"):
        column = next(column for column in model.columns_ if not column.reason)
        raise ValueError(
            f"Column {column.name!r} ({column.kind}, basis {model.basis_!r}) cannot be exported: ONNX has no operators "
            "for its features. Export the linear model of the encoded features, model.model_, for complete rows."
        )
    if model.coef_.nbytes > _MAX_BYTES:
        raise ValueError(f"An ONNX file holds up to 2 GB, got coefficients of {model.coef_.nbytes} bytes.")
    kind = FloatTensorType if model.coef_.dtype == np.float32 else DoubleTensorType
    inputs = [("X", kind([None, model.n_features_in_]))]
    graph = convert_sklearn(model, "dropmargin", inputs, target_opset=_TARGET_OPSET)
    graph.producer_name, graph.producer_version = "dropmargin", __version__
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        onnx.helper.set_model_props(graph, {"feature_names": json.dumps(names.tolist(), ensure_ascii=False)})
    onnx.checker.check_model(graph)
    write_atomically(path, [graph.SerializeToString()])


def register_onnx_converters() -> None:
    """Tell skl2onnx how to convert the models of dropmargin, as the last step of any pipeline that it can convert.

    Raises
    ------
    ImportError
        If skl2onnx is not installed.
    """
    try:
        from skl2onnx import update_registered_converter
    except ImportError as error:
        raise ImportError(_INSTALL) from error
    for name, description in MODELS.items():
        if "coef_" not in description.fitted:
            continue
        is_classifier = "classes_" in description.fitted
        # skl2onnx sets zipmap for every classifier; it has no effect here.
        options = {"zipmap": [True, False, "columns"]} if is_classifier else None
        update_registered_converter(
            description.find(name), f"Dropmargin{name}", lambda operator: None, _convert, parser=_parse, options=options
        )


def _parse(scope: Any, model: Any, inputs: list[Any], custom_parsers: Any = None) -> list[Any]:
    """Declare ``label``, ``decision`` and, if scores are log-odds, ``probability``; ``prediction`` of a regressor."""
    from skl2onnx.common import data_types as types

    number = types.FloatTensorType if model.coef_.dtype == np.float32 else types.DoubleTensorType
    if hasattr(model, "classes_"):
        n_classes = len(model.classes_)
        labels = {"f": types.DoubleTensorType, "b": types.BooleanTensorType}
        labels |= dict.fromkeys("iu", types.Int64TensorType)
        outputs = {"label": labels.get(model.classes_.dtype.kind, types.StringTensorType)([None])}
        outputs["decision"] = number([None] if n_classes == 2 else [None, n_classes])
        if hasattr(model, "predict_proba") and model.probability is None:
            outputs["probability"] = number([None, n_classes])
    else:
        outputs = {"prediction": number([None])}
    operator = scope.declare_local_operator(f"Dropmargin{type(model).__name__}", model)
    operator.inputs = inputs
    for name, kind in outputs.items():
        operator.outputs.append(scope.declare_local_variable(name, kind))
    return operator.outputs


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Add everything from the features to the outputs."""
    graph = _Graph(scope, container, operator.raw_operator)
    scores = graph.scores(operator.inputs[0].full_name)
    graph.outputs(scores, *(variable.full_name for variable in operator.outputs))


class _Graph:
    """Adds operators to a graph of skl2onnx; each method returns the name of the result."""

    def __init__(self, scope: Any, container: Any, model: Any) -> None:
        self._scope, self._container, self._model = scope, container, model
        self._dtype = model.coef_.dtype
        self._coef, self._intercept = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)

    def add(self, operator: str, *inputs: str | float | Array, output: str | None = None, **attributes: Any) -> str:
        """Add an operator; inputs are names, numbers or arrays, ``output`` the name of the result if it has one."""
        names = [given if isinstance(given, str) else self._constant(given) for given in inputs]
        name = output or self._scope.get_unique_variable_name(operator.lower())
        self._container.add_node(operator, names, [name], **attributes)
        return name

    def _constant(self, value: float | Array) -> str:
        from onnx import TensorProto
        from onnx.helper import np_dtype_to_tensor_dtype

        array = value if isinstance(value, np.ndarray) else np.full(1, value, self._dtype)
        name, is_text = self._scope.get_unique_variable_name("constant"), array.dtype.kind in "UO"
        kind = TensorProto.STRING if is_text else np_dtype_to_tensor_dtype(array.dtype)
        content = [item.encode() for item in array.tolist()] if is_text else array.ravel()
        self._container.add_initializer(name, kind, list(array.shape), content)
        return name

    def _cast(self, name: str, dtype: Any) -> str:
        from onnx.helper import np_dtype_to_tensor_dtype

        return self.add("Cast", name, to=np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def scores(self, X: str) -> str:
        """Add the scores of the outputs, with the rule of the model for missing values."""
        X, missing = self._cast(X, self._dtype), getattr(self._model, "missing", "error")
        if missing == "conditional":
            raise ValueError(
                "ONNX cannot express missing='conditional', whose scores need a linear system per row. Export the "
                "model after model.set_params(missing='error'), for complete rows, or fit with missing='rescale'."
            )
        if missing == "rescale":
            return self._rescaled_scores(X)
        return self.add("Add", self.add("MatMul", X, self._coef.T), self._intercept)

    def _rescaled_scores(self, X: str) -> str:
        """Add the scores of rows with missing values; `dropmargin.estimators.missing` has the formulas."""
        add, coef, n_features = self.add, self._coef, self._coef.shape[1]
        is_missing = add("IsNaN", X)
        missing = self._cast(is_missing, self._dtype)
        contribution = np.abs(coef) * self._model.feature_deviations_
        total = contribution.sum(axis=1, keepdims=True)
        weights = np.where(total > 0.0, contribution / np.where(total > 0.0, total, 1.0), 1.0 / n_features)
        at_mean = self._model.feature_means_ * coef.astype(np.float64)
        anchor = at_mean.sum(axis=1).astype(self._dtype)
        count = add("MatMul", missing, np.ones((n_features, 1), self._dtype))
        observed = add("Sub", 1.0, add("Div", count, float(n_features)))
        lost = add("MatMul", missing, weights.T.astype(self._dtype))
        share = add("Max", add("Sub", 1.0, lost), add("Mul", observed, 0.5))
        factor = add("Where", add("Greater", observed, 0.0), add("Div", 1.0, share), 0.0)
        at_missing = add("MatMul", missing, at_mean.T.astype(self._dtype))
        shift = add("Sub", anchor, add("Mul", factor, add("Sub", anchor, at_missing)))
        shift = add("Where", add("Greater", count, 0.0), add("Add", self._intercept, shift), self._intercept)
        product = add("MatMul", add("Where", is_missing, 0.0, X), coef.T)
        return add("Add", add("Mul", factor, product), shift)

    def outputs(self, scores: str, first: str, decision: str = "", probability: str = "") -> None:
        """Add label, decision and probability, or the prediction of a regressor."""
        flat = np.array([-1])
        if not decision:
            self.add("Reshape", scores, flat, output=first)
            return
        classes = self._model.classes_
        n_classes, n_outputs = len(classes), len(self._coef)
        is_pairwise = n_classes > 2 and (self._model.multi_class == "ovo" or n_outputs != n_classes)
        scores = self._votes(scores, n_classes) if is_pairwise else scores
        if n_classes == 2:
            index = self.add("Reshape", self._cast(self.add("Greater", scores, 0.0), np.int64), flat)
            self.add("Reshape", scores, flat, output=decision)
        else:
            index = self.add("ArgMax", scores, axis=1, keepdims=0)
            self.add("Identity", scores, output=decision)
        if classes.dtype.kind == "u" and classes.max() > np.iinfo(np.int64).max:
            raise ValueError(f"Integer labels of an ONNX model must be below 2**63, got {classes.max()}.")
        labels = classes.astype({"i": np.int64, "u": np.int64, "f": np.float64}.get(classes.dtype.kind, classes.dtype))
        self.add("Gather", labels, index, output=first)
        if probability:
            self._probabilities(scores, n_classes, probability)

    def _votes(self, scores: str, n_classes: int) -> str:
        """Add the votes of one-vs-one pairs, and less than half a vote from the sums of the scores to break ties."""
        low, high = (np.zeros((len(self._coef), n_classes), self._dtype) for _ in range(2))
        for pair, (one, other) in enumerate(combinations(range(n_classes), 2)):
            low[pair, one] = high[pair, other] = 1.0
        won = self._cast(self.add("Greater", scores, 0.0), self._dtype)
        votes = self.add("Add", self.add("MatMul", won, high), self.add("MatMul", self.add("Sub", 1.0, won), low))
        sums = self.add("MatMul", scores, high - low)
        bound = self.add("Mul", self.add("Add", self.add("Abs", sums), 1.0), 3.0)
        return self.add("Add", votes, self.add("Div", sums, bound))

    def _probabilities(self, scores: str, n_classes: int, output: str) -> None:
        """Add the softmax of the scores, or their ``expit``, normalised: by logarithms, which do not underflow."""
        if n_classes == 2:
            parts = self.add("Sigmoid", self.add("Neg", scores)), self.add("Sigmoid", scores)
            self.add("Concat", *parts, axis=1, output=output)
            return
        if self._model.multi_class != "multinomial":
            decay = self.add("Exp", self.add("Neg", self.add("Abs", scores)))
            scores = self.add("Sub", self.add("Min", scores, 0.0), self.add("Log", self.add("Add", decay, 1.0)))
        self.add("Softmax", scores, axis=1, output=output)
