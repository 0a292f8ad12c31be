"""Write two model files and their predictions, for the tests of later versions: ``python tests/golden/make.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dropmargin

_HERE = Path(__file__).parent


def _expected(model: Any, rows: np.ndarray, names: list[str] | None) -> dict[str, Any]:
    given = rows if names is None else pd.DataFrame(rows, columns=names)
    return {
        "coef": [value.hex() for value in model.coef_.ravel().tolist()],
        "rows": [[None if np.isnan(value) else value for value in row] for row in rows.tolist()],
        "names": names,
        "labels": model.predict(given).tolist(),
        "decision": model.decision_function(given).tolist(),
    }


def main() -> None:
    """Fit and save the models, and write their predictions."""
    rng = np.random.RandomState(0)
    X = np.abs(rng.randn(40, 4))
    scores = X @ rng.randn(4, 3)
    codes = (scores - scores.mean(axis=0)).argmax(axis=1)
    svc = dropmargin.DropoutSVC(noise=dropmargin.DropoutNoise([0.1, 0.2, 0.3, 0.4]), class_weight={0: 1.0, 1: 2.0})
    svc.fit(X, (codes > 0).astype(int))
    names = ["länge", "Breite", "高さ", "d"]
    logistic = dropmargin.DropoutLogisticRegression(noise=dropmargin.GaussianNoise(0.3), missing="rescale")
    logistic.fit(pd.DataFrame(X, columns=names), np.array(["eins", "zwei", "三"])[codes])
    incomplete = X[:5].copy()
    incomplete[1, 2] = incomplete[3, :2] = np.nan
    dropmargin.save(svc, _HERE / "svc.safetensors", summary={"rows": 40})
    dropmargin.save(logistic, _HERE / "logistic.safetensors", summary={"rows": 40})
    expected = {"svc": _expected(svc, X[:5], None), "logistic": _expected(logistic, incomplete, names)}
    (_HERE / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
