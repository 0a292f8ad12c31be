"""Mutated data files: each is read, with the same rows whole, in chunks and as a stream, or raises a `DataFormatError`.

The arguments are the number of files and the seed::

    python -m tests.fuzz.data_files 100000 0

Memory is limited. Any other exception, and a file that takes more than ten seconds, end the program.
"""

from __future__ import annotations

import faulthandler
import gzip
import io
import itertools
import json
import resource
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import sparse

from dropmargin.io.data import FORMATS, DataFormatError, Dataset, ReadOptions, read_chunks, read_data
from dropmargin.io.data.dataset import concatenate
from dropmargin.streaming import prepare_files

#: Bytes with a meaning in one of the formats.
_FRAGMENTS = [
    *(b"\n", b"\r\n", b"\r", b" ", b"\t", b",", b":", b"#", b'"', b'""', b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3"),
    *(b"qid:3", b"nan", b"inf", b"-", b"+", b".", b"1e400", b"1e-400", b"0x10", b"1_0", b"0", b"9" * 19, b"9" * 400),
    *(b"2147483648", b"9223372036854775808", b"1:1", b"0:1", b"-1:1", b"NA", b"label", b"\xff\xff\xff\xff", b"\x7f"),
    *(b"PK\x03\x04", b"PAR1", b"ARROW1", b"\x1f\x8b", b"(1000000000, 1000000000)", b"'|O'", b"x" * 3000),
    *(b"{", b"}", b"[", b'"a":1,', b"null", b"\\ud800"),
]


def seeds() -> dict[str, list[tuple[bytes, dict[str, object]]]]:
    """Return valid files of each format, and options for reading them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [f"{1 - 2 * (i % 2)} qid:{i} {i + 1}:{i}.5 {i + 9}:-{i}e-3 # {i}" for i in range(6)]
    svm = "\n".join(rows).encode()
    plain_svm = b"1 1:0.25 7:1\n-1 2:3 3:1e5\n\n+1\n0 5:12345678901234567\n"
    csv = b'size,colour,label\n1.5,"red, dark",1\n,blue,0\n-3e2,"say ""hi""",1\nNA,\xc3\xbcber,0\n'
    numbers_csv = b"size,count,label\n1.5,3,7\n,1,x\n-3e2,NA,7\n0.25,2,x\n"
    # Arrow reads this file, and the csv module its short chunks.
    long_csv = b"a,b,label\n" + b"".join(b"%d.5, x%d,%d\r\n" % (i, i % 3, i % 2) for i in range(90))
    X = sparse.random_array((6, 5), density=0.5, format="csr", random_state=0)
    archives = []
    for save, arrays in (
        (np.savez, {"X": X.toarray(), "y": np.arange(6), "feature_names": np.array(list("abcde"))}),
        (np.savez_compressed, {"X": X.toarray().astype("f4"), "y": np.array(["a", "b"] * 3)}),
        (np.savez, {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}),
    ):
        stream = io.BytesIO()
        save(stream, **arrays)
        archives.append((stream.getvalue(), {}))
    rows = [{"size": 1.5, "colour": "red", "label": 1}, {"colour": "ü", "label": 0}, {"size": 2, "label": 1, "b": True}]
    jsonl = "\n".join(map(json.dumps, rows)).encode()
    table = pa.table(
        {"size": [1.5, None, 3.0, 4.0], "colour": ["red", "blue", None, "red"], "flag": [True, False, None, True]}
        | {"label": [1, 0, 1, 0]}
    )
    tables: dict[str, list[tuple[bytes, dict[str, object]]]] = {"parquet": [], "arrow": []}
    for compression in ("none", "snappy", "zstd"):
        stream = io.BytesIO()
        pq.write_table(table, stream, compression=compression, row_group_size=2)
        tables["parquet"].append((stream.getvalue(), {"target": "label"}))
    numbers = pa.table({"size": [1.5, None, 3.0, 4.0], "count": [3, 1, 2, None], "label": ["7", "x", "7", "x"]})
    for own in (table, numbers):
        stream = io.BytesIO()
        with pa.ipc.new_file(stream, own.schema) as writer:
            writer.write_table(own, max_chunksize=2)
        tables["arrow"].append((stream.getvalue(), {"target": "label"}))
    stream = io.BytesIO()
    pq.write_table(numbers, stream, row_group_size=2)
    tables["parquet"].append((stream.getvalue(), {"target": "label"}))
    return {
        "svmlight": [(svm, {}), (plain_svm, {}), (gzip.compress(svm), {}), (plain_svm, {"zero_based": False})],
        "csv": [
            (csv, {"target": "label"}),
            (csv, {"ids": "colour"}),
            (csv, {}),
            (numbers_csv, {"target": "label"}),
            (gzip.compress(csv), {}),
            (long_csv, {}),
        ],
        "jsonl": [(jsonl, {"target": "label"}), (jsonl, {"ids": "colour"}), (jsonl, {}), (gzip.compress(jsonl), {})],
        "tsv": [(csv.replace(b",", b"\t"), {})],
        "text": [(b"good film\nbad\n\n", {}), (b"1\tgood\n0\tbad\n", {"target": "label"})],
        "npz": archives,
        **tables,
    }


def mutate(content: bytes, rng: np.random.Generator) -> bytes:
    """Return a file with some bytes changed, inserted, removed or repeated; of an archive, often one of its arrays."""
    if content.startswith(b"PK") and rng.random() < 0.7:
        return _with_another_array(content, rng)
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        at, length = int(rng.integers(0, len(data) + 1)), int(rng.integers(1, 12))
        kind = rng.integers(0, 7)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1 and at < len(data):
            data[at] = int(rng.integers(0, 256))
        elif kind == 2:
            data[at:at] = _FRAGMENTS[int(rng.integers(0, len(_FRAGMENTS)))]
        elif kind == 3:
            fragment = _FRAGMENTS[int(rng.integers(0, len(_FRAGMENTS)))]
            data[at : at + len(fragment)] = fragment
        elif kind == 4:
            del data[at : at + length]
        elif kind == 5:
            data[at:at] = data[at : at + 3 * length]
        elif rng.random() < 0.3:
            del data[at:]
    return bytes(data)


def _with_another_array(content: bytes, rng: np.random.Generator) -> bytes:
    """Return an archive with a mutated array and the right checksums."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(stream, "w") as new:
        chosen = rng.choice(old.namelist())
        for name in old.namelist():
            new.writestr(name, mutate(old.read(name), rng) if name == chosen else old.read(name))
    return stream.getvalue()


def check(path: Path, options: ReadOptions) -> str:
    """Read a file whole and in chunks; return ``"read"`` or ``"refused"``."""
    whole, message = None, ""
    try:
        whole = read_data(path, options)
    except DataFormatError as error:
        message = str(error)
    assert "\n" not in message, message
    assert len(message) < 3000
    if whole is None:
        return "refused"
    assert whole.n_samples > 0
    if path.suffix == ".svm":
        options = ReadOptions(zero_based=whole.zero_based, n_features=whole.X.shape[1])
    try:
        parts = list(read_chunks(path, options, chunk_bytes=64))
    except DataFormatError:
        # pyarrow compares the types in the metadata of row groups only if batches are not larger than they are, and the
        # first rows of a JSON lines file may lack a column.
        assert path.suffix in (".parquet", ".jsonl")
        return "refused in chunks"
    assert sum(part.n_samples for part in parts) == whole.n_samples
    assert _rows(concatenate(parts)) == _rows(whole)
    return "read" if whole.y is None or not _is_streamed(path, options) else _convert(path, options, whole)


def _is_streamed(path: Path, options: ReadOptions) -> bool:
    return path.suffix in (".svm", ".npz") or (path.suffix in (".csv", ".parquet", ".arrow") and options.ids is None)


def _convert(path: Path, options: ReadOptions, whole: Dataset) -> str:
    """Convert a file to the blocks of a stream and compare the numbers with those of the whole."""
    home = path.parent / "cache"
    try:
        rows = prepare_files(path, options=options, cache=home, progress=False)
        blocks = [rows.fetch(i) for i in range(rows.n_partitions)]
        assert rows.shape[0] == whole.n_samples == sum(X.shape[0] for X in blocks)
        assert sum(map(len, rows.labels)) == whole.n_samples
        if not whole.is_table:
            assert rows.shape[1] == whole.X.shape[1]
            parts = [Dataset(X, y) for X, y in zip(blocks, rows.labels, strict=True)]
            assert _rows(replace(concatenate(parts), y=None)) == _rows(replace(whole, y=None))
    except DataFormatError:
        return "read, refused as a stream"
    finally:
        left = list(home.iterdir()) if home.exists() else []
        assert not [folder for folder in left if folder.name.startswith("partial-")]
        shutil.rmtree(home, ignore_errors=True)
    return "read, also as a stream"


def _rows(data: Dataset) -> list[str]:
    """Return the rows as strings, so that NaN is equal to NaN."""
    X = data.X
    if data.is_table:
        X = X.astype(object).where(X.notna(), None)
        rows = list(zip(*(X[name].tolist() for name in X), strict=True))
    elif isinstance(X, list | np.ndarray):
        rows = [row if isinstance(row, str) else row.tolist() for row in X]
    else:
        bounds = itertools.pairwise(X.indptr.tolist())
        rows = [(X.indices[begin:end].tolist(), X.data[begin:end].tolist()) for begin, end in bounds]
    labels = [None] * len(rows) if data.y is None else data.y.tolist()
    return [f"{row!r} {label!r}" for row, label in zip(rows, labels, strict=True)]


def main(count: int, seed: int) -> None:
    """Read ``count`` mutated files."""
    faulthandler.enable()
    rng = np.random.default_rng(seed)
    files = seeds()
    names = list(files)
    outcomes: Counter[str] = Counter()
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
    with tempfile.TemporaryDirectory() as folder:
        for i in range(count):
            name = names[i % len(names)]
            content, options = files[name][int(rng.integers(0, len(files[name])))]
            path = Path(folder) / f"data{FORMATS[name].endings[0]}"
            path.write_bytes(mutate(content, rng))
            signal.setitimer(signal.ITIMER_PROF, 10)  # of processor time
            try:
                outcomes[f"{name} {check(path, ReadOptions(**options))}"] += 1
            except BaseException:
                Path("fuzz-failure").with_suffix(path.suffix).write_bytes(path.read_bytes())
                print(f"input {i} ({name}, {options}) is saved as fuzz-failure{path.suffix}", file=sys.stderr)
                raise
            signal.setitimer(signal.ITIMER_PROF, 0)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{count} inputs in {time.perf_counter() - begin:.0f} s, memory grew by {grown:.0f} MB")
    for outcome, n in sorted(outcomes.items()):
        print(f"{outcome:20} {n}")


if __name__ == "__main__":
    main(*(int(argument) for argument in (sys.argv[1:] + ["10000", "0"][len(sys.argv) - 1 :])[:2]))
