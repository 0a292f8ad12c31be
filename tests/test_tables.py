"""csv and tsv tables, Parquet and Arrow tables: exact, or an error with its place."""

from __future__ import annotations

import builtins

import numpy as np
import pytest

from dropmargin.io.data import DataFormatError, Frame, ReadOptions, read_chunks, read_data

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
    assert isinstance(frame, Frame)
    assert frame.names == tuple(columns)
    for name, values in columns.items():
        column = frame.get(name)
        assert column.dtype == (np.float64 if all(isinstance(v, float) for v in values) else object)
        np.testing.assert_array_equal(column, np.array(values, dtype=column.dtype))


def refused(read, text, match, **options):
    with pytest.raises(DataFormatError, match=match) as caught:
        read(text, **options)
    assert "\n" not in str(caught.value)


# Text tables ----------------------------------------------------------------------------------------------------------


def test_numbers_names_labels_and_missing_cells(read):
    data = read("age,colour,label\n1.5,red,1\n,blue,0\nNA,null,1\n -2e3 , red ,1\n", target="label")
    assert_frame(data.X, age=[1.5, np.nan, np.nan, -2000.0], colour=["red", "blue", None, "red"])
    assert data.y.tolist() == [1, 0, 1, 1]
    assert data.y.dtype == np.int64
    assert data.feature_names == ("age", "colour")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_quotes_unicode_and_newlines_within_cells(read, newline):
    text = newline.join(['\ufeff"näme, ""a""",größe', '"x, y",1', "", '"two', 'lines",2', 'a "b" c,3', '"",4'])
    data = read(text)
    inside = "two\r\nlines" if newline == "\r\n" else "two\nlines"
    assert data.X.names == ('näme, "a"', "größe")
    assert data.X.columns[0].tolist() == ["x, y", inside, 'a "b" c', None]
    assert data.X.columns[1].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_tsv_and_other_separators(read):
    assert_frame(read("a\tb\n1\tx,y\n", name="data.tsv").X, a=[1.0], b=["x,y"])
    assert_frame(read("a;b\n1;x,y\n", separator=";").X, a=[1.0], b=["x,y"])
    with pytest.raises(ValueError, match="separator must be one character"):
        read("a;b\n", separator=";;")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,b\n1,2\n3\n", r"data.csv:3: 1 cells, but the header has 2 columns"),
        ("a,b\n1,2\n3,4,5\n", r"data.csv:3: 3 cells, but"),
        ("a,b,a\n1,2,3\n", r"data.csv:1: there are two columns of the name 'a'"),
        (",b\n1,2\n", r"data.csv:1: column 1 has no name"),
        ("", r"data.csv: the file is empty"),
        ("a,b\n", r"data.csv: there are no rows"),
        ('a,b\n1,"x\n2,y\n', r"data.csv:2: a quote is opened in this record and never closed"),
        ('a,b\n1,"x"y\n', r"data.csv:2:6: there is text behind a closing quote"),
        (b"a,b\n1,2\n3,\xe9\n", r"data.csv:3:3: the byte 0xe9 is not UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), r"data.csv: the text is UTF-16"),
        (
            "a\n1\n2\nabc\n4\n",
            r"data.csv:4: 'abc' in column 'a' is not a finite number, but 3 of its 4 .*--categorical a",
        ),
        ("a\n1\n2\ninf\n", r"data.csv:4: 'inf' in column 'a' is not a finite"),
        ("a\n1\n2\n1e999\n", r"data.csv:4: '1e999' in column 'a' is not a finite"),
        ("a\n1\n2\n1_000\n", r"data.csv:4: '1_000' in column 'a' is not a finite"),
        ("a\n1\n2\n\u0661\n", r"data.csv:4: '\u0661' in column 'a' is not a finite"),
    ],
)
def test_malformed_tables_are_refused_with_their_place(read, text, match):
    refused(read, text, match)


def test_targets(read):
    text = "a,label\n1,x\n2,NA\n"
    refused(
        read,
        text,
        r"data.csv:1: there is no column 'lable' \(--target\); did you mean 'label'\? The columns are 'a'",
        target="lable",
    )
    refused(read, text, "data.csv:3: the label is missing", target="label")
    refused(read, "label\n1\n", "there are no columns besides", target="label")
    assert read("a,l\n1,1\n1,1.5\n", target="l").y.tolist() == ["1", "1.5"]
    assert read("a,l\n1,+1\n1,-1.0\n", target="l").y.tolist() == [1, -1]
    assert read("a,l\n1,007\n1,1\n", target="l", label_kind="string").y.tolist() == ["007", "1"]
    refused(read, "a,l\n1,1\n1,1.5\n", "data.csv:3: the label '1.5' is not a whole", target="l", label_kind="integer")


def test_text_column(read):
    data = read('id,review,stars\n1," good, really ",5\n2,,1\n3,null,2\n', target="stars", text="review")
    assert data.X == [" good, really ", "", "null"]
    assert data.y.tolist() == [5, 1, 2]
    with pytest.raises(ValueError, match="target and text are the same"):
        read("a\nx\n", target="a", text="a")


def test_columns_can_be_told(read):
    text = "id,zip,size\n1,01234,1\n2,98765,x\n"
    data = read(text, ignore=("id", "size"), categorical=("zip",))
    assert_frame(data.X, zip=["01234", "98765"])
    refused(read, text, "data.csv:3: 'x' in column 'size' is not a finite", columns={"size": "number"})
    assert_frame(read(text, columns={"zip": "number", "gone": "number"}).X, zip=[1234.0, 98765.0])
    refused(
        read, text, "none of the columns 'gone' is there; the file has 'id', 'zip', 'size'", columns={"gone": "number"}
    )
    refused(read, text, r"no column 'zap' \(--ignore\)", ignore=("zap",))


