"""Features of images, learnt without labels."""

from reproduction.features.patch_features import PatchFeatures

__all__ = ["PatchFeatures"]
