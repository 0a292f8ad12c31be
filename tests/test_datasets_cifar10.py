"""The loader of CIFAR-10: both layouts, folders and archives, malicious pickles."""

from __future__ import annotations

import os
import pickle
import struct
import tracemalloc

import numpy as np
import pytest

from data_set_files import binary_batch, cifar_batches, md5, python_batch, tar_gz, write
from dealing import together
from dropmargin.io.data import DataFormatError
from reproduction.datasets import DatasetError, cifar10, load_cifar10
from reproduction.datasets.pickles import read_batch

# CIFAR-10 -------------------------------------------------------------------------------------------------------------

_LAYOUTS = {"bin": ("cifar-10-batches-bin", ".bin", binary_batch), "py": ("cifar-10-batches-py", "", python_batch)}


def _cifar_files(layout):
    folder, ending, pack = _LAYOUTS[layout]
    return {f"{folder}/{name}{ending}": pack(*batch) for name, batch in cifar_batches().items()}


@pytest.fixture
def small_cifar10(monkeypatch):
    for table, layout in (("_BINARY_MD5", "bin"), ("_PYTHON_MD5", "py")):
        sums = [md5(data) for data in _cifar_files(layout).values()]
        monkeypatch.setattr(cifar10, table, dict(zip(cifar_batches(), sums, strict=True)))


@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("packed", [False, True])
def test_cifar10(layout, packed, tmp_path, small_cifar10):
    files = _cifar_files(layout)
    if packed:
        shuffled = dict(sorted(files.items(), key=lambda item: md5(item[0].encode())))
        name = {"bin": "cifar-10-binary.tar.gz", "py": "cifar-10-python.tar.gz"}[layout]
        write(tmp_path / name, tar_gz({"../evil": b"", "readme.html": b"hello", **shuffled}))
    else:
        for name, data in files.items():
            write(tmp_path / name, data)
    before = sorted(tmp_path.rglob("*"))
    split = load_cifar10(data_home=tmp_path, download=False)
    assert sorted(tmp_path.rglob("*")) == before
    assert (split.X_train.dtype, split.X_train.shape, split.X_test.shape) == (np.uint8, (10, 32, 32, 3), (4, 32, 32, 3))
    batches = cifar_batches()
    test_pixels, test_labels = batches.pop("test_batch")
    planes = np.concatenate([pixels for pixels, _ in batches.values()]).reshape(10, 3, 32, 32)
    for colour in range(3):
        np.testing.assert_array_equal(split.X_train[..., colour], planes[:, colour])
    np.testing.assert_array_equal(split.X_test[3, 5, 7], test_pixels[3, [167, 1024 + 167, 2048 + 167]])
    assert split.y_train.tolist() == np.concatenate([labels for _, labels in batches.values()]).tolist()
    assert split.y_test.tolist() == test_labels.tolist()
    assert split.target_names[3] == "cat"


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_files_with_other_checksums_are_refused_before_parsing(layout, tmp_path, small_cifar10):
    for name, data in _cifar_files(layout).items():
        write(tmp_path / name, data + b"x")
    with pytest.raises(
        DatasetError, match=r"data_batch_1(\.bin)? is not the original .*replace it by the one in https"
    ):
        load_cifar10(data_home=tmp_path, download=False)


