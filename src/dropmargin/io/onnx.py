"""Export to ONNX: a converter of skl2onnx for the linear models and those of tables, in plain operators.

skl2onnx's own linear classifiers compute in single precision and return either scores or probabilities. The expected
scores of rows with missing values (`dropmargin.estimators.conditional` has the formulas) need a linear system per row:
ONNX has no operator that solves one, so elimination is written out, one step for each factor.
"""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import numpy as np

from dropmargin.estimators.conditional import FactorModel
from dropmargin.io.atomic import Path, write_atomically
from dropmargin.io.model.descriptions import MODELS, plain_model
from dropmargin.typing import Array

_TARGET_OPSET = {"": 17, "ai.onnx.ml": 3}
_INSTALL = "The export to ONNX needs the packages onnx and skl2onnx: pip install 'dropmargin[onnx]'"
# A protocol buffer is limited to 2 GB.
_MAX_BYTES = 2**31 - 2**20


def export_onnx(model: Any, path: Path) -> None:
    """Write a fitted classifier or regressor as an ONNX model.

    The graph has one input ``X`` of shape ``(n, n_features)``, double, or float if the coefficients are float. That of
    a table model has an input of shape ``(n, 1)`` per column: numbers (that a text such as ``12%`` stands for: 0.12),
    or strings. NaN and the empty string are missing values. Outputs are ``label``, ``decision``, as `decision_function`
    returns it, and, if scores are log-odds and the parameter
    ``probability`` is None, ``probability``, as `predict_proba` returns it. That of a regressor is
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
        If the model cannot be expressed in ONNX; of a table, it names the column.
    ImportError
        If skl2onnx is not installed.

    Notes
    -----
    The graph of a model with ``missing="error"`` raises no error for missing values: the scores of such rows are NaN.
    With ``missing="conditional"`` there is no ``probability``, as those of incomplete rows are integrals: for complete
    rows, export the model after ``model.set_params(missing="error")`` (of a table, ``model.model_``).
    """
    register_onnx_converters()
    import onnx
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, StringTensorType

    from dropmargin import __version__

    model = plain_model(model)
    inner = getattr(model, "model_", model)
    if inner.coef_.nbytes > _MAX_BYTES:
        raise ValueError(f"An ONNX file holds up to 2 GB, got coefficients of {inner.coef_.nbytes} bytes.")
    kind = FloatTensorType if inner.coef_.dtype == np.float32 else DoubleTensorType
    inputs = [("X", kind([None, model.n_features_in_]))]
    if hasattr(model, "encoder_"):
        _check_columns(model)
        kinds = {"number": DoubleTensorType, "category": StringTensorType}
        inputs = [(name, kinds[own.kind]([None, 1])) for name, own in model.encoder_.encoders_.items()]
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
        is_classifier = hasattr(description.find(name), "classes_") or "classes_" in description.fitted
        # skl2onnx sets zipmap for every classifier; it has no effect here.
        options = {"zipmap": [True, False, "columns"]} if is_classifier else None
        update_registered_converter(
            description.find(name), f"Dropmargin{name}", lambda operator: None, _convert, parser=_parse, options=options
        )


def _check_columns(model: Any) -> None:
    """Refuse a table with columns whose features have no operators."""
    if not hasattr(model.encoder_, "encoders_"):
        raise ValueError("The encoder of another package cannot be exported: export its steps and model.model_.")
    for name, encoder in model.encoder_.encoders_.items():
        why = f"of kind {encoder.kind}" if encoder.kind not in ("number", "category") else ""
        if encoder.kind == "number" and encoder.has_scaled and encoder.scaling == "quantile":
            why = "scaled by its quantiles (fit with basis='spline')"
        if why:
            raise ValueError(f"Column {name!r} is {why}, for which ONNX has no operators: the model is not exported.")


