"""Model files with random mutations: each must give a `ModelFormatError` or a model that predicts.

Run by hand with ``python -m tests.fuzz.models 100000 --seed 1``. The tests use the same mutations, fewer of them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import tempfile
import time
import warnings
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

import dropmargin
from dropmargin.io.model import ModelFormatError
from dropmargin.losses import Hinge

Tensors = dict[str, np.ndarray]
_VALUES: list[Any] = [None, True, False, 0, -1, 1, 2, 7, 2**31, 2**63, 10**12, 10**19]
_VALUES += [0.5, -0.0, 1e-308, 1e308, float("nan"), float("inf"), "", "x", "nan", "\ud800"]
_VALUES += [[], {}, [[]], [0], [1.5], [["a", 1.0]], {"array": "list"}, {"array": "x"}]
_VALUES += [{"mapping": []}, {"mapping": [["a", 1], ["a", 2]]}, {"mapping": [["a", {"array": "ndarray"}]]}]
_VALUES += ["ovo", "ovr", "rescale", "error", "balanced", "hinge", "str", "object", "coef_", "DropoutRidge", "Hinge"]
_VALUES += [{"class": "PoissonNoise", "parameters": {}, "fitted": {}}, {"items": [1, "a"], "type": "list"}]
_VALUES += [{"class": "Hinge", "parameters": {"margin": -1.0}, "fitted": {}}]
_DTYPES = ["bool", "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]


def sample_models() -> dict[str, Any]:
    """Return small fitted models that together have every kind of entry."""
    rng = np.random.RandomState(0)
    X = np.abs(rng.randn(60, 5))
    codes = np.argsort(np.argsort(X @ rng.randn(5, 4), axis=1), axis=1).argmax(axis=1)
    pairs, words = codes > 1, np.array(["grün", "rot", "日", "z"])[codes]
    with_missing = np.where(rng.uniform(size=X.shape) < 0.2, np.nan, X)
    rates = dropmargin.DropoutNoise([0.1, 0.2, 0.3, 0.4, 0.5])
    weights = {"grün": 1.0, "rot": 2.0, "日": 0.5, "z": 1.0}
    models = {
        "binary": dropmargin.DropoutSVC(noise=rates).fit(X, pairs),
        "one-vs-one": dropmargin.DropoutSVC(multi_class="ovo", class_weight=weights).fit(X, words),
        "missing": dropmargin.DropoutLogisticRegression(missing="rescale").fit(with_missing, codes),
        "loss": dropmargin.NoisyLinearClassifier(Hinge(2.0), noise=dropmargin.PoissonNoise()).fit(
            X.astype(np.float32), words
        ),
        "regression": dropmargin.DropoutRidge(missing="conditional").fit(with_missing, X[:, 0]),
    }
    table = {
        "number": X[:, 0],
        "amount": [f"{value:.2f} €" for value in X[:, 1]],
        "word": words.astype(object),
        "day": np.array(["2024-01-01"], dtype="M8[D]") + np.arange(60) * 7 % 50,
        "review": [f"{word} text {code}{code}" for word, code in zip(words, codes, strict=True)],
    }
    small = {"random_state": 0, "noise": 0.2, "C": 1.0, "cv": 2, "verbose": 0}
    models["table"] = dropmargin.TableClassifier(basis="spline", text=["review"], **small).fit(table, words)
    del table["review"]
    models["fourier"] = dropmargin.TableRegressor(basis="fourier", **small).fit(table, X[:, 2])
    models["missing"].feature_names_in_ = np.array([f"Größe {d}" for d in range(5)], dtype=object)
    return models


# Files taken apart and put together ---------------------------------------------------------------------------------


def unpack(data: bytes) -> tuple[str, Tensors]:
    """Return the JSON text and the tensors of a model file, without the digest."""
    size = int.from_bytes(data[:8], "little")
    tensors = load_tensors(data)
    del tensors["sha256"]
    return json.loads(data[8 : 8 + size])["__metadata__"]["dropmargin"], tensors


def pack(text: str, tensors: Tensors) -> bytes:
    """Return a model file with the right digest, whatever its content is."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name]).reshape(tensors[name].shape)
        digest.update(f"\n{name} {array.dtype.name} {array.shape}\n".encode() + array.tobytes())
    sealed = tensors | {"sha256": np.frombuffer(digest.digest(), dtype=np.uint8)}
    return save_tensors(sealed, {"dropmargin": text})


