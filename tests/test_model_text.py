"""Text in model files that is no text: half of a surrogate pair, which UTF-8 cannot hold."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.pipeline import Pipeline

from dealing import round_robin
from dropmargin import DropoutSVC, load, save
from dropmargin.io.data import TableEncoder
from dropmargin.io.model import ModelFormatError
from fuzz.models import open_json, seal_json
from model_bytes import refused

_HALF = "\ud800"
_X = np.random.default_rng(0).normal(size=(40, 3))
_Y = (_X[:, 0] > 0.0).astype(int)
_TABLE = {"number": _X[:, 0], "word": np.array(["green", "blue"], dtype=object)[_Y]}


def _pipeline(table, step="encode"):
    return Pipeline([(step, TableEncoder()), ("classify", DropoutSVC())]).fit(table, _Y)


@pytest.fixture(scope="module")
def body(tmp_path_factory):
    """The body of a model file that has text of every kind."""
    path = tmp_path_factory.mktemp("text") / "m.json"
    model = _pipeline(_TABLE)
    model[-1].fit(model[0].transform(_TABLE), np.array(["ham", "spam"])[_Y])
    save(model, path, summary={"remark": "short"}, data_hash="1234")
    return open_json(path.read_bytes())


_ESCAPES = [rb"\ud800", rb"\uDFFF", rb"\udc00\ud800", rb"x\ud83d y"]
_TEXTS = ["ham", "green", "word", "encode", "remark", "short", "1234", "ovr", "DropoutSVC", "converged_", "python"]


@pytest.mark.parametrize(("text", "escape"), round_robin(_TEXTS, _ESCAPES))
def test_half_a_pair_in_a_file_is_refused(text, escape, body, tmp_path):
    quoted = f'"{text}"'.encode()
    assert quoted in body
    forged = seal_json(body.replace(quoted, b'"' + escape + b'"'))
    refused(tmp_path / "m.json", forged, "surrogate")


def test_a_whole_pair_in_a_file_is_a_character(body, tmp_path):
    (tmp_path / "m.json").write_bytes(seal_json(body.replace(b'"encode"', rb'"\ud83d\ude00"')))
    assert [name for name, _ in load(tmp_path / "m.json").steps] == ["\U0001f600", "classify"]


@pytest.mark.parametrize(
    "command",
    ["info m.json", "info m.json --json", "predict d.csv m.json", "evaluate d.csv m.json", "export m.json m.onnx"],
)
def test_half_a_pair_on_the_command_line(command, body, run, tmp_path):
    (tmp_path / "m.json").write_bytes(seal_json(body.replace(b'"ham"', rb'"\ud800"')))
    (tmp_path / "d.csv").write_text("number,word\n1.0,green\n")
    error = run(*command.split(), code=1).error
    assert error.startswith("m.json: ")
    assert "surrogate" in error


_UNSAVABLE = {
    "label": lambda path: save(DropoutSVC().fit(_X, np.array(["a", _HALF])[_Y]), path),
    "label among objects": lambda path: save(DropoutSVC().fit(_X, np.array(["a", _HALF], dtype=object)[_Y]), path),
    "class_weight": lambda path: save(
        DropoutSVC(class_weight={"a": 1.0, _HALF: 2.0}).fit(_X, np.array(["a", _HALF])[_Y]), path
    ),
    "name of a feature": lambda path: save(_named(), path),
    "column": lambda path: save(_pipeline({"number": _X[:, 0], _HALF: _TABLE["word"]}), path),
    "category": lambda path: save(
        _pipeline({"number": _X[:, 0], "word": np.array(["x", _HALF], dtype=object)[_Y]}), path
    ),
    "step": lambda path: save(_pipeline(_TABLE, _HALF), path),
    "summary": lambda path: save(DropoutSVC().fit(_X, _Y), path, summary={"remark": _HALF}),
    "data_hash": lambda path: save(DropoutSVC().fit(_X, _Y), path, data_hash=_HALF),
}


def _named():
    model = DropoutSVC().fit(_X, _Y)
    model.feature_names_in_ = np.array(["a", "b", _HALF], dtype=object)
    return model


@pytest.mark.parametrize(("text", "ending"), round_robin(_UNSAVABLE, ["json", "zip"]))
def test_half_a_pair_cannot_be_saved(text, ending, tmp_path):
    path = tmp_path / f"m.{ending}"
    save(DropoutSVC().fit(_X, _Y), path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"\\ud800.* no valid Unicode text") as caught:
        _UNSAVABLE[text](path)
    assert not isinstance(caught.value, UnicodeError | ModelFormatError)
    assert path.read_bytes() == before


def test_info_of_a_model_whose_noise_is_a_number(run, tmp_path):
    save(DropoutSVC(noise=0.25).fit(_X, _Y), tmp_path / "m.json")
    assert "dropout=0.25" in run("info", tmp_path / "m.json").out
