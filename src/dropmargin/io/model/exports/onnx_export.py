"""Export to ONNX."""

from __future__ import annotations

import json
from typing import Any

from dropmargin.io.atomic import Path, write_atomically
from dropmargin.io.model.exports.linear import linear_model

# A protocol buffer is limited to 2 GB.
_MAX_BYTES = 2**31 - 2**20
_OPSET, _IR_VERSION = 17, 8


def export_onnx(model: Any, path: Path) -> None:
    """Write a fitted classifier or regressor as an ONNX model.

    The graph has one input ``X`` of shape ``(n, n_features)``, of the type of the coefficients. Outputs are ``label``,
    ``decision``, as `decision_function` returns it, and, if scores are log-odds, ``probability``, as `predict_proba`
    returns it. That of a regressor is ``prediction``.

    Parameters
    ----------
    model : estimator
        A fitted model of dropmargin, without its preprocessing. With ``missing="rescale"``, NaN is a missing value.
    path : str or path-like
        Written atomically, as by `dropmargin.save`.

    Raises
    ------
    ValueError
        If the model cannot be expressed in ONNX.
    ImportError
        If onnx is not installed.

    Notes
    -----
    The graph of a model with ``missing="error"`` raises no error for missing values: the scores of such rows are NaN.
    """
    try:
        import onnx
    except ImportError as error:
        raise ImportError(
            "The export to ONNX needs the package onnx. Install it with: pip install 'dropmargin[onnx]'"
        ) from error
    from dropmargin import __version__
    from dropmargin.io.model.exports.onnx_graph import make_graph

    model = linear_model(model, "export_onnx", accepted=("error", "rescale"))
    if model.coef_.nbytes > _MAX_BYTES:
        raise ValueError(f"An ONNX file holds up to 2 GB, got coefficients of {model.coef_.nbytes} bytes.")
    made = onnx.helper.make_model(
        make_graph(model),
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="dropmargin",
        producer_version=__version__,
    )
    if hasattr(model, "feature_names_in_"):
        names = json.dumps(model.feature_names_in_.tolist(), ensure_ascii=False)
        onnx.helper.set_model_props(made, {"feature_names": names})
    onnx.checker.check_model(made)
    write_atomically(path, [made.SerializeToString()])
