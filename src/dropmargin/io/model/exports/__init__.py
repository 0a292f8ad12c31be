"""Exports of fitted models to LIBLINEAR, ONNX and scikit-learn."""

from dropmargin.io.model.exports.liblinear import export_liblinear
from dropmargin.io.model.exports.onnx_export import export_onnx
from dropmargin.io.model.exports.scikit_learn import to_sklearn

__all__ = ["export_liblinear", "export_onnx", "to_sklearn"]
