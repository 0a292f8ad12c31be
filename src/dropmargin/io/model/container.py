"""The two containers of a model, both under a SHA-256 that covers every bit of the file.

``json``
    One JSON text. Its last key is the checksum of all bytes before that key; what stands around the digits is fixed.
``zip``
    An archive without compression: ``model.json``, the same text without numbers, and one ``.npy`` file per array. The
    checksum of all other bytes is the end of the archive's comment.

The bytes of an archive follow from its members alone: the reader builds every header anew, and the file must have
exactly these. So there is no room for a path, a link, a second member of a name, compression, or bytes between members;
and all sizes are compared with that of the file before anything is allocated. Nothing is ever written to disk.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dropmargin.io.model import arrays as array_files
from dropmargin.io.model import strict_json
from dropmargin.io.model.arrays import Spec
from dropmargin.io.model.schema import ModelFormatError, items
from dropmargin.typing import Array

#: Raised whenever an older reader would misread what a newer writer wrote.
VERSION = 1
_FORMAT = "dropmargin model"
_MAX_ARRAYS = 1000

_JSON_START = re.compile(rb'\{\n "format": "dropmargin model",\n "version": ([0-9]{1,9}),\n')
_JSON_END = re.compile(rb',\n "sha256": "([0-9a-f]{64})"\n\}\n')
_JSON_END_SIZE = 82
_COMMENT = re.compile(rb"dropmargin model ([0-9]{1,9}) sha256 ([0-9a-f]{64})")
_DIGEST_SIZE = 64
_MEMBER = "model.json"
# Zip without its 64-bit extension ends here.
_MAX_ZIP = 2**32 - 2

Chunk = bytes | memoryview


@dataclass(frozen=True)
class Document:
    """What a model file says: facts that are JSON, and named arrays."""

    facts: dict[str, Any]
    arrays: dict[str, Array]


def kind_of(start: bytes, size: int) -> str:
    """Return the container of a file, by its first bytes, after checking that its size is possible."""
    if start.startswith(b"{"):
        kind, limit = "json", strict_json.MAX_BYTES
    elif start.startswith(b"PK\x03\x04"):
        kind, limit = "zip", _MAX_ZIP
    else:
        raise ModelFormatError("it is not a dropmargin model file: it begins neither as JSON nor as a zip archive")
    if size > limit:
        raise ModelFormatError(f"it has {size} bytes, more than the {limit} that a model in {kind} may have")
    return kind


def read(data: bytes) -> tuple[Document, str]:
    """Return the document in the bytes of a file, and the name of its container."""
    kind = kind_of(data[:4], len(data))
    return _read_json(data) if kind == "json" else _read_zip(memoryview(data)), kind


def write(document: Document, specs: list[Spec], *, as_zip: bool) -> Iterator[Chunk]:
    """Return the bytes of a file, in pieces; a text that would be too long for JSON alone becomes an archive.

    ``specs`` are what `describe_arrays` returns.
    """
    if not as_zip:
        body = _text(document, specs, with_values=True)
        if len(body) + _JSON_END_SIZE <= strict_json.MAX_BYTES:
            digest = hashlib.sha256(body).hexdigest()
            return iter([body, f',\n "sha256": "{digest}"\n}}\n'.encode()])
    return _write_zip(document, specs)


def describe_arrays(document: Document) -> list[Spec]:
    """Return what a file will say of its arrays, or raise a `ValueError` that names one that cannot be stored."""
    if len(document.arrays) > _MAX_ARRAYS:
        raise ValueError(f"A model file holds at most {_MAX_ARRAYS} arrays, got {len(document.arrays)}.")
    return [array_files.spec_of(name, array) for name, array in document.arrays.items()]


def _text(document: Document, specs: list[Spec], *, with_values: bool) -> bytes:
    """Return the JSON text of a document without its end: one line per array."""
    head = strict_json.dump({"format": _FORMAT, "version": VERSION} | document.facts, indent=1).removesuffix("\n}")
    lines = []
    for spec in specs:
        values = {"values": array_files.to_values(document.arrays[spec.name])} if with_values else {}
        lines.append(strict_json.dump(spec.facts() | values))
    listed = ",\n  ".join(lines)
    return f'{head},\n "arrays": [\n  {listed}\n ]'.encode()


def _check_version(found: bytes) -> None:
    version = int(found)
    if version > VERSION:
        raise ModelFormatError(
            f"it is of format version {version}, newer than {VERSION}, which is all that this dropmargin reads: "
            "install a newer dropmargin"
        )
    if version != VERSION:
        raise ModelFormatError(f"it is of format version {version}, which there is not")


def _check_digest(found: bytes, data: memoryview) -> None:
    if hashlib.sha256(data).hexdigest().encode() != found:
        raise ModelFormatError("its checksum is wrong: the file was damaged or changed after it was saved")


def _split(parsed: Any) -> tuple[dict[str, Any], list[tuple[Spec, dict[str, Any]]]]:
    """Return the facts of a parsed text, and its arrays: checked descriptions with what the text has of each."""
    facts = dict(parsed)  # an object with a format and a version: the text begins so
    del facts["format"], facts["version"]
    listed = items(facts.pop("arrays", None), "arrays")
    if len(listed) > _MAX_ARRAYS:
        raise ModelFormatError(f"it claims {len(listed)} arrays, more than the {_MAX_ARRAYS} allowed")
    found = []
    for entry in listed:
        if type(entry) is not dict:
            raise ModelFormatError("arrays must be objects")
        found.append((array_files.read_spec(entry), entry))
    if len({spec.name for spec, _ in found}) < len(found):
        raise ModelFormatError("two of its arrays have the same name")
    return facts, found


def _read_json(data: bytes) -> Document:
    start = _JSON_START.match(data)
    if start is None:
        raise ModelFormatError('it is not a dropmargin model file: it does not begin with "format" and "version"')
    _check_version(start[1])
    end = _JSON_END.fullmatch(data, max(0, len(data) - _JSON_END_SIZE))
    if end is None:
        raise ModelFormatError("it does not end with its checksum: the file is incomplete or was changed")
    _check_digest(end[1], memoryview(data)[: end.start()])
    facts, listed = _split(strict_json.parse(data))
    del facts["sha256"]
    arrays = {}
    for spec, entry in listed:
        if "values" not in entry:
            raise ModelFormatError(f"array {spec.name!r} lacks 'values'")
        arrays[spec.name] = array_files.from_values(spec, entry["values"])
    return Document(facts, arrays)


# The archive --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Member:
    name: bytes
    size: int
    checksum: int
    offset: int

    def _common(self) -> bytes:
        """Return the fields that both headers share: stored, at the first day of zip's time."""
        return struct.pack("<5H3I2H", 20, 0, 0, 0, 0x21, self.checksum, self.size, self.size, len(self.name), 0)

    def local_header(self) -> bytes:
        return b"PK\x03\x04" + self._common() + self.name

    def directory_entry(self) -> bytes:
        """Return its line in the directory: an ordinary file that its owner may change and all may read."""
        attributes = struct.pack("<3H2I", 0, 0, 0, 0o100644 << 16, self.offset)
        return b"PK\x01\x02" + struct.pack("<H", 3 << 8 | 20) + self._common() + attributes + self.name

    @property
    def begin(self) -> int:
        return self.offset + 30 + len(self.name)

    @property
    def end(self) -> int:
        return self.begin + self.size


