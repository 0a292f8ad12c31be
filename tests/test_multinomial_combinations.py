"""``multi_class="multinomial"`` with all that a fit can have: losses, noises, penalties, missing values, places, files.

The combinations are chosen evenly. Each model is compared with the fit to the rows in memory, and what was written
with the model itself.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

import dropmargin.dask
from clusters import local_cluster
from datasets import make_multiclass
from dealing import deal
from dropmargin import (
    DropoutLogisticRegression,
    MCFClassifier,
    NoisyLinearClassifier,
    load,
    save,
    streaming,
)
from dropmargin.io.model import export_onnx
from helpers import N_FEATURES, NOISES

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore::dropmargin.errors.ParameterWarning"),
]

_X, _y = make_multiclass(n_samples=90, n_features=N_FEATURES, n_classes=3)
_X = np.abs(_X)  # Poisson noise needs counts, or at least no negative numbers
_GAPS = np.where(np.random.default_rng(1).random(_X.shape) < 0.2, np.nan, _X)

MODELS = {
    "logistic": DropoutLogisticRegression(),
    "mcf-logistic": MCFClassifier("logistic"),
    "noisy logistic": NoisyLinearClassifier("logistic"),
    "noisy mcf-logistic": NoisyLinearClassifier("mcf-logistic"),
}


@pytest.fixture(scope="module")
def client():
    with local_cluster(2) as client:
        yield client


def in_memory(model, X, y, tmp_path, client):
    return model.fit(sparse.csr_array(X) if not np.isnan(X).any() else X, y)


def in_files(model, X, y, tmp_path, client):
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    return streaming.fit(model, tmp_path / "rows.npz", progress=False)


def on_cluster(model, X, y, tmp_path, client):
    return dropmargin.dask.fit(model, da.from_array(X, (40, -1)), da.from_array(y, 40), client=client, progress=False)


PLACES = {"memory": in_memory, "files": in_files, "cluster": on_cluster}
# missing="conditional" needs all rows in memory.
_WHERE = [(place, missing) for place in PLACES for missing in ("error", "rescale")] + [("memory", "conditional")]


def through_model_file(model, X, tmp_path):
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert_array_equal(loaded.predict(X), model.predict(X))
    return loaded.predict_proba(X)


def through_onnx(model, X, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("skl2onnx")
    if model.missing == "conditional":
        with pytest.raises(ValueError, match="missing='conditional'"):
            export_onnx(model, tmp_path / "model.onnx")
        return model.predict_proba(X)
    export_onnx(model, tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    return session.run(["probability"], {session.get_inputs()[0].name: X})[0]


WRITTEN = {"model file": through_model_file, "onnx": through_onnx}


def _cases():
    """Return the combinations; those through the MGF under an l1 penalty take seconds on a cluster."""
    for case in deal(MODELS, _WHERE, NOISES, [0.0, 0.5, 1.0], WRITTEN, n=14):
        name, (place, _), _, l1_ratio, _ = case
        is_slow = "mcf" in name and place == "cluster" and l1_ratio == 1.0
        yield pytest.param(*case, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize(("name", "where", "noise", "l1_ratio", "written"), list(_cases()), ids=str)
def test_combination(name, where, noise, l1_ratio, written, tmp_path, client):
    place, missing = where
    params = {"noise": NOISES[noise], "missing": missing, "l1_ratio": l1_ratio, "multi_class": "multinomial", "C": 0.25}
    model = clone(MODELS[name]).set_params(tol=1e-9, **params)
    X = _X if missing == "error" else _GAPS
    expected = clone(model).fit(X, _y)
    fitted = PLACES[place](model, X, _y, tmp_path, client)
    assert fitted.converged_
    assert fitted.objective_ == pytest.approx(expected.objective_, rel=1e-7)
    assert_allclose(fitted.coef_, expected.coef_, atol=2e-3)
    assert_allclose(fitted.predict_proba(X).sum(axis=1), 1.0)
    assert fitted.score(X, _y) > 1.3 * np.bincount(_y).max() / len(_y)
    assert_allclose(WRITTEN[written](fitted, X, tmp_path), fitted.predict_proba(X), atol=1e-9)
