"""Mutated data files are read, or raise a `DataFormatError`; tests/fuzz/data_files.py has many more of them."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropmargin.io.data import FORMATS, DataFormatError, ReadOptions, read_data
from fuzz import data_files

pytest.importorskip("pyarrow")
_FILES = data_files.seeds()


@pytest.mark.parametrize("name", sorted(_FILES))
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), which=st.integers(0, 10))
def test_mutated_files(name, seed, which):
    content, options = _FILES[name][which % len(_FILES[name])]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"data{FORMATS[name].extensions[0]}"
        path.write_bytes(data_files.mutate(content, np.random.default_rng(seed)))
        data_files.check(path, ReadOptions(**options))


@pytest.mark.parametrize("name", sorted(_FILES))
@settings(max_examples=30, deadline=None)
@given(content=st.binary(max_size=200))
def test_any_bytes(name, content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"data{FORMATS[name].extensions[0]}"
        path.write_bytes(content)
        data_files.check(path, ReadOptions())


@pytest.mark.parametrize("name", sorted(_FILES))
def test_truncated_files(name, tmp_path):
    path = tmp_path / f"data{FORMATS[name].extensions[0]}"
    for content, options in _FILES[name]:
        for length in range(0, len(content), max(1, len(content) // 40)):
            path.write_bytes(content[:length])
            data_files.check(path, ReadOptions(**options))


def test_the_seeds_are_valid(tmp_path):
    for name, files in _FILES.items():
        path = tmp_path / f"data{FORMATS[name].extensions[0]}"
        for content, options in files:
            path.write_bytes(content)
            assert data_files.check(path, ReadOptions(**options)) == "read"


_MEMORY = """
import resource, sys
from dropmargin.io.data import DataFormatError, ReadOptions, read_data
read_data(sys.argv[2])  # imports and buffers
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_data(sys.argv[1])
except DataFormatError:
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs the peak of a process's memory")
@pytest.mark.parametrize(
    ("name", "line", "count"),
    [
        pytest.param("a.svm", "1\n", 1_200_000, marks=pytest.mark.slow),
        pytest.param("a.svm", "1 1:1 2:1 3:1 4:1 5:1 6:1\n", 200_000, marks=pytest.mark.slow),
        pytest.param("a.svm", "1 " + " ".join(f"{j}:1" for j in range(1, 1_000_000)) + "\n", 1, marks=pytest.mark.slow),
        ("a.csv", "1,2,3\n", 100_000),
        pytest.param("a.csv", "one,two,three\n", 200_000, marks=pytest.mark.slow),
        pytest.param("a.csv", '"' + "x" * 10_000_000, 1, marks=pytest.mark.slow),
    ],
)
def test_memory_is_at_most_ten_times_the_file(tmp_path, name, line, count):
    header = "a,b,c\n" if name == "a.csv" else ""
    path, small = tmp_path / name, tmp_path / f"small{name}"
    path.write_text(header + line * count)
    small.write_text(header + ("1,2,3\n" if header else "1 1:1\n"))
    command = [sys.executable, "-c", _MEMORY, str(path), str(small)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # and 8 MB for buffers
    assert int(done.stdout) * 1024 < 10 * path.stat().st_size + 2**23


def test_any_short_svmlight_file(tmp_path):
    """Every file of three bytes with a meaning."""
    path = tmp_path / "a.svm"
    for letters in np.ndindex(*[len(b"1: \n#q-.")] * 3):
        path.write_bytes(bytes(b"1: \n#q-."[i] for i in letters))
        try:
            data = read_data(path)
        except DataFormatError:
            continue
        assert data.n_samples in (1, 2)
