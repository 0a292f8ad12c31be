"""Regression on the command line: numbers as targets in files, trained, chosen, predicted, evaluated and exported."""

from __future__ import annotations

import csv

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from datasets import make_binary
from dropmargin import DropoutRidge, DropoutRidgeCV, DropoutSVR, load
from dropmargin.io.model import to_sklearn
from dropmargin.noise import DropoutNoise
from stream_data import write_svmlight

pytest.importorskip("pyarrow")

GRID = ("--noises", "0,0.2", "--cs", "0.01,0.1", "--folds", "3")
CLASS_LOSSES = "hinge, logistic, quadratic, exponential, mcf-logistic"


@pytest.fixture
def houses(tmp_path):
    """Write a table of houses as several files, and return it."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"rooms": rng.integers(1, 8, 90), "size": rng.normal(100.0, 30.0, 90).round(2)})
    frame["town"] = rng.choice(["Aachen", "Bonn"], 90)
    frame["street_noise"] = rng.normal(size=90).round(3)
    frame["street_width"] = rng.normal(size=90).round(3)
    price = 20.0 * frame["rooms"] + frame["size"] + 30.0 * (frame["town"] == "Bonn") + rng.normal(0.0, 10.0, 90)
    frame["price"] = price.round(2)
    frame.to_csv(tmp_path / "houses.csv", index=False)
    frame.to_parquet(tmp_path / "houses.parquet", index=False)
    holes = frame.copy()
    holes.loc[::3, "rooms"] = np.nan
    holes.to_csv(tmp_path / "holes.csv", index=False)
    return frame


def read_numbers(text):
    """Return the header and the numbers of a table of predictions."""
    header, *rows = csv.reader(text.splitlines())
    return header, np.array(rows, dtype=float)


def test_many_numbers_train_a_ridge_regression(run, houses):
    done = run("train", "houses.csv", "m.safetensors", "--target", "price", "--noise", "0.2", "-c", "0.5", "--json")
    note = "--target price: the labels are 90 different numbers in 90 rows, a quantity to predict"
    assert f"{note}: the model is trained with --loss ridge" in done.err
    assert done.json["loss"] == "ridge"
    assert done.json["classes"] is None
    encoder, model = load("m.safetensors")
    X = encoder.transform(houses)
    noise = DropoutNoise(0.2, groups=[0, 1, 2, 2, 3, 4])  # the categories of a town are lost together
    expected = DropoutRidge(noise=noise, C=0.5).fit(X, houses["price"])
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert done.json["training_r2"] == expected.score(X, houses["price"])

    header, found = read_numbers(run("predict", "houses.csv", "m.safetensors").out)
    assert header == ["prediction"]
    np.testing.assert_array_equal(found[:, 0], model.predict(X))
    facts = run("evaluate", "houses.csv", "m.safetensors", "--json").json
    for name, score in (("rmse", root_mean_squared_error), ("mae", mean_absolute_error), ("r2", r2_score)):
        assert facts[name] == pytest.approx(score(houses["price"], found[:, 0]), rel=1e-12)
    assert "R2    0.9" in run("evaluate", "houses.csv", "m.safetensors").out
    for _ in range(2):  # the file of predictions is replaced
        run("predict", "houses.csv", "m.safetensors", "--ids", "town", "-o", "out.csv")
    described = run("info", "m.safetensors").out
    assert "none (regression)" in described
    assert "increase the prediction" in described
    assert run("info", "m.safetensors", "--json").json["top_features"][0]["features_for"][0]["feature"] == "rooms"


def test_svr_with_missing_cells_groups_and_text(run, houses, tmp_path):
    (tmp_path / "groups.txt").write_text("street: street_*\n")
    options = ("--loss", "svr", "--epsilon", "5", "--missing", "conditional", "--groups", "groups.txt")
    run("train", "holes.csv", "m.safetensors", "--target", "price", *options)
    encoder, model = load("m.safetensors")
    assert isinstance(model, DropoutSVR)
    assert model.epsilon == 5.0
    groups = model.noise.groups.tolist()
    assert groups[-1] == groups[-2]
    holes = pd.read_csv(tmp_path / "holes.csv")
    header, found = read_numbers(run("predict", "holes.csv", "m.safetensors", "--output", "std,prediction").out)
    assert header == ["std", "prediction"]
    given = ("--output", "interval", "--coverage", "0.8")
    names, ends = read_numbers(run("predict", "holes.csv", "m.safetensors", *given).out)
    assert names == ["interval_low", "interval_high"]
    np.testing.assert_array_equal(ends, model.predict_interval(encoder.transform(holes), 0.8))
    predictions, deviations = model.predict(encoder.transform(holes), return_std=True)
    np.testing.assert_array_equal(found, np.column_stack([deviations, predictions]))
    assert (found[:, 0] > 0.0).tolist() == holes["rooms"].isna().tolist()
    run("train", "houses.csv", "text.safetensors", "--target", "price", "--text", "town", "--loss", "svr")
    assert "town: bonn" in load("text.safetensors")[0].get_feature_names_out().tolist()
    assert run("evaluate", "houses.csv", "text.safetensors", "--json").json["r2"] > 0.75


def test_numbers_of_other_formats(run, houses, tmp_path):
    X, y = houses[["rooms", "size"]].to_numpy(), houses["price"].to_numpy()
    write_svmlight(tmp_path / "houses.svm", X, y)
    np.savez(tmp_path / "houses.npz", X=X, y=y)
    lines = [f"{rooms:g};{size:.2f};€ {price:.2f}" for rooms, size, price in zip(*X.T, y, strict=True)]
    (tmp_path / "euros.csv").write_text("\n".join(["rooms;size;price", *lines]) + "\n", encoding="utf-8")
    expected = DropoutRidge().fit(X, y).coef_
    for name in ("houses.svm", "houses.npz"):
        for more in ([], ["--memory-limit", "1GB"]):
            run("train", name, "m.safetensors", *more, "--tol", "1e-9")
            np.testing.assert_allclose(load("m.safetensors").coef_, expected, rtol=1e-3)
        assert run("evaluate", name, "m.safetensors", "--json").json["r2"] > 0.8
    np.savez(tmp_path / "stars.npz", X=X, y=np.where(y > 200.0, 0.5, 4.5))  # few fractions: no classes, either
    assert run("train", "stars.npz", "m.safetensors", "--json").json["loss"] == "ridge"
    table = ("--target", "price", "--no-scale")
    run("train", "euros.csv", "m.safetensors", *table, "--loss", "ridge")
    np.testing.assert_allclose(load("m.safetensors")[-1].coef_, expected, rtol=1e-6)
    assert run("evaluate", "euros.csv", "m.safetensors", "--json").json["r2"] > 0.8
    table += ("--ignore", "town,street_noise,street_width")
    run("train", "houses.parquet", "m.safetensors", *table)
    np.testing.assert_allclose(load("m.safetensors")[-1].coef_, expected, rtol=1e-6)
    assert run("evaluate", "houses.parquet", "m.safetensors", "--json").json["r2"] > 0.8


def test_a_number_per_row_needs_little_memory(run, tmp_path):
    X = np.random.default_rng(0).normal(size=(6000, 3))
    np.savez(tmp_path / "data.npz", X=X, y=X[:, 0])
    run("train", "data.npz", "m.safetensors", "--memory-limit", "2GB")
    assert run("evaluate", "data.npz", "m.safetensors", "--json").json["r2"] > 0.9


def test_cv_chooses_noise_and_c(run, houses):
    done = run("cv", "houses.csv", "--target", "price", *GRID, "-o", "m.safetensors", "--json")
    assert done.json["scoring"] == "r2"
    X = load("m.safetensors")[0].transform(houses)
    assert done.json["score"] == pytest.approx(load("m.safetensors")[-1].score(X, houses["price"]), abs=0.05)
    facts = run("cv", "houses.csv", "--target", "price", *GRID, "--loss", "svr", "--missing-rate", "0.3", "--json").json
    assert facts["scoring"] == "neg_expected_absolute_error"
    assert facts["score"] < 0.0
    # A file is often sorted by its target: the rows are shuffled before they are split.
    houses.sort_values("price").to_csv("sorted.csv", index=False)
    assert run("cv", "sorted.csv", "--target", "price", *GRID, "--json").json["score"] > 0.8
    error = run("cv", "houses.csv", "--target", "price", *GRID, "--scoring", "accuracy", code=2).error
    assert error.startswith("--scoring: it cannot be computed for numbers")
    assert "a fold needs two rows" in run("cv", "houses.csv", "--target", "price", "--folds", "46", code=2).error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--target", "town", "--loss", "ridge"], "--loss ridge predicts numbers, and the label 'Aachen' is none"),
        (["--target", "price", "--loss", "hinge"], "--loss hinge learns classes: use --loss ridge"),
        (["--target", "price", "--loss", "svr", "--multi-class", "ovo"], f"--multi-class is for --loss {CLASS_LOSSES}"),
        (["--target", "price", "--class-weight", "balanced"], f"--class-weight is for --loss {CLASS_LOSSES}"),
        (["--target", "price", "--loss", "ridge", "--approximation", "bound"], "--approximation is for --loss hinge"),
        (["--target", "price", "--epsilon", "1"], "--epsilon is for --loss svr; the loss is ridge"),
        (["--target", "town", "--epsilon", "1"], "--epsilon is for --loss svr; the loss is hinge"),
    ],
)
def test_losses_and_options_that_do_not_suit_the_target(run, houses, tmp_path, arguments, said):
    for command in (["train", "houses.csv", "m.safetensors"], ["cv", "houses.csv", "-o", "m.safetensors"]):
        assert said in run(*command, *arguments, code=2).error
    assert not (tmp_path / "m.safetensors").exists()


def test_outputs_and_commands_that_a_model_does_not_have(run, houses):
    run("train", "houses.csv", "m.safetensors", "--target", "price")
    run("train", "houses.csv", "classes.safetensors", "--target", "town")
    run("train", "houses.csv", "rescale.safetensors", "--target", "price", "--missing", "rescale")
    for model, output, said in (
        ("m", "label", "has a DropoutRidge, which predicts numbers"),
        ("m", "stability", "has a DropoutRidge, which predicts numbers"),
        ("m", "std", "has no standard deviations (train with --missing conditional)"),
        ("rescale", "interval", "has --missing rescale (train with --missing conditional)"),
        ("classes", "prediction", "has a DropoutSVC, which predicts classes"),
    ):
        error = run("predict", "houses.csv", f"{model}.safetensors", "--output", output, code=2).error
        assert error == f"--output {output}: {model}.safetensors {said}"
    error = run("evaluate", "houses.csv", "m.safetensors", "--target", "town", code=1).error
    assert "houses.csv:2: the label" in error
    assert "is not a finite number" in error
    error = run("stress", "houses.csv", "houses.csv", "--target", "price", "--loss", "hinge", code=2).error
    assert "--loss hinge learns classes: use --loss ridge or svr" in error


@pytest.mark.parametrize("intercept", [True, False])
def test_exports(run, tmp_path, intercept):
    X, _ = make_binary()
    y = X[:, 0] - 2.0 * X[:, 1] + (3.0 if intercept else 0.0)
    np.savez(tmp_path / "data.npz", X=X, y=y)
    run("train", "data.npz", "m.safetensors", "--loss", "ridge", *([] if intercept else ["--no-intercept"]))
    model = load("m.safetensors")
    expected = model.predict(X)
    np.testing.assert_allclose(to_sklearn(model).predict(X), expected, rtol=1e-12, atol=1e-12)
    run("export", "m.safetensors", "m.model")
    liblinear = pytest.importorskip("liblinear.liblinearutil")
    found, _, _ = liblinear.predict([], X, liblinear.load_model("m.model"), "-q")
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    pytest.importorskip("skl2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    run("export", "m.safetensors", "m.onnx")
    (found,) = onnxruntime.InferenceSession("m.onnx").run(["prediction"], {"X": X})
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_a_regressor_for_missing_values_is_exported(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("skl2onnx")
    from dropmargin.io.model import export_onnx

    X, _ = make_binary()
    model = DropoutRidgeCV(noises=[0.1], Cs=[1.0], missing="rescale", verbose=0).fit(X, X[:, 0] - X[:, 1])
    X[::2, 0] = np.nan
    export_onnx(model, tmp_path / "m.onnx")
    (found,) = onnxruntime.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"X": X})
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-9, atol=1e-9)


def test_a_short_table_of_integers_is_a_quantity(run, tmp_path):
    (tmp_path / "short.csv").write_text("x,y\n" + "\n".join(f"{i % 7},{i}" for i in range(30)) + "\n")
    assert "30 different numbers" in run("train", "short.csv", "m.safetensors", "--target", "y").err


def test_missing_values_with_missing_error_and_their_export(run, tmp_path):
    lines = [f"{i % 5 if i % 3 else ''},{i % 4},{i % 2}" for i in range(40)]
    (tmp_path / "holes.csv").write_text("a,b,y\n" + "\n".join(lines) + "\n")
    arguments = ("train", "holes.csv", "m.safetensors", "--target", "y")
    assert "--missing error: the data have missing values" in run(*arguments, "--missing", "error", code=2).error
    run(*arguments)
    run("export", "m.safetensors", "m.onnx")
    run(*arguments, "--missing", "conditional")
    assert "--complete-rows" in run("export", "m.safetensors", "other.onnx", code=2).error


STRESS = ("--delete", "0,0.5", "--noises", "0.1,0.3", "--cs", "0.01,0.1", "--repeats", "2", "--folds", "2")


@pytest.mark.slow
def test_stress_compares_regressors(run, houses, tmp_path):
    done = run("stress", "holes.csv", "houses.csv", "--target", "price", *STRESS, "--html", "r.html", "--json")
    assert done.json["loss"] == "ridge"
    names = [one["method"] for one in done.json["results"]]
    assert names == [
        "DropoutRidge",
        "DropoutRidge (conditional)",
        "Ridge (means)",
        "Ridge (iterative)",
        "HistGradientBoosting",
    ]
    spread = np.std(houses["price"])
    for one in done.json["results"]:
        assert one["rmse"][0] < one["rmse"][1] < 1.2 * spread
        assert one["r2"][0] == pytest.approx(1.0 - (one["rmse"][0] / spread) ** 2)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert done.json["verdict"].startswith("With half of the features missing, the RMSE goes from ")
    assert "RMSE on the test rows" in page
    text = run("stress", "holes.csv", "houses.csv", "--target", "price", *STRESS)
    first = [f"{value:.1f}" for value in done.json["results"][0]["rmse"]]
    assert text.out.splitlines()[2].split() == ["DropoutRidge", *first]
    assert done.json["verdict"] in text.out


def test_stress_predicts_integers_as_numbers_with_a_loss_of_regression(run, houses, tmp_path):
    given = ("--target", "rooms", *STRESS, "--loss", "svr", "--treatment", "zero")
    results = run("stress", "houses.csv", "houses.csv", *given, "--json").json["results"]
    assert [one["method"] for one in results] == ["DropoutSVR", "Ridge"]
    assert all(one["rmse"][0] < 2.0 for one in results)
    houses.assign(rooms="many").to_csv(tmp_path / "words.csv", index=False)
    assert "'many'" in run("stress", "houses.csv", "words.csv", *given, code=1).error
