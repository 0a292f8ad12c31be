"""Model files, broken in many ways: each must give a `ModelFormatError` or a model that predicts.

By hand: ``python tests/fuzz/models.py 100000 --seed 1``. The tests use the same mutations, fewer of them.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import random
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

import dropmargin
from dropmargin.io.model import ModelFormatError
from dropmargin.losses import Hinge

COMMENT = b"dropmargin model 1 sha256 "
_VALUES = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    7,
    2**31,
    2**63,
    10**12,
    10**19,
    0.5,
    -0.0,
    1e-308,
    1e308,
    "",
    "x",
    "nan",
    "inf",
]
_VALUES += [
    [],
    {},
    [[]],
    [0],
    [1.5],
    {"float": "nan"},
    {"float": "x"},
    "ovo",
    "ovr",
    "rescale",
    "error",
    "balanced",
    "hinge",
]
_VALUES += [
    {"noise": "PoissonNoise", "parameters": {}},
    {"noise": "DropoutNoise", "parameters": {"rate": 0.5}},
    "FDropSVC",
]
_VALUES += [{"loss": "Hinge", "parameters": {"margin": -1.0}}, "float32", "float64", "int8", "str", "object", "coef_"]


def sample_models() -> dict[str, Any]:
    """Return small fitted models that together have every kind of entry."""
    rng = np.random.RandomState(0)
    X = np.abs(rng.randn(60, 5))
    codes = np.argsort(np.argsort(X @ rng.randn(5, 4), axis=1), axis=1).argmax(axis=1)
    pairs, words = codes > 1, np.array(["grün", "rot", "日", "z"])[codes]
    gapped = np.where(rng.uniform(size=X.shape) < 0.2, np.nan, X)
    rates = dropmargin.DropoutNoise([0.1, 0.2, 0.3, 0.4, 0.5])
    weights = {"grün": 1.0, "rot": 2.0, "日": 0.5, "z": 1.0}
    models = {
        "binary": dropmargin.DropoutSVC(noise=rates).fit(X, pairs),
        "votes": dropmargin.DropoutSVC(multi_class="ovo", class_weight=weights).fit(X, words),
        "missing": dropmargin.DropoutLogisticRegression(missing="rescale").fit(gapped, codes),
        "loss": dropmargin.NoisyLinearClassifier(Hinge(2.0), noise=dropmargin.PoissonNoise()).fit(
            X.astype(np.float32), words
        ),
        "worst": dropmargin.FDropSVC(C=0.1).fit(X, codes.astype(float)),
    }
    models["missing"].feature_names_in_ = np.array([f"Größe {d}" for d in range(5)], dtype=object)
    return models


# Files taken apart and sealed again ---------------------------------------------------------------------------------


def seal_json(body: bytes) -> bytes:
    """Return a JSON file with a right checksum, whatever its body is."""
    return body + f',\n "sha256": "{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode()


def open_json(data: bytes) -> bytes:
    """Return a JSON file's body."""
    return data[: data.rindex(b',\n "sha256"')]


def seal_zip(data: bytes) -> bytes:
    """Return an archive with a right checksum at its end, whatever stands before."""
    return data[:-64] + hashlib.sha256(data[:-64]).hexdigest().encode()


def pack(members: dict[str, bytes]) -> bytes:
    """Return an archive of some members as Python's own module makes it, with the comment of a model."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            entry = zipfile.ZipInfo(name)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            archive.writestr(entry, content)
        archive.comment = COMMENT + b"0" * 64
    return seal_zip(out.getvalue())


def unpack(data: bytes) -> dict[str, bytes]:
    """Return the members of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def as_text(document: dict[str, Any]) -> bytes:
    """Return a document as a text that begins as that of a model."""
    return json.dumps(document, indent=1, ensure_ascii=False).removesuffix("\n}").encode()


def with_document(data: bytes, document: dict[str, Any]) -> bytes:
    """Return a file, JSON or archive, with another document in it."""
    if data.startswith(b"{"):
        return seal_json(as_text({key: value for key, value in document.items() if key != "sha256"}))
    return pack(unpack(data) | {"model.json": as_text(document) + b"\n}\n"})


