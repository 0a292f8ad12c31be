"""Exports of fitted models to LIBLINEAR, ONNX and scikit-learn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from dropmargin.io.atomic import Path, write_atomically
from dropmargin.io.model.estimators import plain_model
from dropmargin.typing import Array


def linear_model(model: Any, target: str) -> Any:
    """Return the fitted model for an export that has neither preprocessing nor missing values."""
    model = getattr(model, "best_estimator_", model)
    if isinstance(model, Pipeline):
        raise ValueError(
            f"{target} takes the model without its preprocessing: export pipeline[-1], and transform the rows "
            "with pipeline[:-1]. export_onnx exports the whole pipeline."
        )
    missing = getattr(model, "missing", "error")
    if missing != "error":
        raise ValueError(
            f"{target} does not support missing values, got a model with missing={missing!r}. For complete rows it is "
            "an ordinary linear model: export it after model.set_params(missing='error')."
        )
    return plain_model(model, "Exports")


def is_one_vs_one(model: Any) -> bool:
    """Return whether the rows of ``coef_`` are pairs of classes, and the scores of the classes their votes."""
    if not hasattr(model, "classes_"):
        return False
    n_classes = len(model.classes_)
    return n_classes > 2 and (getattr(model, "multi_class", "ovr") == "ovo" or len(model.coef_) != n_classes)


def is_multinomial(model: Any) -> bool:
    """Return whether the probabilities of the classes are the softmax of their scores."""
    return len(getattr(model, "classes_", ())) > 2 and getattr(model, "multi_class", "ovr") == "multinomial"


def has_intercept(model: Any) -> bool:
    return bool(model.fit_intercept) or bool(model.intercept_.any())


# LIBLINEAR ----------------------------------------------------------------------------------------------------------

_INT = np.iinfo(np.int32)
_FEATURES_PER_CHUNK = 4096


def export_liblinear(model: Any, path: Path) -> None:
    """Write a fitted model as a model file of LIBLINEAR, whose ``predict`` gives the same labels or numbers.

    If scores are log-odds, ``predict -b 1`` also gives the same probabilities.

    Parameters
    ----------
    model : estimator
        A fitted regressor of dropmargin, or a classifier whose labels are integers, or floats with integer values.
        Three or more classes must be one-vs-rest.
    path : str or path-like
        Written atomically, as by `dropmargin.save`.

    Raises
    ------
    ValueError
        If LIBLINEAR cannot express the model.
    """
    model = linear_model(model, "LIBLINEAR")
    if is_one_vs_one(model):
        raise ValueError("LIBLINEAR has no one-vs-one models, got multi_class='ovo'. Fit with multi_class='ovr'.")
    if is_multinomial(model):
        raise ValueError("LIBLINEAR has no multinomial models, got 'multinomial'. Fit with multi_class='ovr'.")
    labels = _labels(model.classes_) if hasattr(model, "classes_") else []
    if len(labels) == 2:
        labels = labels[::-1]  # LIBLINEAR's first label is that of positive scores
    write_atomically(path, _lines(model, labels))


def _labels(classes: Array) -> list[int]:
    """Return the labels as 32-bit integers."""
    if classes.dtype.kind in "iuf" and (classes == np.floor(classes)).all():
        labels = [int(label) for label in classes.tolist()]
        if _INT.min <= labels[0] and labels[-1] <= _INT.max:
            return labels
    got = classes.tolist()[:5]
    raise ValueError(f"The labels of LIBLINEAR are integers of 32 bits, got classes {got}. Encode by LabelEncoder.")


def _lines(model: Any, labels: list[int]) -> Iterator[bytes]:
    """Yield the file: a header, one line per feature with the coefficients of all outputs, and the intercepts."""
    n_features = model.coef_.shape[1]
    of_classes = "L2R_LR" if hasattr(model, "predict_proba") else "L2R_L1LOSS_SVC_DUAL"
    head = [
        f"solver_type {of_classes if labels else 'L2R_L2LOSS_SVR'}",
        f"nr_class {len(labels) or 2}",
        *(["label " + " ".join(map(str, labels))] if labels else []),
        f"nr_feature {n_features}",
        f"bias {1 if has_intercept(model) else -1}",
        "w",
    ]
    yield ("\n".join(head) + "\n").encode()
    for begin in range(0, n_features, _FEATURES_PER_CHUNK):
        yield _rows(model.coef_[:, begin : begin + _FEATURES_PER_CHUNK].T)
    if has_intercept(model):
        yield _rows(model.intercept_[None, :])


def _rows(values: Array) -> bytes:
    """Return lines of numbers, with enough digits to be read back exactly."""
    return "".join(" ".join(map(repr, row)) + " \n" for row in values.astype(np.float64).tolist()).encode()


# scikit-learn -------------------------------------------------------------------------------------------------------


def to_sklearn(model: Any) -> Any:
    """Return a fitted estimator of scikit-learn with the same scores, labels and, if there are any, probabilities.

    Its parameters are scikit-learn's defaults: fitting it again trains without noise.

    Parameters
    ----------
    model : estimator
        A fitted classifier or regressor of dropmargin.

    Returns
    -------
    estimator
        A `LinearSVC`, or a `LogisticRegression` if scores are log-odds. With three or more classes these are inside a
        `OneVsOneClassifier` for ``multi_class="ovo"``, and inside a `OneVsRestClassifier` for one-vs-rest log-odds,
        because a multi-class `LogisticRegression` computes other probabilities from the same scores (softmax), which
        are those of ``multi_class="multinomial"``. A regressor becomes a `Ridge`.
    """
    from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
    from sklearn.preprocessing import LabelBinarizer

    model = linear_model(model, "scikit-learn")
    if not hasattr(model, "classes_"):
        ridge = _unfitted(model)
        ridge.coef_, ridge.intercept_, ridge.n_iter_ = model.coef_[0].copy(), model.intercept_[0], None
        return _with_features(ridge, model)
    is_ovo, n_outputs = is_one_vs_one(model), len(model.coef_)
    is_plain = len(model.classes_) == 2 or is_multinomial(model) or not hasattr(model, "predict_proba")
    if is_plain and not is_ovo:
        return _fitted(model, model.classes_, slice(None))
    estimator = (OneVsOneClassifier if is_ovo else OneVsRestClassifier)(_unfitted(model))
    # one estimator per output, for the classes 0 and 1
    estimator.estimators_ = [_fitted(model, np.array([0, 1]), slice(k, k + 1)) for k in range(n_outputs)]
    if is_ovo:
        estimator.pairwise_indices_ = None
    else:
        estimator.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(model.classes_)
    if not isinstance(getattr(type(estimator), "classes_", None), property):  # a property in scikit-learn 1.6
        estimator.classes_ = model.classes_.copy()
    return _with_features(estimator, model)


def _unfitted(model: Any) -> Any:
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.svm import LinearSVC

    of_classes = LogisticRegression if hasattr(model, "predict_proba") else LinearSVC
    return (of_classes if hasattr(model, "classes_") else Ridge)(fit_intercept=has_intercept(model))


def _fitted(model: Any, classes: Array, outputs: slice) -> Any:
    """Return an estimator with some of the outputs."""
    estimator = _unfitted(model)
    estimator.classes_ = classes.copy()
    estimator.coef_ = model.coef_[outputs].copy()
    estimator.intercept_ = model.intercept_[outputs].copy()
    estimator.n_iter_ = np.array([1], dtype=np.int32) if hasattr(model, "predict_proba") else 1
    return _with_features(estimator, model)


def _with_features(estimator: Any, model: Any) -> Any:
    estimator.n_features_in_ = model.n_features_in_
    if hasattr(model, "feature_names_in_"):
        estimator.feature_names_in_ = model.feature_names_in_.copy()
    return estimator


# ONNX ---------------------------------------------------------------------------------------------------------------

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
    from dropmargin.io.model.onnx_pipeline import convert_pipeline

    model = getattr(model, "best_estimator_", model)
    pipeline = model if isinstance(model, Pipeline) else Pipeline([("classifier", model)])
    classifier = plain_model(pipeline[-1], "Exports")
    if classifier.coef_.nbytes > _MAX_BYTES:
        raise ValueError(f"An ONNX file holds up to 2 GB, got coefficients of {classifier.coef_.nbytes} bytes.")
    graph = convert_pipeline(pipeline, classifier)
    graph.producer_name, graph.producer_version = "dropmargin", __version__
    names = getattr(pipeline, "feature_names_in_", None)
    if names is not None:
        onnx.helper.set_model_props(graph, {"feature_names": json.dumps(names.tolist(), ensure_ascii=False)})
    onnx.checker.check_model(graph)
    write_atomically(path, [graph.SerializeToString()])
