"""Tables as people have them on the command line: dates, money, ids, labels, separators and groups of columns."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from dropmargin import DropoutNoise, load

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")


_LABELLED = [("-1.5", "007"), ("-1", "007"), ("-0.5", "007"), ("0.5", "7"), ("1", "7"), ("1.5", "7")]


@pytest.fixture
def people(tmp_path):
    """Write a table of columns of many kinds, and return the function that writes a changed one."""
    rng = np.random.RandomState(0)

    def write(name="people.csv", separator=",", **changes):
        n = 60
        old, rich = rng.randint(2, size=n), rng.randint(2, size=n)
        columns = {
            "user_id": rng.permutation(n),
            "mail": [f"u{i}@x.org" for i in range(n)],
            "income": [f'"${1000 * r + 900 + i:,}.50"' for i, r in enumerate(rich)],
            "share": [f"{10 + i % 7}%" for i in range(n)],
            "born": [f"{1990 - 20 * o}-0{1 + i % 9}-1{i % 10}" for i, o in enumerate(old)],
            "colour": ["red" if r else "blue" for r in rich],
            "planet": ["earth"] * n,
            "y": ["yes" if r and not o else "no" for o, r in zip(old, rich, strict=True)],
        }
        columns |= changes
        rows = [
            separator.join(columns),
            *(separator.join(map(str, row)) for row in zip(*columns.values(), strict=True)),
        ]
        (tmp_path / name).write_text("\n".join(rows) + "\n")
        return columns

    return write


def test_numbers_dates_and_columns_that_are_left_out(run, people, tmp_path):
    people()
    done = run("train", "people.csv", "m.safetensors", "--target", "y")
    for note in (
        "left out (--keep COLUMN keeps a column)",
        "'user_id': it identifies rows: its integers are all different",
        "'mail': it identifies rows: 60 different values in 60 rows",
        "'planet': it is constant",
    ):
        assert note in done.err
    encoder, classifier = load("m.safetensors")
    names = ["income", "share", "born:year", "born:month", "born:weekday", "colour=blue", "colour=red"]
    assert encoder.get_feature_names_out().tolist() == names
    assert encoder.column_kinds_ == {"income": "number", "share": "number", "born": "date", "colour": "category"}
    assert classifier.noise.groups.tolist() == [0, 1, 2, 2, 2, 3, 3]  # a lost cell loses all its features
    assert run("evaluate", "people.csv", "m.safetensors", "--json").json["accuracy"] == 1.0
    # Prediction parses the same forms, also others than in the training data.
    (tmp_path / "new.csv").write_text('income,share,born,colour\n1905,12 %,4 Mar 1990,red\n"905",12%,1970-03-04,blue\n')
    assert run("predict", "new.csv", "m.safetensors").out.split() == ["label", "yes", "no"]
    (tmp_path / "wrong.csv").write_text("income,share,born,colour\n1905,12%,soon,red\n")
    assert "'soon' in column 'born' is not a date" in run("predict", "wrong.csv", "m.safetensors", code=1).error


def test_columns_can_be_kept(run, people):
    people()
    done = run(
        "train", "people.csv", "m.safetensors", "--target", "y", "--keep", "user_id,planet", "--categorical", "mail"
    )
    assert "left out" not in done.err
    assert load("m.safetensors")[0].column_kinds_["mail"] == "category"
    run("train", "people.csv", "m.safetensors", "--target", "y", "--no-scale")
    encoder = load("m.safetensors")[0]
    assert encoder.scale_.tolist() == [1.0] * len(encoder.scale_)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["03/04/2024"] * 30 + ["05/06/2024"] * 30, "in which day and month cannot be told apart"),
        (["3.4.24"] * 30 + ["5.6.24"] * 30, "whose year has two digits"),
        (["2024-01-01"] * 30 + ["2024-01-02"] * 29 + ["soon"], "has dates, but 'soon' is not a date"),
        (['"1,5"'] * 30 + ['"2,75"'] * 30, "has numbers with a decimal comma, such as '2,75' (use --decimal , or"),
    ],
)
def test_columns_that_are_refused_with_a_hint(run, people, tmp_path, column, message):
    people(born=column)
    error = run("train", "people.csv", "m.safetensors", "--target", "y", code=2).error
    assert message in error
    assert error.startswith("column 'born' has ")  # no option is wrong
    assert "--ignore born" in error
    assert not (tmp_path / "m.safetensors").exists()
    run("train", "people.csv", "m.safetensors", "--target", "y", "--categorical", "born")


_NO_X = "there is no column 'xx' ({}); did you mean 'x'? The columns are 'x', 't', 'y'"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--target", "xx"], _NO_X.format("--target")),
        (["train", "--target", "y", "--text", "xx"], _NO_X.format("--text")),
        (["train", "--target", "y", "--categorical", "xx"], _NO_X.format("--categorical")),
        (["train", "--target", "y", "--ignore", "xx"], _NO_X.format("--ignore")),
        (["train", "--target", "y", "--keep", "xx"], "--keep: there is no column 'xx' besides target and text"),
        (["train", "--target", "y", "--ignore", "x,t"], "there are no columns besides those of --target and --ignore"),
        (["train", "--target", "y", "--feature-names", "a.csv"], "--feature-names: this is for svmlight, npz files"),
        (["predict", "--ids", "xx"], _NO_X.format("--ids")),
        (["predict", "--target", "xx"], _NO_X.format("--target")),
        (["evaluate", "--target", "xx"], _NO_X.format("--target")),
    ],
)
def test_an_error_names_the_wrong_option(run, tmp_path, arguments, message):
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame([(float(x), "good", y) for x, y in _LABELLED], columns=list("xty"))
    table.to_csv("a.csv", index=False)
    table.to_json("a.jsonl", orient="records", lines=True)
    table.to_parquet("a.parquet")
    run("train", "a.csv", "m.safetensors", "--target", "y")
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        failed = run(
            arguments[0], name, "m.safetensors", *arguments[1:], "--quiet", code=2 if "--" in message[:2] else 1
        )
        assert message in failed.error
        assert failed.error.startswith((name, message[:5]))


def test_an_error_does_not_name_an_option_that_was_not_used(run, tmp_path):
    (tmp_path / "a.csv").write_text("x,t,y\n" + "".join(f"{x},{y} word,{y}\n" for x, y in _LABELLED))
    (tmp_path / "b.csv").write_text("a,b\n1,2\n")
    (tmp_path / "c.csv").write_text("y\n1\n2\n")
    (tmp_path / "d.csv").write_text("x,y\n1,1\n1,2\n")
    assert run("train", "c.csv", "m", "--target", "y", code=1).error.endswith("no columns besides those of --target")
    error = run("train", "d.csv", "m", "--target", "y", code=2).error
    assert error == "there is no column to learn from in 2 samples ('x': it is constant); --keep keeps a column"
    run("train", "a.csv", "text", "--target", "y", "--text", "t", "--ignore", "x")
    for command, column, option in (("predict", "t", "text"), ("evaluate", "y", "target")):
        error = run(command, "b.csv", "text", code=1).error
        needs = f"there is no column '{column}', as in the training data of text (--{option} names another)"
        assert error == f"b.csv:1: {needs}; The columns are 'a', 'b'"
    run("train", "a.csv", "both", "--target", "y", "--text", "t")
    error = run("predict", "b.csv", "both", code=1).error
    assert error == "b.csv:1: there is no column 't', as in the training data of both; The columns are 'a', 'b'"


def test_semicolons_and_decimal_commas(run, people, tmp_path):
    people(
        separator=";", income=[f"{1.5 + i % 7:.2f}".replace(".", ",") for i in range(60)], share=["1.234,5", "2"] * 30
    )
    done = run("train", "people.csv", "m.safetensors", "--target", "y", "--decimal", ",")
    assert "people.csv: cells are separated by semicolons" in done.err
    encoder = load("m.safetensors")[0]
    assert encoder.column_kinds_["income"] == encoder.column_kinds_["share"] == "number"
    assert encoder.mean_[1] == pytest.approx((1234.5 + 2) / 2)
    # The model knows the decimal mark.
    first = run("predict", "people.csv", "m.safetensors", "--output", "decision").out
    assert first == run("predict", "people.csv", "m.safetensors", "--output", "decision", "--decimal", ",").out
    people("points.csv", income=["1.5"] * 60, share=["1234.5"] * 60)
    run("predict", "points.csv", "m.safetensors", "--decimal", ".")


def test_targets_that_are_quantities(run, people, tmp_path):
    for target in ([f"{i / 7:.3f}" for i in range(60)], range(100, 160)):
        people(y=target)
        error = run("train", "people.csv", "m.safetensors", "--target", "y", "--loss", "hinge", code=2).error
        assert "--target y: the labels are 60 different numbers in 60 rows, a quantity to predict (regression)" in error
    people(y=[0.5, 1.5] * 30)
    run("train", "people.csv", "m.safetensors", "--target", "y")


def test_rows_without_a_label(run, people):
    columns = people()
    people(y=["", "NA", *columns["y"][2:]])
    error = run("train", "people.csv", "m.safetensors", "--target", "y", code=1).error
    assert "people.csv:2: the label is missing, in 2 of 60 rows" in error
    assert "--skip-unlabelled" in error
    done = run("train", "people.csv", "m.safetensors", "--target", "y", "--skip-unlabelled")
    assert "2 rows without a label left out" in done.err
    assert "58 rows" in done.out
    assert "--skip-unlabelled" in run("evaluate", "people.csv", "m.safetensors", code=1).error
    done = run("evaluate", "people.csv", "m.safetensors", "--skip-unlabelled", "--json")
    assert done.json["rows"] == 58
    assert "2 rows without a label left out" in done.err
    small = ("--noises", "0.1", "--cs", "1", "--folds", "2", "--skip-unlabelled", "--json")
    assert run("cv", "people.csv", "--target", "y", *small).json["rows"] == 58


def test_labels_keep_their_text(run, tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in _LABELLED))
    run("train", "a.csv", "m.safetensors", "--target", "y")
    assert run("predict", "a.csv", "m.safetensors").out.split() == ["label", *(y for _, y in _LABELLED)]
    assert run("evaluate", "a.csv", "m.safetensors", "--json").json["accuracy"] == 1.0
    assert "2: 007, 7\n" in run("info", "m.safetensors").out
    # Evaluation compares the texts, too.
    (tmp_path / "b.csv").write_text("x,y\n-1,007\n-1,7\n-1,07\n")
    assert run("evaluate", "b.csv", "m.safetensors", "--json").json["unknown_labels"] == 1


@pytest.mark.parametrize(("first", "other"), [("12%", "13"), ("13", "12%"), ("$5", "€5"), ("$5", "USD 5"), ("%", "5")])
def test_a_column_of_numbers_has_one_unit(run, tmp_path, first, other):
    cells = [first, other] if first != "%" else ["5%", "$5"]
    lines = [f"{x},{cells[i % 2]},{y}" for i, (x, y) in enumerate(_LABELLED)]
    (tmp_path / "a.csv").write_text("\n".join(["x,size,y", *lines]))
    error = run("train", "a.csv", "m.safetensors", "--target", "y", code=1).error
    assert error.startswith("a.csv:")
    assert "in column 'size' is not in the unit of" in error
    assert error.endswith("(correct it, or use --categorical size)")
    run("train", "a.csv", "m.safetensors", "--target", "y", "--categorical", "size")
    names = load("m.safetensors")[0].get_feature_names_out().tolist()
    assert names == ["x", *sorted(f"size={cell}" for cell in cells)]
    error = run("train", "a.csv", "m.safetensors", "--target", "size", "--loss", "ridge", code=2).error
    assert "are not in one unit" in error


def test_prediction_has_the_units_of_training(run, tmp_path):
    rows = [(x, f"{10 + i}%", "$5" if i else "6", y) for i, (x, y) in enumerate(_LABELLED)]
    (tmp_path / "a.csv").write_text("\n".join(["x,share,price,y", *map(",".join, rows)]))
    run("train", "a.csv", "m.safetensors", "--target", "y", "--missing", "rescale")
    encoder = load("m.safetensors")[0]
    assert encoder.mean_.tolist() == pytest.approx([0.0, 0.125, 31 / 6])

    def predict(row, code=1):
        (tmp_path / "new.csv").write_text(f"x,share,price\n{row}\n")
        return run("predict", "new.csv", "m.safetensors", code=code)

    for row in ("1,12%,$5", "1,12 %,5", "1,,"):
        assert predict(row + "\n1,1.5%,7", 0).out.split()[0] == "label"
    for row, what in {
        "1,12,$5": "Column 'share' has plain numbers, but held numbers in % in the training data",
        "1,12%,€5": "'€5' in column 'price' is not a finite number in $",
        "$1,12%,5": "'$1' in column 'x' is not a finite number",
        "1,12%,5\n1,0.12,5": "new.csv:3: '0.12' in column 'share' is not in the unit of '12%'",
    }.items():
        error = predict(row).error
        assert error.startswith("new.csv:")
        assert what in error


def test_targets_of_a_regression_have_the_unit_of_training(run, tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{x},{30 + 10 * float(x)}%\n" for x, _ in _LABELLED))
    run("train", "a.csv", "m.safetensors", "--target", "y", "--loss", "ridge", "-c", "1000")
    assert run("evaluate", "a.csv", "m.safetensors", "--json").json["rmse"] < 0.05
    (tmp_path / "b.csv").write_text("x,y\n1,40%\n1,0.4\n")
    error = run("evaluate", "b.csv", "m.safetensors", code=1).error
    assert error == "b.csv:3: the label '0.4' is not in the unit of the training data, % (correct it)"


def test_ids_are_exact(run, tmp_path):
    ids = ["1234567890123456789", "-0.10", "1e400", "null", '"0012"', '"a, b"']
    rows = [f'{{"id": {one}, "x": {x}, "y": "{y}"}}' for one, (x, y) in zip(ids, _LABELLED, strict=True)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows[:4]))
    (tmp_path / "b.jsonl").write_text("\n".join(rows[3:]))
    (tmp_path / "all.csv").write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in _LABELLED))
    run("train", "all.csv", "m.safetensors", "--target", "y")
    lines = run("predict", "a.jsonl", "m.safetensors", "--ids", "id").out
    assert lines == 'id,label\n1234567890123456789,007\n-0.10,007\n1e400,007\n"",7\n'
    assert run("predict", "b.jsonl", "m.safetensors", "--ids", "id").out == 'id,label\n"",7\n0012,7\n"a, b",7\n'
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    table = {"u": pa.array([2**64 - 1, None], pa.uint64()), "f": [float("inf"), 2.5], "x": [-1.0, 1.0]}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    out = run("predict", "a.parquet", "m.safetensors", "--ids", "u").out
    assert out == f'u,label\n{2**64 - 1},007\n"",7\n'
    assert run("predict", "a.parquet", "m.safetensors", "--ids", "f").out == "f,label\ninf,007\n2.5,7\n"


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_column_of_ids_may_be_text_a_feature_or_the_target(run, tmp_path, name):
    rows = [(f"word{i % 3}", x, y) for i, (x, y) in enumerate(_LABELLED)]
    lines = ["t,x,y", *map(",".join, rows)]
    if name.endswith("jsonl"):
        lines = [f'{{"t": "{t}", "x": {x}, "y": "{y}"}}' for t, x, y in rows]
    (tmp_path / name).write_text("\n".join(lines))
    run("train", name, "m.safetensors", "--target", "y", "--text", "t")
    for i, column in enumerate("txy"):
        lines = run("predict", name, "m.safetensors", "--ids", column).out.split()
        assert [line.split(",")[0] for line in lines] == [column, *(row[i] for row in rows)]


def test_ids_are_passed_through(run, people):
    columns = people()
    run("train", "people.csv", "m.safetensors", "--target", "y")
    for name in ("mail", "user_id", "income"):
        out = run("predict", "people.csv", "m.safetensors", "--ids", name, "--output", "label,decision").out
        header, *rows = csv.reader(io.StringIO(out))
        assert header == [name, "label", "decision"]
        assert [row[0] for row in rows] == [str(value).strip('"') for value in columns[name]]
    for _ in range(2):  # the file of predictions is replaced
        run("predict", "people.csv", "m.safetensors", "--ids", "mail", "-o", "out.csv")
    assert (
        "there is no column 'id' (--ids)" in run("predict", "people.csv", "m.safetensors", "--ids", "id", code=1).error
    )


# Groups ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def sensors(tmp_path):
    """Write a table of two sensors and a column of its own, as csv and as svmlight."""
    rng = np.random.RandomState(0)
    X, y = rng.randn(40, 5), np.arange(40) % 2
    X[:, [0, 2]] += y[:, None]
    rows = [",".join([*(f"{value:.3f}" for value in row), str(label)]) for row, label in zip(X, y, strict=True)]
    (tmp_path / "s.csv").write_text("\n".join(["left_a,left_b,right_a,right_b,x,y", *rows]) + "\n")
    lines = [
        f"{label} " + " ".join(f"{j}:{v:.3f}" for j, v in enumerate(row, 1)) for row, label in zip(X, y, strict=True)
    ]
    (tmp_path / "s.svm").write_text("\n".join(lines) + "\n")


def test_groups_of_columns(run, sensors, tmp_path):
    (tmp_path / "groups.txt").write_text("# two sensors\nleft: left_*\nright: right_a, right_b\n")
    (tmp_path / "numbers.txt").write_text("left: 1-2\nright: 3, 4\n")
    coefs = []
    for file, options in (
        ("s.csv", ["--groups", "groups.txt"]),
        ("s.csv", ["--group-by", "_"]),
        ("s.svm", ["--groups", "numbers.txt"]),
    ):
        target = ["--target", "y", "--no-scale"] if file == "s.csv" else []
        run("train", file, "m.safetensors", *target, "--noise", "0.4", "--tol", "1e-8", *options)
        model = load("m.safetensors")
        classifier = model if file == "s.svm" else model[-1]
        assert classifier.noise.groups.tolist() == [0, 0, 1, 1, 2]
        coefs.append(classifier.coef_)
    np.testing.assert_allclose(coefs[1], coefs[0], rtol=1e-6)
    np.testing.assert_allclose(coefs[2], coefs[0], rtol=1e-3)
    run("cv", "s.csv", "--target", "y", "--noises", "0.2,0.4", "--cs", "1", "--folds", "2", "--group-by", "_",
        "--missing-rate", "0.3", "-o", "c.safetensors")  # fmt: skip
    noise = load("c.safetensors")[-1].noise
    assert isinstance(noise, DropoutNoise)
    assert noise.groups.tolist() == [0, 0, 1, 1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("left: left_a, lefd_b\n", "groups.txt:1: group 'left' has 'lefd_b', but there is no column of that name; did"),
        ("left: left_*\nall: *_a\n", "groups.txt:2: column 'left_a' is in group 'left', too; groups must not overlap"),
        ("left:\n", "groups.txt:1: the columns of group 'left' are missing"),
        ("left: left_a\nleft: left_b\n", "groups.txt:2: there are two groups named 'left'"),
        ("left_a, left_b\n", "groups.txt:1: expected the name of a group, a colon and its columns"),
        ("gone: x\n", "groups.txt:1: the columns of group 'gone' are all left out or ignored"),
        ("# nothing\n", "groups.txt: there is no group in this file"),
    ],
)
def test_wrong_groups(run, sensors, tmp_path, text, message):
    (tmp_path / "groups.txt").write_text(text)
    arguments = ("train", "s.csv", "m.safetensors", "--target", "y", "--ignore", "x", "--groups", "groups.txt")
    assert message in run(*arguments, code=2).error
    assert not (tmp_path / "m.safetensors").exists()


def test_prefixes_that_group_nothing(run, sensors):
    for separator, message in (("-", "no column has it"), ("a", "no two columns share the part of their names before")):
        error = run("train", "s.csv", "m.safetensors", "--target", "y", "--group-by", separator, code=2).error
        assert f"--group-by {separator}: {message}" in error
