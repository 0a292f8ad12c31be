"""What must not change a fit, or must change it in a known way: RELIABILITY tests 6 to 13, to ten digits.

``tol`` is the relative gap of the objective, so coefficients to 1e-10 need one far below 1e-20; the solvers then stop
at the limit of floating-point precision.
"""

from __future__ import annotations

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone

from datasets import (
    N_FEATURES,
    TIGHT,
    assert_bitwise_equal,
    estimators,
    make_binary,
    make_multiclass,
    make_sparse,
    noises,
    parameters,
    relative_difference,
)
from dropmargin import Dropout, DropoutLogisticRegression, DropoutSVC, Gaussian, MCFClassifier, Poisson
from dropmargin.linalg import matrix, row_blocks

_BAR = 1e-10
_ESTIMATORS = estimators(tol=TIGHT, C=0.5)
_NOISES = noises()

every_loss = pytest.mark.parametrize("estimator", _ESTIMATORS.values(), ids=_ESTIMATORS.keys())
_CORE = {name: _ESTIMATORS[name] for name in _ESTIMATORS if not name.endswith("-gaussian")}
each_core_loss = pytest.mark.parametrize("estimator", _CORE.values(), ids=_CORE.keys())
every_noise = pytest.mark.parametrize("noise", _NOISES.values(), ids=_NOISES.keys())
a_few_noises = pytest.mark.parametrize(
    "noise", [None, 0.3, _NOISES["gaussian-per-feature"]], ids=["none", "dropout", "gaussian-per-feature"]
)


def _fit(estimator, X, y, sample_weight=None, **params):
    return clone(estimator).set_params(**params).fit(X, y, sample_weight=sample_weight)


def _assert_close(got, wanted, bar=_BAR):
    assert relative_difference(got, wanted) <= bar


# Rows, weights, labels --------------------------------------------------------------------------------------------


@each_core_loss
@every_noise
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_integer_weights_equal_repeated_rows_and_zero_a_removed_one(estimator, noise, class_weight):
    X, y = make_binary()
    weights = np.random.RandomState(5).randint(0, 4, size=len(y))
    assert (weights == 0).any()
    weighted = _fit(estimator, X, y, weights, noise=noise, class_weight=class_weight)
    repeated = _fit(estimator, X.repeat(weights, axis=0), y.repeat(weights), noise=noise, class_weight=class_weight)
    _assert_close(weighted, repeated)
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-12)


@each_core_loss
@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
def test_integer_weights_equal_repeated_rows_with_several_classes_and_sparse_data(estimator, multi_class):
    X, y = make_multiclass()
    weights = np.random.RandomState(5).randint(0, 4, size=len(y))
    options = {"noise": 0.3, "class_weight": "balanced", "multi_class": multi_class}
    weighted = _fit(estimator, sparse.csr_array(X), y, weights, **options)
    _assert_close(weighted, _fit(estimator, X.repeat(weights, axis=0), y.repeat(weights), **options))


@pytest.mark.parametrize("penalty", ["l1", "elasticnet"])
@pytest.mark.parametrize("name", ["svc", "logistic", "mcf-quadratic", "mcf-logistic"])
def test_integer_weights_equal_repeated_rows_under_an_l1_penalty(name, penalty):
    X, y = make_binary()
    weights = np.random.RandomState(5).randint(0, 4, size=len(y))
    options = {"noise": 0.3, "penalty": penalty}
    weighted = _fit(_ESTIMATORS[name], X, y, weights, **options)
    repeated = _fit(_ESTIMATORS[name], X.repeat(weights, axis=0), y.repeat(weights), **options)
    np.testing.assert_array_equal(weighted.coef_ == 0.0, repeated.coef_ == 0.0)
    _assert_close(weighted, repeated)


@every_loss
@every_noise
def test_row_order_does_not_matter(estimator, noise):
    X, y = make_binary()
    order = np.random.RandomState(6).permutation(len(y))
    _assert_close(_fit(estimator, X[order], y[order], noise=noise), _fit(estimator, X, y, noise=noise))


