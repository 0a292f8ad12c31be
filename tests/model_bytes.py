"""Helpers of the tests of model files."""

from __future__ import annotations

from pathlib import Path

import pytest

from dropmargin import load, save
from dropmargin.io.model import ModelFormatError, describe

GOLDEN = Path(__file__).parent / "golden"


def assert_refused(path, data, match=None):
    """Check that `load` and `describe` refuse a file, and name it; return the message."""
    path.write_bytes(data)
    with pytest.raises(ModelFormatError, match=match) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).endswith(".")
    with pytest.raises(ModelFormatError):
        describe(path)
    return str(caught.value)


def round_trip(model, tmp_path):
    """Return a model after saving and loading it."""
    path = tmp_path / "model.safetensors"
    save(model, path)
    return load(path)
