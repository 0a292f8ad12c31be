"""The loader of CIFAR-10: both layouts, folders and archives, malicious pickles."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

from data_set_files import binary_batch, cifar_batches, md5, python_batch, tar_gz, write
from dropmargin.io.data import DataFormatError
from reproduction.datasets import cifar10, load_cifar10
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


# Pickles --------------------------------------------------------------------------------------------------------------


class _Calls:
    """An object that is pickled as a function call."""

    def __init__(self, function, *arguments):
        self._call = function, arguments

    def __reduce__(self):
        return self._call


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
