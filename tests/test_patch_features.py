"""PatchFeatures against plain loops; its cache against interruption and damage.

The checks of scikit-learn's ``check_estimator`` do not fit: they pass tables of a few columns, which are no images.
What they stand for (parameters, clones, pickles, errors, repeatable results) is tested here on images.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from dealing import together
from dropmargin import DropoutLogisticRegression
from reproduction.features import PatchFeatures, patch_features
from reproduction.features.codebook import learn_codebook
from reproduction.features.patches import learn_whitening, normalise_contrast


def make_images(n_images: int = 12, shape: tuple[int, ...] = (11, 10, 3), seed: int = 0) -> np.ndarray:
    """Return images of smooth random shapes and some noise, 0 to 255, as bytes."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(n_images, *shape))
    smooth = noise + np.roll(noise, 1, axis=1) + np.roll(noise, 1, axis=2) + np.roll(noise, (1, 1), axis=(1, 2))
    return np.clip(128 + 40 * smooth, 0, 255).astype(np.uint8)


def make_features(**changes) -> PatchFeatures:
    parameters = {"n_centroids": 9, "patch_size": 3, "n_patches": 600, "n_iter": 4, "random_state": 0, "verbose": 0}
    return PatchFeatures(**parameters | changes)


def as_dense(features) -> np.ndarray:
    return features if isinstance(features, np.ndarray) else features.toarray()


def plain_features(model: PatchFeatures, image: np.ndarray) -> np.ndarray:
    """Return the features of one image by loops over its patches, in double precision."""
    book = model.codebook_
    centroids = book.centroids.astype(float)
    size, stride, pooling = model.patch_size, model.stride, model.pooling
    tops = range(0, image.shape[0] - size + 1, stride)
    lefts = range(0, image.shape[1] - size + 1, stride)
    features = np.zeros((pooling, pooling, len(centroids)))
    for row, top in enumerate(tops):
        for column, left in enumerate(lefts):
            patch = image[top : top + size, left : left + size].astype(float).ravel()
            patch = (patch - patch.mean()) / np.sqrt(patch.var() + model.contrast_epsilon)
            patch = book.whitening.astype(float) @ (patch - book.patch_mean)
            distances = np.array([np.linalg.norm(patch - centroid) for centroid in centroids])
            part = features[row * pooling // len(tops), column * pooling // len(lefts)]
            if model.activation == "hard":
                part[np.argmin(distances)] += 1
            else:
                part += np.maximum(0.0, distances.mean() - distances)
    return features.ravel()


@pytest.mark.parametrize("activation", ["hard", "triangle"])
@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        ((11, 10, 3), {}),
        ((11, 10, 3), {"stride": 2, "pooling": 3}),
        ((9, 14, 1), {"patch_size": 4, "pooling": 1, "contrast_epsilon": 200.0}),
    ],
)
def test_features_equal_those_of_plain_loops(activation, shape, changes):
    images = make_images(shape=shape)
    model = make_features(activation=activation, **changes).fit(images)
    features = model.transform(images)
    assert features.dtype == np.float32
    assert isinstance(features, np.ndarray) == (activation == "triangle")
    expected = np.array([plain_features(model, image) for image in images])
    np.testing.assert_allclose(as_dense(features), expected, rtol=1e-4, atol=1e-4 * expected.max())


def test_quadrants_have_the_patches_of_the_papers():
    images = make_images(3, (32, 32, 3))
    counts = make_features(patch_size=7, n_centroids=20).fit_transform(images)
    assert counts.shape == (3, 4 * 20)
    assert np.array_equal(counts.toarray().reshape(3, 4, 20).sum(axis=2), np.full((3, 4), 13 * 13))
    assert counts.has_canonical_format
    assert counts.indices.dtype == counts.indptr.dtype == np.int32