def _archive_end(members: list[_Member]) -> bytes:
    """Return the directory and the comment but for the checksum's digits."""
    directory = b"".join(member.directory_entry() for member in members)
    comment = f"{_FORMAT} {VERSION} sha256 ".encode()
    counts = struct.pack(
        "<4H2IH", 0, 0, len(members), len(members), len(directory), members[-1].end, len(comment) + _DIGEST_SIZE
    )
    return directory + b"PK\x05\x06" + counts + comment


def _member_name(spec: Spec) -> str:
    return f"{spec.name}.npy"


def _write_zip(document: Document, specs: list[Spec]) -> Iterator[Chunk]:
    text = _text(document, specs, with_values=False) + b"\n}\n"
    if len(text) > strict_json.MAX_BYTES:
        raise ValueError(
            f"The facts of this model take {len(text)} bytes of JSON, more than the {strict_json.MAX_BYTES} allowed. "
            "Shorten the summary, or the preprocessing's lists."
        )
    total = len(text) + sum(spec.n_bytes + 512 for spec in specs) + 1024
    if total > _MAX_ZIP:
        raise ValueError(f"The model takes {total} bytes, more than the {_MAX_ZIP} of a zip archive.")
    return _zip_chunks(text, [(spec, document.arrays[spec.name]) for spec in specs])


