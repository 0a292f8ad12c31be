"""The compiled products agree with those of SciPy for all types of data, and the package works without them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

from dealing import deal
from dropmargin import DropoutSVC, compiled
from dropmargin.data import (
    DenseBlock,
    FeatureGroups,
    GroupDirection,
    GroupOperand,
    GroupSums,
    SparseBlock,
    SquaredDeviation,
    dense,
    kernels,
)

_ENTRIES = [None, np.square, np.abs]
_WIDTHS = [(1, 0), (1, 1), (1, 2), (0, 1), (3, 0), (3, 3), (2, 4), (3, 4)]


def _matrix(dtype=np.float64, index=np.int32):
    rng = np.random.default_rng(0)
    X = sparse.random(57, 23, density=0.3, random_state=rng, data_rvs=rng.standard_normal, format="csr")
    X = sparse.csr_array(X.astype(dtype))
    X.data[::7] = 0.0  # explicit zeros
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    return X


_BACKENDS = ["compiled", "scipy"]


@pytest.fixture
def backend(request, monkeypatch):
    if request.param == "scipy":
        monkeypatch.setattr(kernels, "_LIBRARY", None)
    elif not kernels.available():
        pytest.skip("the kernels were not built: no C compiler when the package was installed")
    return request.param


@pytest.mark.parametrize(
    ("backend", "widths", "entry", "index", "dtype"),
    deal(_BACKENDS, _WIDTHS, _ENTRIES, [np.int32, np.int64], [np.float32, np.float64], n=48),
    indirect=["backend"],
)
def test_products_are_those_of_a_dense_matrix(backend, widths, entry, index, dtype):
    n_x, n_f = widths
    X = _matrix(dtype, index)
    dense = X.toarray().astype(np.float64)
    transformed = dense if entry is None else entry(dense)
    rng = np.random.default_rng(1)
    right, left = rng.standard_normal((23, n_x + n_f)), rng.standard_normal((57, n_x + n_f))
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == np.float32 else {"rtol": 1e-12, "atol": 1e-12}
    for block in (SparseBlock(X, entry), DenseBlock(X.toarray(), entry)):
        forward, backward = block.forward(right, n_x), block.backward(left, n_x)
        np.testing.assert_allclose(forward[:, :n_x], dense @ right[:, :n_x], **tolerance)
        np.testing.assert_allclose(forward[:, n_x:], transformed @ right[:, n_x:], **tolerance)
        np.testing.assert_allclose(backward[:, :n_x], dense.T @ left[:, :n_x], **tolerance)
        np.testing.assert_allclose(backward[:, n_x:], transformed.T @ left[:, n_x:], **tolerance)


@pytest.mark.parametrize(
    ("backend", "n", "coupled", "dtype"),
    deal(_BACKENDS, [1, 3, 300], [False, True], [np.float32, np.float64], n=12),
    indirect=["backend"],
)
def test_sandwich_is_a_product_and_a_transposed_product(backend, n, coupled, dtype):
    X = _matrix(dtype)
    dense = X.toarray().astype(np.float64)
    rng = np.random.default_rng(2)
    width = 2 * n if coupled else n
    right, shift = rng.standard_normal((23, width)), rng.standard_normal(width)
    curvature_weight = rng.standard_normal((57, 3 * n if coupled else n))
    a = dense @ right[:, :n] + shift[:n]
    if coupled:
        t = np.square(dense) @ right[:, n:] + shift[n:]
        by_mean = curvature_weight[:, :n] * a + curvature_weight[:, n : 2 * n] * t
        by_variance = curvature_weight[:, n : 2 * n] * a + curvature_weight[:, 2 * n :] * t
        expected = np.hstack([dense.T @ by_mean, np.square(dense).T @ by_variance])
        sums = np.concatenate([by_mean.sum(axis=0), by_variance.sum(axis=0)])
    else:
        expected, sums = dense.T @ (curvature_weight * a), (curvature_weight * a).sum(axis=0)
    tolerance = {"rtol": 1e-3, "atol": 1e-3} if dtype == np.float32 else {"rtol": 1e-11, "atol": 1e-11}
    for block in (SparseBlock(X, np.square), DenseBlock(X.toarray(), np.square)):
        got, got_sums = block.sandwich(right, shift, curvature_weight, n)
        np.testing.assert_allclose(got, expected, **tolerance)
        np.testing.assert_allclose(got_sums, sums, **tolerance)


def test_an_index_out_of_range_is_an_error_and_not_a_crash():
    X = _matrix()
    y = np.arange(57) % 2
    X.indices[5] = 1_000_000
    with pytest.raises(ValueError, match=r"not a valid sparse matrix|indices"):
        DropoutSVC().fit(X, y)


def test_a_fit_without_the_kernels_gives_the_same_coefficients(monkeypatch):
    rng = np.random.default_rng(0)
    X = sparse.random(200, 40, density=0.2, random_state=rng, format="csr")
    y = (X @ rng.standard_normal(40) > 0).astype(int)
    compiled = DropoutSVC(noise=0.3, tol=1e-12).fit(X, y).coef_
    monkeypatch.setattr(kernels, "_LIBRARY", None)
    np.testing.assert_allclose(DropoutSVC(noise=0.3, tol=1e-12).fit(X, y).coef_, compiled, rtol=1e-5, atol=1e-7)


def test_a_variable_of_the_environment_turns_the_kernels_off():
    script = "from dropmargin.data import kernels; print(kernels.available())"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "DROPMARGIN_KERNELS": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("source", ["int dropmargin_abi(void) { return -1; }", "int forward_f8i4(void) { return 1; }"])
def test_a_library_of_another_version_is_not_used(source, tmp_path):
    (tmp_path / "other.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "other.c", "-o", "other.so"], cwd=tmp_path, check=True)
    assert compiled.load_library(tmp_path / "other.so") is None
    assert "another version" in compiled.problems[tmp_path / "other.so"]


def test_missing_kernels_are_one_warning_at_the_first_fit():
    script = """
