"""``dropmargin stress``: numbers as by `deletion_curve`, options, errors."""

from __future__ import annotations

import io
import itertools
import json
import re
import sys

import click
import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from dealing import together
from dropmargin import DropoutNoise, DropoutSVC, deletion_curve
from dropmargin.cli.main import main
from dropmargin.cli.stress import levels_of
from dropmargin.evaluation.methods import RescalingClassifier
from dropmargin.evaluation.stress import Plan, methods_for, stress_test
from pages import assert_self_contained, rows_of

_SMALL = ["--noises", "0.1,0.5", "--cs", "0.01,1", "--repeats", "2"]


def data(n_classes=2):
    X, y = make_classification(240, 12, n_informative=8, n_redundant=2, n_classes=n_classes, random_state=0)
    return (X[:160], y[:160]), (X[160:], y[160:])


@pytest.fixture
def svm_files(tmp_path):
    paths = []
    for name, (X, y) in zip(("train.svm", "test.svm"), data(), strict=True):
        paths.append(str(tmp_path / name))
        dump_svmlight_file(X, y, paths[-1], zero_based=False)
    return paths


def write_table(path, X, y, names=None, missing=0.0):
    rng = np.random.default_rng(1)
    names = names or [f"x{j}" for j in range(X.shape[1])]
    lines = [",".join([*(f'"{name}"' for name in names), "label"])]
    for row, label in zip(X, y, strict=True):
        cells = ["" if rng.uniform() < missing else repr(float(value)) for value in row]
        lines.append(",".join([*cells, str(label)]))
    path.write_text("\n".join(lines))
    return str(path)


