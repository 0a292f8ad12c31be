"""CSV, TSV, JSON lines, Parquet and Arrow files: read exactly, or an error with file and line."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys

import numpy as np
import pytest

from dropmargin.io.data import DataFormatError, ReadOptions, TableEncoder, read_chunks, read_data

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def read(tmp_path):
    """Return a function that reads text as a csv file."""

    def read(text, /, name="data.csv", **options):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_data(path, ReadOptions(**options))

    return read


def assert_frame(frame, **columns):
    assert isinstance(frame, pd.DataFrame)
    assert frame.columns.tolist() == list(columns)
    assert frame.index.equals(pd.RangeIndex(len(frame)))
    for name, values in columns.items():
        is_number = all(isinstance(value, float) for value in values)
        assert frame[name].dtype == ("float64" if is_number else "category")
        assert plain(frame[name]) == [None if value != value else value for value in values]


def plain(column):
    return [None if pd.isna(value) else value for value in column.tolist()]


def refused(read, text, match, **options):
    with pytest.raises(DataFormatError, match=match) as caught:
        read(text, **options)
    assert "\n" not in str(caught.value)


# CSV and TSV ----------------------------------------------------------------------------------------------------------


def test_numbers_categories_labels_and_missing_values(read):
    data = read("age,colour,label\n1.5,red,1\n,blue,0\nNA,null,1\n -2e3 , red ,1\n", target="label")
    assert_frame(data.X, age=[1.5, np.nan, np.nan, -2000.0], colour=["red", "blue", None, "red"])
    assert data.y.tolist() == [1, 0, 1, 1]
    assert data.y.dtype == np.int64
    assert data.feature_names == ("age", "colour")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_quotes_unicode_and_newlines_in_fields(read, newline):
    text = newline.join(['\ufeff"näme, ""a""",größe', '"x, y",1', "", '"two', 'lines",2', 'a "b" c,3', '"",4'])
    data = read(text)
    inside = "two\r\nlines" if newline == "\r\n" else "two\nlines"
    assert_frame(data.X, **{'näme, "a"': ["x, y", inside, 'a "b" c', None], "größe": [1.0, 2.0, 3.0, 4.0]})


def test_tsv_and_other_separators(read):
    assert_frame(read("a\tb\n1\tx,y\n", name="data.tsv").X, a=[1.0], b=["x,y"])
    assert_frame(read("a;b\n1;x,y\n", separator=";").X, a=[1.0], b=["x,y"])
    with pytest.raises(ValueError, match="separator must be one character"):
        read("a;b\n", separator=";;")
    refused(read, "a|b\n1|2\n", r"no column 'b' \(--target\); is the separator '\|' \(--separator\)\?", target="b")


@pytest.mark.parametrize(
    ("text", "found", "columns"),
    [
        ("a;b\n1;x,y\n", ";", {"a": [1.0], "b": ["x,y"]}),
        ("a\tb\n1\tx\n", "\t", {"a": [1.0], "b": ["x"]}),
        ('"a;x",b\n1,2\n', None, {"a;x": [1.0], "b": [2.0]}),
        ("a;x,b;y\n1,2\n", None, {"a;x": [1.0], "b;y": [2.0]}),  # the first row has no semicolons
        ("price, EUR;b;c\n1;2;3\n", ";", {"price, EUR": [1.0], "b": [2.0], "c": [3.0]}),
        ("review\na;b\n", None, {"review": ["a;b"]}),
    ],
)
def test_the_header_decides_the_separator(read, text, found, columns):
    data = read(text)
    assert data.separator == found
    assert_frame(data.X, **columns)


_NUMBERS = ["0", "-0", "+1", "1.", ".5", "1e5", "1E+05", "1e-400", "1e23", "9007199254740993", "0.1", "4.9e-324"]
_NOT_NUMBERS = ["", "++1", "+-1", "1e", "1e+", ".", "e5", "1_0", "0x1", "inf", "-Infinity", "nan(1)", "1e400", "1 2"]


def test_numbers_are_those_of_python(read):
    for numbers in (_NUMBERS, [*_NUMBERS, "?"]):
        column = read("a\n" + "\n".join(numbers)).X["a"]
        wanted = [np.nan if number == "?" else float(number) for number in numbers]
        assert column.to_numpy().tobytes() == np.array(wanted).tobytes()
    for text in _NOT_NUMBERS:
        data = read(f'a;b\n1;"{text}"\n', separator=";", missing_values=())
        assert_frame(data.X, a=[1.0], b=[text])