@every_loss
@every_noise
def test_permuted_features_permute_the_coefficients(estimator, noise):
    X, y = make_binary()
    order = np.random.RandomState(7).permutation(N_FEATURES)
    there = noise.take(order) if hasattr(noise, "take") else noise
    permuted = parameters(_fit(estimator, X[:, order], y, noise=there))
    straight = parameters(_fit(estimator, X, y, noise=noise))
    _assert_close(permuted, straight[:, [*order, N_FEATURES]])


@every_loss
@every_noise
def test_flipped_labels_flip_the_coefficients(estimator, noise):
    X, y = make_binary()
    y[:10] = 0  # classes of different sizes
    flipped = _fit(estimator, X, 1 - y, noise=noise)
    _assert_close(parameters(flipped), -parameters(_fit(estimator, X, y, noise=noise)))


@each_core_loss
@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
@pytest.mark.parametrize("names", [["b", "c", "d"], [-7, 0, 1000], [0.5, 1.5, 2.5]], ids=["str", "int", "float"])
def test_renamed_classes_change_nothing_but_the_names(estimator, multi_class, names):
    X, y = make_multiclass()
    names = np.array(names)
    # whole floats are classes, fractions are a regression target
    names = 2.0 * names if names.dtype.kind == "f" else names
    plain, renamed = (_fit(estimator, X, labels, multi_class=multi_class) for labels in (y, names[y]))
    assert_bitwise_equal(renamed, plain)
    np.testing.assert_array_equal(renamed.classes_, names)
    np.testing.assert_array_equal(renamed.predict(X), names[plain.predict(X)])


@every_loss
def test_reordered_class_names_reorder_the_one_vs_rest_columns(estimator):
    X, y = make_multiclass()
    plain, reordered = _fit(estimator, X, y), _fit(estimator, X, np.array([5, 3, 4])[y])
    _assert_close(reordered, parameters(plain)[[1, 2, 0]])


@each_core_loss
@a_few_noises
@pytest.mark.parametrize("k", [1e-12, 1e-4, 7.0, 1e4, 1e12])
def test_weights_times_k_with_c_over_k_is_the_same_model(estimator, noise, k):
    X, y = make_binary()
    weights = np.random.RandomState(8).uniform(0.5, 2.0, size=len(y))
    scaled = _fit(estimator, X, y, weights * k, noise=noise, C=0.5 / k)
    _assert_close(scaled, _fit(estimator, X, y, weights, noise=noise))


# Columns ----------------------------------------------------------------------------------------------------------


@each_core_loss
@pytest.mark.parametrize(
    "noise", [None, 0.3, _NOISES["dropout-per-feature"]], ids=["none", "dropout", "dropout-per-feature"]
)
@pytest.mark.parametrize("a", [1e-6, 10.0, 1e6])
def test_scaled_features_with_c_over_a_squared_scale_the_weights_back(estimator, noise, a):
    # X w is the same for w / a, and |w|^2 / 2 shrinks by a^2: so must C, for the same balance.
    X, y = make_binary()
    scaled = parameters(_fit(estimator, X * a, y, noise=noise, C=0.5 / a**2))
    scaled[:, :-1] *= a
    _assert_close(scaled, _fit(estimator, X, y, noise=noise))


@every_loss
def test_scaled_features_and_gaussian_noise_scale_the_weights_back(estimator):
    X, y = make_binary()
    a = 1e3
    scaled = parameters(_fit(estimator, X * a, y, noise=Gaussian(scale=0.3 * a), C=0.5 / a**2))
    scaled[:, :-1] *= a
    _assert_close(scaled, _fit(estimator, X, y, noise=Gaussian(scale=0.3)))


@each_core_loss
@every_noise
@pytest.mark.parametrize("as_sparse", [False, True], ids=["dense", "sparse"])
def test_an_all_zero_column_gets_no_weight_and_changes_nothing(estimator, noise, as_sparse):
    X, y = make_binary()
    per_feature = {"dropout-per-feature": Dropout, "gaussian-per-feature": Gaussian}
    wider = noise
    for name, kind in per_feature.items():
        if noise is _NOISES[name]:
            values = next(iter(noise.get_params().values()))
            wider = kind(np.insert(values, 3, 0.4))
    widened = np.insert(X, 3, 0.0, axis=1)
    with_column = parameters(_fit(estimator, sparse.csr_array(widened) if as_sparse else widened, y, noise=wider))
    assert np.all(np.abs(with_column[:, 3]) <= 1e-12)
    _assert_close(np.delete(with_column, 3, axis=1), _fit(estimator, X, y, noise=noise))