import warnings
import dropmargin.compiled as compiled
def not_built(path):
    compiled.problems[path] = "not built"
compiled.load_library = not_built
from dropmargin import DropoutSVC, show_versions
from scipy import sparse
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        DropoutSVC().fit(sparse.eye(4, format="csr"), [0, 1, 0, 1])
print(len([entry for entry in caught if "compiled kernels" in str(entry.message)]))
show_versions()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    first, *versions = done.stdout.splitlines()
    assert first == "1"
    assert {"kernels         not built", f"numpy           {np.__version__}"} <= set(versions)


@pytest.mark.parametrize(
    ("backend", "n", "entry", "values", "dtype"),
    deal(_BACKENDS, [1, 2], ["square", "deviation", "absolute"], ["counts", "ones"], [np.float32, np.float64], n=24),
    indirect=["backend"],
)
def test_coupled_products_and_images_are_those_of_a_dense_matrix(backend, n, entry, values, dtype):
    X = _matrix(dtype)
    if values == "ones":
        X.data[:] = 1.0
    rng = np.random.default_rng(3)
    deviation = SquaredDeviation(rng.random(23), less_zero=True)
    function = {"square": np.square, "absolute": np.abs, "deviation": deviation}[entry]
    dense = X.toarray().astype(np.float64)
    transformed = function(dense)
    p, scale = rng.standard_normal((23, n)), rng.standard_normal((23, n))
    shift, weight, squared = rng.standard_normal(2 * n), rng.standard_normal((57, 3 * n)), rng.standard_normal((57, n))
    left = rng.standard_normal((57, 4 * n))
    a, t = dense @ p + shift[:n], transformed @ (scale * p) + shift[n:]
    alpha = weight[:, :n] * a + weight[:, n : 2 * n] * t
    beta = weight[:, n : 2 * n] * a + weight[:, 2 * n :] * t
    tolerance = {"rtol": 1e-3, "atol": 1e-3} if dtype == np.float32 else {"rtol": 1e-11, "atol": 1e-11}
    for block in (SparseBlock(X, function), DenseBlock(X.toarray(), function)):
        got, sums = block.coupled_product(p, scale, shift, weight)
        np.testing.assert_allclose(got, dense.T @ alpha + scale * (transformed.T @ beta), **tolerance)
        np.testing.assert_allclose(sums, np.concatenate([alpha.sum(axis=0), beta.sum(axis=0)]), **tolerance)
        images, squares = block.images(left, scale, squared)
        noise = np.hstack([scale, scale]) * (transformed.T @ left[:, 2 * n :])
        np.testing.assert_allclose(images, dense.T @ left[:, : 2 * n] + noise, **tolerance)
        np.testing.assert_allclose(squares, np.square(dense).T @ squared, **tolerance)