def with_entries(data: bytes, entries: dict[str, Any]) -> bytes:
    """Return a file with other JSON entries."""
    return pack(json.dumps(entries), unpack(data)[1])


def entries_of(data: bytes) -> dict[str, Any]:
    """Return the JSON entries of a file."""
    return json.loads(unpack(data)[0])


# Mutations ----------------------------------------------------------------------------------------------------------


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with a few of them flipped, cut out, inserted or repeated."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        where, length = rng.randrange(len(out) + 1), rng.choice((1, 1, 2, 4, 8, 64))
        kind = rng.randrange(5)
        if kind == 0 and where < len(out):
            out[where] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[where : where + length] = rng.randbytes(length)
        elif kind == 2:
            del out[where : where + length]
        elif kind == 3:
            out[where:where] = out[where : where + length]
        else:
            out[where:where] = rng.choice((b"[", b"{", b'"', b"0", b"9" * 30, b"-", b"1e400", b"NaN", b"\x00", b"\xff"))
    return bytes(out)


def mutate_header(data: bytes, rng: random.Random) -> bytes:
    """Return a file whose header has mutated bytes and the right length."""
    size = int.from_bytes(data[:8], "little")
    header = mutate_bytes(data[8 : 8 + size], rng)
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


def mutate_text(data: bytes, rng: random.Random) -> bytes:
    """Return a file with the right digest whose JSON text has mutated bytes."""
    text, tensors = unpack(data)
    return pack(mutate_bytes(text.encode(), rng).decode(errors="replace"), tensors)


