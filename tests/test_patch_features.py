"""PatchFeatures against plain loops; its cache against interruption and damage.

The checks of scikit-learn's ``check_estimator`` do not fit: they pass tables of a few columns, which are no images.
What they stand for (parameters, clones, pickles, errors, repeatable results) is tested here on images.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from reproduction.features import PatchFeatures, patch_features


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