def test_contrast_and_whitening():
    rng = np.random.default_rng(0)
    patches = (rng.normal(size=(5000, 12)) @ rng.normal(size=(12, 12)) + 3.0).astype(np.float32)
    normal = normalise_contrast(patches, 1e-6)
    np.testing.assert_allclose(normal.mean(axis=1), 0.0, atol=1e-5)
    np.testing.assert_allclose(normal.std(axis=1), 1.0, atol=1e-4)
    np.testing.assert_allclose(normalise_contrast(7 * patches + 5, 49e-6), normal, atol=1e-4)
    mean, whitening = learn_whitening(patches, 1e-9)
    np.testing.assert_allclose(whitening, whitening.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.cov((patches - mean) @ whitening, rowvar=False), np.eye(12), atol=0.01)
    # Normalised patches have no variance in one direction, the mean; all others are whitened.
    mean, whitening = learn_whitening(normal, 1e-5)
    white = np.linalg.eigvalsh(np.cov((normal - mean) @ whitening, rowvar=False))
    np.testing.assert_allclose(white, [0.0] + [1.0] * 11, atol=0.01)


def test_constant_patch_has_finite_features():
    images = make_images()
    images[0] = 200
    features = make_features(activation="triangle").fit_transform(images)
    assert np.isfinite(features).all()


def test_centroid_is_the_mean_of_its_nearest_patches():
    rng = np.random.default_rng(0)
    patches = rng.normal(128.0, 40.0, size=(300, 12)).astype(np.float32)
    first = rng.normal(size=(5, 12)).astype(np.float32)
    book = learn_codebook(patches, first, contrast_epsilon=10.0, whitening_epsilon=0.1, n_iter=200)
    white = book.whiten(patches)
    nearest = np.linalg.norm(white[:, None] - book.centroids, axis=2).argmin(axis=1)
    assert np.array_equal(book.scores(white).argmax(axis=1), nearest)
    means = [white[nearest == index].mean(axis=0) for index in range(len(first))]
    np.testing.assert_allclose(book.centroids, means, atol=1e-5)
    one_step = learn_codebook(patches, first, contrast_epsilon=10.0, whitening_epsilon=0.1, n_iter=1)
    assert not np.allclose(one_step.centroids, book.centroids, atol=1e-2)


@pytest.mark.parametrize("activation", ["hard", "triangle"])
def test_result_does_not_depend_on_threads_and_chunks(activation):
    images = make_images(23)
    one = make_features(activation=activation).fit(images)
    features = as_dense(one.transform(images))
    for changes in ({"n_jobs": 2}, {"chunk_size": 1}, {"chunk_size": 7, "n_jobs": -1}):
        other = make_features(activation=activation, **changes)
        assert np.array_equal(as_dense(other.fit_transform(images)), features)
    assert np.array_equal(as_dense(one.transform(images[5:6])), features[5:6])


def test_random_state():
    images = make_images()
    first, again, other = (make_features(random_state=seed).fit(images).codebook_.centroids for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_shapes_of_images_are_equivalent():
    images = make_images(shape=(11, 10, 3))
    expected = make_features().fit_transform(images).toarray()
    for same in (images.astype(np.float64), images.astype(np.int64), np.asfortranarray(images), images.tolist()):
        assert np.array_equal(make_features().fit_transform(same).toarray(), expected)
    rows = make_features(image_shape=(11, 10, 3)).fit_transform(images.reshape(len(images), -1))
    assert np.array_equal(rows.toarray(), expected)
    grey = images[..., :1]
    expected = make_features().fit_transform(grey).toarray()
    assert np.array_equal(make_features().fit_transform(grey[..., 0]).toarray(), expected)
    rows = make_features(image_shape=(11, 10)).fit_transform(grey.reshape(len(grey), -1))
    assert np.array_equal(rows.toarray(), expected)


def test_scikit_learn_api():
    images = make_images()
    model = make_features(activation="triangle", cache=None).fit(images)
    features = model.transform(images)
    assert clone(model).get_params() == model.get_params()
    assert np.array_equal(pickle.loads(pickle.dumps(model)).transform(images), features)
    assert list(model.get_feature_names_out()[:2]) == ["patchfeatures0", "patchfeatures1"]
    assert len(model.get_feature_names_out()) == features.shape[1]
    counts = model.set_params(activation="hard").transform(images)
    assert counts.sum() == len(images) * 9 * 8
    with pytest.raises(NotFittedError):
        make_features().transform(images)


def test_pipeline_on_digits():
    X, y = load_digits(return_X_y=True)
    describe = make_features(n_centroids=40, n_patches=4000, image_shape=(8, 8), contrast_epsilon=0.1)
    model = make_pipeline(describe, DropoutLogisticRegression(noise=0.1, C=0.1)).fit(X[:600], y[:600])
    assert model.score(X[600:1200], y[600:1200]) > 0.9


def refuse(*args, **kwargs):
    raise AssertionError("worked out again, though it is in the cache")


@pytest.mark.parametrize("activation", ["hard", "triangle"])
def test_second_call_reads_the_cache(activation, tmp_path, monkeypatch):
    images = make_images(10)
    expected = as_dense(make_features(activation=activation).fit_transform(images))
    cached = make_features(activation=activation, cache=tmp_path / "new" / "folder", chunk_size=4)
    assert np.array_equal(as_dense(cached.fit_transform(images)), expected)
    for work in ("learn_codebook", "nearest_centroids", "triangle_activations"):
        monkeypatch.setattr(patch_features, work, refuse)
    again = clone(cached).set_params(cache=str(cached.cache), n_jobs=2)
    assert np.array_equal(as_dense(again.fit_transform(images)), expected)
    assert np.array_equal(as_dense(pickle.loads(pickle.dumps(again)).transform(images)), expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"activation": "triangle"},
        {"pooling": 1},
        {"stride": 2},
        {"n_iter": 1},
        {"contrast_epsilon": 300.0},
        {"whitening_epsilon": 3.0},
        {"random_state": 1},
        {"n_patches": 700},
    ],
    ids=str,
)
def test_other_parameters_have_other_cache_entries(changes, tmp_path):
    images = make_images()
    make_features(cache=tmp_path).fit_transform(images)
    expected = as_dense(make_features(**changes).fit_transform(images))
    assert np.array_equal(as_dense(make_features(cache=tmp_path, **changes).fit_transform(images)), expected)