def test_missing_values_that_are_numbers(read):
    assert_frame(read("a,b\n1,-999\n2,3\n", missing_values=("-999",)).X, a=[1.0, 2.0], b=[np.nan, 3.0])


@pytest.mark.parametrize("quote", ["", '"'])
def test_lines_of_errors_behind_empty_lines_and_other_blocks(tmp_path, quote):
    path = tmp_path / "data.csv"
    path.write_text("a,b\n" + f"1,{quote}2{quote}\n\n" * 1000 + "x,y\n")
    with pytest.raises(DataFormatError, match=r"data.csv:2002: 'x' in column 'a' is not a finite number, but 1000 of"):
        read_data(path)
    options = ReadOptions(columns={"a": "number"})
    with pytest.raises(DataFormatError, match=r"data.csv:2002: 'x' in column 'a' is not a finite number"):
        list(read_chunks(path, options, chunk_bytes=700))


def test_quoted_fields_across_blocks(tmp_path):
    path = tmp_path / "data.csv"
    fields = [f"line {i}\nof, many\n\nlines" for i in range(50)]
    path.write_text("a,b\n" + "".join(f'"{field}",{i}\n' for i, field in enumerate(fields)))
    parts = list(read_chunks(path, ReadOptions(columns={"a": "category", "b": "number"}), chunk_bytes=60))
    assert len(parts) > 20
    assert [value for part in parts for value in part.X["a"]] == fields
    assert [value for part in parts for value in part.X["b"]] == list(range(50))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,b\n1,2\n3\n", r"data.csv:3: 1 fields, but the header has 2 columns"),
        ("a,b\n1,2\n3,4,5\n", r"data.csv:3: 3 fields, but"),
        ("a,b,a\n1,2,3\n", r"data.csv:1: there are two columns named 'a'"),
        (",b\n1,2\n", r"data.csv:1: column 1 has no name"),
        ("", r"data.csv: the file is empty"),
        ("a,b\n", r"data.csv: there are no rows"),
        ('a,b\n1,"x\n2,y\n', r"data.csv:2: a quoted field begins in this record and does not end"),
        ('a,b\n1,"x"y\n', r"data.csv:2: the quotes or line ends are malformed: ',' expected after '\"'"),
        (b"a,b\n1,2\n3,\xe9\n", r"data.csv:3:3: the byte 0xe9 is not UTF-8"),
        ("a,b\n1,2\n3\r4,5\n", r"data.csv:3: the quotes or line ends are malformed"),
        ("a,b\n1,2\n3,x\0y\n", r"data.csv:3:4: there is a NUL byte"),
        ("a,b\n1,2\n".encode("utf-16"), r"data.csv: the text is UTF-16"),
        (
            "a\n1\n2\nabc\n4\n",
            r"data.csv:4: 'abc' in column 'a' is not a finite number, but 3 of 4 values are .*--categorical a",
        ),
        ("a\n1\n2\ninf\n", r"data.csv:4: 'inf' in column 'a' is not a finite"),
        ("a\n1\n2\n1e999\n", r"data.csv:4: '1e999' in column 'a' is not a finite"),
        ("a\n1\n2\n1_000\n", r"data.csv:4: '1_000' in column 'a' is not a finite"),
        ("a\n1\n2\n\u0661\n", r"data.csv:4: '\u0661' in column 'a' is not a finite"),
    ],
)
def test_errors_have_file_and_line(read, text, match):
    refused(read, text, match)


