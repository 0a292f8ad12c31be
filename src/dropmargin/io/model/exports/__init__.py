"""A model for other programs: LIBLINEAR's text, an ONNX graph, scikit-learn's own classes."""

from dropmargin.io.model.exports.liblinear import export_liblinear
from dropmargin.io.model.exports.onnx_graph import export_onnx
from dropmargin.io.model.exports.scikit_learn import to_sklearn

__all__ = ["export_liblinear", "export_onnx", "to_sklearn"]