def _parse(scope: Any, model: Any, inputs: list[Any], custom_parsers: Any = None) -> list[Any]:
    """Declare ``label``, ``decision`` and, if scores are log-odds, ``probability``; ``prediction`` of a regressor."""
    from skl2onnx.common import data_types as types

    inner = getattr(model, "model_", model)
    number = types.FloatTensorType if inner.coef_.dtype == np.float32 else types.DoubleTensorType
    if hasattr(model, "classes_"):
        n_classes = len(model.classes_)
        labels = {"f": types.DoubleTensorType, "b": types.BooleanTensorType}
        labels |= dict.fromkeys("iu", types.Int64TensorType)
        outputs = {"label": labels.get(model.classes_.dtype.kind, types.StringTensorType)([None])}
        outputs["decision"] = number([None] if n_classes == 2 else [None, n_classes])
        if hasattr(model, "predict_proba") and inner.probability is None and inner.missing != "conditional":
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
    model = operator.raw_operator
    names = [variable.full_name for variable in operator.inputs]
    graph = _Graph(scope, container, getattr(model, "model_", model))
    X = names[0] if graph.model is model else graph.features(model, names)
    scores = graph.scores(X)
    graph.outputs(scores, *(variable.full_name for variable in operator.outputs))


class _Graph:
    """Adds operators to a graph of skl2onnx; each method returns the name of the result."""

    def __init__(self, scope: Any, container: Any, model: Any) -> None:
        self._scope, self._container, self.model = scope, container, model
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
        X, missing = self._cast(X, self._dtype), getattr(self.model, "missing", "error")
        if missing == "conditional":
            X, *_ = self._filled(X, self.model._rule())
        if missing == "rescale":
            return self._rescaled_scores(X)
        return self.add("Add", self.add("MatMul", X, self._coef.T), self._intercept)

    def _filled(self, X: str, gaussian: FactorModel) -> tuple[str, str, str]:
        """Add the rows with the conditional means of missing values, the missing values, and ``M^-1`` of each row."""
        add, rank, dtype = self.add, gaussian.rank, self._dtype
        is_missing, mean = add("IsNaN", X), gaussian.mean.astype(dtype)
        missing, precise = self._cast(is_missing, dtype), gaussian.precision_factors
        products = np.einsum("dr,ds->drs", gaussian.factors, precise).reshape(len(precise), -1).astype(dtype)
        lost = add("Reshape", add("MatMul", missing, products), np.array([-1, rank, rank]))
        both = add("Sub", gaussian.complete.astype(dtype), lost)
        zeros = add("Mul", both, 0.0)
        both = add("Concat", both, add("Add", zeros, np.eye(rank, dtype=dtype)), axis=2)
        for k in range(rank):  # elimination: the matrices are positive definite
            row = add("Gather", both, np.array([k]), axis=1)
            row = add("Div", row, add("Gather", row, np.array([k]), axis=2))
            column = add("Sub", add("Gather", both, np.array([k]), axis=2), np.eye(rank, dtype=dtype)[:, k : k + 1])
            both = add("Sub", both, add("Mul", column, row))
        inverse = add("Slice", both, np.array([rank]), np.array([2 * rank]), np.array([2]))
        observed = add("Where", is_missing, 0.0, add("Sub", X, mean))
        factors = add("Unsqueeze", add("MatMul", observed, precise.astype(dtype)), np.array([1]))
        factors = add("Squeeze", add("MatMul", factors, inverse), np.array([1]))
        expected = add("Add", add("MatMul", factors, gaussian.factors.T.astype(dtype)), mean)
        return add("Where", is_missing, expected, X), missing, inverse

    def features(self, table: Any, names: list[str]) -> str:
        """Add the features of the columns of a table, those that its linear model takes."""
        encoders = table.encoder_.encoders_.values()
        parts = [
            (self._spline if encoder.kind == "number" else self._one_hot)(name, encoder)
            for name, encoder in zip(names, encoders, strict=True)
        ]
        X = self.add("Concat", *parts, axis=1)
        return X if table.fourier_ is None else self._fourier(X, table.fourier_)

    def _spline(self, X: str, encoder: Any) -> str:
        """Add the scaled number, the B-splines by the recursion of Cox and de Boor, or both."""
        add, parts = self.add, []
        if encoder.has_scaled:
            parts.append(add("Div", add("Sub", X, encoder.mean_), encoder.scale_))
        if encoder.n_splines:
            t = encoder.extended_knots
            x = add("Min", add("Max", X, t[2]), t[-3])
            basis = self._cast(add("And", add("GreaterOrEqual", x, t[:-1]), add("Less", x, t[1:])), self._dtype)
            for degree in (1, 2):
                width, n = t[degree:] - t[:-degree], len(t) - degree - 1
                rising = add("Div", add("Sub", x, t[:n]), width[:n])
                falling = add("Div", add("Sub", t[degree + 1 :], x), width[1:])
                first, second = (add("Gather", basis, np.arange(n) + shift, axis=1) for shift in (0, 1))
                basis = add("Add", add("Mul", rising, first), add("Mul", falling, second))
            parts.append(add("Add", basis, add("Mul", X, 0.0)))  # NaN stays NaN
        return add("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]

    def _one_hot(self, X: str, encoder: Any) -> str:
        """Add a 0 or 1 for each category, NaN for other strings."""
        categories, add = encoder.categories_, self.add
        given = {"keys_strings": categories, "values_int64s": [*range(len(categories))], "default_int64": -1}
        codes = add("LabelEncoder", X, op_domain="ai.onnx.ml", op_version=2, **given)
        is_one = self._cast(add("Equal", codes, np.arange(len(categories))), self._dtype)
        return add("Where", add("Less", codes, np.zeros(1, dtype=np.int64)), np.nan, is_one)

    def _fourier(self, X: str, fourier: Any) -> str:
        """Add the scores that the Fourier features give."""
        add, kernel, n_components = self.add, fourier.kernel_features_, len(fourier.phases_)
        filled, missing, inverse = self._filled(X, fourier.gaussian)
        own = add("Gather", missing, kernel, axis=1)
        loadings = fourier.feature_factors_[kernel].T
        projected = add("MatMul", add("Mul", add("Unsqueeze", own, np.array([1])), loadings), fourier.omegas_)
        exponents = add("Mul", projected, add("MatMul", inverse, projected))
        exponents = add("ReduceSum", exponents, np.array([1]), keepdims=0)
        squares = fourier.residual_variances_[kernel][:, None] * np.square(fourier.omegas_)
        exponents = add("Mul", add("Add", exponents, add("MatMul", own, squares)), -0.5)
        phases = add("Add", add("MatMul", add("Gather", filled, kernel, axis=1), fourier.omegas_), fourier.phases_)
        waves = add("Mul", add("Mul", add("Cos", phases), add("Exp", exponents)), float(np.sqrt(2.0 / n_components)))
        both = add("Concat", waves, filled, axis=1)
        return add("Add", add("MatMul", both, fourier.projection_[:-1]), fourier.projection_[-1])

    def _rescaled_scores(self, X: str) -> str:
        """Add the scores of rows with missing values; `dropmargin.estimators.missing` has the formulas."""
        add, coef, n_features = self.add, self._coef, self._coef.shape[1]
        is_missing = add("IsNaN", X)
        missing = self._cast(is_missing, self._dtype)
        contribution = np.abs(coef) * self.model.feature_deviations_
        total = contribution.sum(axis=1, keepdims=True)
        weights = np.where(total > 0.0, contribution / np.where(total > 0.0, total, 1.0), 1.0 / n_features)
        at_mean = self.model.feature_means_ * coef.astype(np.float64)
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
        classes = self.model.classes_
        n_classes, n_outputs = len(classes), len(self._coef)
        is_pairwise = n_classes > 2 and (self.model.multi_class == "ovo" or n_outputs != n_classes)
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
        if self.model.multi_class != "multinomial":
            decay = self.add("Exp", self.add("Neg", self.add("Abs", scores)))
            scores = self.add("Sub", self.add("Min", scores, 0.0), self.add("Log", self.add("Add", decay, 1.0)))
        self.add("Softmax", scores, axis=1, output=output)