def test_other_images_have_other_cache_entries(tmp_path):
    images = make_images()
    model = make_features(cache=tmp_path).fit(images)
    model.transform(images)
    changed = images.copy()
    changed[3, 4:8, 4:8] = 255 - changed[3, 4:8, 4:8]
    expected = clone(model).set_params(cache=None).fit(images).transform(changed).toarray()
    assert np.array_equal(model.transform(changed).toarray(), expected)


def damage(content: bytes, kind: str) -> bytes:
    middle = len(content) // 2
    return {
        "empty": b"",
        "cut": content[:-3],
        "longer": content + b"\0",
        "one bit": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "last bit": content[:-1] + bytes([content[-1] ^ 1]),
        "checksum": content[:25] + bytes([content[25] ^ 1]) + content[26:],
        "zeros": bytes(len(content)),
    }[kind]


@pytest.mark.parametrize("kind", ["empty", "cut", "longer", "one bit", "last bit", "checksum", "zeros", "swapped"])
def test_damaged_cache_file_is_computed_again(kind, tmp_path):
    images = make_images(12)
    model = make_features(cache=tmp_path, chunk_size=4)
    expected = model.fit_transform(images).toarray()
    whole = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(whole) == 1 + 3
    contents = list(whole.values())
    for path, content, other in zip(whole, contents, contents[1:] + contents[:1], strict=True):
        path.write_bytes(other if kind == "swapped" else damage(content, kind))
    assert np.array_equal(clone(model).fit_transform(images).toarray(), expected)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == whole


def test_cache_keeps_complete_chunks_after_an_interrupt(tmp_path, monkeypatch):
    images = make_images(20)
    model = make_features(cache=tmp_path, chunk_size=4).fit(images)
    expected = clone(model).set_params(cache=None).fit(images).transform(images).toarray()
    original = patch_features.nearest_centroids
    done = []

    def work(*args):
        if len(done) == 10:
            raise KeyboardInterrupt
        done.append(1)
        return original(*args)

    monkeypatch.setattr(patch_features, "nearest_centroids", work)
    with pytest.raises(KeyboardInterrupt):
        model.transform(images)
    del done[:]
    monkeypatch.setattr(patch_features, "nearest_centroids", lambda *args: done.append(1) or original(*args))
    assert np.array_equal(model.transform(images).toarray(), expected)
    assert len(done) == 20 - 8  # two chunks of four were complete