@each_core_loss
@pytest.mark.parametrize("level", [1.0, -1e3])
def test_a_constant_column_without_noise_gets_no_weight(estimator, level):
    # the unpenalised offset does its work for nothing
    X, y = make_binary()
    rates = np.append(np.full(N_FEATURES, 0.3), 0.0)
    with_column = parameters(_fit(estimator, np.hstack([X, np.full((len(y), 1), level)]), y, noise=Dropout(rate=rates)))
    plain = parameters(_fit(estimator, X, y, noise=0.3))
    _assert_close(with_column[:, :N_FEATURES], plain[:, :-1])
    assert abs(with_column[0, N_FEATURES] * level) <= 1e-8 * np.abs(plain).max()


@pytest.mark.parametrize("name", _ESTIMATORS)
def test_a_constant_column_under_dropout_gets_no_weight_and_changes_nothing(name):
    # whatever it could do the offset does without noise: by Jensen's inequality, weight on it only costs
    X, y = make_binary()
    with_column = parameters(_fit(_ESTIMATORS[name], np.hstack([X, np.ones((len(y), 1))]), y, noise=0.3))
    plain = parameters(_fit(_ESTIMATORS[name], X, y, noise=0.3))
    assert abs(with_column[0, N_FEATURES]) <= _BAR
    _assert_close(np.delete(with_column, N_FEATURES, axis=1), plain)


@every_loss
@a_few_noises
def test_a_duplicated_column_gets_the_same_weight_as_its_twin(estimator, noise):
    X, y = make_binary()
    noise = None if noise is None else (0.3 if isinstance(noise, float) else Gaussian(scale=0.3))
    twins = parameters(_fit(estimator, np.hstack([X, X[:, [2]]]), y, noise=noise))
    assert np.abs(twins[:, 2] - twins[:, N_FEATURES]).max() <= _BAR * np.abs(twins).max()


def test_a_duplicated_column_without_noise_acts_as_one_of_root_two_times_the_size():
    X, y = make_binary()
    estimator = DropoutLogisticRegression(noise=None, tol=TIGHT)
    twins = parameters(_fit(estimator, np.hstack([X, X[:, [2]]]), y))
    stretched = X.copy()
    stretched[:, 2] *= np.sqrt(2.0)
    one = parameters(_fit(estimator, stretched, y))
    one[:, 2] /= np.sqrt(2.0)
    _assert_close(np.delete(twins, N_FEATURES, axis=1), one)


@each_core_loss
@every_noise
@pytest.mark.parametrize("as_sparse", [False, True], ids=["dense", "sparse"])
def test_all_zero_rows_are_rows_like_any_other(estimator, noise, as_sparse):
    X, y = make_binary()
    X = np.vstack([X, np.zeros((3, N_FEATURES))])
    y = np.append(y, [0, 0, 1])
    model = _fit(estimator, sparse.csr_array(X) if as_sparse else X, y, noise=noise)
    assert np.isfinite(parameters(model)).all()
    tiny = X.copy()
    tiny[-3:] = 1e-30
    _assert_close(model, _fit(estimator, tiny, y, noise=noise), bar=1e-9)


# Containers -------------------------------------------------------------------------------------------------------

_CONTAINERS = {
    "dense F order": np.asfortranarray,
    "dense strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "list": lambda X: X.tolist(),
    **{
        f"{form}_{kind}": getattr(sparse, f"{form}_{kind}")
        for form in ("csr", "csc", "coo", "bsr", "lil")
        for kind in ("matrix", "array")
    },
}


def _with_index_type(X, dtype):
    X = sparse.csr_array(X)
    X.indices, X.indptr = X.indices.astype(dtype), X.indptr.astype(dtype)
    return X