def document_of(data: bytes) -> dict[str, Any]:
    """Return the document of a file, JSON or archive."""
    return json.loads(data if data.startswith(b"{") else unpack(data)["model.json"])


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


def mutate_sealed(data: bytes, rng: random.Random) -> bytes:
    """Return a file with mutated bytes and a right checksum."""
    if data.startswith(b"{"):
        return seal_json(mutate_bytes(open_json(data), rng))
    if rng.random() < 0.5:
        return seal_zip(mutate_bytes(data[:-64], rng) + b"0" * 64)
    members = unpack(data)
    name = rng.choice(list(members))
    members[name] = mutate_bytes(members[name], rng)
    return pack(members)


def mutate_document(data: bytes, rng: random.Random) -> bytes:
    """Return a file with a right checksum whose document has another value, or a key too many or too few."""
    document = document_of(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        holder, key = rng.choice(list(_places(document)))
        kind = rng.randrange(5)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[rng.choice(("x", "coef_", "values", "noise", "__class__"))] = deepcopy(rng.choice(_VALUES))
        elif kind == 2 and isinstance(holder, list):
            holder.insert(key, deepcopy(rng.choice(_VALUES)))
        else:
            other, at = rng.choice(list(_places(document)))
            holder[key] = deepcopy(rng.choice((*_VALUES, other[at])))
        if not list(_places(document)):
            break
    return with_document(data, document)


def _places(value: Any) -> Any:
    """Yield every container within a value with each of its keys; of a long array, its ends."""
    keys = list(value) if isinstance(value, dict) else [*range(min(3, len(value)))]
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


MUTATIONS = {"bytes": mutate_bytes, "sealed bytes": mutate_sealed, "document": mutate_document}


def outcome(path: Path, data: bytes) -> str:
    """Return what becomes of a file; whatever is not a clean error or a model that predicts is raised."""
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            model = dropmargin.load(path)
        except ModelFormatError as error:
            return "error" if str(error).startswith(f"{path}: ") else f"error without the path: {error}"
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        rows = np.zeros((2, model.n_features_in_), dtype=model.coef_.dtype)
        with np.errstate(all="ignore"):  # offsets of 1e308 are absurd, but numbers
            labels = model.predict(rows)
        assert set(labels.tolist()) <= set(model.classes_.tolist())
        repr(model)
    return "model"


def base_files(folder: Path) -> list[bytes]:
    """Return the files of the sample models, each as JSON and as an archive."""
    files = []
    for name, model in sample_models().items():
        for ending in ("json", "zip"):
            path = folder / f"{name}.{ending}"
            dropmargin.save(model, path, summary={"rows": 60, "gap": float("nan")}, data_hash="sha256:0")
            files.append(path.read_bytes())
    return files


def main() -> None:
    """Run so many mutations and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, counts, slowest = random.Random(arguments.seed), Counter(), 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = base_files(folder)
        started = time.perf_counter()
        for index in range(arguments.count):
            kind = rng.choice(list(MUTATIONS))
            data = MUTATIONS[kind](rng.choice(files), rng)
            begun = time.perf_counter()
            try:
                found = outcome(folder / "mutated", data)
                if kind == "bytes" and (found == "model") != (data in files):
                    raise AssertionError("the checksum did not notice a change")
                counts[kind, "model, unchanged" if data in files else found] += 1
            except BaseException:
                kept = Path(f"mutated-{arguments.seed}-{index}")
                kept.write_bytes(data)
                print(f"input {index} ({kind}), kept as {kept}")
                raise
            slowest = max(slowest, time.perf_counter() - begun)
    print(f"{arguments.count} inputs in {time.perf_counter() - started:.0f} s, the slowest {1000 * slowest:.0f} ms")
    for (kind, what), count in sorted(counts.items()):
        print(f"{kind:>12} {what:>16} {count:8d}")


if __name__ == "__main__":
    main()
