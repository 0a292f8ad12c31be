"""Data files are read exactly: ids, labels and cells keep their digits; a malformed file is one error of one line."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from dropmargin.io.data import FORMATS, DataFormatError, ReadOptions, find_format, read_chunks, read_data
from dropmargin.io.data.sources import hash_of

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

_CSV = b"a,b,label\n1.5,x,yes\n,y,no\n3,x,yes\n"


def write(tmp_path, name, content):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(tmp_path, name, content, **options):
    return read_data(write(tmp_path, name, content), ReadOptions(**options))


def refused(tmp_path, name, content, message, **options):
    with pytest.raises(DataFormatError, match=message) as caught:
        read(tmp_path, name, content, **options)
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)
    return caught.value


# Exactness -----------------------------------------------------------------------------------------------------------

_LONG = "1234567890123456789"


def test_ids_pass_through_exactly(tmp_path):
    rows = f'{{"id": {_LONG}, "a": 1}}\n{{"a": 2}}\n{{"id": 1e400, "a": 3}}\n{{"id": "007", "a": 4}}\n'
    assert read(tmp_path, "a.jsonl", rows, ids="id").ids == [_LONG, "", "1e400", "007"]
    assert read(tmp_path, "a.csv", f"id,a\n{_LONG},1\n007,2\n", ids="id").ids == [_LONG, "007"]
    path = tmp_path / "a.parquet"
    pd.DataFrame({"id": pd.array([int(_LONG), None], dtype="Int64"), "a": [1.0, 2.0]}).to_parquet(path)
    assert read_data(path, ReadOptions(ids="id")).ids == [_LONG, ""]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["007", "7"], ["007", "7"]),
        (["7", "-3", "0"], [7, -3, 0]),
        (["7.0", "7"], ["7.0", "7"]),
        (["18446744073709551615", "1"], ["18446744073709551615", "1"]),
        ([" yes", "no "], ["yes", "no"]),
    ],
)
def test_labels_of_text_keep_their_text(labels, expected, tmp_path):
    content = "a,label\n" + "".join(f"1,{label}\n" for label in labels)
    assert read(tmp_path, "a.csv", content, target="label").y.tolist() == expected


def test_whole_numbers_beyond_integers_are_numbers_in_every_chunk(tmp_path):
    path = write(tmp_path, "a.svm", "1 1:2\n-1 1:3\n12345612345678901234567 1:4\n")
    assert read_data(path).y.tolist() == [1.0, -1.0, 12345612345678901234567.0]
    parts = list(read_chunks(path, ReadOptions(zero_based=False, n_features=1), chunk_bytes=8))
    assert np.concatenate([part.y for part in parts]).tolist() == [1.0, -1.0, 12345612345678901234567.0]


def test_labels_above_two_to_the_63_do_not_wrap(tmp_path):
    y = np.array([2**64 - 1, 1, 2**63], dtype=np.uint64)
    np.savez(tmp_path / "a.npz", X=np.eye(3), y=y)
    pd.DataFrame({"a": [1.0, 2.0, 3.0], "label": y}).to_parquet(tmp_path / "a.parquet")
    lines = "".join(json.dumps({"a": 1, "label": label}) + "\n" for label in y.tolist())
    write(tmp_path, "a.jsonl", lines)
    for name in ("a.npz", "a.parquet", "a.jsonl"):
        options = ReadOptions(target=None if name == "a.npz" else "label")
        assert read_data(tmp_path / name, options).y.tolist() == y.tolist()
        parts = list(read_chunks(tmp_path / name, options, chunk_bytes=1))
        assert [label for part in parts for label in part.y.tolist()] == y.tolist()


def test_cells_are_text_and_missing_cells_are_missing(tmp_path):
    data = read(tmp_path, "a.csv", 'a,b,c\n 1.50 ,NA,007\n?,x y,\n  ," NA ", null\n')
    assert data.X["a"].tolist()[0] == "1.50"
    assert data.X.isna().to_numpy().tolist() == [[False, True, False], [True, False, True], [True, True, True]]
    assert data.X["c"].tolist()[0] == "007"


# Names, separators, encodings ----------------------------------------------------------------------------------------


def test_duplicate_and_unnamed_columns_get_names_with_a_note(tmp_path):
    data = read(tmp_path, "a.csv", "a,,a,a_2\n1,2,3,4\n")
    assert list(data.X.columns) == ["a", "column_2", "a_2", "a_2_2"]
    assert [note.split(":")[0] for note in data.notes] == [
        "column 2 has no name",
        "column 3 has the name 'a' of another",
        "column 4 has the name 'a_2' of another",
    ]


@pytest.mark.parametrize(
    ("content", "separator"),
    [
        ('a;b\n"1\n2";x,y\n', ";"),
        ('"a\n1";b\n"x;\n";2\n', ";"),
        ("a\tb\n1,5\t2\n", "\t"),
        ("a,b\n1;2,3\n", ","),
        ("a\n1\n", ","),
        ("a|b\n1|2\n", "|"),
    ],
)
def test_separators(content, separator, tmp_path):
    data = read(tmp_path, "a.csv", content, separator=separator if separator == "|" else None)
    assert data.n_samples == 1
    assert data.X.shape[1] == (1 if content == "a\n1\n" else 2)
    assert bool(data.notes) == (separator in ";\t")


@pytest.mark.parametrize("encoding", [None, "latin-1", "utf-16", "utf-8-sig"])
def test_encodings(encoding, tmp_path):
    content = "größe,label\nhöher,ja\n".encode(encoding or "utf-8")
    given = encoding if encoding == "latin-1" else None  # the others are found
    data = read(tmp_path, "a.csv", content, encoding=given, target="label")
    assert data.X["größe"].tolist() == ["höher"]
    if encoding == "latin-1":
        refused(tmp_path, "a.csv", content, "--encoding latin-1", target="label")
        assert read(tmp_path, "a.txt", content, encoding=given).X["text"].tolist()[1] == "höher,ja"
        refused(tmp_path, "a.txt", content, "--encoding latin-1")
    with pytest.raises(ValueError, match="encoding 'nix' is not known"):
        read(tmp_path, "a.csv", content, encoding="nix")


# Formats -------------------------------------------------------------------------------------------------------------


def test_formats_by_name(tmp_path):
    for name, form in FORMATS.items():
        for ending in form.endings:
            assert find_format(f"x{ending}") == find_format(f"X{ending.upper()}.gz") == name
    with pytest.raises(ValueError, match=r"format of x\.doc is not known"):
        find_format("x.doc")
    with pytest.raises(ValueError, match="must be given for standard input"):
        find_format("-")
    with pytest.raises(ValueError, match="is an option of svmlight files, not of csv files"):
        read(tmp_path, "a.csv", _CSV, zero_based=True)
    with pytest.raises(FileNotFoundError):
        read_data(tmp_path / "absent.csv")


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_gzip_and_standard_input(name, tmp_path, monkeypatch):
    content = gzip.compress(_CSV) if name.endswith(".gz") else _CSV
    expected = read(tmp_path, name, content, target="label")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    found = read_data("-", ReadOptions(format="csv", target="label"))
    assert found.X.equals(expected.X)
    assert found.y.tolist() == expected.y.tolist() == ["yes", "no", "yes"]
    assert hash_of("-") is None
    assert hash_of(tmp_path / name) == hash_of(tmp_path / name)


def test_a_folder_of_parquet_files_is_one_table(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for number in (2, 1):
        frame = pd.DataFrame({"a": [number + 0.5] * 2, "label": [number, 0]})
        frame.to_parquet(folder / f"part-{number}.parquet")
    write(folder, "_SUCCESS", "")
    data = read_data(folder, ReadOptions(target="label"))
    assert data.X["a"].tolist() == [1.5, 1.5, 2.5, 2.5]
    assert data.y.tolist() == [1, 0, 2, 0]
    before = hash_of(folder)
    write(folder, "part-3.parquet", (folder / "part-1.parquet").read_bytes())
    assert before != hash_of(folder)


def test_text_files_and_folders(tmp_path):
    data = read(tmp_path, "a.txt", "yes\tgood film\n\nno\tbad\tfilm\n", target="label")
    assert (data.X["text"].tolist(), data.y.tolist()) == (["good film", "bad\tfilm"], ["yes", "no"])
    assert read(tmp_path, "a.txt", "good\n\nbad").X["text"].tolist() == ["good", "", "bad"]
    assert refused(tmp_path, "a.txt", "yes\tgood\nbad\n", "a label, a tab", target="label").line == 2
    for name, text in {"pos/1.txt": "good", "neg/2.txt": "bad", "neg/1.txt": "dull", "neg/.x.txt": "no"}.items():
        write(tmp_path / "films", name, text)
    data = read_data(tmp_path / "films", ReadOptions(target="label"))
    assert (data.X["text"].tolist(), data.y.tolist()) == (["dull", "bad", "good"], ["neg", "neg", "pos"])
    assert data.ids == ["neg/1.txt", "neg/2.txt", "pos/1.txt"]


def test_types_of_parquet_and_json(tmp_path):
    frame = pd.DataFrame(
        {"n": [1, 2], "t": pd.to_datetime(["2024-01-02", None]), "c": pd.Categorical(["x", None]), "b": [True, False]}
    )
    frame.to_parquet(tmp_path / "a.parquet")
    found = read_data(tmp_path / "a.parquet").X
    assert [found[name].dtype.kind for name in "ntb"] == ["i", "M", "b"]
    assert found["c"].isna().tolist() == [False, True]
    found = read(tmp_path, "a.jsonl", '{"a": "2024-01-02", "b": 1}\n{"b": 2.5, "c": true}\n').X
    assert found["a"].tolist() == ["2024-01-02", None]
    assert found["b"].tolist() == [1, 2.5]


# svmlight and npz ----------------------------------------------------------------------------------------------------


def test_first_index_and_number_of_features(tmp_path):
    one = read(tmp_path, "a.svm", "1 1:2 3:4\n-1 2:1 # comment\n")
    zero = read(tmp_path, "a.svm", "1 0:2 2:4\n-1 1:1\n")
    assert one.X.toarray().tolist() == zero.X.toarray().tolist() == [[2.0, 0.0, 4.0], [0.0, 1.0, 0.0]]
    assert (one.zero_based, zero.zero_based, one.y.tolist()) == (False, True, [1, -1])
    assert one.X.indices.dtype == np.int32
    assert read(tmp_path, "a.svm", "1 1:2\n", n_features=4).X.shape == (1, 4)
    assert read(tmp_path, "a.svm", "1 1:2 9:1\n", n_features=4, ignore_extra=True).X.toarray().tolist() == [
        [2, 0, 0, 0]
    ]
    refused(tmp_path, "a.svm", "1 1:2 9:1\n", "there are 9 features, but n_features is 4", n_features=4)
    refused(tmp_path, "a.svm", "1 0:2\n", "index 0, but indices start at 1", zero_based=False)
    refused(tmp_path, "a.svm", "1 1:1\n-1 30000000:1\n", "--max-features")


def test_chunks_of_svmlight_are_the_whole_file(tmp_path):
    lines = [f"{i % 3} " + " ".join(f"{j}:{i + j}" for j in range(1, 1 + i % 7)) + "\n" for i in range(200)]
    lines[50] = "1 " + " ".join(f"{j}:1.25" for j in range(1, 80)) + "\n"  # longer than a chunk
    path = write(tmp_path, "a.svm", "".join(lines))
    whole = read_data(path)
    options = ReadOptions(zero_based=False, n_features=whole.X.shape[1])
    for size in (1, 7, 64, 1000, 10**6):
        parts = list(read_chunks(path, options, chunk_bytes=size))
        assert (sparse.vstack([part.X for part in parts]) != whole.X).nnz == 0
        assert np.concatenate([part.y for part in parts]).tolist() == whole.y.tolist()
    with pytest.raises(ValueError, match="needs zero_based and n_features"):
        list(read_chunks(path))


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_archives(layout, tmp_path):
    X = sparse.random_array((6, 5), density=0.5, random_state=0).asformat(layout)
    sparse.save_npz(tmp_path / "a.npz", X)
    data = read_data(tmp_path / "a.npz")
    assert np.array_equal(data.X.toarray(), X.toarray())
    assert data.y is None
    csr = X.tocsr()
    arrays = {"X_data": csr.data, "X_indices": csr.indices, "X_indptr": csr.indptr, "X_shape": np.array(csr.shape)}
    np.savez(tmp_path / "b.npz", **arrays, target=np.array(["a", "b"] * 3), feature_names=np.array(list("abcde")))
    data = read_data(tmp_path / "b.npz", ReadOptions(target="target"))
    assert np.array_equal(data.X.toarray(), X.toarray())
    assert (data.y.tolist(), data.feature_names) == (["a", "b"] * 3, tuple("abcde"))


@pytest.mark.parametrize("layout", ["rows", "columns", "csr", "csc", "unsorted", "gzip"])
def test_chunks_of_archives_are_the_whole_file(layout, tmp_path):
    X = sparse.random_array((97, 5), density=0.4, random_state=0, format="csr")
    labels = np.arange(97) % 3 / 2  # in some chunks all are whole numbers
    path = tmp_path / "a.npz"
    if layout in ("rows", "columns"):
        np.savez(path, X=np.asarray(X.toarray(), order="F" if layout == "columns" else "C"), y=labels)
    elif layout == "csc":
        sparse.save_npz(path, X.tocsc())
    else:
        arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr.astype(np.uint64), "shape": X.shape}
        if layout == "unsorted":  # and the first entry in two halves
            arrays["indices"], arrays["indptr"] = np.append(X.indices[0], X.indices), X.indptr + (np.arange(98) > 0)
            arrays["data"] = np.concatenate([X.data[:1] / 2, X.data[:1] / 2, X.data[1:]])
        np.savez_compressed(path, y=labels, **arrays)
    if layout == "gzip":
        path.write_bytes(gzip.compress(path.read_bytes()))
    whole = read_data(path)
    assert np.array_equal(_dense(whole.X), X.toarray())
    for size in (1, 200, 10**6):
        parts = list(read_chunks(path, chunk_bytes=size))
        assert len(parts) == {1: 97, 10**6: 1}.get(size, len(parts))
        assert np.array_equal(np.vstack([_dense(part.X) for part in parts]), X.toarray())
        if layout != "csc":
            assert np.array_equal(np.concatenate([part.y for part in parts]), labels)


def _dense(X):
    return X.toarray() if sparse.issparse(X) else X


def _archive(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


class _Runs:
    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_no_code_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    objects = np.array([_Runs()], dtype=object)
    refused(tmp_path, "a.npz", _archive(X=objects), "cannot be read")
    refused(tmp_path, "b.npz", _archive(X=np.eye(1), y=objects), "cannot be read")
    refused(tmp_path, "c.npz", pickle.dumps(_Runs()), "cannot be read")
    assert not (tmp_path / "ran").exists()


def _csr_archive(**changes):
    """Return an archive of a matrix of one entry, with other arrays in the place of some."""
    return _archive(**({"data": [1.0], "indices": [1], "indptr": [0, 1], "shape": [1, 2]} | changes))


# Errors --------------------------------------------------------------------------------------------------------------

_WRONG = [
    ("a.csv", b"", "the file is empty", {}, None),
    ("a.csv", b"a,b\n", "there are no rows", {}, None),
    ("a.csv", b"a,b\n1,2\n3\n", "Expected 2 columns, got 1", {}, 3),
    ("a.csv", b"a,b,c\n1,2\n", "Expected 3 columns, got 2", {}, 2),
    ("a.csv", b"a,b\n1,2\n3,4\n5,6,7\n", "Expected 2 columns, got 3", {}, 4),
    ("a.csv", b'a,b\n1,"2\n3,4\n5,6\n', "quoted cell without an end", {}, None),
    ("a.csv", _CSV, r"no column 'lable' \(--target\); did you mean 'label'\?", {"target": "lable"}, 1),
    ("a.csv", _CSV, r"no column 'x' \(--ids\)", {"ids": "x"}, 1),
    ("a.csv", b"a,label\n1,x\n2,NA\n", "1 of 2 rows have no label.*--skip-unlabelled", {"target": "label"}, None),
    ("a.csv", b"label\nx\n", "no columns to learn from", {"target": "label"}, 1),
    ("a.csv.gz", gzip.compress(_CSV * 99, mtime=0)[:-9], "gzip data are broken", {}, None),
    ("a.jsonl", b'{"a": 1}\n{"a": \n', "not JSON", {}, 2),
    ("a.jsonl", b"[1]\n", "must be an object", {}, 1),
    ("a.jsonl", b'{"a": 1}\n\n{"a": [1]}\n', "'a' is nested", {}, 3),
    ("a.jsonl", b'{"a": 1, "label": 1e999}\n', "not finite", {"target": "label"}, None),
    ("a.svm", b"", "there are no rows", {}, None),
    ("a.txt", b"\t\t\n \n", "there are no rows", {"target": "label"}, None),
    ("a.svm", b"1 1:2 x:4\n", "not svmlight data", {}, None),
    ("a.svm", b"1 9999999999999999999:1\n", "not svmlight data", {}, None),
    ("a.parquet", b"PAR1", "not a parquet file", {}, None),
    ("a.arrow", b"ARROW1", "not a arrow file", {}, None),
    ("a.npz", b"PK\x03\x04", "cannot be read", {}, None),
    ("a.npz", _archive(X=np.eye(2), y=np.arange(3)), "y has shape", {}, None),
    ("a.npz", _archive(X=np.eye(2), feature_names=np.array(["a"])), "1 feature_names, but 2 features", {}, None),
    ("a.npz", _archive(X=np.eye(2)), r"no array 'z' \(--target\)", {"target": "z"}, None),
    ("a.npz", _archive(Z=np.eye(2)), "neither an array X nor a sparse matrix, but Z", {}, None),
    ("a.npz", _archive(X=np.array(["a"])), "matrix of numbers", {}, None),
    ("a.npz", _csr_archive(indices=[7]), "cannot be read: .*indices.0. is 7, but must be in", {}, None),
    ("a.npz", _csr_archive(indptr=[0, 2]), "cannot be read: .*indptr ends with 2", {}, None),
    ("a.npz", _csr_archive(indptr=[0, 1, 0], shape=[2, 2]), "cannot be read: indptr does not fit the shape", {}, None),
    ("a.npz", _csr_archive(data=[1.0, 2.0]), "cannot be read: there are .* values and", {}, None),
    ("a.npz", _csr_archive(shape=[3, 2]), "cannot be read: indptr does not fit the shape", {}, None),
]


@pytest.mark.parametrize(("name", "content", "message", "options", "line"), _WRONG)
def test_a_malformed_file_is_one_line_with_the_position(name, content, message, options, line, tmp_path):
    assert refused(tmp_path, name, content, message, **options).line == line