@pytest.mark.parametrize("container", _CONTAINERS.values(), ids=_CONTAINERS.keys())
@pytest.mark.parametrize("name", ["svc", "mcf-quadratic", "mcf-exponential"])
def test_every_container_gives_the_dense_model(name, container):
    X, y = make_multiclass()
    dense, other = (_fit(_ESTIMATORS[name], data, y, noise=0.3) for data in (X, container(X)))
    _assert_close(other, dense)
    np.testing.assert_allclose(other.decision_function(container(X)), dense.decision_function(X), rtol=1e-9, atol=1e-9)


@every_loss
@every_noise
def test_sparse_equals_dense_for_every_noise(estimator, noise):
    X, y = make_binary()
    _assert_close(_fit(estimator, sparse.csr_array(X), y, noise=noise), _fit(estimator, X, y, noise=noise))


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@each_core_loss
def test_index_type_does_not_matter_and_is_accepted_everywhere(estimator, index_type):
    X, y = make_binary()
    rows = _with_index_type(X, index_type)
    model = _fit(estimator, rows, y, noise=0.3)
    _assert_close(model, _fit(estimator, X, y, noise=0.3))
    np.testing.assert_array_equal(model.predict(rows), model.predict(X))


def _non_canonical(X, index_type):
    """Return the same matrix with duplicate, unsorted and explicitly zero entries."""
    data, indices, indptr = [], [], [0]
    for row in X:
        for column in np.flatnonzero(row)[::-1]:  # backwards
            data += [row[column] + 3.0, -3.0]
            indices += [column, column]
        data += [0.0]
        indices += [len(row) - 1]
        indptr.append(len(data))
    out = sparse.csr_array(X.shape)
    out.data, out.indices, out.indptr = np.array(data), np.array(indices, index_type), np.array(indptr, index_type)
    return out


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("noise", [None, 0.3, Poisson(), Gaussian(scale=0.2)], ids=str)
@each_core_loss
def test_non_canonical_csr_gives_the_dense_model_and_is_left_untouched(estimator, noise, kind, index_type):
    X, y = make_binary()
    X = np.round(4.0 * X)  # so that duplicates add up exactly
    X[:, 5] = 0.0  # an empty column
    X[7] = 0.0  # an empty row
    messy = _non_canonical(X, index_type)
    if isinstance(noise, Poisson):
        # Poisson noise may meet no negative entry, even one that a duplicate makes up for
        messy.data = np.where(messy.data == -3.0, 1.0, np.where(messy.data == 0.0, 0.0, messy.data - 4.0))
    arrays = messy.data, messy.indices, messy.indptr
    np.testing.assert_array_equal(messy.toarray(), X)
    if kind is sparse.csr_matrix:
        messy = kind(X.shape)
        messy.data, messy.indices, messy.indptr = arrays
    before = [a.tobytes() for a in arrays]
    model = _fit(estimator, messy, y, noise=noise)
    scores = model.decision_function(messy)
    assert [a.tobytes() for a in arrays] == before
    assert messy.data is arrays[0]
    assert messy.indices is arrays[1]
    dense = _fit(estimator, X, y, noise=noise)
    _assert_close(model, dense)
    np.testing.assert_allclose(scores, dense.decision_function(X), rtol=1e-9, atol=1e-9)


def test_a_false_claim_of_canonical_format_is_not_believed():
    X, y = make_binary()
    messy = _non_canonical(np.round(4.0 * X), np.int32)
    messy.has_canonical_format = True
    messy.has_sorted_indices = True
    estimator = DropoutSVC(noise=0.5, tol=TIGHT)
    _assert_close(_fit(estimator, messy, y), _fit(estimator, np.round(4.0 * X), y))


@pytest.mark.parametrize("make", [np.ascontiguousarray, np.asfortranarray, sparse.csr_array, sparse.csc_array])
@each_core_loss
def test_the_callers_data_labels_and_weights_are_left_untouched(estimator, make):
    X, y = make_binary()
    X, weights = make(X), np.linspace(0.0, 2.0, len(y))
    stored = [X.data, X.indices, X.indptr] if sparse.issparse(X) else [X]
    before = [a.tobytes() for a in [*stored, y, weights]]
    _fit(estimator, X, y, weights, noise=0.3, class_weight="balanced").predict(X)
    assert [a.tobytes() for a in [*stored, y, weights]] == before


