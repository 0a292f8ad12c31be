"""All formats: file names, options, gzip, standard input, size limits; npz archives and text files."""

from __future__ import annotations

import gzip
import io
import pickle
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from dealing import together
from dropmargin.io.data import FORMATS, DataFormatError, ReadOptions, find_format, read_chunks, read_data

TEXTS = {
    "svmlight": (b"1 1:2 3:4\n-1 2:1\n1 3:1\n", {"zero_based": False, "n_features": 3}),
    "csv": (b"a,b\n1,x\n2,y\n3,x\n", {"columns": {"a": "number", "b": "category"}}),
    "tsv": (b"a\tb\n1\tx\n2\ty\n3\tx\n", {"columns": {"a": "number", "b": "category"}}),
    "jsonl": (b'{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n', {"columns": {"a": "number", "b": "category"}}),
    "text": (b"good\nbad\n\n", {}),
}


def archive(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def all_files():
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table, parquet, arrow = pa.table({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "x"]}), io.BytesIO(), io.BytesIO()
    pq.write_table(table, parquet)
    with pa.ipc.new_file(arrow, table.schema) as writer:
        writer.write_table(table)
    return {
        **TEXTS,
        "npz": (archive(X=np.arange(6.0).reshape(3, 2), y=np.array([1, 0, 1])), {}),
        "parquet": (parquet.getvalue(), {}),
        "arrow": (arrow.getvalue(), {}),
    }


def plain(data):
    """Return the rows and labels of a data set, for comparisons."""
    X = data.X
    if hasattr(X, "toarray"):
        X = X.toarray()
    rows = X.to_dict("list") if data.is_table else np.asarray(X).tolist()
    return rows, None if data.y is None else data.y.tolist()


# File names, options, gzip, stdin     ---------------------------------------------------------------------------------


def test_file_names_options_gzip_and_standard_input(tmp_path, monkeypatch):
    files = all_files()
    assert set(files) == set(FORMATS)
    for name, (content, options) in files.items():
        path = tmp_path / f"data{FORMATS[name].extensions[0]}"
        path.write_bytes(content)
        wanted = plain(read_data(path, ReadOptions(**options)))
        zipped = path.with_name(path.name + ".gz")
        zipped.write_bytes(gzip.compress(content))
        anonymous = tmp_path / "data"
        anonymous.write_bytes(content)
        given = ReadOptions(format=name, **options)
        assert plain(read_data(zipped, ReadOptions(**options))) == wanted
        assert plain(read_data(anonymous, given)) == wanted
        for packed in (content, gzip.compress(content)):
            for read in (read_data, lambda *call: next(iter(read_chunks(*call)))):
                monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed)))
                assert plain(read("-", given)) == wanted
                assert not sys.stdin.buffer.closed


def test_unknown_formats():
    for path, given, match in (
        ("data.xyz", None, r"data.xyz is not known: use a file name that ends in one of .svm, .* or set format"),
        ("-", None, "format must be given for standard input"),
        ("data.svm", "arff", "format must be one of .*'arff'"),
    ):
        with pytest.raises(ValueError, match=match):
            find_format(path, given)
    assert find_format("A.SVM.GZ") == "svmlight"
    assert find_format("x.csv", "tsv") == "tsv"


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        (
            "a.svm",
            {"target": "y"},
            "target is an option of csv, tsv, .* files, not of svmlight files",
        ),
        ("a.csv", {"zero_based": True}, "zero_based is an option of svmlight files, not of csv files"),
        ("a.npz", {"text": "review"}, "text is an option of .*, not of npz files"),
        ("a.svm", {"n_features": -1}, "n_features must be an integer of at least 0, got -1"),
        ("a.svm", {"n_features": 11, "max_features": 10}, "n_features=11 is more than max_features=10"),
        ("a.svm", {"zero_based": "auto"}, r"zero_based must be one of \[None, True, False\], got 'auto'"),
        ("a.csv", {"columns": {"a": "float"}}, "'category' or 'date', got 'float' for 'a'"),
        ("a.csv", {"label_kind": "float"}, "label_kind must be"),
        ("a.csv", {"target": "a", "text": "a"}, "target and text are the same column, 'a'"),
    ],
)
def test_options_are_checked_before_the_file_is_opened(name, options, match):
    with pytest.raises(ValueError, match=match):
        read_data(name, ReadOptions(**options))
    with pytest.raises(ValueError, match=match):
        read_chunks(name, ReadOptions(**options))


def test_chunk_bytes_are_checked():
    with pytest.raises(ValueError, match="chunk_bytes must be an integer of at least 1, got 0"):
        read_chunks("a.svm", chunk_bytes=0)