def test_targets(read):
    text = "a,label\n1,x\n2,NA\n"
    refused(
        read,
        text,
        r"data.csv:1: there is no column 'lable' \(--target\); did you mean 'label'\? The columns are 'a'",
        target="lable",
    )
    refused(read, text, r"data.csv:3: the label is missing \(skip such rows with --skip-unlabelled\)", target="label")
    refused(read, text + "3,\n", "data.csv:3: the label is missing, in 2 of 3 rows, of which this is", target="label")
    skipped = read("a,b,label\n1,x,\n2,x,no\n3,y,NA\n4,y,yes\n", target="label", skip_unlabelled=True)
    assert_frame(skipped.X, a=[2.0, 4.0], b=["x", "y"])
    assert skipped.y.tolist() == ["no", "yes"]
    assert skipped.n_unlabelled == 2
    refused(read, "a,label\n1,\n2,z\nx,z\n3,z\n", "data.csv:4: 'x' in column", target="label", skip_unlabelled=True)
    refused(read, "a,label\n1,\n", "no row has a label in column 'label'", target="label", skip_unlabelled=True)
    refused(read, "label\n1\n", "there are no columns besides", target="label")
    assert read("a,l\n1,1\n1,1.5\n", target="l").y.tolist() == ["1", "1.5"]
    assert read("a,l\n1,1\n1,-1\n", target="l").y.tolist() == [1, -1]
    large = 2**63 - 1
    assert read(f"a,l\n1,{large}\n1,{large - 1}\n", target="l").y.tolist() == [large, large - 1]
    for texts in (["007", "7"], ["+1", "-1"], ["1.0", "2"], ["0", "-0"], [str(large), str(large + 1)]):
        assert read(f"a,l\n1,{texts[0]}\n1,{texts[1]}\n", target="l").y.tolist() == texts
    # A model whose labels are integers has no label 007.
    assert read("a,l\n1,+1\n1,-1.0\n", target="l", label_kind="integer").y.tolist() == [1, -1]
    refused(read, "a,l\n1,7\n1,007\n", "csv:3: the label '007' is not an integer", target="l", label_kind="integer")
    assert read("a,l\n1,007\n1,1\n", target="l", label_kind="string").y.tolist() == ["007", "1"]
    refused(
        read, "a,l\n1,1\n1,1.5\n", "data.csv:3: the label '1.5' is not an integer", target="l", label_kind="integer"
    )


def test_numbers_with_units_stay_text_with_a_decimal_point(read):
    text = "share;price\n12,5%;1.200,5 €\n;7\n12,50 %;\n"
    data = read(text, separator=";", decimal=",")
    assert_frame(data.X, share=["12.5%", None, "12.5%"], price=["1200.5€", "7.0", None])
    encoder = TableEncoder(keep=["share", "price"], scale=False).fit(data.X)
    np.testing.assert_allclose(encoder.transform(data.X), [[0.125, 1200.5], [np.nan, 7.0], [0.125, np.nan]])
    assert_frame(read("a,b\n$1,x\n2,y\n").X, a=["$1", "2"], b=["x", "y"])
    refused(read, "a,b\n1%,x\n2,y\n", r"data.csv:3: '2' in column 'a' is not in the unit of '1%' \(correct it")
    encoder = TableEncoder(scale=False).fit({"a": ["1%", "2%"]})
    np.testing.assert_allclose(encoder.transform({"a": ["50%", None]}), [[0.5], [np.nan]])
    for wrong in ([0.5], ["0.5"], ["$5"]):
        with pytest.raises(ValueError, match="%"):
            encoder.transform({"a": wrong})
    with pytest.raises(ValueError, match="Column 'a' has numbers in several units, such as '1%' and '2': convert it"):
        TableEncoder().fit({"a": ["1%", "2"]})


def test_text_column(read):
    data = read('id,review,stars\n1," good, really ",5\n2,,1\n3,null,2\n', target="stars", text="review")
    assert data.X.to_dict("list") == {"id": [1.0, 2.0, 3.0], "review": [" good, really ", "", "null"]}
    assert data.y.tolist() == [5, 1, 2]
    assert data.feature_names == ("id", "review")
    data = read("b,c,a\nx,y,1\n", target="a", text=("c", "b"), columns={})
    assert data.X.to_dict("list") == {"c": ["y"], "b": ["x"]}
    with pytest.raises(DataFormatError, match=r"no column 'd' \(--text\)"):
        read("b,c,a\nx,y,1\n", text=("c", "d"))
    with pytest.raises(ValueError, match="target and text are the same"):
        read("a\nx\n", target="a", text="a")


def test_options_of_columns(read):
    text = "id,zip,size\n1,01234,1\n2,98765,x\n"
    data = read(text, ignore=("id", "size"), categorical=("zip",))
    assert_frame(data.X, zip=["01234", "98765"])
    refused(read, text, "data.csv:3: 'x' in column 'size' is not a finite", columns={"size": "number"})
    assert_frame(read(text, columns={"zip": "number", "gone": "number"}).X, zip=[1234.0, 98765.0])
    refused(read, text, "the file has none of the columns 'gone', but 'id', 'zip', 'size'", columns={"gone": "number"})
    refused(read, text, r"no column 'zap' \(--ignore\)", ignore=("zap",))


