"""Fitted models in files, without code, and exports to LIBLINEAR, ONNX and scikit-learn."""

from dropmargin.io.model.checks import ModelFormatError
from dropmargin.io.model.exports import export_liblinear, export_onnx, to_sklearn
from dropmargin.io.model.files import describe, load, load_described, save

__all__ = [
    "ModelFormatError",
    "describe",
    "export_liblinear",
    "export_onnx",
    "load",
    "load_described",
    "save",
    "to_sklearn",
]
