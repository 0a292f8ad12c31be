"""Model files with an encoder before the classifier, and files of other versions."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline

from datasets import N_FEATURES, make_binary
from dropmargin import DropoutSVC
from dropmargin.io.model import ModelFormatError, describe, load, preprocessing, save
from fuzz.models import document_of, seal_json, with_document
from model_bytes import GOLDEN, endings, round_trip

# Preprocessing ------------------------------------------------------------------------------------------------------


class Shifter(TransformerMixin, BaseEstimator):
    """A transformer that gives its state as the encoders of `dropmargin.io.data` do."""

    def fit(self, X, y=None):
        self.shift_, self.names_ = X.mean(axis=0), np.array(["ä", "b"], dtype=object)
        return self

    def transform(self, X):
        return X - self.shift_

    def get_feature_names_out(self):
        return np.array([f"x{d}" for d in range(len(self.shift_))], dtype=object)

    def get_state(self):
        return {"names": self.names_.tolist(), "scale": 1.0}, {"shift": self.shift_, "words": self.names_}

    @classmethod
    def from_state(cls, facts, arrays):
        if facts.keys() != {"names", "scale"} or arrays["shift"].ndim != 1:
            raise ValueError("not a state of Shifter")
        made = cls()
        made.shift_, made.names_ = arrays["shift"], arrays["words"]
        return made


@pytest.fixture
def shifted(monkeypatch):
    monkeypatch.setitem(preprocessing.KINDS, "Shifter", __name__)
    X, y = make_binary()
    return Pipeline([("shift it", Shifter()), ("classify", DropoutSVC())]).fit(X, y), X


@endings
def test_preprocessing_comes_back(shifted, ending, tmp_path):
    pipeline, X = shifted
    loaded = round_trip(pipeline, tmp_path, ending)
    assert [name for name, _ in loaded.steps] == ["shift it", "classify"]
    assert loaded.decision_function(X).tobytes() == pipeline.decision_function(X).tobytes()
    assert loaded[0].names_.tolist() == ["ä", "b"]
    told = describe(tmp_path / f"model.{ending}")
    assert told["feature_names"] == [f"x{d}" for d in range(N_FEATURES)]
    assert (told["preprocessing"]["kind"], told["preprocessing"]["facts"]["scale"]) == ("Shifter", 1.0)


@endings
def test_long_lists_of_words_stand_outside_of_the_text(shifted, ending, tmp_path):
    pipeline, _ = shifted
    words = [f"wörd {index}" for index in range(2000)]
    pipeline[0].names_ = np.array(words, dtype=object)
    path = tmp_path / f"model.{ending}"
    save(pipeline, path)
    assert load(path)[0].names_.tolist() == words
    data = path.read_bytes()
    document = document_of(data)
    assert document["preprocessing"]["facts"]["names"] == {"strings": "preprocessing.strings.2"}
    for name in ("preprocessing.strings.7", "preprocessing.words", "coef_", 3):
        document["preprocessing"]["facts"]["names"] = {"strings": name}
        path.write_bytes(with_document(data, document))
        with pytest.raises(ModelFormatError, match=r"array of strings that is not there|must be a string|'words'"):
            load(path)


@endings
@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (("preprocessing", "kind"), "StandardScaler", "kind of preprocessing must be one of"),
        (("preprocessing", "facts"), {}, "Shifter: not a state of Shifter"),
        (("preprocessing", "facts"), 3, "must be an object"),
        (("preprocessing", "arrays"), ["shift"], "Shifter: 'words'"),
        (("preprocessing", "arrays"), ["../shift"], "lacks the array"),
        (("preprocessing",), None, "steps of a pipeline"),
        (("steps",), ["a", "a"], "two different names"),
        (("steps",), ["a__b", "c"], "two different names"),
        (("steps",), ["memory", "c"], "two different names"),
    ],
)
def test_wrong_preprocessing_is_refused(shifted, path, value, complaint, ending, tmp_path):
    file = tmp_path / f"model.{ending}"
    save(shifted[0], file)
    data = file.read_bytes()
    document = document_of(data)
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    file.write_bytes(with_document(data, document))
    with pytest.raises(ModelFormatError, match=complaint):
        load(file)


def test_preprocessing_must_fit_the_model(shifted, tmp_path):
    pipeline, _ = shifted
    pipeline[0].shift_ = np.zeros(3)
    with pytest.raises(ValueError, match=f"makes 3 features, its model takes {N_FEATURES}"):
        save(pipeline, tmp_path / "model.json")


# Versions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["svc.json", "logistic.dropmargin"])
def test_files_of_version_0_1_0_load_and_predict_the_same(name):
    expected = json.loads((GOLDEN / "expected.json").read_text())[name]
    model = load(GOLDEN / name)
    assert [value.hex() for value in model.coef_.ravel().tolist()] == expected["coef"]
    rows = np.array(expected["rows"], dtype=float)  # null is NaN
    rows = pd.DataFrame(rows, columns=expected["names"]) if expected["names"] else rows
    assert model.predict(rows).tolist() == expected["labels"]
    np.testing.assert_allclose(model.decision_function(rows), np.array(expected["decision"]), rtol=1e-12)
    assert describe(GOLDEN / name)["written_by"]["dropmargin"] == "0.1.0"


@endings
def test_newer_formats_are_refused_with_the_remedy(ending, tmp_path):
    path = tmp_path / f"model.{ending}"
    save(DropoutSVC().fit(*make_binary()), path)
    data = path.read_bytes()
    if ending == "json":
        newer = seal_json(b'{\n "format": "dropmargin model",\n "version": 2,\n "new": {}')
    else:
        newer = data.replace(b"dropmargin model 1 sha256", b"dropmargin model 2 sha256")
    path.write_bytes(newer)
    with pytest.raises(ModelFormatError, match=r"version 2, newer than 1.*install a newer dropmargin"):
        load(path)