@pytest.mark.parametrize(
    ("backend", "n", "kind", "dtype", "are_ones"),
    deal(
        _BACKENDS, [1, 2], ["neighbours", "scattered", "one", "single"], [np.float32, np.float64], [False, True], n=32
    ),
    indirect=["backend"],
)
def test_products_with_groups_do_not_depend_on_the_order_of_the_features(backend, n, kind, dtype, are_ones):
    X = _matrix(dtype)
    if are_ones:
        X.data[:] = 1.0
    numbers = {
        "neighbours": np.arange(23) // 4,
        "scattered": np.arange(23) % 5,
        "one": np.zeros(23, dtype=int),
        "single": np.arange(23),
    }[kind]
    rng = np.random.default_rng(4)
    n_groups = int(numbers.max()) + 1
    groups = FeatureGroups(numbers, rng.random(n_groups), rng.random(23))
    coef, direction, shift = rng.standard_normal((23, n)), rng.standard_normal((23, n)), rng.standard_normal(n)
    weights, left = (rng.standard_normal((57, 4 * n)) for _ in range(2))
    function = SquaredDeviation(groups.reference, less_zero=True)
    block, dense = SparseBlock(X, function), DenseBlock(X.toarray(), function)
    operand = GroupOperand(groups, coef)
    along = GroupDirection(operand, direction)
    uncoupled = np.hstack([weights[:, :n], np.zeros((57, 2 * n)), weights[:, 3 * n :]])
    tolerance = {"rtol": 1e-3, "atol": 1e-3} if dtype == np.float32 else {"rtol": 1e-11, "atol": 1e-11}

    def of_groups(block):
        """Yield the products, with what blocks leave to be completed for all together."""
        yield from block.group_moments(operand)
        gradient, by_entries, alone = block.group_gradient(operand, left[:, :n], weights[:, 3 * n :])
        yield from (operand.complete(gradient), by_entries)
        for own in (weights, uncoupled):
            product, sums = block.group_curvature(along, own, shift)
            yield from (along.complete(product, gradient._replace(product=alone)), sums)
        images, squares = block.group_images(operand, left)
        parts = zip(*(np.split(array, 2, axis=-1) for array in images), strict=True)
        yield from (operand.complete(GroupSums(*part)) for part in parts)
        yield squares

    for one, other in zip(of_groups(block), of_groups(dense), strict=True):
        np.testing.assert_allclose(one, other, **tolerance)


@pytest.mark.parametrize("entry", _ENTRIES)
def test_products_of_dense_rows_do_not_depend_on_the_chunks(entry, monkeypatch):
    X, rng = np.ascontiguousarray(_matrix().toarray()), np.random.default_rng(1)
    groups = FeatureGroups(rng.integers(4, size=23), np.linspace(0.5, 2.0, 4), rng.normal(size=23))
    right, left, weights, shift = (
        rng.normal(size=(23, 4)),
        rng.normal(size=(57, 4)),
        rng.random((57, 8)),
        np.arange(4.0),
    )

    def products(block):
        yield block.forward(right, 2)
        yield block.backward(left, 2)
        yield from block.sandwich(right, shift, weights[:, :6], 2)
        yield from block.sandwich(right, shift, weights[:, :4], 4)
        yield from block.group_moments(GroupOperand(groups, right))
        along = GroupDirection(GroupOperand(groups, right[:, :2]), right[:, 2:])
        product, sums = block.group_curvature(along, weights[:, :8], shift[:2])
        yield from (*product, sums)
        yield block.weighted_gram(weights[:, 0])

    whole = list(products(DenseBlock(X, entry)))
    monkeypatch.setattr(dense, "_CHUNK_ENTRIES", 1)  # chunks of 16 rows, the last one of fewer
    monkeypatch.setattr(dense, "_STORED_ENTRIES", 0)
    for found, wanted in zip(products(DenseBlock(X, entry)), whole, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