def _zip_chunks(text: bytes, contents: list[tuple[Spec, Array]]) -> Iterator[Chunk]:
    digest = hashlib.sha256()
    members: list[_Member] = []
    pieces: list[Chunk]
    for index in range(len(contents) + 1):
        if index == 0:
            name, pieces = _MEMBER, [text]
        else:
            spec, array = contents[index - 1]
            name, pieces = _member_name(spec), [array_files.npy_header(spec), array_files.to_bytes(spec, array)]
        members.append(_member(name, pieces, members[-1].end if members else 0))
        for chunk in [members[-1].local_header(), *pieces]:
            digest.update(chunk)
            yield chunk
    end = _archive_end(members)
    digest.update(end)
    yield end + digest.hexdigest().encode()


def _member(name: str, pieces: list[Chunk], offset: int) -> _Member:
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    return _Member(name.encode(), sum(len(piece) for piece in pieces), checksum, offset)


def _read_zip(data: memoryview) -> Document:
    comment = _COMMENT.search(data[-128:])
    if comment is None or comment.end() != min(len(data), 128):
        raise ModelFormatError(
            "it is a zip archive without the comment of a dropmargin model: incomplete, packed again, or another file"
        )
    _check_version(comment[1])
    _check_digest(comment[2], data[:-_DIGEST_SIZE])
    text = _first_member(data)
    facts, listed = _split(strict_json.parse(bytes(data[text.begin : text.end])))
    # Sizes are Python's integers, and compared with the file's before anything of them is made.
    members, specs, offset = [text], [], text.end
    for spec, entry in listed:
        if "values" in entry:
            raise ModelFormatError(f"array {spec.name!r} has values in the text, and not in a file of its own")
        header = array_files.npy_header(spec)
        begin = offset + 30 + len(_member_name(spec))
        if begin + len(header) + spec.n_bytes > len(data):
            raise ModelFormatError(f"array {spec.name!r} claims {spec.n_bytes} bytes, more than the file has")
        if data[begin : begin + len(header)] != header:
            raise ModelFormatError(f"{_member_name(spec)!r} does not begin as its type and shape demand")
        members.append(_member(_member_name(spec), [data[begin : begin + len(header) + spec.n_bytes]], offset))
        specs.append(spec)
        offset = members[-1].end
    _check_layout(data, members)
    array_files.check_text_memory(specs, len(data))
    found = zip(specs, members[1:], strict=True)
    return Document(
        facts,
        {
            spec.name: array_files.from_bytes(spec, data[member.end - spec.n_bytes : member.end])
            for spec, member in found
        },
    )


def _first_member(data: memoryview) -> _Member:
    """Return the text's place in the archive; that its header is right is checked with all others."""
    begin = 30 + len(_MEMBER)
    if len(data) < begin:
        raise ModelFormatError("it is too short for a model")
    (size,) = struct.unpack_from("<I", data, 18)
    if begin + size > len(data) or size > strict_json.MAX_BYTES:
        raise ModelFormatError(f"its text claims {size} bytes, more than the file or the limit has")
    text = data[begin : begin + size]
    start = _JSON_START.match(text)
    if start is None:
        raise ModelFormatError(f"its first member does not begin as {_MEMBER!r} of a dropmargin model")
    _check_version(start[1])
    return _member(_MEMBER, [text], 0)


def _check_layout(data: memoryview, members: list[_Member]) -> None:
    end = members[-1].end
    expected = _archive_end(members)
    headers = all(data[m.offset : m.begin] == m.local_header() for m in members)
    if not headers or data[end:-_DIGEST_SIZE] != expected:
        raise ModelFormatError(
            "its archive is not laid out as that of a dropmargin model: it was packed by other means"
        )
