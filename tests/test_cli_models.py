"""Model files through the command line: what they remember, cv, info, exports, and runs that fail or are killed."""

from __future__ import annotations

import errno
import hashlib
import os

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer
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


def test_every_option_of_learning_reaches_the_classifier(run, data):
    options = "--loss exponential --noise laplace=0.05 -c 0.3 --l1-ratio 0.2 --no-intercept"
    more = "--class-weight balanced --missing rescale --tol 1e-6 --max-iter 500 --n-jobs 1 --multi-class ovo"
    run("train", "data.npz", "m.json", *options.split(), *more.split())
    model = load("m.json")
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
    run("train", "data.npz", "m.json", "--noise", text)
    expected = DropoutSVC(noise=noise).fit(*data)
    assert repr(load("m.json").noise) == repr(noise)
    np.testing.assert_array_equal(load("m.json").coef_, expected.coef_)


def test_the_model_says_where_it_comes_from(run, data, tmp_path):
    (tmp_path / "zero.svm").write_text("1 0:1 2:0.5\n-1 1:1\n" * 5)
    run("train", "zero.svm", "m.json", "--noise", "0.2")
    facts = describe("m.json")
    assert facts["data_hash"] == "sha256:" + hashlib.sha256((tmp_path / "zero.svm").read_bytes()).hexdigest()
    summary = facts["summary"]
    assert (summary["rows"], summary["features"], summary["classes"]) == (10, 3, 2)
    assert (summary["zero_based"], summary["noise"], summary["command"]) == (True, "dropout=0.2", "train")
    # a part of the data that has no index 0 is counted from 0 all the same
    (tmp_path / "later.svm").write_text("1 2:1\n1 1:1\n")
    out = run("predict", "later.svm", "m.json", "--output", "decision", "--no-header").out
    expected = load("m.json").decision_function(np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    assert [float(line) for line in out.splitlines()] == expected.tolist()


def test_a_model_of_python_counts_from_one_and_says_so(run, data, tmp_path):
    X, y = data
    save(DropoutSVC().fit(X, y), "m.json")
    (tmp_path / "rows.svm").write_text("1 8:1\n")
    done = run("predict", "rows.svm", "m.json", "--output", "decision", "--no-header")
    assert float(done.out) == load("m.json").decision_function(np.eye(8)[[7]])[0]
    assert "from 1, if not --zero-based" in done.err
    (tmp_path / "rows.svm").write_text("1 0:1 9:2\n")
    assert "9" in run("predict", "rows.svm", "m.json", "--zero-based", code=1).error
    done = run("predict", "rows.svm", "m.json", "--zero-based", "--ignore-extra", "--output", "decision", "--no-header")
    assert float(done.out) == load("m.json").decision_function(np.eye(8)[[0]])[0]


# predict --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("training", "output", "message"),
    [
        (["data.npz"], "probability", "train with --loss logistic"),
        (["three.npz", "--loss", "logistic", "--multi-class", "ovo"], "probability", "pairs of classes"),
        (["data.npz", "--noise", "none"], "stability", "--stability-noise"),
    ],
)
def test_what_a_model_cannot_give_is_refused_before_data_are_read(run, data, training, output, message):
    first, *options = training
    run("train", first, "m.json", *options)
    assert message in run("predict", "nowhere.npz", "m.json", "--output", output, code=2).error


def test_survival_with_a_noise_of_its_own(run, data):
    run("train", "data.npz", "m.json", "--noise", "none")
    done = run(
        "predict", "data.npz", "m.json", "--output", "stability", "--stability-noise", "dropout=0.5", "--no-header"
    )
    expected = load("m.json").predict_stability(data[0], 0.5)
    assert [float(line) for line in done.out.splitlines()] == expected.tolist()


def test_survival_of_the_votes_of_pairs(run, data):
    run("train", "three.npz", "m.json", "--multi-class", "ovo")
    done = run("predict", "three.npz", "m.json", "--output", "stability", "--stability-noise", "0.5", "--no-header")
    with np.load("three.npz") as stored:
        expected = load("m.json").predict_stability(stored["X"], 0.5)
    assert [float(line) for line in done.out.splitlines()] == expected.tolist()


def test_files_of_another_kind_are_refused(run, data, tmp_path):
    run("train", "data.npz", "m.json")
    (tmp_path / "t.csv").write_text("a,y\n1,0\n2,1\n")
    run("train", "t.csv", "t.json", "--target", "y")
    assert "was trained on numbers, but t.csv is read as csv" in run("predict", "t.csv", "m.json", code=2).error
    assert "was trained on tables, but data.npz is read as npz" in run("predict", "data.npz", "t.json", code=2).error
    write_npz(tmp_path / "narrow.npz", np.ones((2, 3)), [0, 1])
    assert "has 3 features, but m.json was trained on 8" in run("predict", "narrow.npz", "m.json", code=1).error
    (tmp_path / "e.csv").write_text("a\n")
    assert "there are no rows" in run("predict", "e.csv", "t.json", code=1).error


# cv -------------------------------------------------------------------------------------------------------------------