def test_long_fields_and_many_columns(read):
    long = "x" * 2**20
    assert_frame(read(f'a,b\n{long},1\n"{long}",2\n').X, a=[long, long], b=[1.0, 2.0])
    names = ",".join(f"c{j}" for j in range(5000))
    assert read(f"{names}\n{','.join('1' * 5000)}\n").X.shape == (1, 5000)


def test_the_whole_file_determines_the_kind_of_a_column(read):
    # More than one block: numbers first, categories later.
    text = "a,b\n" + "1,007\n" * 400_000 + "2,xyz\n" * 400_001
    column = read(text).X["b"]
    assert column.iloc[0] == "007"
    assert column.iloc[-1] == "xyz"


# Chunks ---------------------------------------------------------------------------------------------------------------

_TABLE = {
    "number": [1.5, None, 3.0, -4.0, 5.0, 6.0, 7.0],
    "name": ["x", "ü", None, "x", "a b", "y,z", 'q"q'],
    "label": [1, 0, 1, 1, 0, 1, 0],
}


def write(path):
    if path.suffix == ".parquet":
        pq.write_table(pa.table(_TABLE), path, row_group_size=3)
    elif path.suffix == ".feather":
        feather.write_feather(pa.table(_TABLE), str(path), chunksize=3)
    elif path.suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, pa.table(_TABLE).schema) as writer:
            writer.write_table(pa.table(_TABLE), max_chunksize=3)
    elif path.suffix == ".jsonl":
        rows = (dict(zip(_TABLE, row, strict=True)) for row in zip(*_TABLE.values(), strict=True))
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        separator = "," if path.suffix == ".csv" else "\t"
        rows = zip(*_TABLE.values(), strict=True)
        quote = {None: ""}
        cells = [
            [quote.get(c, str(c) if not isinstance(c, str) else '"' + c.replace('"', '""') + '"') for c in r]
            for r in rows
        ]
        path.write_text("\n".join(separator.join(row) for row in [list(_TABLE), *cells]))


_FILES = ["data.csv", "data.tsv", "data.jsonl", "data.parquet", "data.feather", "data.arrow"]


@pytest.mark.parametrize("name", _FILES)
def test_all_formats_give_the_same_table(tmp_path, name):
    write(tmp_path / name)
    data = read_data(tmp_path / name, ReadOptions(target="label"))
    number = [np.nan if v is None else v for v in _TABLE["number"]]
    assert_frame(data.X, number=number, name=_TABLE["name"])
    assert data.y.tolist() == _TABLE["label"]
    assert data.y.dtype == np.int64


@pytest.mark.parametrize("name", _FILES)
@pytest.mark.parametrize("chunk_bytes", [1, 40, 10**6])
def test_chunks_are_equal_to_the_whole_file(tmp_path, name, chunk_bytes):
    write(tmp_path / name)
    options = ReadOptions(target="label", columns={"number": "number", "name": "category"}, label_kind="integer")
    whole = read_data(tmp_path / name, options)
    parts = list(read_chunks(tmp_path / name, options, chunk_bytes=chunk_bytes))
    assert len(parts) > 1 or chunk_bytes > 1000
    for column in whole.X:
        assert [value for part in parts for value in plain(part.X[column])] == plain(whole.X[column])
    np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), whole.y)
    parts = list(read_chunks(tmp_path / name, ReadOptions(text="name"), chunk_bytes=chunk_bytes))
    assert [document for part in parts for document in part.X["name"]] == [cell or "" for cell in _TABLE["name"]]


def test_chunks_do_not_determine_kinds(tmp_path):
    (tmp_path / "data.csv").write_text("a,b,l\n" + "1,NA,1\n" * 4 + "x,2,0\n" * 4)
    parts = list(read_chunks(tmp_path / "data.csv", ReadOptions(target="l"), chunk_bytes=1))
    assert len(parts) > 1
    assert np.concatenate([part.X["a"] for part in parts]).tolist() == ["1"] * 4 + ["x"] * 4
    assert np.concatenate([plain(part.X["b"]) for part in parts]).tolist() == [None] * 4 + ["2"] * 4
    assert np.concatenate([part.y for part in parts]).tolist() == ["1"] * 4 + ["0"] * 4


