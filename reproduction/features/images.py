"""Conversion of images to arrays with the axes (image, row, column, channel)."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from dropmargin.typing import Array

# The squares of larger pixels, summed over a patch, may overflow in single precision.
_LARGEST = 1e15


def as_images(X: Any, image_shape: Any) -> Array:
    """Return images of shape (n_images, height, width, n_channels), of finite numbers, without a copy if possible.

    Parameters
    ----------
    X : array-like with 4 axes, with 3 (one channel), or with 2 (rows of pixels)
    image_shape : tuple of int or None
        ``(height, width)`` or ``(height, width, n_channels)`` of rows of pixels.
    """
    shape = None if image_shape is None else _checked_shape(image_shape)
    images = _numbers(X)
    if images.ndim == 2:
        images = _from_rows(images, shape)
    elif images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4:
        raise ValueError(
            "X must have the axes (n_images, height, width, n_channels), (n_images, height, width) or, with "
            f"image_shape, (n_images, n_pixels); got an array of shape {images.shape}."
        )
    if shape is not None and images.shape[1:] != shape:
        raise ValueError(
            f"image_shape is {shape} (height, width, channels), but X has images of shape {images.shape[1:]}; "
            "image_shape is needed for rows of pixels only."
        )
    if 0 in images.shape:
        raise ValueError(f"X must hold at least one image with at least one pixel, got shape {images.shape}.")
    return images


def _checked_shape(image_shape: Any) -> tuple[int, int, int]:
    is_tuple = isinstance(image_shape, tuple | list) and len(image_shape) in (2, 3)
    if not is_tuple or not all(isinstance(n, Integral) and not isinstance(n, bool) and int(n) > 0 for n in image_shape):
        raise ValueError(
            "image_shape must be None, (height, width) or (height, width, n_channels), positive integers, "
            f"got {image_shape!r}."
        )
    height, width, n_channels = (*image_shape, 1)[:3]
    return int(height), int(width), int(n_channels)


def _numbers(X: Any) -> Array:
    try:
        images = np.asarray(X)
    except ValueError as error:
        raise ValueError("X must be an array of images that all have the same shape.") from error
    if images.dtype.kind not in "uif":
        raise ValueError(f"X must hold integers or floating-point numbers, got an array of type {images.dtype}.")
    largest = max(-float(images.min()), float(images.max())) if images.size else 0.0  # NaN if there is any
    if not np.isfinite(largest):
        raise ValueError("X has pixels that are NaN or infinite; replace them, for example by 0.")
    if largest > _LARGEST:
        raise ValueError(f"X has pixels of up to {largest:.1e}, whose squares overflow; scale them to 0 to 255.")
    return images


def _from_rows(rows: Array, shape: tuple[int, int, int] | None) -> Array:
    if shape is None:
        raise ValueError(
            f"X has rows of {rows.shape[1]} pixels (shape {rows.shape}), but image_shape is None; pass "
            "image_shape=(height, width, n_channels), or reshape X to (n_images, height, width, n_channels)."
        )
    if rows.shape[1] != np.prod(shape):
        raise ValueError(
            f"X has rows of {rows.shape[1]} pixels, but image_shape {shape} (height, width, channels) has "
            f"{np.prod(shape)}; pass the shape of the images."
        )
    return rows.reshape(-1, *shape)