@pytest.mark.skipif(os.name != "posix", reason="kills by SIGKILL")
def test_killed_process_resumes(tmp_path, monkeypatch):
    killed = textwrap.dedent(
        """
        import os, signal, sys
        from test_patch_features import make_features, make_images
        from reproduction.features import patch_features

        original, done = patch_features.nearest_centroids, []

        def work(*args):
            done.append(1)
            if len(done) == 11:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args)

        patch_features.nearest_centroids = work
        make_features(cache=sys.argv[1], chunk_size=4).fit_transform(make_images(20))
        """
    )
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    command = [sys.executable, "-c", killed, str(tmp_path)]
    result = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, check=False)
    assert result.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1 + 2  # the codebook and two chunks, no temporary files
    images = make_images(20)
    expected = make_features().fit_transform(images).toarray()
    original, done = patch_features.nearest_centroids, []
    monkeypatch.setattr(patch_features, "learn_codebook", refuse)
    monkeypatch.setattr(patch_features, "nearest_centroids", lambda *args: done.append(1) or original(*args))
    assert np.array_equal(make_features(cache=tmp_path, chunk_size=4).fit_transform(images).toarray(), expected)
    assert len(done) == 20 - 8


@together(
    ("changes", "message"),
    [
        ({"n_centroids": 0}, "n_centroids must be an integer of at least 1, got 0"),
        ({"patch_size": 2.5}, "patch_size must be an integer"),
        ({"patch_size": 11}, "patch_size must be at most 10 for images of 11 x 10 pixels, got 11"),
        ({"stride": 0}, "stride must be an integer"),
        ({"pooling": 9}, "pooling must be at most 8, since there are 9 x 8 patches"),
        ({"n_patches": 5}, r"n_patches must be at least n_centroids \(9\), got 5"),
        ({"n_iter": True}, "n_iter must be an integer"),
        ({"chunk_size": -1}, "chunk_size must be an integer"),
        ({"activation": "soft"}, r"activation must be one of \['hard', 'triangle'\], got 'soft'"),
        ({"contrast_epsilon": 0.0}, "contrast_epsilon must be a number in"),
        ({"whitening_epsilon": np.nan}, "whitening_epsilon must be a number in"),
        ({"n_jobs": 0}, "n_jobs must be"),
        ({"cache": 3}, "cache must be None or the path of a folder, got 3"),
        ({"cache": __file__}, "cache must be None or the path of a folder, but .* is a file"),
        ({"image_shape": 32}, "image_shape must be None"),
        ({"image_shape": (32, -1)}, "image_shape must be None"),
        ({"image_shape": (10, 11, 3)}, r"image_shape is \(10, 11, 3\).* but X has images of shape \(11, 10, 3\)"),
    ],
)
def test_wrong_parameters(changes, message):
    model = make_features(**changes)
    with pytest.raises(ValueError, match=message):
        model.fit(make_images())
    assert not [name for name in vars(model) if name.endswith("_")]


@together(
    ("X", "message"),
    [
        (np.zeros((4, 330)), r"X has rows of 330 pixels .* pass image_shape=\(height, width, n_channels\)"),
        (np.zeros(8), r"X must have the axes .* got an array of shape \(8,\)"),
        (np.zeros((0, 11, 10, 3)), "X must hold at least one image"),
        (np.full((2, 11, 10, 3), np.nan), "NaN or infinite"),
        (np.full((2, 11, 10, 3), -np.inf), "NaN or infinite"),
        (np.full((2, 11, 10, 3), [np.nan, 1.0, np.inf]), "NaN or infinite"),
        (np.full((2, 11, 10, 3), -1e30), "pixels of up to 1.0e[+]30, whose squares overflow"),
        (np.full((2, 11, 10, 3), "a"), "X must hold integers or floating-point numbers"),
        (np.ones((2, 11, 10, 3), dtype=complex), "X must hold integers or floating-point numbers"),
        ([np.ones((3, 3)), np.ones((4, 4))], "all have the same shape"),
    ],
)
def test_wrong_images(X, message):
    with pytest.raises(ValueError, match=message):
        make_features().fit(X)


def test_wrong_images_after_the_fit():
    model = make_features(image_shape=(11, 10, 3)).fit(make_images())
    with pytest.raises(ValueError, match="X has rows of 300 pixels, but image_shape"):
        model.transform(np.zeros((2, 300)))
    model = make_features().fit(make_images())
    with pytest.raises(ValueError, match=r"X has images of shape \(10, 11, 3\).* fitted on images of shape"):
        model.transform(np.zeros((2, 10, 11, 3)))