# Parquet and Arrow ----------------------------------------------------------------------------------------------------


def parquet(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def test_arrow_types(tmp_path):
    path = parquet(
        tmp_path / "a.parquet",
        flag=pa.array([True, None, False]),
        whole=pa.array([1, None, 2], pa.int8()),
        single=pa.array([1.5, 2.5, None], pa.float32()),
        money=pa.array(["1.50", None, "2"]).cast(pa.decimal128(5, 2)),
        nothing=pa.nulls(3),
        name=pa.array(["a", "b", None]).dictionary_encode(),
        large=pa.array(["a", "b", None], pa.large_string()),
        label=pa.array([1.0, 2.0, -3.0]),
    )
    data = read_data(path, ReadOptions(target="label", categorical=("whole",)))
    nan = np.nan
    assert_frame(
        data.X,
        flag=[1.0, nan, 0.0],
        whole=["1", None, "2"],
        single=[1.5, 2.5, nan],
        money=[1.5, nan, 2.0],
        nothing=[nan, nan, nan],
        name=["a", "b", None],
        large=["a", "b", None],
    )
    assert data.y.tolist() == [1, 2, -3]


def test_errors_of_typed_columns(tmp_path):
    spans = pa.array([0, 1], pa.duration("ms"))
    path = parquet(
        tmp_path / "a.parquet", span=spans, a=[1.0, 2.0], label=["x", None], share=[0.5, 1.0], big=[np.inf, 1.0]
    )
    for options, match in (
        ({}, r"a.parquet: column 'span' is of type duration\[ms\]; .*--ignore span"),
        ({"ignore": ("span",)}, "row 1: the value of column 'big' is infinite"),
        ({"ignore": ("span", "big"), "target": "label"}, "row 2: the label is missing"),
        (
            {"ignore": ("span", "big"), "target": "share", "label_kind": "integer"},
            "row 1: the label '0.5' is not an integer",
        ),
        ({"ignore": ("span",), "target": "big"}, "row 1: the label 'inf' is not a finite number"),
        ({"text": "a"}, "column 'a' .--text. should hold text, but its type is double"),
        ({"columns": {"label": "number"}}, "row 1: 'x' in column 'label' is not a finite number"),
        ({"target": "labels"}, "there is no column 'labels' .*did you mean 'label'"),
    ):
        with pytest.raises(DataFormatError, match=match):
            read_data(path, ReadOptions(**options))


def test_numbers_as_labels(tmp_path):
    path = parquet(tmp_path / "a.parquet", a=[1.0, 2.0], share=[0.5, 1.0], whole=[1, 2])
    assert read_data(path, ReadOptions(target="share")).y.tolist() == [0.5, 1.0]
    assert read_data(path, ReadOptions(target="whole", label_kind="number")).y.tolist() == [1, 2]
    path = parquet(tmp_path / "b.parquet", a=[1.0, 2.0], label=np.array([2**63 - 1, 2**63], np.uint64))
    with pytest.raises(DataFormatError, match="row 2: the label '9223372036854775808' is not within 64 bits"):
        read_data(path, ReadOptions(target="label"))
    path = tmp_path / "a.csv"
    path.write_text("a,price\n1,$1.5\n2,2e3\n")
    options = ReadOptions(target="price", label_kind="number")
    assert read_data(path, options).y.tolist() == [1.5, 2000.0]
    path.write_text("a,price\n1,1.5\n2,much\n")
    with pytest.raises(DataFormatError, match=r"a\.csv:3: the label 'much' is not a finite number"):
        read_data(path, options)


@pytest.mark.parametrize("name", ["data.parquet", "data.feather", "data.arrow"])
def test_broken_arrow_files(tmp_path, name):
    path = tmp_path / name
    write(path)
    good = path.read_bytes()
    for text in (b"", b"PAR1", good[: len(good) // 2], good[:30], b"FEA1" + good[4:-4] + b"FEA1"):
        path.write_bytes(text)
        with pytest.raises(DataFormatError) as caught:
            read_data(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)


def test_parquet_files_that_decompress_to_too_much(tmp_path):
    # Ten million equal rows in some kilobytes.
    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"a": pa.array(np.zeros(10_000_000, dtype=np.int8))}), path, compression="zstd")
    assert path.stat().st_size < 10**5
    with pytest.raises(DataFormatError, match="--max-ratio"):
        read_data(path)
    # Chunks are small enough.
    assert sum(part.n_samples for part in read_chunks(path)) == 10_000_000


