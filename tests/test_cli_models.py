"""Model files by the command line: training, prediction, cv, info, exports, and commands that fail or are killed."""

from __future__ import annotations

import errno
import hashlib
import os

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import scale

from command_line import run_script
from datasets import make_binary, make_multiclass
from dropmargin import (
    DropoutNoise,
    DropoutSVC,
    DropoutSVCCV,
    GaussianNoise,
    NoisyLinearClassifier,
    load,
    save,
)
from dropmargin.io import atomic
from dropmargin.io.model import describe


def write_npz(path, X, y):
    np.savez(path, X=X, y=y)


@pytest.fixture
def data(tmp_path):
    """Write data.npz and three.npz, and return the former's rows and labels."""
    X, y = make_binary()
    write_npz(tmp_path / "data.npz", X, y)
    write_npz(tmp_path / "three.npz", *make_multiclass())
    return X, y


# train ----------------------------------------------------------------------------------------------------------------


def test_learning_options_are_parameters_of_the_classifier(run, data):
    options = "--loss exponential --noise laplace=0.05 -c 0.3 --l1-ratio 0.2 --no-intercept"
    more = "--class-weight balanced --missing rescale --tol 1e-6 --max-iter 500 --n-jobs 1 --multi-class ovo"
    run("train", "data.npz", "m.safetensors", *options.split(), *more.split())
    model = load("m.safetensors")
    assert isinstance(model, NoisyLinearClassifier)
    expected = {
        "loss": "exponential",
        "C": 0.3,
        "l1_ratio": 0.2,
        "fit_intercept": False,
        "class_weight": "balanced",
        "missing": "rescale",
        "tol": 1e-6,
        "max_iter": 500,
        "n_jobs": 1,
        "multi_class": "ovo",
    }
    assert {name: model.get_params()[name] for name in expected} == expected
    assert model.noise.scale == 0.05


@pytest.mark.parametrize(
    ("text", "noise"),
    [
        ("none", None),
        ("0.5", DropoutNoise(0.5)),
        ("dropout=0.25", DropoutNoise(0.25)),
        ("gaussian=0.1", GaussianNoise(0.1)),
    ],
)
def test_noises(run, data, text, noise):
    run("train", "data.npz", "m.safetensors", "--noise", text)
    expected = DropoutSVC(noise=noise).fit(*data)
    assert repr(load("m.safetensors").noise) == repr(noise)
    np.testing.assert_array_equal(load("m.safetensors").coef_, expected.coef_)


def test_a_model_file_describes_its_training_data(run, data, tmp_path):
    (tmp_path / "zero.svm").write_text("1 0:1 2:0.5\n-1 1:1\n" * 5)
    run("train", "zero.svm", "m.safetensors", "--noise", "0.2")
    facts = describe("m.safetensors")
    assert facts["data_hash"] == "sha256:" + hashlib.sha256((tmp_path / "zero.svm").read_bytes()).hexdigest()
    summary = facts["summary"]
    assert (summary["rows"], summary["features"], summary["classes"]) == (10, 3, 2)
    assert (summary["zero_based"], summary["noise"], summary["command"]) == (True, "dropout=0.2", "train")
    # A file without an index 0 is read as the training data were.
    (tmp_path / "later.svm").write_text("1 2:1\n1 1:1\n")
    out = run("predict", "later.svm", "m.safetensors", "--output", "decision", "--no-header").out
    expected = load("m.safetensors").decision_function(np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    assert [float(line) for line in out.splitlines()] == expected.tolist()


def test_a_model_saved_in_python_has_one_based_features(run, data, tmp_path):
    X, y = data
    save(DropoutSVC().fit(X, y), "m.safetensors")
    (tmp_path / "rows.svm").write_text("1 8:1\n")
    done = run("predict", "rows.svm", "m.safetensors", "--output", "decision", "--no-header")
    assert float(done.out) == load("m.safetensors").decision_function(np.eye(8)[[7]])[0]
    assert "from 1, if not --zero-based" in done.err
    (tmp_path / "rows.svm").write_text("1 0:1 9:2\n")
    assert "9" in run("predict", "rows.svm", "m.safetensors", "--zero-based", code=1).error
    done = run(
        "predict", "rows.svm", "m.safetensors", "--zero-based", "--ignore-extra", "--output", "decision", "--no-header"
    )
    assert float(done.out) == load("m.safetensors").decision_function(np.eye(8)[[0]])[0]


# predict --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("training", "output", "message"),
    [
        (["data.npz"], "probability", "train with --loss logistic"),
        (["three.npz", "--loss", "logistic", "--multi-class", "ovo"], "probability", "--multi-class ovo has none"),
        (["data.npz", "--noise", "none"], "stability", "--stability-noise"),
    ],
)
def test_an_output_that_the_model_lacks_is_refused_before_data_are_read(run, data, tmp_path, training, output, message):
    first, *options = training
    run("train", first, "m.safetensors", *options)
    (tmp_path / "wrong.npz").write_text("not an npz file")
    assert message in run("predict", "wrong.npz", "m.safetensors", "--output", output, code=2).error