def test_file_that_does_not_exist():
    with pytest.raises(FileNotFoundError):
        read_data("not-there.svm")


@pytest.mark.parametrize("name", TEXTS)
def test_broken_gzip_data(tmp_path, name):
    content, options = TEXTS[name]
    packed = gzip.compress(content * 500)
    path = tmp_path / f"data{FORMATS[name].extensions[0]}.gz"
    for broken in (packed[:-9], packed[:20], packed[:30] + b"\0" * 10 + packed[40:], packed + b"rubbish"):
        path.write_bytes(broken)
        with pytest.raises(DataFormatError, match=r"broken gzip data|: "):
            read_data(path, ReadOptions(**options))


def test_gzip_data_that_decompress_to_too_much(tmp_path):
    path = tmp_path / "bomb.txt.gz"
    path.write_bytes(gzip.compress((b"word " * 1000 + b"\n") * 15_000, 9))
    with pytest.raises(DataFormatError, match=r"unpack to .* or more, over 200 times as many .*--max-ratio"):
        read_data(path)


class Repeated(io.RawIOBase):
    """A stream of a beginning, and then of a text that is repeated up to 150 MB, beyond the longest line."""

    def __init__(self, start, text):
        self.start, self.text, self.left = start, text, 150 * 10**6

    def readable(self):
        return True

    def readinto(self, buffer):
        n = min(len(buffer), self.left)
        content = (self.start + self.text * (n // len(self.text) + 1))[:n]
        buffer[:n], self.start, self.left = content, b"", self.left - n
        return n


@pytest.mark.parametrize(
    ("name", "start", "text", "match"),
    [
        ("csv", b"a,b\n1,x\n", b"1", "stdin:3: this line has more than 64 MB"),
        ("csv", b"", b"a", "stdin:1: this line has more than 64 MB"),
        ("csv", b'a,b\n1,x\n1,"', b"a" * 10**6 + b"\n", "stdin:3: a quoted field begins .* has more than 64 MB"),
        ("jsonl", b'{"a": 1}\n{"a": 1', b"1", "stdin:2: this line has more than 64 MB"),
        ("svmlight", b"1 1:1\n1 1:1", b"1", "stdin:2: this line has more than 64 MB"),
        ("text", b"good\n", b"a", "stdin:2: this line has more than 64 MB"),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(name, start, text, match, whole, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Repeated(start, text)))
    options = ReadOptions(format=name, **TEXTS[name][1])
    with pytest.raises(DataFormatError, match=match):
        list([read_data("-", options)] if whole else read_chunks("-", options))


def test_errors_can_be_pickled():
    error = DataFormatError("what", "file", 3, 4)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "file:3:4: what"
    assert (again.line, again.column) == (3, 4)


# Text files -----------------------------------------------------------------------------------------------------------


def test_text_has_a_document_per_line(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffgrün, wirklich\r\n\r\nNA\nlast".encode())
    assert read_data(path).X == ["grün, wirklich", "", "NA", "last"]
    assert read_data(path).y is None
    parts = list(read_chunks(path, chunk_bytes=1))
    assert [document for part in parts for document in part.X] == read_data(path).X


def test_text_with_labels(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("1\tgood\n\n-1\tbad\tindeed\n")
    data = read_data(path, ReadOptions(target="label"))
    assert data.X == ["good", "bad\tindeed"]
    assert data.y.tolist() == [1, -1]
    path.write_text("good\tx\nNA\ty\n")
    assert read_data(path, ReadOptions(target="label")).y.tolist() == ["good", "NA"]
    for text, match in (
        ("1\tx\ny\n", "a.txt:2: expected a label, a tab"),
        ("1\tx\n\ty\n", "a.txt:2: the label is missing"),
    ):
        path.write_text(text)
        with pytest.raises(DataFormatError, match=match):
            read_data(path, ReadOptions(target="label"))


def test_text_that_looks_like_svmlight(tmp_path):
    path = tmp_path / "a9a.txt"
    path.write_text("-1 3:1 11:1 14:1 \n")
    with pytest.raises(
        DataFormatError, match=r"a9a.txt:1: this looks like svmlight.*--format svmlight or --format text"
    ):
        read_data(path)
    assert read_data(path, ReadOptions(format="svmlight")).X.shape == (1, 14)
    assert read_data(path, ReadOptions(format="text")).X == ["-1 3:1 11:1 14:1 "]


# npz ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def read_npz(tmp_path):
    """Return a function that reads the bytes of an archive."""

    def read(content, **options):
        path = tmp_path / "a.npz"
        path.write_bytes(content)
        return read_data(path, ReadOptions(**options))

    return read


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
@pytest.mark.parametrize("make", [sparse.random_array, sparse.random])
def test_matrices_of_scipy(read_npz, layout, make):
    shape = ((20, 9),) if make is sparse.random_array else (20, 9)
    X = make(*shape, density=0.2, format=layout, random_state=0)
    stream = io.BytesIO()
    sparse.save_npz(stream, X)
    got = read_npz(stream.getvalue()).X
    assert isinstance(got, sparse.csr_array)
    assert got.has_sorted_indices
    np.testing.assert_array_equal(got.toarray(), X.toarray())


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_unsorted_and_duplicate_entries(read_npz, layout, dtype, compressed):
    product = sparse.random(30, 12, 0.4, "csr", random_state=0) @ sparse.random(12, 9, 0.4, "csr", random_state=1)
    assert layout != "csr" or not product.has_sorted_indices  # the product of SciPy is unsorted
    X = product.asformat(layout)
    if layout == "coo":
        X = sparse.coo_array(
            (np.concatenate([X.data[::-1], X.data]), (np.append(X.row[::-1], X.row), np.append(X.col[::-1], X.col))),
            shape=X.shape,
        )
        if hasattr(X, "coords"):
            X.coords = tuple(axis.astype(dtype) for axis in X.coords)
        else:  # SciPy 1.12
            X.row, X.col = X.row.astype(dtype), X.col.astype(dtype)
    else:
        data, indices = np.repeat(X.data, 2), np.repeat(X.indices, 2).astype(dtype)
        X = type(X)((data, indices, 2 * X.indptr.astype(dtype)), shape=X.shape)
        assert not X.has_canonical_format
    stream = io.BytesIO()
    sparse.save_npz(stream, X, compressed=compressed)
    got = read_npz(stream.getvalue()).X
    assert got.has_canonical_format
    np.testing.assert_allclose(got.toarray(), 2.0 * product.toarray(), rtol=1e-15)


def test_arrays_of_numpy(read_npz):
    X = sparse.random_array((7, 5), density=0.4, format="csr", random_state=0)
    names = np.array(["ä", "b", "c", "d", "e"])
    parts = {"X_data": X.data, "X_indices": X.indices, "X_indptr": X.indptr, "X_shape": np.array(X.shape)}
    y = np.array(["a", "b", "a", "c", "a", "b", "ü"])
    data = read_npz(archive(**parts, y=y, other=np.arange(7), feature_names=names))
    np.testing.assert_array_equal(data.X.toarray(), X.toarray())
    assert data.y.tolist() == y.tolist()
    assert data.feature_names == tuple(names)
    dense = read_npz(archive(X=np.asfortranarray(X.toarray().astype(">f4")), z=np.arange(7.0)), target="z")
    assert dense.X.dtype == np.float32
    np.testing.assert_array_equal(dense.X, X.toarray().astype(np.float32))
    assert dense.y.dtype == np.int64


@pytest.mark.parametrize("chunk_bytes", [1, 300, 10**6])
def test_chunks_of_an_archive(tmp_path, chunk_bytes):
    path = tmp_path / "a.npz"
    X = sparse.random_array((30, 5), density=0.4, format="csr", random_state=0)
    for matrix in (X, X.toarray()):
        parts = {"X": matrix} if isinstance(matrix, np.ndarray) else {"data": X.data, "indices": X.indices}
        if not isinstance(matrix, np.ndarray):
            parts |= {"indptr": X.indptr, "shape": np.array(X.shape)}
        path.write_bytes(archive(**parts, y=np.arange(30)))
        chunks = list(read_chunks(path, chunk_bytes=chunk_bytes))
        assert len(chunks) > 1 or chunk_bytes > 1000
        dense = [c.X if isinstance(c.X, np.ndarray) else c.X.toarray() for c in chunks]
        np.testing.assert_array_equal(np.vstack(dense), X.toarray())
        assert np.concatenate([c.y for c in chunks]).tolist() == list(range(30))


class _Evil:
    def __reduce__(self):
        return (pytest.fail, ("it was unpickled",))


def header(descr="<f8", shape="(2, 2)", rest=""):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, {rest}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def zipped(content, method=zipfile.ZIP_STORED, **more):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as out:
        out.writestr("X.npy", content)
    return stream.getvalue()


_CSR = {"data": np.ones(2), "indices": np.array([0, 1]), "indptr": np.array([0, 1, 2]), "shape": np.array([2, 2])}
BROKEN = {
    "no archive": (b"PK rubbish", "this is not an .npz archive"),
    "truncated": (archive(X=np.ones((9, 9)))[:-30], "this is not an .npz archive"),
    "pickle": (
        archive(X=np.array([[_Evil()]], dtype=object)),
        "'X' should hold numbers, but its type is object|Python objects",
    ),
    "a header with a very large shape": (zipped(header(shape="(1000000, 1000000)")), "unpack to 8000000000000 or more"),
    "a header with a large shape": (zipped(header(shape="(1000, 1000)")), "does not have the size of its header"),
    "a header with a small shape": (zipped(header() + b"\0" * 40), "does not have the size of its header"),
    "code in the header": (zipped(header(rest="'x': __import__('os'), ")), "the array 'X' cannot be read"),
    "nested header": (zipped(header(shape="(" * 3000 + ")" * 3000)), "the array 'X' cannot be read"),
    "complex": (archive(X=np.ones((2, 2), complex)), "should hold numbers, but its type is complex128"),
    "three dimensions": (archive(X=np.ones((2, 2, 2))), r"has the shape \(2, 2, 2\), it should be \(any, any\)"),
    "labels too few": (archive(X=np.ones((2, 2)), y=np.ones(1)), r"'y' has the shape \(1,\), it should be \(2\)"),
    "labels not finite": (archive(X=np.ones((2, 2)), y=np.array([1.0, np.nan])), "labels that are not finite"),
    "no known array": (archive(Z=np.ones(2)), "neither an array X nor a sparse matrix .* but 'Z'"),
    "index outside": (archive(**{**_CSR, "indices": np.array([0, 2])}), "the sparse matrix is malformed"),
    "negative index": (archive(**{**_CSR, "indices": np.array([0, -1])}), "the sparse matrix is malformed"),
    "indptr down": (archive(**{**_CSR, "indptr": np.array([0, 5, 2])}), "the sparse matrix is malformed"),
    "indptr long": (archive(**{**_CSR, "indptr": np.array([0, 1, 3])}), "the sparse matrix is malformed"),
    "wide": (archive(**{**_CSR, "shape": np.array([2, 2**40])}), "at most 4194304 are allowed .*--max-features"),
    "tall": (
        archive(
            data=np.ones(1), row=np.array([0]), col=np.array([0]), shape=np.array([2**40, 2]), format=np.array("coo")
        ),
        "--max-ratio",
    ),
    "other layout": (archive(**_CSR, format=np.array(b"dia")), "the sparse format 'dia' is not supported"),
    "no text": (zipped(header("<U1", "(1, 1)") + b"\xff" * 4), "'X' should hold numbers, but its type is <U1"),
}


@together("case", BROKEN)
def test_broken_archives(read_npz, tmp_path, case):
    content, match = BROKEN[case]
    with pytest.raises(DataFormatError, match=match) as caught:
        read_npz(content)
    assert str(caught.value).startswith(f"{tmp_path / 'a.npz'}: ")
    assert "\n" not in str(caught.value)


def test_archives_that_decompress_to_too_much(read_npz):
    content = zipped(header(shape="(3000, 3000)") + b"\0" * 72_000_000, zipfile.ZIP_DEFLATED)
    assert len(content) < 10**5
    with pytest.raises(DataFormatError, match=r"unpack to 72000000 or more, over 200 times .*--max-ratio"):
        read_npz(content)
    assert read_npz(content, max_ratio=2000).X.shape == (3000, 3000)


def test_labels_with_characters_that_do_not_exist(read_npz):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as out:
        out.writestr("X.npy", header(shape="(1, 1)") + b"\0" * 8)
        out.writestr("y.npy", header("<U1", "(1,)") + b"\xff" * 4)
    with pytest.raises(DataFormatError, match="'y' cannot be read: it has characters that do not exist"):
        read_npz(stream.getvalue())


# Without pandas -------------------------------------------------------------------------------------------------------

_WITHOUT_PANDAS = """
import sys
class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name in ("pandas", "pyarrow"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, NotInstalled())
import numpy as np
from dropmargin.io.data import TableEncoder, TextEncoder, read_data
assert TableEncoder().fit_transform({"a": [1, 2], "b": ["x", "y"]}).shape == (2, 3)
assert TableEncoder().fit_transform(np.eye(2)).shape == (2, 2)
assert TextEncoder().fit_transform(["one word", "two words"]).shape == (2, 4)
assert read_data(sys.argv[1]).X.shape == (1, 1)
read_data("a.csv")
"""


def test_without_pandas_the_error_names_the_extra(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n")
    command = [sys.executable, "-c", _WITHOUT_PANDAS, str(tmp_path / "a.svm")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    message = done.stderr.strip().splitlines()[-1]
    assert message.startswith("ImportError: csv files need pandas and pyarrow")
    assert message.endswith("pip install 'dropmargin[cli]'")