def test_cv_chooses_as_python_does_and_saves_the_refitted_model(run, tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    X = scale(X)[:200]
    write_npz(tmp_path / "d.npz", X, y[:200])
    arguments = ("--noises", "0,0.3,gaussian=0.1", "--cs", "0.01,0.1,1", "--folds", "3", "-o", "m.json")
    done = run("cv", "d.npz", *arguments, "--json").json
    noises = [DropoutNoise(0.0), DropoutNoise(0.3), GaussianNoise(0.1)]
    search = DropoutSVCCV(noises=noises, Cs=[0.01, 0.1, 1.0], cv=3).fit(X, y[:200])
    assert (done["C"], done["score"]) == (search.C_, search.best_score_)
    mean = search.scores_.mean(axis=0)
    assert [level["score"] for level in done["noises"]] == mean.max(axis=1).tolist()
    assert [level["noise"] for level in done["noises"]] == ["none", "dropout=0.3", "gaussian=0.1"]
    spread = search.scores_[(slice(None), *search.best_index_)].std(ddof=1) / np.sqrt(3)
    assert done["standard_error"] == pytest.approx(spread)
    np.testing.assert_array_equal(load("m.json").coef_, search.coef_)
    assert describe("m.json")["summary"]["score"] == search.best_score_


def test_cv_warns_at_the_end_of_the_grid_in_the_words_of_the_command_line(run, tmp_path):
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


def test_info_lists_the_largest_weights_by_name(run, tmp_path):
    (tmp_path / "t.csv").write_text("größe,farbe,y\n" + "3,rot,ja\n-3,blau,nein\n2,rot,ja\n-1,rot,nein\n" * 3)
    run("train", "t.csv", "m.json", "--target", "y", "-c", "10")
    done = run("info", "m.json", "--top", "2")
    assert "noise" in done.out
    assert "dropout=0.1" in done.out
    assert "speaks for nein (against ja)" in done.out
    top = run("info", "m.json", "--top", "1", "--json").json["top_features"]
    model = load("m.json")
    assert top == [{"for": "nein (against ja)", "features": ["größe"], "weights": [model[-1].coef_[0, 0]]}]


def test_info_counts_features_as_the_file_did(run, tmp_path):
    for first, name in ((0, "zero.svm"), (1, "one.svm")):
        (tmp_path / name).write_text(f"1 {first}:1\n-1 {first + 1}:0.1\n2 {first + 2}:1\n" * 4)
        run("train", name, "m.json")
        tops = run("info", "m.json", "--json").json["top_features"]
        assert [top["for"] for top in tops] == ["-1", "1", "2"]
        assert tops[1]["features"][0] == str(first)


# export ---------------------------------------------------------------------------------------------------------------


def test_exports(run, data, tmp_path):
    X, _ = data
    run("train", "data.npz", "m.json")
    run("export", "m.json", "m.model")
    liblinearutil = pytest.importorskip("liblinear.liblinearutil")
    labels, _, _ = liblinearutil.predict(
        [], sparse.csr_matrix(X), liblinearutil.load_model(str(tmp_path / "m.model")), "-q"
    )
    assert labels == load("m.json").predict(X).tolist()
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    run("export", "m.json", "m.bin", "--to", "onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.bin"), providers=["CPUExecutionProvider"])
    (decision,) = session.run(["decision"], {"X": X})
    np.testing.assert_allclose(decision.ravel(), load("m.json").decision_function(X), atol=1e-6)


def test_exports_of_models_for_missing_values_and_with_encoders(run, tmp_path):
    (tmp_path / "t.csv").write_text("a,b,y\n1,,0\n2,1,1\n0,2,0\n3,1,1\n")
    run("train", "t.csv", "m.json", "--target", "y")
    assert "--complete-rows" in run("export", "m.json", "m.model", code=2).error
    done = run("export", "m.json", "m.model", "--complete-rows")
    assert "takes the 2 numbers that the model's TableEncoder makes" in done.err


# Runs that fail -------------------------------------------------------------------------------------------------------


def fail(*arguments, **options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("command", ["train", "predict", "cv", "export"])
def test_a_full_disk_leaves_the_old_file(run, data, tmp_path, monkeypatch, command):
    run("train", "data.npz", "m.json")
    (tmp_path / "out.model").write_text("old")
    arguments = {
        "train": ["train", "data.npz", "out.model"],
        "predict": ["predict", "data.npz", "m.json", "-o", "out.model"],
        "cv": ["cv", "data.npz", "--noises", "0.5", "--cs", "1", "-o", "out.model"],
        "export": ["export", "m.json", "out.model"],
    }[command]
    before = set(tmp_path.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "write", fail)
        error = run(*arguments, code=1).error
    assert error == "out.model: cannot write: No space left on device; the existing file is unchanged"
    assert (tmp_path / "out.model").read_text() == "old"
    assert set(tmp_path.iterdir()) == before


def test_an_error_in_the_middle_leaves_no_half_written_output(run, tmp_path):
    good = "1 1:1\n-1 2:1\n"
    (tmp_path / "data.svm").write_text(good)
    run("train", "data.svm", "m.json")
    (tmp_path / "big.svm").write_text(good * 350_000 + "1 1:x\n")
    for old in (None, "old"):
        if old:
            (tmp_path / "out.csv").write_text(old)
        error = run("predict", "big.svm", "m.json", "-o", "out.csv", code=1).error
        assert error.startswith("big.svm:700001:")
        assert (tmp_path / "out.csv").exists() == bool(old)
    assert (tmp_path / "out.csv").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"data.svm", "m.json", "big.svm", "out.csv"}


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
    assert main(["train", "data.npz", "m.json", "-c", "0.5", "--quiet"]) == 0
    child = os.fork()
    if child == 0:
        atomic.os = Killing(point)
        main(["train", "data.npz", "m.json", "-c", "2", "--quiet"])
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print("point", point, load("m.json").C, os.WIFSIGNALED(status))
    if not os.WIFSIGNALED(status):
        break
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_kill_9_in_training_leaves_the_old_model_or_the_new_one(data, tmp_path):
    lines = [line.split() for line in run_script(_KILLED, tmp_path).splitlines() if line.startswith("point")]
    found = [float(line[2]) for line in lines]
    assert len(found) > 10
    assert found == sorted(found)  # old up to the moment of renaming, new ever after
    assert (found[0], found[-1], lines[-1][3]) == (0.5, 2.0, "False")