def test_long_cells_and_many_columns(read):
    long = "x" * 2**20
    assert_frame(read(f'a,b\n{long},1\n"{long}",2\n').X, a=[long, long], b=[1.0, 2.0])
    names = ",".join(f"c{j}" for j in range(5000))
    assert len(read(f"{names}\n{','.join('1' * 5000)}\n").X.names) == 5000


def test_what_a_column_holds_is_decided_over_the_whole_file(read):
    # over more than one block: numbers first, names later
    text = "a,b\n" + "1,007\n" * 60_000 + "2,xyz\n" * 60_001
    column = read(text).X.get("b")
    assert column[0] == "007"
    assert column[-1] == "xyz"


# Parts ----------------------------------------------------------------------------------------------------------------

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
    else:
        separator = "," if path.suffix == ".csv" else "\t"
        rows = zip(*_TABLE.values(), strict=True)
        quote = {None: ""}
        cells = [
            [quote.get(c, str(c) if not isinstance(c, str) else '"' + c.replace('"', '""') + '"') for c in r]
            for r in rows
        ]
        path.write_text("\n".join(separator.join(row) for row in [list(_TABLE), *cells]))


_FILES = ["data.csv", "data.tsv", "data.parquet", "data.feather", "data.arrow"]


@pytest.mark.parametrize("name", _FILES)
def test_every_kind_of_table_holds_the_same(tmp_path, name):
    write(tmp_path / name)
    data = read_data(tmp_path / name, ReadOptions(target="label"))
    number = [np.nan if v is None else v for v in _TABLE["number"]]
    assert_frame(data.X, number=number, name=_TABLE["name"])
    assert data.y.tolist() == _TABLE["label"]
    assert data.y.dtype == np.int64


@pytest.mark.parametrize("name", _FILES)
@pytest.mark.parametrize("chunk_bytes", [1, 40, 10**6])
def test_parts_make_the_whole(tmp_path, name, chunk_bytes):
    write(tmp_path / name)
    options = ReadOptions(target="label", columns={"number": "number", "name": "category"}, label_kind="integer")
    whole = read_data(tmp_path / name, options)
    parts = list(read_chunks(tmp_path / name, options, chunk_bytes=chunk_bytes))
    assert len(parts) > 1 or chunk_bytes > 1000
    for j in range(2):
        np.testing.assert_array_equal(np.concatenate([part.X.columns[j] for part in parts]), whole.X.columns[j])
    np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), whole.y)
    parts = list(read_chunks(tmp_path / name, ReadOptions(text="name"), chunk_bytes=chunk_bytes))
    assert [document for part in parts for document in part.X] == [cell or "" for cell in _TABLE["name"]]


def test_parts_of_text_are_not_guessed(tmp_path):
    (tmp_path / "data.csv").write_text("a,b,l\n" + "1,NA,1\n" * 4 + "x,2,0\n" * 4)
    parts = list(read_chunks(tmp_path / "data.csv", ReadOptions(target="l"), chunk_bytes=1))
    assert len(parts) > 1
    assert np.concatenate([part.X.get("a") for part in parts]).tolist() == ["1"] * 4 + ["x"] * 4
    assert np.concatenate([part.X.get("b") for part in parts]).tolist() == [None] * 4 + ["2"] * 4
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


def test_columns_that_are_neither_numbers_nor_text(tmp_path):
    dates = pa.array([0, 1], pa.timestamp("s"))
    path = parquet(
        tmp_path / "a.parquet", when=dates, a=[1.0, 2.0], label=["x", None], share=[0.5, 1.0], big=[np.inf, 1.0]
    )
    for options, match in (
        ({}, r"a.parquet: column 'when' is of type timestamp\[ms\]; .*--ignore when"),
        ({"ignore": ("when",)}, "column 'big' has an infinite value"),
        ({"ignore": ("when", "big"), "target": "label"}, "the label in row 2 is missing"),
        ({"ignore": ("when", "big"), "target": "share"}, "row 1: the label 0.5 is not a whole number"),
        ({"text": "a"}, "column 'a' should hold text, but its type is double"),
        ({"columns": {"label": "number"}}, "column 'label' should hold numbers, but its type is string"),
        ({"target": "labels"}, "there is no column 'labels' .*did you mean 'label'"),
    ):
        with pytest.raises(DataFormatError, match=match):
            read_data(path, ReadOptions(**options))


@pytest.mark.parametrize("name", ["data.parquet", "data.feather", "data.arrow"])
def test_broken_arrow_files_are_refused(tmp_path, name):
    path = tmp_path / name
    write(path)
    good = path.read_bytes()
    for text in (b"", b"PAR1", good[: len(good) // 2], good[:30], b"FEA1" + good[4:-4] + b"FEA1"):
        path.write_bytes(text)
        with pytest.raises(DataFormatError) as caught:
            read_data(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)


def test_a_parquet_bomb_is_refused(tmp_path):
    # ten million equal rows in some kilobytes
    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"a": pa.array(np.zeros(10_000_000, dtype=np.int8))}), path, compression="zstd")
    assert path.stat().st_size < 10**5
    with pytest.raises(DataFormatError, match="--max-ratio"):
        read_data(path)
    # in parts it fits
    assert sum(part.n_samples for part in read_chunks(path)) == 10_000_000


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    real = builtins.__import__

    def fail(name, *rest):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", fail)
    with pytest.raises(ImportError, match=r"pip install 'dropmargin\[parquet\]'"):
        read_data(tmp_path / "a.parquet")