def test_stability_under_a_given_noise(run, data):
    run("train", "data.npz", "m.safetensors", "--noise", "none")
    done = run(
        "predict",
        "data.npz",
        "m.safetensors",
        "--output",
        "stability",
        "--stability-noise",
        "dropout=0.5",
        "--no-header",
    )
    expected = load("m.safetensors").predict_stability(data[0], 0.5)
    assert [float(line) for line in done.out.splitlines()] == expected.tolist()


def test_stability_of_one_vs_one(run, data):
    run("train", "three.npz", "m.safetensors", "--multi-class", "ovo")
    done = run(
        "predict", "three.npz", "m.safetensors", "--output", "stability", "--stability-noise", "0.5", "--no-header"
    )
    with np.load("three.npz") as stored:
        expected = load("m.safetensors").predict_stability(stored["X"], 0.5)
    assert [float(line) for line in done.out.splitlines()] == expected.tolist()


def test_data_of_another_kind_than_the_training_data_are_refused(run, data, tmp_path):
    run("train", "data.npz", "m.safetensors")
    (tmp_path / "t.csv").write_text("a,y\n1,0\n2,1\n")
    run("train", "t.csv", "t.safetensors", "--target", "y")
    assert "was trained on numbers, but t.csv is read as csv" in run("predict", "t.csv", "m.safetensors", code=2).error
    assert (
        "was trained on tables, but data.npz is read as npz"
        in run("predict", "data.npz", "t.safetensors", code=2).error
    )
    write_npz(tmp_path / "narrow.npz", np.ones((2, 3)), [0, 1])
    assert (
        "has 3 features, but m.safetensors was trained on 8"
        in run("predict", "narrow.npz", "m.safetensors", code=1).error
    )
    (tmp_path / "e.csv").write_text("a\n")
    assert "there are no rows" in run("predict", "e.csv", "t.safetensors", code=1).error


# cv -------------------------------------------------------------------------------------------------------------------


