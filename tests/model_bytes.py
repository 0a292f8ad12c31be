"""What the tests of model files share."""

from __future__ import annotations

from pathlib import Path

import pytest

from dropmargin import load, save
from dropmargin.io.model import ModelFormatError, describe

endings = pytest.mark.parametrize("ending", ["json", "zip"])
GOLDEN = Path(__file__).parent / "golden"


def refused(path, data, match=None):
    """Check that a file is refused by all that read it, with its name and a sentence; return the sentence."""
    path.write_bytes(data)
    with pytest.raises(ModelFormatError, match=match) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).endswith(".")
    with pytest.raises(ModelFormatError):
        describe(path)
    return str(caught.value)


def array_of(document, name):
    return next(entry for entry in document["arrays"] if entry["name"] == name)


def round_trip(model, tmp_path, ending="json"):
    path = tmp_path / f"model.{ending}"
    save(model, path)
    assert path.read_bytes()[:1] == (b"{" if ending == "json" else b"P")
    return load(path)