def run_json(capsys, *arguments):
    code = main(["stress", *arguments, "--json", "--quiet"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)


def names_of(treatment):
    return [(treatment, method.name) for method in methods_for("hinge") if treatment in method.treatments]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_quiet_has_no_progress_bars(svm_files, monkeypatch, quiet):
    times = itertools.count(0.0, 60.0)
    monkeypatch.setattr("tqdm.std.time", lambda: next(times))
    monkeypatch.setattr("sys.stderr", Terminal())
    assert main(["stress", *svm_files, *_SMALL, "--delete", "0.5", "--treatment", "zero", *quiet]) == 0
    text = sys.stderr.getvalue()
    assert ("%|" in text) == (not quiet)
    assert not quiet or all(line.startswith("dropmargin: warning: ") for line in text.splitlines())


# Numbers ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_curves_equal_those_of_deletion_curve(svm_files, capsys):
    found = run_json(capsys, *svm_files, "--delete", "0,0.5,0.9", *_SMALL, "--seed", "3")
    (X, y), (X_test, y_test) = ((sparse.csr_array(X), y) for X, y in data())
    assert [(one["treatment"], one["method"]) for one in found["results"]] == names_of("zero") + names_of("missing")
    for one in found["results"]:
        missing, chosen = one["treatment"] == "missing", one["parameters"]
        is_ours = one["method"] == "DropoutSVC"
        if is_ours:
            rate = float(chosen["noise"].removeprefix("dropout="))
            # The search solves the chosen problem to this tolerance.
            model = DropoutSVC(noise=rate, C=chosen["C"], missing="rescale" if missing else "error", tol=1e-6)
        elif one["method"].startswith("LinearSVC"):
            model = LinearSVC(loss="hinge", max_iter=5000, C=chosen["C"], random_state=0)
        elif one["method"] in ("LogisticRegression", "LogisticRegression (rescaled)"):
            model = LogisticRegression(C=chosen["C"], max_iter=1000)
        else:
            continue
        model = RescalingClassifier(model) if missing and not is_ours else model
        curve = deletion_curve(
            model.fit(X, y),
            X_test,
            y_test,
            levels=[0.0, 0.5, 0.9],
            n_repeats=2,
            fill=np.nan if missing else 0.0,
            random_state=3,
        )
        close = 0.011 if is_ours else 1e-12  # one row of 80 is 0.0125
        assert one["accuracy"] == pytest.approx(curve.mean.tolist(), abs=close)


@pytest.mark.slow
def test_given_noise_and_c_are_used(svm_files, capsys):
    found = run_json(
        capsys, *svm_files, "--delete", "0,0.6", "--noise", "0.3", "-c", "0.5", "--cs", "1", "--treatment", "missing"
    )
    ours = found["results"][0]
    assert ours["parameters"] == {"noise": "dropout=0.3", "C": 0.5}
    (X, y), (X_test, y_test) = ((sparse.csr_array(X), y) for X, y in data())
    model = DropoutSVC(noise=DropoutNoise(rate=0.3), C=0.5, missing="rescale").fit(X, y)
    curve = deletion_curve(model, X_test, y_test, levels=[0.0, 0.6], fill=np.nan, random_state=0)
    assert ours["accuracy"] == pytest.approx(curve.mean.tolist(), abs=0.011)
    assert {one["treatment"] for one in found["results"]} == {"missing"}


def test_threads_do_not_change_the_results(svm_files, capsys):
    arguments = [*svm_files, "--delete", "0.5", *_SMALL, "--treatment", "zero"]
    first, second = run_json(capsys, *arguments), run_json(capsys, *arguments, "--n-jobs", "2")
    for one, other in zip(first["results"], second["results"], strict=True):
        assert one | {"seconds": None} == other | {"seconds": None}


@pytest.mark.slow
def test_text_and_report_have_the_same_numbers(tmp_path, capsys):
    (X, y), (X_test, y_test) = data(3)
    names = [f"x{j}" for j in range(11)] + ["<script>alert(1)</script>"]
    train = write_table(tmp_path / "train <b>.csv", X, [f"klass <{label}>" for label in y], names)
    test = write_table(tmp_path / "test.csv", X_test, [f"klass <{label}>" for label in y_test], names)
    page = tmp_path / "report.html"
    arguments = [train, test, "--target", "label", "--delete", "0:0.8:3", "--treatment", "both", *_SMALL]
    assert main(["stress", *arguments, "--html", str(page)]) == 0
    out, err = capsys.readouterr()
    html = page.read_text(encoding="utf-8")
    assert_self_contained(html)
    assert "train &lt;b&gt;.csv" in html
    rows = re.findall(r"^([A-Z][A-Za-z() ]+?) +([\d.]+) +([\d.]+) +([\d.]+)$", out, re.M)
    assert [row[0] for row in rows] == [name for _, name in names_of("zero") + names_of("missing")]
    table = [(name, *(text for _, text in cells)) for _, name, cells in rows_of(html) if len(cells) == 3]
    assert table == rows
    assert out.rstrip().endswith(f"saved {page}")
    assert "deleted = zero: choosing " in err
    # The report has the command as it was typed.
    assert "--delete 0:0.8:3" in html


@pytest.mark.slow
def test_data_with_missing_values(tmp_path, capsys):
    (X, y), (X_test, y_test) = data()
    train = write_table(tmp_path / "train.csv", X, y, missing=0.1)
    test = write_table(tmp_path / "test.csv", X_test, y_test, missing=0.1)
    found = run_json(capsys, train, test, "--target", "label", "--delete", "0,0.5", "--cs", "3", *_SMALL[:2])
    assert [one["treatment"] for one in found["results"]] == ["missing"] * len(names_of("missing"))
    assert all(0.5 < one["accuracy"][0] <= 1.0 for one in found["results"])


def test_an_anchored_peer_predicts_complete_rows_like_its_estimator():
    (X, y), (X_test, _) = data(3)
    plain = LogisticRegression().fit(X, y)
    peer = RescalingClassifier(LogisticRegression()).fit(X, y)
    assert peer.predict(X_test).tolist() == plain.predict(X_test).tolist()
    gone = np.full((1, X.shape[1]), np.nan)
    assert peer.decision_function(gone) == pytest.approx(plain.decision_function(X.mean(axis=0)[None]))


def test_dense_and_sparse_peers_learn_the_same_from_missing_values():
    (X, y), (X_test, _) = data()
    X[np.random.default_rng(0).uniform(size=X.shape) < 0.2] = np.nan
    dense = RescalingClassifier(LogisticRegression(tol=1e-8)).fit(X, y)
    thin = RescalingClassifier(LogisticRegression(tol=1e-8)).fit(sparse.csr_array(X), y)
    assert thin.decision_function(X_test) == pytest.approx(dense.decision_function(X_test), abs=1e-4)
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    assert dense.estimator_.coef_ == pytest.approx(LogisticRegression(tol=1e-8).fit(filled, y).coef_, abs=1e-6)


@pytest.mark.parametrize("strategy", ["columns", "worst"])
def test_other_strategies(strategy):
    train, test = data()
    plan = Plan([0.0, 0.5], [0.5], strategy=strategy, noises=[0.3], Cs=[0.1], n_repeats=2)
    found = stress_test(train, test, plan, methods=methods_for("hinge")[:3])
    assert [one.method for one in found] == ["DropoutSVC", "LinearSVC", "DropoutSVC", "DropoutSVC (conditional)"]
    assert all(one.error[1] >= one.error[0] - 0.05 for one in found)
    assert {one.curve.strategy for one in found} == {strategy}


def test_cells_of_a_table_are_deleted(tmp_path, capsys):
    rng = np.random.default_rng(0)
    kinds = np.array([f"kind {k}" for k in range(150)])  # so many that the encoded rows are sparse
    files = []
    for name, n_rows in (("train.csv", 160), ("test.csv", 80)):
        kind, size = rng.integers(150, size=n_rows), rng.standard_normal(n_rows)
        lines = [f"{kinds[k]},{x},{'a' if (k < 75) + x > 0.5 else 'b'}" for k, x in zip(kind, size, strict=True)]
        (tmp_path / name).write_text("\n".join(["kind,size,label", *lines]))
        files.append(str(tmp_path / name))
    options = ["--target", "label", "--delete", "0,0.5,1", *_SMALL]
    found = run_json(capsys, *files, *options)["results"]
    assert "HistGradientBoosting" in [one["method"] for one in found]
    for one in found:
        # Without any cell all rows are equal.
        assert one["accuracy"][0] > one["accuracy"][2]
        assert one["accuracy_std"][2] == 0.0


@pytest.mark.slow
def test_groups_of_columns_are_deleted(tmp_path, capsys):
    (X, y), (X_test, y_test) = data()
    names = [f"{'left' if j < 6 else 'right'}_{j}" for j in range(12)]
    files = [write_table(tmp_path / "a.csv", X, y, names), write_table(tmp_path / "b.csv", X_test, y_test, names)]
    options = ["--target", "label", "--delete", "0.3,1", "--choose-at", "0.3", "--strategy", "columns"]
    options += ["--noise", "0.1", "--cs", "1"]
    # 30 % of two groups are one group, rounded.
    found = run_json(capsys, *files, *options, "--group-by", "_")["results"]
    (tmp_path / "groups.txt").write_text("left: left_*\nright: right_*\n")
    again = run_json(capsys, *files, *options, "--groups", str(tmp_path / "groups.txt"))["results"]
    assert [one["accuracy"] for one in again] == [one["accuracy"] for one in found]
    assert all(len(set(one["accuracy"])) == 2 for one in found)
    assert main(["stress", *files, *options, "--groups", str(tmp_path / "none.txt")]) == 1


# Options and errors -------------------------------------------------------------------------------------------------


@together(
    ("text", "levels"),
    [
        ("0:0.9:10", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
        ("0,0.5,0.9", [0.0, 0.5, 0.9]),
        ("0.9, 0", [0.0, 0.9]),
        ("1:0:3", [0.0, 0.5, 1.0]),
        ("0.3", [0.3]),
    ],
)
def test_levels(text, levels):
    assert levels_of(text) == levels


@together(
    "text",
    ["", "a", "0:1", "0:0.9:1", "0:0.9:0", "0:0.9:-3", "0:0.9:2.5", "0:0.9:99999999", "0:30:4", "50", "-0.1", "nan",
     "0,0", "0,,1", "0:nan:3", "inf", "0.5:0.5:3", "0:0.9:10:2"],
)  # fmt: skip
def test_wrong_levels(text):
    with pytest.raises(click.BadParameter, match=r"expected fractions such as 0:0\.9:10 \(first, last, number\)"):
        levels_of(text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--delete", "30"], "--delete: expected fractions"),
        (["--noise", "0.1", "--noises", "0.1,0.3"], "cannot be combined"),
        (["--seed", "-1"], "expected an integer from 0"),
        (["--folds", "1"], "expected an integer from 2"),
        (["--strategy", "best"], "'best' is not one of"),
        (["--htlm", "a.html"], "--html"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(svm_files, capsys, arguments, said):
    assert main(["stress", *svm_files, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_a_report_that_cannot_be_written_is_refused_before_any_work(svm_files, tmp_path, capsys):
    assert main(["stress", *svm_files, "--html", str(tmp_path / "none" / "report.html")]) == 1
    err = capsys.readouterr().err
    assert "there is no folder" in err
    assert "choosing" not in err


def test_features_that_the_training_data_lack_are_an_error_with_the_line(svm_files, tmp_path, capsys):
    wide = tmp_path / "wide.svm"
    wide.write_text("1 1:0.5 99:1\n0 2:0.5\n")
    assert main(["stress", svm_files[0], str(wide), *_SMALL, "--delete", "0"]) == 1
    assert "wide.svm:1" in capsys.readouterr().err
    assert (
        main(
            [
                "stress",
                svm_files[0],
                str(wide),
                *_SMALL,
                "--delete",
                "0",
                "--ignore-extra",
                "--quiet",
                "--treatment",
                "zero",
            ]
        )
        == 0
    )


def test_unknown_labels_are_a_warning_and_count_as_errors(svm_files, tmp_path, capsys):
    other = tmp_path / "other.svm"
    other.write_text("7 1:0.5\n7 2:0.5\n")
    code = main(["stress", svm_files[0], str(other), *_SMALL, "--delete", "0", "--json", "--treatment", "zero"])
    out, err = capsys.readouterr()
    assert code == 0
    assert "labels that" in err
    assert "such as 7" in err
    assert all(one["accuracy"] == [0.0] for one in json.loads(out)["results"])
