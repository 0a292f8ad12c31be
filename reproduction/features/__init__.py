"""Features of images, computed without labels."""

from reproduction.features.patch_features import PatchFeatures

__all__ = ["PatchFeatures"]
