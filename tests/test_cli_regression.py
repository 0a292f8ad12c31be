"""``--loss ridge`` and ``--loss svr``: train, cv, predict, evaluate and info for targets that are numbers."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.metrics import r2_score, root_mean_squared_error

import dropmargin


@pytest.fixture
def table(tmp_path):
    """Return a CSV file with a decimal comma and a column of text, and its targets."""
    rng = np.random.default_rng(0)
    X, kind = rng.normal(size=(80, 2)), rng.choice(list("uv"), 80)
    y = np.round(100.0 + X @ [2.0, -3.0] + 5.0 * (kind == "u") + rng.normal(size=80), 3)
    lines = [f"{a:.3f};{b:.3f};{k};{t:.3f}".replace(".", ",") for (a, b), k, t in zip(X, kind, y, strict=True)]
    path = tmp_path / "rows.csv"
    path.write_text("a;b;kind;price\n" + "\n".join(lines) + "\n")
    return path, y


@pytest.mark.parametrize("loss", [("ridge",), ("svr", "--epsilon", "0.5")], ids=["ridge", "svr"])
def test_train_evaluate_predict_and_info(run, table, tmp_path, loss):
    path, y = table
    model, out = tmp_path / "model.safetensors", tmp_path / "predictions.csv"
    done = run("train", path, model, "--target", "price", "--decimal", ",", "--loss", *loss, "--json").json
    assert done["classes"] is None
    run("predict", path, model, "-o", out)
    header, *lines = out.read_text().splitlines()
    assert header == "prediction"
    predictions = np.array(lines, dtype=float)
    assert done["training_rmse"] == pytest.approx(root_mean_squared_error(y, predictions))
    facts = run("evaluate", path, model, "--target", "price", "--json").json
    assert facts["rmse"] == pytest.approx(root_mean_squared_error(y, predictions))
    assert facts["mae"] == pytest.approx(np.mean(np.abs(y - predictions)))
    assert facts["r2"] == pytest.approx(r2_score(y, predictions))
    assert facts["r2"] > 0.8
    assert "RMSE" in run("evaluate", path, model, "--target", "price").out
    assert "for more" in run("info", model).out
    assert type(dropmargin.load(model)[-1]).__name__ == {"ridge": "DropoutRidge", "svr": "DropoutSVR"}[loss[0]]


def test_a_search_scores_by_r2_or_by_the_expected_error(run, table, tmp_path):
    path, _ = table
    given = [path, "--target", "price", "--decimal", ",", "--loss", "ridge", "--noises", "0.1,0.3", "--cs", "0.1,1"]
    plain = run("cv", *given, "--json").json
    assert plain["scoring"] == "r2"
    assert plain["score"] > 0.8
    model = tmp_path / "model.safetensors"
    noisy = run("cv", *given, "--missing-rate", "0.3", "-o", model, "--json").json
    assert noisy["scoring"] == "minus the expected squared error"
    assert noisy["score"] < 0.0
    assert model.exists()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--target", "kind", "--loss", "ridge"], "--target kind: the targets must be numbers, got '[uv]'"),
        (["--target", "price", "--loss", "ridge", "--epsilon", "1"], "--epsilon is for --loss svr"),
        (["--target", "price", "--loss", "svr", "--class-weight", "balanced"], "--class-weight cannot be used with"),
        (["--target", "price", "--loss", "svr", "--epsilon", "-1"], "expected a number of at least 0"),
        (["--target", "price"], "choose --loss ridge or svr"),
    ],
)
def test_errors_name_the_option(run, table, tmp_path, options, error):
    path, _ = table
    found = run("train", path, tmp_path / "model.safetensors", "--decimal", ",", *options, code=2)
    assert re.search(error, found.error)
    assert not (tmp_path / "model.safetensors").exists()


def test_outputs_of_classifiers_are_refused(run, table, tmp_path):
    path, _ = table
    model = tmp_path / "model.safetensors"
    run("train", path, model, "--target", "price", "--decimal", ",", "--loss", "ridge")
    found = run("predict", path, model, "--output", "probability", code=2)
    assert "--output probability is for classifiers" in found.error
