"""Mutated data files are read, or raise a `DataFormatError`; tests/fuzz/data_files.py has many more of them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropmargin.io.data import FORMATS, ReadOptions
from fuzz import data_files

pytest.importorskip("pyarrow")
_FILES = data_files.seeds()


@pytest.mark.parametrize("name", sorted(_FILES))
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), which=st.integers(0, 10))
def test_mutated_files(name, seed, which):
    content, options = _FILES[name][which % len(_FILES[name])]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"data{FORMATS[name].endings[0]}"
        path.write_bytes(data_files.mutate(content, np.random.default_rng(seed)))
        data_files.check(path, ReadOptions(**options))


@pytest.mark.parametrize("name", sorted(_FILES))
def test_truncated_files(name, tmp_path):
    path = tmp_path / f"data{FORMATS[name].endings[0]}"
    for content, options in _FILES[name]:
        for length in range(0, len(content), max(1, len(content) // 40)):
            path.write_bytes(content[:length])
            data_files.check(path, ReadOptions(**options))
