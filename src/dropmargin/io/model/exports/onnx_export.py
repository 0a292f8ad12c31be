"""Export to ONNX by skl2onnx: one graph from the raw columns to labels, scores and probabilities."""

from __future__ import annotations

import json
from typing import Any

from sklearn.pipeline import Pipeline

from dropmargin.io.atomic import Path, write_atomically
from dropmargin.io.model.estimators import plain_outputs

# A protocol buffer is limited to 2 GB.
_MAX_BYTES = 2**31 - 2**20


def export_onnx(model: Any, path: Path) -> None:
    """Write a fitted classifier or regressor, with its preprocessing, as an ONNX model.

    The graph takes raw rows. A classifier, or a pipeline whose first step takes a matrix, has one input ``X`` of shape
    ``(n, n_features)``. A `TextEncoder` or a vectorizer of scikit-learn takes strings of shape ``(n, 1)``: ``X``, or
    the input named ``TextEncoder.column``. A `TableEncoder`, or a `ColumnTransformer` that was fitted to a data frame,
    has one input of shape ``(n, 1)`` for each column, with its name: numbers, or strings for categories and text. NaN
    and, for the categories of a `TableEncoder`, the empty string are missing values. Numbers are double, or float if
    the coefficients are float or a step is a `SimpleImputer`, a `Normalizer` or a `PolynomialFeatures`.

    Outputs are ``label``, ``decision``, as `decision_function` returns it, and, if scores are log-odds,
    ``probability``, as `predict_proba` returns it. That of a regressor is ``prediction``.

    Parameters
    ----------
    model : estimator
        A fitted model of dropmargin, or a `Pipeline` that ends with one. Its other steps are a `TableEncoder` or
        `TextEncoder`, or of scikit-learn: the scalers, `OneHotEncoder`, `SimpleImputer`, `Normalizer`,
        `PolynomialFeatures`, `CountVectorizer`, `TfidfVectorizer`, `TfidfTransformer`, and `ColumnTransformer`,
        `FeatureUnion` and `Pipeline` of these.
    path : str or path-like
        Written atomically, as by `dropmargin.save`.

    Raises
    ------
    ValueError
        If a step cannot be expressed in ONNX; the message names the step.
    ImportError
        If skl2onnx is not installed.

    Notes
    -----
    Text needs onnxruntime, because the ONNX standard has no tokenizer. The graph of a model with ``missing="error"``
    raises no error for missing values: the scores of such rows are NaN.
    """
    try:
        import onnx
        import skl2onnx  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "The export to ONNX needs the packages onnx and skl2onnx. Install them with: pip install 'dropmargin[onnx]'"
        ) from error
    from dropmargin import __version__
    from dropmargin.io.model.exports.onnx_pipeline import convert_pipeline

    model = getattr(model, "best_estimator_", model)
    pipeline = model if isinstance(model, Pipeline) else Pipeline([("classifier", model)])
    classifier = plain_outputs(pipeline[-1])
    if classifier.coef_.nbytes > _MAX_BYTES:
        raise ValueError(f"An ONNX file holds up to 2 GB, got coefficients of {classifier.coef_.nbytes} bytes.")
    graph = convert_pipeline(pipeline, classifier)
    graph.producer_name, graph.producer_version = "dropmargin", __version__
    names = getattr(pipeline, "feature_names_in_", None)
    if names is not None:
        onnx.helper.set_model_props(graph, {"feature_names": json.dumps(names.tolist(), ensure_ascii=False)})
    onnx.checker.check_model(graph)
    write_atomically(path, [graph.SerializeToString()])
