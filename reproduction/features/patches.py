"""Patches of images: extraction, normalisation of contrast, whitening.

A patch is a square of ``patch_size`` by ``patch_size`` pixels with all its channels. As a vector it has
``patch_size * patch_size * n_channels`` entries, in the order row, column, channel.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dropmargin.typing import Array

# Rows that are converted to double precision at a time, which saves memory.
_BLOCK = 16_384


def patch_grid(images: Array, patch_size: int, stride: int) -> Array:
    """Return every patch of every image, as a view.

    Parameters
    ----------
    images : ndarray of shape (n_images, height, width, n_channels)
    patch_size, stride : int

    Returns
    -------
    ndarray of shape (n_images, n_rows, n_columns, patch_size, patch_size, n_channels)
        ``n_rows = (height - patch_size) // stride + 1``, and the columns likewise.
    """
    grid = sliding_window_view(images, (patch_size, patch_size), axis=(1, 2))
    return grid[:, ::stride, ::stride].transpose(0, 1, 2, 4, 5, 3)


def draw_patches(images: Array, patch_size: int, n_patches: int, rng: np.random.RandomState) -> Array:
    """Return patches at random positions of random images, with replacement, as float32 vectors."""
    grid = patch_grid(images, patch_size, stride=1)
    places = np.sort(rng.randint(np.prod(grid.shape[:3]), size=n_patches))  # sorted, so that each image is read once
    chosen = grid[np.unravel_index(places, grid.shape[:3])]
    return chosen.reshape(n_patches, -1).astype(np.float32)


def normalise_contrast(patches: Array, epsilon: float) -> Array:
    """Return patches with the same brightness and contrast, ``(x - mean(x)) / sqrt(var(x) + epsilon)``.

    Parameters
    ----------
    patches : float32 ndarray of shape (n_patches, n_entries)
    epsilon : float
        Added to the variance, so that patches of little contrast are not amplified.
    """
    centred = patches - patches.mean(axis=1, keepdims=True)
    variance = np.einsum("ij,ij->i", centred, centred) / np.float32(patches.shape[1])
    centred /= np.sqrt(variance + np.float32(epsilon))[:, None]
    return centred


def learn_whitening(patches: Array, epsilon: float) -> tuple[Array, Array]:
    """Return the mean of the patches, and the whitening matrix (ZCA).

    With the covariance ``U diag(s) U'`` the matrix is ``U diag(1 / sqrt(s + epsilon)) U'``. It is symmetric, and of
    all whitening matrices it changes the patches least.

    Returns
    -------
    mean : float32 ndarray of shape (n_entries,)
    whitening : float32 ndarray of shape (n_entries, n_entries)
    """
    n_patches, n_entries = patches.shape
    mean = patches.mean(axis=0, dtype=np.float64)
    covariance = np.zeros((n_entries, n_entries))
    for start in range(0, n_patches, _BLOCK):
        block = patches[start : start + _BLOCK] - mean
        covariance += block.T @ block
    variances, directions = np.linalg.eigh(covariance / n_patches)
    scales = 1.0 / np.sqrt(np.maximum(variances, 0.0) + epsilon)
    return mean.astype(np.float32), ((directions * scales) @ directions.T).astype(np.float32)