def mutate_tensors(data: bytes, rng: random.Random) -> bytes:
    """Return a file with the right digest whose tensors have other data, types, shapes or names."""
    text, tensors = unpack(data)
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(list(tensors))
        array = tensors[name]
        kind = rng.randrange(6)
        if kind == 0:
            content = mutate_bytes(array.tobytes(), rng)
            tensors[name] = np.frombuffer(content[: len(content) // array.itemsize * array.itemsize], array.dtype)
            if tensors[name].size == array.size:
                tensors[name] = tensors[name].reshape(array.shape)
        elif kind == 1:
            dtype = np.dtype(rng.choice(_DTYPES))
            content = array.tobytes()
            tensors[name] = np.frombuffer(content[: len(content) // dtype.itemsize * dtype.itemsize], dtype)
        elif kind == 2:
            with np.errstate(invalid="ignore", over="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tensors[name] = array.astype(rng.choice(_DTYPES))
        elif kind == 3:
            shape = rng.choice(((-1,), (1, -1), (-1, 1), (1, 1, -1), array.shape[::-1]))
            tensors[name] = array.reshape(shape) if array.size or -1 not in shape else array
        elif kind == 4:
            where = rng.randrange(array.size + 1)
            flat = array.reshape(-1)
            tensors[name] = np.concatenate((flat[:where], rng.choice((flat[:0], flat[-1:], flat)), flat[where + 1 :]))
        else:
            other = rng.choice((*tensors, "other", "classes_", "feature_names_in_", "noise.rate"))
            tensors[other] = tensors[name] if rng.random() < 0.5 else tensors.pop(name)
    return pack(text, tensors)


def mutate_entries(data: bytes, rng: random.Random) -> bytes:
    """Return a file with the right digest whose JSON has another value, or an entry too many or too few."""
    entries = entries_of(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        holder, key = rng.choice(list(_places(entries)))
        kind = rng.randrange(5)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[rng.choice(("x", "coef_", "penalty", "noise", "__class__"))] = deepcopy(rng.choice(_VALUES))
        elif kind == 2 and isinstance(holder, list):
            holder.insert(key, deepcopy(rng.choice(_VALUES)))
        else:
            other, at = rng.choice(list(_places(entries)))
            holder[key] = deepcopy(rng.choice((*_VALUES, other[at])))
        if not list(_places(entries)):
            break
    return with_entries(data, entries)


def _places(value: Any) -> Any:
    """Yield every container within a value with each of its keys; of an array, the first twenty."""
    keys = list(value) if isinstance(value, dict) else [*range(min(20, len(value)))]
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


MUTATIONS = {
    "bytes": mutate_bytes,
    "header": mutate_header,
    "text": mutate_text,
    "tensors": mutate_tensors,
    "entries": mutate_entries,
}
#: Mutations without the right digest: unless nothing has changed, the file is refused.
UNSEALED = ("bytes", "header")


def outcome(path: Path, data: bytes) -> str:
    """Return "error" or "model"; anything else than a clear error or a model that predicts is raised."""
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            model = dropmargin.load(path)
        except ModelFormatError as error:
            if not str(error).startswith(f"{path}: "):
                raise AssertionError(f"the error does not name the file: {error}") from error
            return "error"
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        if hasattr(model, "encoder_"):
            names = list(model.encoder_.encoders_)
            rows = {name: np.array([None, None], dtype=object) for name in names}
        else:
            rows = np.zeros((2, model.n_features_in_))
        with np.errstate(all="ignore"):  # intercepts of 1e308 are absurd, but numbers
            labels = model.predict(rows)
            if getattr(model, "missing", "") == "conditional" and hasattr(model, "residual_deviation_"):
                model.predict_interval(rows)
        assert set(labels.tolist()) <= set(getattr(model, "classes_", labels).tolist())
        repr(model)
    return "model"


def base_files(folder: Path) -> list[bytes]:
    """Return the files of the sample models."""
    files = []
    for model in sample_models().values():
        path = folder / "model.safetensors"
        dropmargin.save(model, path, summary={"rows": 60, "gap": float("nan")}, data_hash="sha256:0")
        files.append(path.read_bytes())
    return files


def check_mutation(kind: str, base: bytes, rng: random.Random, path: Path) -> str:
    """Mutate a file and return the outcome; raises if a change without the right digest is not noticed."""
    data = MUTATIONS[kind](base, rng)
    found = outcome(path, data)
    if kind in UNSEALED and found == "model":
        assert _content(data) == _content(base), "a change was not noticed"
    return found


def _content(data: bytes) -> Any:
    """Return the content of a file; mutations such as a longer header of spaces do not change it."""
    text, tensors = unpack(data)
    return text, {name: (array.dtype, array.shape, array.tobytes()) for name, array in tensors.items()}


def main() -> None:
    """Run the mutations and print the counts of their outcomes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, counts, slowest = random.Random(arguments.seed), Counter(), 0.0
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "mutated"
        files = base_files(Path(name))
        started = time.perf_counter()
        for index in range(arguments.count):
            kind, base = rng.choice(list(MUTATIONS)), rng.choice(files)
            begun = time.perf_counter()
            try:
                counts[kind, check_mutation(kind, base, rng, path)] += 1
            except BaseException:
                kept = Path(f"mutated-{arguments.seed}-{index}")
                kept.write_bytes(path.read_bytes())
                print(f"input {index} ({kind}) failed; the file is {kept}")
                raise
            slowest = max(slowest, time.perf_counter() - begun)
    print(f"{arguments.count} inputs in {time.perf_counter() - started:.0f} s, the slowest {1000 * slowest:.0f} ms")
    for (kind, found), count in sorted(counts.items()):
        print(f"{kind:>8} {found:>6} {count:8d}")


if __name__ == "__main__":
    main()