# JSON lines -----------------------------------------------------------------------------------------------------------


def test_json_lines(read):
    text = '{"size": 1, "colour": "red", "l": "a"}\n\n{"colour": "12", "size": null, "more": true, "l": "b"}\r\n'
    text += '{"l": "a"}\n'
    data = read(text, name="data.jsonl", target="l", categorical=("size",))
    assert_frame(data.X, size=["1", None, None], colour=["red", "12", None], more=[np.nan, 1.0, np.nan])
    assert data.y.tolist() == ["a", "b", "a"]
    assert read(text, name="data.jsonl", text="colour").X["colour"].tolist() == ["red", "12", ""]
    # Dates and numbers in quotes stay text.
    assert_frame(read('{"when": "2020-01-01", "n": "1"}', name="data.jsonl").X, when=["2020-01-01"], n=["1"])
    nested = read('{"a": [1], "b": {"c": 2}, "d": 1}\n', name="data.jsonl", ignore=("a", "b"))
    assert_frame(nested.X, d=[1.0])


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ('{"a": 1', r"data.jsonl:3: this is not valid JSON: Expecting"),
        ('{"a": 1, "a": 2}', r"data.jsonl:3: this is not valid JSON: a key occurs twice"),
        ('{"a": NaN}', r"data.jsonl:3: this is not valid JSON: NaN is not a number of JSON"),
        ('{"a": "\\ud800"}', r"data.jsonl:3: this is not valid JSON"),
        ("[" * 100_000, r"data.jsonl:3: this is not valid JSON"),
        ("[1]", r"data.jsonl:3: expected a JSON object, got '\[1\]'"),
        ('{"a": "x"}', r"data.jsonl:3: the value of 'a' is text, but other values are a number \(or use --ignore a\)"),
        ('{"a": [1]}', r"data.jsonl:3: the value of 'a' is a list or an object, but should be a number or text"),
        ('{"a": 1e999}', r"data.jsonl:3: the value of column 'a' is infinite"),
        (f'{{"a": {"9" * 5000}}}', r"data.jsonl:3: the value of column 'a' is infinite"),
        ('{"a": "\0"}', r"data.jsonl:3:8: there is a NUL byte"),
    ],
)
def test_errors_of_json_lines(read, line, match):
    refused(read, f'{{"a": 1}}\n\n{line}\n', match, name="data.jsonl")


def test_absent_columns_of_json_lines(read):
    refused(read, '{"a": 1}\n', r"data.jsonl: there is no column 'l' \(--target\)", name="data.jsonl", target="l")
    text = '{"a": 1, "l": 1}\n{"a": 1}\n'
    refused(read, text, "data.jsonl:2: the label is missing", name="data.jsonl", target="l")
    for label, what in (("1" * 20, "'1+' is not within 64"), ("1" * 5000, "'inf' is not"), ("1e999", "'inf' is not")):
        text = f'{{"a": 1, "l": 2}}\n{{"a": 1, "l": {label}}}\n'
        refused(read, text, f"data.jsonl:2: the label {what}", name="data.jsonl", target="l")
    large = 2**63 - 1
    text = f'{{"a": 1, "l": {large}}}\n{{"a": 1, "l": {large - 1}}}\n'
    assert read(text, name="data.jsonl", target="l").y.tolist() == [large, large - 1]
    refused(read, "\n\n", "data.jsonl: there are no rows", name="data.jsonl")


# Reading once ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", _FILES)
def test_a_file_is_read_once(tmp_path, name, monkeypatch):
    write(tmp_path / name)
    content = (tmp_path / name).read_bytes()
    options = ReadOptions(target="label", format="arrow" if name.endswith("feather") else name.split(".")[1])
    wanted = read_data(tmp_path / name, options, sha256=True)
    for packed in (content, gzip.compress(content)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed)))
        data = read_data("-", options, sha256=True)
        assert data.X.equals(wanted.X)
        assert data.sha256 == hashlib.sha256(packed).hexdigest()
    assert wanted.sha256 == hashlib.sha256(content).hexdigest()
    assert read_data(tmp_path / name, options).sha256 is None