# Precision --------------------------------------------------------------------------------------------------------


@each_core_loss
@every_noise
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_single_precision_agrees_with_double_and_is_kept(estimator, noise, make):
    X, y = make_binary()
    X = X.astype(np.float32)
    single = _fit(estimator, make(X), y, noise=noise, tol=1e-10)
    double = _fit(estimator, make(X.astype(np.float64)), y, noise=noise, tol=1e-10)
    assert single.coef_.dtype == single.intercept_.dtype == np.float32
    assert single.decision_function(make(X)).dtype == np.float32
    assert double.coef_.dtype == np.float64
    _assert_close(parameters(single).astype(np.float64), double, bar=1e-5)


@each_core_loss
@pytest.mark.parametrize("noise", [None, 0.3, Gaussian(scale=1.0)], ids=["none", "dropout", "gaussian"])
@pytest.mark.parametrize("size", [1e-30, 1e-19, 1e19, 1e25, 1e30])
def test_single_precision_never_overflows_where_double_does_not(estimator, noise, size):
    # squares of these are beyond single precision
    X, y = make_binary()
    X = (X * size).astype(np.float32)
    if isinstance(noise, Gaussian):
        noise = Gaussian(scale=0.3 * size)
    options = {"noise": noise, "C": 0.5 / size**2, "tol": 1e-10}
    single = _fit(estimator, X, y, **options)
    double = _fit(estimator, X.astype(np.float64), y, **options)
    scores = double.decision_function(X.astype(np.float64))
    np.testing.assert_allclose(single.decision_function(X), scores, atol=1e-4 * np.abs(scores).max())


@pytest.mark.parametrize("name", ["svc", "mcf-logistic"])
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, bool, np.float16, np.longdouble, object])
def test_every_other_number_type_is_read_as_double(name, dtype):
    X, y = make_binary()
    X = np.round(2.0 * X) if dtype is not bool else X > 0.5
    _assert_close(
        _fit(_ESTIMATORS[name], X.astype(dtype), y, noise=0.3),
        _fit(_ESTIMATORS[name], X.astype(np.float64), y, noise=0.3),
    )


# Memory maps and frames -------------------------------------------------------------------------------------------


def _memmapped(array, path):
    path = path / f"{id(array)}.npy"
    np.save(path, array)
    return np.load(path, mmap_mode="r")


@each_core_loss
@pytest.mark.parametrize("as_sparse", [False, True], ids=["dense", "sparse"])
def test_read_only_memory_maps_are_accepted(estimator, as_sparse, tmp_path):
    X, y = make_binary()
    weights = np.linspace(0.5, 2.0, len(y))
    if as_sparse:
        rows = sparse.csr_array(X)
        mapped = sparse.csr_array(X.shape)
        mapped.data, mapped.indices, mapped.indptr = (
            _memmapped(a, tmp_path) for a in (rows.data, rows.indices, rows.indptr)
        )
    else:
        mapped = _memmapped(X, tmp_path)
    model = _fit(estimator, mapped, _memmapped(y, tmp_path), _memmapped(weights, tmp_path), noise=0.3)
    assert model.predict(mapped).shape == y.shape
    _assert_close(model, _fit(estimator, X, y, weights, noise=0.3))


@pytest.mark.parametrize("as_sparse", [False, True], ids=["dense", "sparse"])
def test_joblib_memory_maps_are_accepted(as_sparse, tmp_path):
    X, y = make_binary()
    X = sparse.csr_array(X) if as_sparse else X
    joblib.dump((X, y), tmp_path / "data.joblib")
    mapped, labels = joblib.load(tmp_path / "data.joblib", mmap_mode="r")
    assert not (mapped.data if as_sparse else mapped).flags.writeable
    for estimator in _ESTIMATORS.values():
        assert_bitwise_equal(_fit(estimator, mapped, labels, noise=0.3), _fit(estimator, X, y, noise=0.3))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