def test_cv_chooses_like_the_search_in_python_and_saves_the_best_model(run, tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    X = scale(X)[:200]
    write_npz(tmp_path / "d.npz", X, y[:200])
    arguments = ("--noises", "0,0.3,gaussian=0.1", "--cs", "0.01,0.1,1", "--folds", "3", "-o", "m.safetensors")
    done = run("cv", "d.npz", *arguments, "--json").json
    noises = [DropoutNoise(0.0), DropoutNoise(0.3), GaussianNoise(0.1)]
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    search = DropoutSVCCV(noises=noises, Cs=[0.01, 0.1, 1.0], cv=folds).fit(X, y[:200])
    assert (done["C"], done["score"]) == (search.C_, search.best_score_)
    mean = search.scores_.mean(axis=0)
    assert [level["score"] for level in done["noises"]] == mean.max(axis=1).tolist()
    assert [level["noise"] for level in done["noises"]] == ["none", "dropout=0.3", "gaussian=0.1"]
    spread = search.scores_[(slice(None), *search.best_index_)].std(ddof=1) / np.sqrt(3)
    assert done["standard_error"] == pytest.approx(spread)
    np.testing.assert_array_equal(load("m.safetensors").coef_, search.coef_)
    assert describe("m.safetensors")["summary"]["score"] == search.best_score_


def test_cv_shuffles_the_rows_of_a_file(run, tmp_path):
    # Each fifth of the file has a feature of its own: in the order of the file, no fold knows that of its test rows.
    y = np.tile([0, 1], 100)
    X = np.zeros((200, 5))
    X[np.arange(200), np.arange(200) // 40] = 2.0 * y - 1.0
    X += np.random.default_rng(0).normal(0.0, 0.3, X.shape)
    write_npz(tmp_path / "d.npz", X, y)
    arguments = ("cv", "d.npz", "--noises", "none", "--cs", "1", "--json")
    default, zero, one = (run(*arguments, *seed).json for seed in ((), ("--seed", "0"), ("--seed", "1")))
    assert default["score"] > 0.9
    assert default["score"] == zero["score"] != one["score"]


def test_cv_chooses_for_a_share_of_missing_features(run, tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    X = scale(X)[:200]
    write_npz(tmp_path / "d.npz", X, y[:200])
    done = run(
        "cv", "d.npz", "--noises", "0,0.3", "--cs", "0.01,0.1", "--folds", "3", "--missing-rate", "0.4", "--json"
    )
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    grid = {"noises": [0.0, 0.3], "Cs": [0.01, 0.1], "cv": folds, "target_noise": 0.4}
    search = DropoutSVCCV(**grid, missing="rescale").fit(X, y[:200])
    assert (done.json["C"], done.json["score"]) == (search.C_, search.best_score_)
    assert "--missing-rate: the model is trained with --missing rescale" in done.err
    for missing in ("conditional", "error"):
        search = DropoutSVCCV(**grid, missing=missing).fit(X, y[:200])
        given = ("--noises", "0,0.3", "--cs", "0.01,0.1", "--folds", "3", "--missing-rate", "0.4", "--missing", missing)
        assert run("cv", "d.npz", *given, "--json").json["score"] == search.best_score_
    assert done.json["scoring"] == "expected accuracy"
    assert "--missing-rate" in run("cv", "d.npz", "--missing-rate", "40", code=2).error
    assert "excludes --scoring" in run("cv", "d.npz", "--missing-rate", "0.4", "--scoring", "f1", code=2).error


def test_cv_warns_with_the_option_if_the_choice_is_at_the_end_of_the_grid(run, tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    write_npz(tmp_path / "d.npz", scale(X)[:200], y[:200])
    done = run("cv", "d.npz", "--noises", "none", "--cs", "1e-4,1e-2", "--folds", "3")
    assert "warning: --cs: the chosen C 0.01 is the largest of the grid" in done.err


def test_cv_of_text_with_another_score_and_rule(run, tmp_path):
    rows = [f"{'good' if i % 3 else 'bad'} thing {'so' if i % 5 else 'not'},{5 if i % 3 else 1}" for i in range(40)]
    (tmp_path / "r.csv").write_text("\n".join(["review,stars", *rows]) + "\n")
    arguments = ("--text", "review", "--target", "stars", "--noises", "0.5", "--cs", "1", "--folds", "2")
    done = run(
        "cv", "r.csv", *arguments, "--loss", "logistic", "--scoring", "neg_log_loss", "--rule", "one-se", "--seed", "0"
    )
    assert "chosen: --noise dropout=0.5 --C 1" in done.out
    assert "neg_log_loss -0." in done.out


# info -----------------------------------------------------------------------------------------------------------------


def test_info_lists_the_largest_coefficients(run, tmp_path):
    (tmp_path / "t.csv").write_text("größe,farbe,y\n" + "3,rot,ja\n-3,blau,nein\n2,rot,ja\n-1,rot,nein\n" * 3)
    run("train", "t.csv", "m.safetensors", "--target", "y", "-c", "10")
    done = run("info", "m.safetensors", "--top", "2")
    assert "noise" in done.out
    assert "dropout=0.1" in done.out
    assert "largest coefficients, times the standard deviation of their features:\n  for nein: farbe=blau +" in done.out
    (top,) = run("info", "m.safetensors", "--top", "1", "--json").json["top_features"]
    assert (top["for"], top["against"]) == ("for nein", "for ja")
    coef = load("m.safetensors")[-1].coef_[0]
    assert [one["feature"] for one in top["features_for"]] == ["farbe=blau"]
    (found,) = top["features_against"]
    assert found["feature"] == "größe"
    assert found["coefficient"] == coef[0] < 0.0
    assert found["standardised"] == pytest.approx(coef[0])  # the column is scaled


def test_info_compares_standardised_coefficients(run, tmp_path):
    rng = np.random.RandomState(0)
    y = rng.randint(2, size=100)
    X = np.column_stack([y + rng.randn(100), 0.001 * (y + 5.0 * rng.randn(100))])
    np.savez(tmp_path / "t.npz", X=X, y=y)
    run("train", "t.npz", "m.safetensors", "-c", "1000")
    (top,) = run("info", "m.safetensors", "--json").json["top_features"]
    first, second = top["features_for"]
    assert first["feature"] == "1"
    assert abs(first["coefficient"]) < abs(second["coefficient"])
    assert first["standardised"] == pytest.approx(first["coefficient"] * X[:, 0].std())


def test_info_numbers_features_like_the_data_file(run, tmp_path):
    for first, name in ((0, "zero.svm"), (1, "one.svm")):
        (tmp_path / name).write_text(f"1 {first}:1\n-1 {first + 1}:0.1\n2 {first + 2}:1\n" * 4)
        run("train", name, "m.safetensors")
        tops = run("info", "m.safetensors", "--json").json["top_features"]
        assert [top["for"] for top in tops] == ["for -1", "for 1", "for 2"]
        assert tops[1]["features_for"][0]["feature"] == str(first)


# export ---------------------------------------------------------------------------------------------------------------


def test_exports(run, data, tmp_path):
    X, _ = data
    run("train", "data.npz", "m.safetensors")
    run("export", "m.safetensors", "m.model")
    liblinearutil = pytest.importorskip("liblinear.liblinearutil")
    labels, _, _ = liblinearutil.predict(
        [], sparse.csr_matrix(X), liblinearutil.load_model(str(tmp_path / "m.model")), "-q"
    )
    assert labels == load("m.safetensors").predict(X).tolist()
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("skl2onnx")
    run("export", "m.safetensors", "m.bin", "--to", "onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.bin"), providers=["CPUExecutionProvider"])
    (decision,) = session.run(["decision"], {"X": X})
    np.testing.assert_allclose(decision.ravel(), load("m.safetensors").decision_function(X), atol=1e-6)


def test_exports_of_models_for_missing_values_and_with_encoders(run, tmp_path):
    (tmp_path / "t.csv").write_text("a,b,y\n1,,0\n2,1,1\n0,2,0\n3,1,1\n")
    run("train", "t.csv", "m.safetensors", "--target", "y")
    assert "--complete-rows" in run("export", "m.safetensors", "m.model", code=2).error
    done = run("export", "m.safetensors", "m.model", "--complete-rows")
    assert "takes the 2 numbers that the model's TableEncoder makes" in done.err
    pytest.importorskip("skl2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    run("export", "m.safetensors", "m.onnx")
    rows = pd.DataFrame({"a": [1.0, 2.0, 0.0, 3.0], "b": [np.nan, 1.0, 2.0, 1.0]})
    session = onnxruntime.InferenceSession("m.onnx", providers=["CPUExecutionProvider"])
    (decision,) = session.run(["decision"], {name: rows[[name]].to_numpy() for name in rows})
    np.testing.assert_allclose(decision, load("m.safetensors").decision_function(rows), atol=1e-9)


# Failures ------------------------------------------------------------------------------------------------------------


def fail(*arguments, **options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("command", ["train", "predict", "cv", "export"])
def test_a_full_disk_leaves_the_old_file(run, data, tmp_path, monkeypatch, command):
    run("train", "data.npz", "m.safetensors")
    (tmp_path / "out.model").write_text("old")
    arguments = {
        "train": ["train", "data.npz", "out.model", "--force"],
        "predict": ["predict", "data.npz", "m.safetensors", "-o", "out.model", "--force"],
        "cv": ["cv", "data.npz", "--noises", "0.5", "--cs", "1", "-o", "out.model", "--force"],
        "export": ["export", "m.safetensors", "out.model", "--force"],
    }[command]
    before = set(tmp_path.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "write", fail)
        error = run(*arguments, code=1).error
    assert error.startswith("out.model: cannot write: No space left on device; ")
    assert (tmp_path / "out.model").read_text() == "old"
    assert set(tmp_path.iterdir()) == before


def test_an_error_in_the_middle_of_a_file_leaves_no_partial_output(run, tmp_path):
    good = "1 1:1\n-1 2:1\n"
    (tmp_path / "data.svm").write_text(good)
    run("train", "data.svm", "m.safetensors")
    (tmp_path / "big.svm").write_text(good * 350_000 + "1 1:x\n")
    for old in (None, "old"):
        if old:
            (tmp_path / "out.csv").write_text(old)
        error = run("predict", "big.svm", "m.safetensors", "-o", "out.csv", "--force", code=1).error
        assert error.startswith("big.svm:700001:")
        assert (tmp_path / "out.csv").exists() == bool(old)
    assert (tmp_path / "out.csv").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"data.svm", "m.safetensors", "big.svm", "out.csv"}


_KILLED = """
import os, sys
from pathlib import Path
from dropmargin import load
from dropmargin.cli.main import main
from dropmargin.io import atomic
from killing import Killing

folder = Path(sys.argv[1])
os.chdir(folder)

for point in range(1, 100):
    assert main(["train", "data.npz", "m.safetensors", "-c", "0.5", "--quiet"]) == 0
    child = os.fork()
    if child == 0:
        atomic.os = Killing(point)
        main(["train", "data.npz", "m.safetensors", "-c", "2", "--quiet"])
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print("point", point, load("m.safetensors").C, os.WIFSIGNALED(status))
    if not os.WIFSIGNALED(status):
        break
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_killed_training_leaves_the_old_model_or_the_new_one(data, tmp_path):
    lines = [line.split() for line in run_script(_KILLED, tmp_path).splitlines() if line.startswith("point")]
    found = [float(line[2]) for line in lines]
    assert len(found) > 10
    assert found == sorted(found)  # the old model up to the renaming, then the new one
    assert (found[0], found[-1], lines[-1][3]) == (0.5, 2.0, "False")