def test_broken_cifar10(tmp_path, small_cifar10):
    archive = tar_gz(_cifar_files("bin"))
    write(tmp_path / "cifar-10-binary.tar.gz", archive[: len(archive) // 2])
    with pytest.raises(DataFormatError, match=r"cifar-10-binary\.tar\.gz: broken archive: .*download it again"):
        load_cifar10(data_home=tmp_path, download=False)
    files = _cifar_files("bin")
    del files["cifar-10-batches-bin/data_batch_3.bin"]
    write(tmp_path / "cifar-10-binary.tar.gz", tar_gz(files))
    with pytest.raises(DataFormatError, match=r"cifar-10-batches-bin/data_batch_3\.bin is not in the archive"):
        load_cifar10(data_home=tmp_path, download=False)


def test_broken_batches_of_cifar10(monkeypatch, tmp_path):
    monkeypatch.setattr(cifar10, "_MAX_BYTES", 10_000)
    whole = binary_batch(np.zeros((1, 3072)), np.array([10]))
    cases = {"3072 bytes are not a whole number": whole[:-1], "label 10, but": whole, "larger than 10000": whole * 4}
    for what, data in cases.items():
        monkeypatch.setattr(cifar10, "_BINARY_MD5", dict.fromkeys(cifar_batches(), md5(data)))
        files = dict.fromkeys(_cifar_files("bin"), data)
        write(tmp_path / "cifar-10-binary.tar.gz", tar_gz(files))
        with pytest.raises(DataFormatError, match=what):
            load_cifar10(data_home=tmp_path, download=False)
        for name in files:
            write(tmp_path / "unpacked" / name, data)
        with pytest.raises(DataFormatError, match=what):
            load_cifar10(data_home=tmp_path / "unpacked", download=False)


# Pickles --------------------------------------------------------------------------------------------------------------

_PIXELS, _LABELS = cifar_batches()["data_batch_2"]
_ARRAY = b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87R"


class _Calls:
    """An object that is pickled as a function call."""

    def __init__(self, function, *arguments):
        self._call = function, arguments

    def __reduce__(self):
        return self._call


def test_batches_of_the_tests_are_like_those_of_python_2():
    batch = pickle.loads(python_batch(_PIXELS, _LABELS), encoding="bytes")
    np.testing.assert_array_equal(batch[b"data"], _PIXELS)
    assert batch[b"labels"] == _LABELS.tolist()


def test_pickled_batch_is_read_without_numpy():
    pixels, labels = read_batch(python_batch(_PIXELS, _LABELS), "file", 3072)
    np.testing.assert_array_equal(pixels, _PIXELS)
    np.testing.assert_array_equal(labels, _LABELS)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("place", ["whole", "value", "label"])
def test_pickles_run_no_code(protocol, place, tmp_path):
    trace = tmp_path / "trace"
    evil = _Calls(os.mkdir, str(trace))
    content = {"whole": evil, "value": {"data": evil}, "label": {"labels": [evil]}}[place]
    data = pickle.dumps(content, protocol=protocol)
    with pytest.raises(
        DataFormatError, match=r"^file: this is not a batch of CIFAR-10: it refers to (posix|nt)\.mkdir"
    ):
        read_batch(data, "file", 3072)
    assert not trace.exists()
    pickle.loads(data)
    assert trace.exists(), "the pickle of this test does nothing"


@pytest.mark.parametrize(
    "name",
    [
        b"builtins\neval",
        b"__builtin__\neval",
        b"numpy\nload",
        b"numpy.core.multiarray\nscalar",
        b"numpy\nndarray.tofile",
        b"copyreg\n_reconstructor",
        b"reproduction.datasets.pickles\npickle.loads",
    ],
)
def test_pickles_cannot_import_other_names(name):
    with pytest.raises(DataFormatError, match=r"it refers to .*which is not allowed"):
        read_batch(b"\x80\x02c" + name + b"\n.", "file", 3072)


@together(
    "data",
    [
        b"",
        b"\x80\x02}.",
        b"\x80\x02N.",
        b"\x80\x02}r\xff\xff\xff\x7f.",  # a memo index that allocates 32 GB
        b"p2147483647\n.",
        b"\x80\x02P1\n.",  # persistent objects and extensions
        b"\x80\x02\x82\x01.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f",  # more bytes than the file has
        b"\x80\x02" + _ARRAY + b"N}b.",
        pickle.dumps({b"data": [[0] * 3072], b"labels": [0]}, protocol=2),
        python_batch(_PIXELS, _LABELS[:-1]),
        python_batch(_PIXELS, _LABELS).replace(b"M\x00\x0c", b"M\x01\x0c"),
        python_batch(_PIXELS, _LABELS).replace(b"U\x02u1", b"U\x02O8"),
        python_batch(_PIXELS, _LABELS).replace(b"J" + struct.pack("<i", 3), b"J" + struct.pack("<i", 2**31 - 1)),
        python_batch(_PIXELS, _LABELS).replace(b"J" + struct.pack("<i", 3), b"J" + struct.pack("<i", -3)),
    ],
)
def test_broken_pickles_are_errors_without_large_allocations(data):
    tracemalloc.start()
    try:
        with pytest.raises(DataFormatError, match=r"^file: this is not a batch of CIFAR-10: "):
            read_batch(data, "file", 3072)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


def test_pickles_with_a_changed_byte_are_read_or_refused():
    whole = python_batch(_PIXELS, _LABELS)
    start, end = whole.index(_PIXELS.tobytes()), whole.index(_PIXELS.tobytes()) + _PIXELS.size
    rng = np.random.RandomState(3)
    for position in [*range(start), *range(end, len(whole))]:
        data = bytearray(whole)
        data[position] = rng.randint(256)
        for changed in (bytes(data), whole[:position]):
            try:
                pixels, labels = read_batch(changed, "file", 3072)
            except DataFormatError:
                continue
            assert (pixels.shape, labels.shape) == (_PIXELS.shape, _LABELS.shape)
