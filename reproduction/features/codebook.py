"""A codebook of patches, and the activations of its centroids in the parts of an image.

An image is divided into ``pooling x pooling`` parts. With a whitened patch ``p`` and the centroids ``c_k``, all
distances come from one matrix product:

    |p - c_k|^2 = |p|^2 - 2 s_k,      s_k = c_k.p - |c_k|^2 / 2

Each part of each image is a separate product, so that the features of an image do not depend on other images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from dropmargin.typing import Array
from reproduction.features.patches import learn_whitening, normalise_contrast, patch_grid


@dataclass(frozen=True)
class Codebook:
    """Centroids of whitened patches, and the parameters of the whitening.

    Parameters
    ----------
    patch_mean : float32 ndarray of shape (n_entries,)
    whitening : float32 ndarray of shape (n_entries, n_entries)
    centroids : float32 ndarray of shape (n_centroids, n_entries)
    contrast_epsilon : float
    """

    patch_mean: Array
    whitening: Array
    centroids: Array
    contrast_epsilon: float

    def whiten(self, patches: Array) -> Array:
        """Return float32 patches, normalised in contrast and whitened."""
        return (normalise_contrast(patches, self.contrast_epsilon) - self.patch_mean) @ self.whitening

    def scores(self, whitened: Array) -> Array:
        """Return ``s_k = c_k.p - |c_k|^2 / 2`` of whitened patches: the largest is that of the nearest centroid."""
        scores = whitened @ self.centroids.T
        scores -= 0.5 * np.einsum("kj,kj->k", self.centroids, self.centroids)
        return scores


def learn_codebook(
    patches: Array,
    first: Array,
    *,
    contrast_epsilon: float,
    whitening_epsilon: float,
    n_iter: int,
) -> Codebook:
    """Return the codebook of k-means (Lloyd's iterations) on whitened patches.

    Parameters
    ----------
    patches : float32 ndarray of shape (n_patches, n_entries)
        Raw patches.
    first : float32 ndarray of shape (n_centroids, n_entries)
        Initial centroids.
    contrast_epsilon, whitening_epsilon : float
    n_iter : int
    """
    patches = normalise_contrast(patches, contrast_epsilon)
    mean, whitening = learn_whitening(patches, whitening_epsilon)
    whitened = (patches - mean) @ whitening
    del patches
    # The order of the sums of several threads varies; with one thread the result is reproducible.
    with threadpool_limits(limits=1, user_api="openmp"):
        kmeans = KMeans(len(first), init=first, n_init=1, max_iter=n_iter, tol=0.0, copy_x=False)
        centroids = kmeans.fit(whitened).cluster_centers_
    return Codebook(mean, whitening, np.ascontiguousarray(centroids, dtype=np.float32), contrast_epsilon)


@dataclass(frozen=True)
class PatchLayout:
    """The positions of the patches of an image, and the parts of the image that they belong to.

    Parameters
    ----------
    image_shape : tuple of int
        Height, width, channels.
    patch_size, stride : int
    pooling : int
        Parts per side: 2 for quadrants.
    """

    image_shape: tuple[int, int, int]
    patch_size: int
    stride: int
    pooling: int

    @property
    def grid_shape(self) -> tuple[int, int]:
        """Number of patches from top to bottom and from left to right."""
        height, width, _ = self.image_shape
        return (height - self.patch_size) // self.stride + 1, (width - self.patch_size) // self.stride + 1

    @property
    def parts(self) -> list[tuple[slice, slice]]:
        """Rows and columns of the patches of each part; sizes differ by at most one patch per side."""
        rows, columns = (_shares(length, self.pooling) for length in self.grid_shape)
        return [(row, column) for row in rows for column in columns]

    @property
    def part_of_patch(self) -> Array:
        """Index of the part of each patch, in the order of `patches_by_part`."""
        sizes = [(rows.stop - rows.start) * (columns.stop - columns.start) for rows, columns in self.parts]
        return np.repeat(np.arange(len(sizes)), sizes)

    def patches_by_part(self, image: Array) -> Iterator[Array]:
        """Yield the patches of each part of an image, as float32 vectors."""
        (grid,) = patch_grid(image[None], self.patch_size, self.stride)
        for rows, columns in self.parts:
            patches = grid[rows, columns].astype(np.float32, order="C")
            yield patches.reshape(-1, self.patch_size * self.patch_size * self.image_shape[2])


def _shares(length: int, n_shares: int) -> list[slice]:
    bounds = [-(-length * share // n_shares) for share in range(n_shares + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def nearest_centroids(image: Array, codebook: Codebook, layout: PatchLayout) -> Array:
    """Return the index of the nearest centroid of each patch of an image, ordered by part, as int32."""
    parts = [codebook.scores(codebook.whiten(patches)).argmax(axis=1) for patches in layout.patches_by_part(image)]
    return np.concatenate(parts).astype(np.int32)


def triangle_activations(image: Array, codebook: Codebook, layout: PatchLayout) -> Array:
    """Return ``max(0, mean_j |p - c_j| - |p - c_k|)``, summed over the patches of each part."""
    sums = []
    for patches in layout.patches_by_part(image):
        whitened = codebook.whiten(patches)
        distances = codebook.scores(whitened)
        distances *= -2.0
        distances += np.einsum("ij,ij->i", whitened, whitened)[:, None]
        np.maximum(distances, 0.0, out=distances)  # negative by rounding
        np.sqrt(distances, out=distances)
        activations = np.subtract(distances.mean(axis=1, keepdims=True), distances, out=distances)
        sums.append(np.maximum(activations, 0.0, out=activations).sum(axis=0))
    return np.concatenate(sums)