@each_core_loss
def test_frames_with_string_labels_give_the_array_model_and_name_the_features(estimator, frame):
    X, y = make_multiclass()
    names = [f"word {d}" for d in range(N_FEATURES)]
    table = frame({name: X[:, d] for d, name in enumerate(names)})
    key = "data" if frame is pd.DataFrame else "values"
    series = (pd if frame is pd.DataFrame else pl).Series(name="label", **{key: np.array(["a", "b", "c"])[y]})
    model = _fit(estimator, table, series, noise=0.3)
    np.testing.assert_array_equal(model.feature_names_in_, names)
    _assert_close(model, _fit(estimator, X, y, noise=0.3))
    np.testing.assert_array_equal(model.classes_, ["a", "b", "c"])
    assert set(model.predict(table)) <= {"a", "b", "c"}
    swapped = table[names[::-1]]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(swapped)


def test_an_array_after_a_frame_forgets_the_feature_names():
    X, y = make_binary()
    model = DropoutSVC().fit(pd.DataFrame(X, columns=list("abcdefgh")), y)
    model.fit(X, y)
    assert not hasattr(model, "feature_names_in_")


def test_pandas_sparse_columns_give_the_dense_model():
    X, y = make_binary()
    table = pd.DataFrame.sparse.from_spmatrix(sparse.csr_matrix(X))
    table.columns = [f"f{d}" for d in range(N_FEATURES)]
    estimator = DropoutSVC(noise=0.3, tol=TIGHT)
    _assert_close(_fit(estimator, table, y), _fit(estimator, X, y))


# Threads ----------------------------------------------------------------------------------------------------------

_THREADED = [
    DropoutSVC(noise=0.3),
    DropoutSVC(noise=None),
    DropoutSVC(noise=0.3, penalty="l1"),
    DropoutSVC(noise=0.3, multi_class="ovo"),
    DropoutLogisticRegression(noise=Gaussian(scale=0.2)),
    DropoutLogisticRegression(noise=0.3, solver="irls"),
    DropoutLogisticRegression(noise=0.3, solver="lbfgs"),
    MCFClassifier("quadratic", noise=0.3, solver="closed-form"),
    MCFClassifier("exponential", noise=0.3),
    MCFClassifier("logistic", noise=Poisson(), penalty="elasticnet"),
]


@pytest.mark.parametrize("estimator", _THREADED, ids=str)
@pytest.mark.parametrize("make", [np.asfortranarray, sparse.csr_array])
def test_the_number_of_threads_does_not_change_a_bit(estimator, make, monkeypatch):
    X, y = make_multiclass(n_samples=120)
    monkeypatch.setattr(matrix, "_PARTITION_ENTRIES", 50)
    assert len(row_blocks(X)) > 3
    one = _fit(estimator, make(X), y, n_jobs=1)
    for n_jobs in (2, 3):
        other = _fit(estimator, make(X), y, n_jobs=n_jobs)
        assert_bitwise_equal(other, one)
        assert other.objective_ == one.objective_
        assert other.n_iter_ == one.n_iter_


@pytest.mark.parametrize("noise", [0.3, Gaussian(scale=0.2)], ids=str)
@pytest.mark.parametrize("name", ["svc", "logistic", "mcf-quadratic", "mcf-logistic"])
def test_the_partition_of_the_rows_changes_rounding_only(name, noise, monkeypatch):
    X, y = make_multiclass()
    whole = _fit(_ESTIMATORS[name], X, y, noise=noise)
    monkeypatch.setattr(matrix, "_PARTITION_ENTRIES", 50)
    _assert_close(_fit(_ESTIMATORS[name], X, y, noise=noise), whole)


@pytest.mark.parametrize("as_sparse", [False, True], ids=["dense", "sparse"])
def test_the_number_of_threads_does_not_change_a_bit_on_data_of_real_size(as_sparse):
    X, y = make_sparse(24_000, 1_000, 0.1) if as_sparse else make_sparse(9_000, 300, 0.5)
    X = X if as_sparse else X.toarray()
    assert len(row_blocks(X)) > 3
    estimator = DropoutSVC(noise=0.3, C=0.01, tol=1e-2)
    assert_bitwise_equal(_fit(estimator, X, y, n_jobs=1), _fit(estimator, X, y, n_jobs=2))
