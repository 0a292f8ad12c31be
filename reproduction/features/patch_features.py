"""`PatchFeatures`: features of images from a codebook of patches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from dropmargin.estimators import validation
from dropmargin.progress import Progress
from dropmargin.threads import in_threads, one_blas_thread
from dropmargin.typing import Array
from reproduction.features.cache import ArrayCache, check_folder, fingerprint
from reproduction.features.codebook import (
    Codebook,
    PatchLayout,
    learn_codebook,
    nearest_centroids,
    triangle_activations,
)
from reproduction.features.images import as_images
from reproduction.features.patches import draw_patches

_ACTIVATIONS = ("hard", "triangle")
# k-means starts from small random vectors, as in the code of Coates et al. Random patches are a worse start, because
# many of them are far from all others (100,000 patches of CIFAR-10, 2,048 centroids: 29 % of the centroids had less
# than a twentieth of the average count of new patches, against 5 %).
_FIRST_SCALE = 0.1


class PatchFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Features of images: activations of a codebook of patches (Coates, Ng and Lee 2011).

    `fit` samples random patches, normalises their contrast, ``(x - mean(x)) / sqrt(var(x) + contrast_epsilon)``,
    whitens them (ZCA), and computes ``n_centroids`` centroids by k-means. It needs no labels. `transform` compares
    every patch of an image with the centroids ``c_k``, and sums over the parts of the image, by default its quadrants:

    - ``activation="hard"``: each patch is counted for its nearest centroid. The features are sparse, as in van der
      Maaten et al. (2013).
    - ``activation="triangle"``: ``max(0, mean_j |p - c_j| - |p - c_k|)``. The features are dense.

    The result is the same to the last bit for any ``n_jobs`` and ``chunk_size``, on the same machine and libraries.

    Parameters
    ----------
    n_centroids : int, default=2048
        There are ``pooling**2 * n_centroids`` features.
    activation : {"hard", "triangle"}, default="hard"
    patch_size : int, default=7
        Pixels per side of a patch.
    stride : int, default=1
        Pixels from one patch to the next.
    pooling : int, default=2
        Parts of an image per side: 2 for quadrants.
    image_shape : tuple of int, default=None
        ``(height, width)`` or ``(height, width, n_channels)``, if the images are rows of a matrix. ``None`` if ``X``
        has these axes.
    n_patches : int, default=400_000
        Number of random patches for `fit`.
    n_iter : int, default=10
        Iterations of k-means.
    contrast_epsilon : float, default=10.0
        Added to the variance of a patch. The default is for pixels from 0 to 255; from 0 to 1 it is 10 / 255**2.
    whitening_epsilon : float, default=0.1
        Added to the variances of the whitened directions.
    random_state : int, RandomState instance or None, default=None
        Seed of the random patches and initial centroids.
    n_jobs : int, default=None
        Number of threads of `transform`; ``None`` for 1, -1 for all cores.
    cache : str or path, default=None
        A folder that caches the codebook and the features, in chunks. The name of a file is the fingerprint of all data
        and parameters it depends on. A call that was interrupted or killed resumes; a repeated call only reads. Damaged
        files are computed again. Files are never deleted.
    chunk_size : int, default=500
        Images per file of the cache.
    verbose : int, default=1
        0 for no progress bar.

    Attributes
    ----------
    codebook_ : Codebook
        ``patch_mean`` and ``whitening``, which whiten patches of equal contrast, and ``centroids``, of shape
        (n_centroids, n_entries): an entry is a row, a column and a channel of a patch, in that order.
    layout_ : PatchLayout
        ``image_shape`` (height, width, channels), and the patches of each part of an image.

    Notes
    -----
    Both activations use the same codebook: ``set_params(activation="triangle")`` needs no new fit.

    Examples
    --------
    >>> import numpy as np
    >>> from reproduction.features import PatchFeatures
    >>> images = np.random.default_rng(0).integers(0, 256, size=(20, 12, 12, 3), dtype=np.uint8)
    >>> features = PatchFeatures(n_centroids=5, n_patches=500, random_state=0).fit_transform(images)
    >>> features.shape, features.dtype, int(features[0].sum())
    ((20, 20), dtype('float32'), 36)
    """

    def __init__(
        self,
        n_centroids: int = 2048,
        *,
        activation: str = "hard",
        patch_size: int = 7,
        stride: int = 1,
        pooling: int = 2,
        image_shape: tuple[int, ...] | None = None,
        n_patches: int = 400_000,
        n_iter: int = 10,
        contrast_epsilon: float = 10.0,
        whitening_epsilon: float = 0.1,
        random_state: Any = None,
        n_jobs: int | None = None,
        cache: Any = None,
        chunk_size: int = 500,
        verbose: int = 1,
    ) -> None:
        self.n_centroids = n_centroids
        self.activation = activation
        self.patch_size = patch_size
        self.stride = stride
        self.pooling = pooling
        self.image_shape = image_shape
        self.n_patches = n_patches
        self.n_iter = n_iter
        self.contrast_epsilon = contrast_epsilon
        self.whitening_epsilon = whitening_epsilon
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.cache = cache
        self.chunk_size = chunk_size
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> PatchFeatures:
        """Learn the whitening and the centroids from random patches.

        Parameters
        ----------
        X : array-like of shape (n_images, height, width, n_channels), (n_images, height, width) or (n_images, n_pixels)
            Numbers of any type. The last form needs ``image_shape``; the last axis of an image is its channels.
        y : ignored

        Returns
        -------
        self
        """
        self._check_parameters()
        images = as_images(X, self.image_shape)
        layout = self._make_layout(images.shape[1:])
        rng = check_random_state(self.random_state)
        patches = draw_patches(images, self.patch_size, self.n_patches, rng)
        first = (_FIRST_SCALE * rng.standard_normal((self.n_centroids, patches.shape[1]))).astype(np.float32)
        self.codebook_ = self._learn(patches, first)
        self.layout_ = layout
        return self

    def transform(self, X: Any) -> Any:
        """Return the features of images.

        Parameters
        ----------
        X : array-like
            Images of the same shape as in `fit`.

        Returns
        -------
        float32 csr_array (hard) or ndarray (triangle) of shape (n_images, pooling**2 * n_centroids)
            Ordered by part (from left to right, then from top to bottom), then by centroid.
        """
        check_is_fitted(self)
        self._check_parameters()
        images = as_images(X, self.image_shape)
        if images.shape[1:] != self.layout_.image_shape:
            raise ValueError(
                f"X has images of shape {images.shape[1:]} (height, width, channels), but PatchFeatures was fitted on "
                f"images of shape {self.layout_.image_shape}; resize them, or fit again."
            )
        if self.activation == "hard":
            return self._counts(images)
        features = np.empty((len(images), self._n_features_out), dtype=np.float32)
        for rows, sums in self._describe(images, triangle_activations, self._n_features_out, np.float32):
            features[rows] = sums
        return features

    @property
    def _n_features_out(self) -> int:
        return len(self.layout_.parts) * len(self.codebook_.centroids)

    def _counts(self, images: Array) -> sparse.csr_array:
        """Return how many patches of each part are nearest to each centroid."""
        part_starts = (len(self.codebook_.centroids) * self.layout_.part_of_patch).astype(np.int32)
        n_patches = len(part_starts)
        blocks = []
        for _, nearest in self._describe(images, nearest_centroids, n_patches, np.int32):
            ones = np.ones(nearest.size, dtype=np.float32)
            columns = (part_starts + nearest).ravel()
            row_starts = n_patches * np.arange(len(nearest) + 1, dtype=np.int32)
            block = sparse.csr_array((ones, columns, row_starts), shape=(len(nearest), self._n_features_out))
            block.sum_duplicates()
            blocks.append(block)
        return sparse.vstack(blocks, format="csr")

    def _describe(
        self, images: Array, describe: Callable[[Array, Codebook, PatchLayout], Array], length: int, dtype: Any
    ) -> Iterator[tuple[slice, Array]]:
        """Yield the slice of each chunk of images and a vector for each of its images, from the cache if possible."""
        codebook, layout = self.codebook_, self.layout_
        cache = ArrayCache(self.cache)
        parameters = fingerprint(
            self.activation,
            codebook.patch_mean,
            codebook.whitening,
            codebook.centroids,
            codebook.contrast_epsilon,
            layout.image_shape,
            (layout.patch_size, layout.stride, layout.pooling),
        )
        with Progress(len(images), "features", verbose=self.verbose) as progress:
            for start in range(0, len(images), self.chunk_size):
                chunk = images[start : start + self.chunk_size]
                key = fingerprint(parameters, chunk)
                vectors = cache.load(key, (len(chunk), length), dtype)
                if vectors is None:
                    vectors = self._in_threads(lambda image: describe(image, codebook, layout), chunk, progress)
                    cache.save(key, vectors)
                else:
                    progress.advance(len(chunk))
                yield slice(start, start + len(chunk)), vectors

    def _in_threads(self, describe: Callable[[Array], Array], images: Array, progress: Progress) -> Array:
        """Return the vectors of some images, computed in threads."""

        def work(image: Array) -> Array:
            vector = describe(image)
            progress.advance()
            return vector

        with one_blas_thread():
            jobs = [partial(work, image) for image in images]
            return np.stack(in_threads(jobs, effective_n_jobs(self.n_jobs), threading.Event()))

    def _learn(self, patches: Array, first: Array) -> Codebook:
        """Return the codebook of some patches, from the cache if possible."""
        contrast, whitening, n_iter = float(self.contrast_epsilon), float(self.whitening_epsilon), int(self.n_iter)
        cache = ArrayCache(self.cache)
        key = fingerprint("codebook", patches, first, contrast, whitening, n_iter)
        n_entries = patches.shape[1]
        rows = cache.load(key, (1 + n_entries + len(first), n_entries), np.float32)
        if rows is not None:
            return Codebook(rows[0], rows[1 : 1 + n_entries], rows[1 + n_entries :], contrast)
        with one_blas_thread():
            codebook = learn_codebook(
                patches, first, contrast_epsilon=contrast, whitening_epsilon=whitening, n_iter=n_iter
            )
        cache.save(key, np.vstack([codebook.patch_mean[None], codebook.whitening, codebook.centroids]))
        return codebook

    def _check_parameters(self) -> None:
        for name in ("n_centroids", "patch_size", "stride", "pooling", "n_patches", "n_iter", "chunk_size"):
            validation.check_integer(name, getattr(self, name), 1)
        validation.check_choice("activation", self.activation, _ACTIVATIONS)
        validation.check_number("contrast_epsilon", self.contrast_epsilon, 0.0, low_open=True)
        validation.check_number("whitening_epsilon", self.whitening_epsilon, 0.0, low_open=True)
        if self.n_jobs is not None:
            validation.check_n_jobs("n_jobs", self.n_jobs)
        if self.cache is not None:
            check_folder("cache", self.cache)
        if self.n_patches < self.n_centroids:
            raise ValueError(
                f"n_patches must be at least n_centroids ({self.n_centroids}), got {self.n_patches}; "
                "about a hundred patches per centroid are recommended."
            )

    def _make_layout(self, image_shape: tuple[int, int, int]) -> PatchLayout:
        """Return the positions of the patches of an image, after checking that there are enough patches."""
        height, width, _ = image_shape
        if self.patch_size > min(height, width):
            raise ValueError(
                f"patch_size must be at most {min(height, width)} for images of {height} x {width} pixels, "
                f"got {self.patch_size}."
            )
        layout = PatchLayout(image_shape, int(self.patch_size), int(self.stride), int(self.pooling))
        if self.pooling > min(layout.grid_shape):
            raise ValueError(
                f"pooling must be at most {min(layout.grid_shape)}, since there are {layout.grid_shape[0]} x "
                f"{layout.grid_shape[1]} patches in an image, got {self.pooling}; a smaller stride gives more patches."
            )
        return layout

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.image_shape is not None
        tags.input_tags.three_d_array = True
        return tags
