"""A killed fit is resumed from its checkpoint, with the same coefficients to the last bit; others are refused."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import zlib

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

from dropmargin import DropoutLogisticRegression, DropoutSVC, MCFClassifier
from dropmargin.data import LocalPartitions, row_block
from dropmargin.noise import DropoutNoise, GaussianNoise
from dropmargin.streaming import cache as caches
from dropmargin.streaming import fit
from dropmargin.streaming.blocks import FileBlocks
from dropmargin.streaming.checkpoint import CodecError, Log, LoggedPartitions, decode, encode
from stream_data import make_rows, set_age, write_parts

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the tests kill processes that they fork"),
]

ESTIMATORS = {
    "hinge": DropoutSVC(C=0.3),
    "hinge without noise": DropoutSVC(C=0.3, noise=None),
    "lbfgs": DropoutLogisticRegression(C=0.3, solver="lbfgs"),
    "l1": DropoutSVC(C=0.3, l1_ratio=1.0),
    "mgf": MCFClassifier("exponential", C=0.1),
    "pairs": DropoutLogisticRegression(C=0.3, multi_class="ovo", noise=GaussianNoise(0.3)),
    "quadratic": MCFClassifier("quadratic", C=0.3),
}


def _fit(estimator, folder, checkpoint=None):
    return fit(estimator, folder, block_bytes=8000, checkpoint=checkpoint, progress=False)


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


def _run_and_die(estimator, folder, checkpoint, at, torn):
    """Fit, and be killed when ``at`` results are written; if ``torn``, the last one is incomplete."""
    original, remaining = Log.write, [at]

    def write(self, request, value):
        remaining[0] -= 1
        if remaining[0] == 0 and torn:
            size = os.fstat(self._file.fileno()).st_size
            original(self, request, value)
            os.ftruncate(self._file.fileno(), (size + os.fstat(self._file.fileno()).st_size) // 2)
        else:
            original(self, request, value)
        if remaining[0] == 0:
            _die()

    Log.write = write
    _fit(estimator, folder, checkpoint)


def _in_a_fork(target, *args):
    """Return the exit code of a forked process."""
    process = multiprocessing.get_context("fork").Process(target=target, args=args)
    process.start()
    process.join(60)
    assert process.exitcode is not None, "it hangs"
    return process.exitcode


def _assert_same(model, expected):
    assert_array_equal(model.coef_, expected.coef_)
    assert_array_equal(model.intercept_, expected.intercept_)
    assert (model.n_iter_, model.n_passes_) == (expected.n_iter_, expected.n_passes_)
    assert_array_equal(model.history_, expected.history_)


@pytest.fixture
def folder(tmp_path):
    return write_parts(tmp_path / "data", *make_rows())


_FIRST, *_OTHERS = ESTIMATORS


@pytest.mark.parametrize("name", [_FIRST, *(pytest.param(name, marks=pytest.mark.slow) for name in _OTHERS)])
def test_killed_again_and_again(name, folder, tmp_path):
    """Killed after some results, and each time resumed, until the fit is complete."""
    estimator, checkpoint = ESTIMATORS[name], tmp_path / "fit.log"
    expected = _fit(clone(estimator), folder)
    deaths = 0
    for step in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377):
        code = _in_a_fork(_run_and_die, clone(estimator), folder, checkpoint, step, step % 2 == 0)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        deaths += 1
    assert deaths >= 4
    _assert_same(_fit(clone(estimator), folder, checkpoint), expected)


@pytest.mark.parametrize("at", [1, 7, 30, 60])
def test_killed_during_the_fit_to_the_subsample(at, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12_000, 4))
    y = (X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=12_000) > 0).astype(int)
    np.save(tmp_path / "X.npy", X)

    def run_fit(checkpoint):
        return fit(
            DropoutLogisticRegression(),
            tmp_path / "X.npy",
            y,
            block_bytes="50kB",
            checkpoint=checkpoint,
            progress=False,
        )

    def run():
        original, remaining = Log.write, [at]

        def write(self, request, value):
            original(self, request, value)
            remaining[0] -= 1
            if remaining[0] == 0:
                _die()

        Log.write = write
        run_fit(tmp_path / "fit.log")

    assert _in_a_fork(run) in (0, -signal.SIGKILL)
    left = set((tmp_path / caches.FOLDER).glob("sample-*"))  # by the killed process; removed by age
    _assert_same(run_fit(tmp_path / "fit.log"), run_fit(None))
    assert set((tmp_path / caches.FOLDER).glob("sample-*")) == left


@pytest.mark.parametrize("at", [1, 3])
def test_killed_during_the_conversion(at, folder):
    def run():
        original, remaining = FileBlocks.add, [at]

        def add(self, X):
            remaining[0] -= 1
            if remaining[0] == 0:
                _die()
            return original(self, X)

        FileBlocks.add = add
        _fit(DropoutSVC(), folder)

    assert _in_a_fork(run) == -signal.SIGKILL
    (left,) = (folder / caches.FOLDER).glob("partial-*")
    model = _fit(DropoutSVC(), folder)
    assert left.is_dir()  # it may belong to a running process
    set_age(left, hours=24)
    _fit(DropoutSVC(), folder)
    assert not left.exists()
    assert model.converged_


_SCRIPT = """
import sys
from dropmargin import DropoutSVC
from dropmargin.streaming import fit
from dropmargin.streaming.blocks import FileBlocks
print("begin", flush=True)
fit(DropoutSVC(C=0.3, noise=None, tol=1e-10), sys.argv[1], block_bytes=2000, checkpoint=sys.argv[2])
"""


@pytest.mark.slow
def test_killed_at_a_random_time(folder, tmp_path):
    estimator = DropoutSVC(C=0.3, noise=None, tol=1e-10)
    begin = time.monotonic()
    expected = fit(clone(estimator), folder, block_bytes=2000, progress=False)
    duration = time.monotonic() - begin
    command = [sys.executable, "-c", _SCRIPT, str(folder), str(tmp_path / "fit.log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        time.sleep(random.uniform(0.1, 0.8) * duration)
        process.kill()
    resumed = fit(estimator, folder, block_bytes=2000, checkpoint=tmp_path / "fit.log", progress=False)
    _assert_same(resumed, expected)


def test_a_checkpoint_needs_nothing_that_windows_lacks(folder, tmp_path, monkeypatch):
    monkeypatch.delattr(os, "O_CLOEXEC")
    path = tmp_path / "checkpoint"
    estimator = ESTIMATORS["hinge"]
    model = _fit(clone(estimator), folder, path)
    _assert_same(_fit(clone(estimator), folder, path), model)


def test_a_complete_fit_is_read_from_its_checkpoint(folder, tmp_path):
    expected = _fit(DropoutSVC(), folder, tmp_path / "fit.log")
    size = (tmp_path / "fit.log").stat().st_size
    again = _fit(DropoutSVC(n_jobs=2, verbose=0), folder, tmp_path / "fit.log")
    _assert_same(again, expected)
    assert (tmp_path / "fit.log").stat().st_size == size


# Refusals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other", [DropoutSVC(C=0.2), DropoutSVC(noise=DropoutNoise(0.2)), DropoutLogisticRegression(), DropoutSVC(tol=1e-3)]
)
def test_a_checkpoint_of_other_parameters_is_refused(other, folder, tmp_path):
    _fit(DropoutSVC(), folder, tmp_path / "fit.log")
    content = (tmp_path / "fit.log").read_bytes()
    with pytest.raises(ValueError, match="is of a fit with other parameters"):
        _fit(other, folder, tmp_path / "fit.log")
    assert (tmp_path / "fit.log").read_bytes() == content
    assert not hasattr(other, "coef_")


def test_a_checkpoint_of_other_data_is_refused(folder, tmp_path):
    checkpoint = tmp_path / "fit.log"
    _fit(DropoutSVC(), folder, checkpoint)
    X, y = make_rows()
    X[3, -1] = 1.001
    other = write_parts(tmp_path / "other", X, y)
    for again in (
        lambda: _fit(DropoutSVC(), other, checkpoint),
        lambda: fit(DropoutSVC(), folder, block_bytes=9000, checkpoint=checkpoint),
        lambda: fit(DropoutSVC(), folder, block_bytes=8000, sample_weight=np.ones(400), checkpoint=checkpoint),
    ):
        with pytest.raises(ValueError, match="is of a fit with other data"):
            again()


def test_a_checkpoint_of_the_same_array_with_other_labels_is_refused(tmp_path):
    X, y = make_rows()
    options = {"cache": tmp_path, "checkpoint": tmp_path / "fit.log", "progress": False}
    fit(DropoutSVC(), X, y, **options)
    for labels, weights in ((np.roll(y, 1), None), (y + 1, None), (y, np.arange(400.0))):
        with pytest.raises(ValueError, match="is of a fit with other data"):
            fit(DropoutSVC(), X, labels, weights, **options)


def test_the_data_may_be_moved(folder, tmp_path):
    expected = _fit(DropoutSVC(), folder, tmp_path / "fit.log")
    moved = write_parts(tmp_path / "moved", *make_rows())
    _assert_same(_fit(DropoutSVC(), moved, tmp_path / "fit.log"), expected)


def test_a_file_that_is_not_a_checkpoint_is_unchanged(folder, tmp_path):
    path = tmp_path / "thesis.txt"
    path.write_text("All my work of ten years.")
    with pytest.raises(ValueError, match="is not a checkpoint"):
        _fit(DropoutSVC(), folder, path)
    assert path.read_text() == "All my work of ten years."


def test_a_checkpoint_in_use_is_refused(folder, tmp_path):
    _fit(DropoutSVC(), folder, tmp_path / "fit.log")
    data_hash = (tmp_path / "fit.log").read_bytes()[24:56].decode()
    with (
        Log(tmp_path / "fit.log", data_hash, DropoutSVC()),
        pytest.raises(ValueError, match="in use by another fit"),
    ):
        _fit(DropoutSVC(), folder, tmp_path / "fit.log")
    _fit(DropoutSVC(), folder, tmp_path / "fit.log")


def test_results_after_a_damaged_one_are_computed_again(folder, tmp_path):
    path = tmp_path / "fit.log"
    expected = _fit(DropoutSVC(), folder, path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    _assert_same(_fit(DropoutSVC(), folder, path), expected)
    assert path.stat().st_size == len(content)


# The log and its codec ----------------------------------------------------------------------------------------------


def _log(path):
    return Log(path, 32 * "0", DropoutSVC())


def _double(part, value):
    return (part * value,)


def test_results_of_other_requests_are_not_replayed(tmp_path):
    for value in (2.0, 3.0):
        with _log(tmp_path / "log") as log:
            data = LoggedPartitions(LocalPartitions([1.0, 2.0]), log)
            if value == 2.0:
                assert data.map_sum(_double, value) == (6.0,)
            else:
                with pytest.raises(ValueError, match="differs from the one that wrote it"):
                    data.map_sum(_double, value)


@pytest.mark.parametrize(
    "value",
    [
        (np.arange(6.0).reshape(2, 3), None, 3, -0.0, np.float64(0.1), np.arange(2, dtype=np.int32)),
        [(1, [True, "x"]), np.empty((0, 4), dtype=np.float32)],
        (float("inf"), np.array([np.nan, -0.0])),
    ],
)
def test_values_are_restored_to_the_last_bit(value):
    assert repr(decode(encode(value))) == repr(value)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_blocks_are_restored(layout):
    from scipy import sparse

    X = np.round(make_rows(n_rows=7)[0], 3)
    block = row_block(sparse.csr_array(X) if layout == "sparse" else X)
    (back,) = decode(encode((block,)))
    assert_array_equal(back.times(np.arange(12.0)), block.times(np.arange(12.0)))


def test_a_forged_block_is_not_decoded():
    from scipy import sparse

    rows = sparse.csr_array(make_rows(n_rows=7)[0])
    rows.indices[3] = 2**30
    with pytest.raises(CodecError, match=r"indices\[3\]"):
        decode(encode((row_block(rows),)))


def test_a_forged_result_is_an_error(tmp_path):
    path = tmp_path / "log"
    for is_forged in (False, True):
        with _log(path) as log:
            data = LoggedPartitions(LocalPartitions([1.0, 2.0]), log)
            if is_forged:
                with pytest.raises(ValueError, match=r"cannot be resumed.*Delete it"):
                    data.map_sum(_double, 2.0)
            else:
                assert data.map_sum(_double, 2.0) == (6.0,)
        if not is_forged:
            whole, content = path.read_bytes(), encode((6.0,))
            assert whole.endswith(content)
            forged = content.replace(b"tuple", b"tupel")
            path.write_bytes(whole[: -len(content)].replace(_checksum(content), _checksum(forged)) + forged)


def _checksum(content):
    return zlib.crc32(content).to_bytes(4, "little")


@pytest.mark.parametrize("value", [{1: 2}, np.array([object()]), 1j])
def test_other_values_are_not_encoded(value):
    with pytest.raises(CodecError):
        encode((value,))


@pytest.mark.parametrize("cut", [1, 9, -1])
def test_other_bytes_are_not_decoded(cut):
    data = encode((np.arange(3.0), 1))
    for broken in (data[:cut], data + b"x", b"\xff" * 20):
        with pytest.raises(CodecError):
            decode(broken)
