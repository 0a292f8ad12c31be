"""Features of images, learnt without labels."""

from dropmargin.features.patch_features import PatchFeatures

__all__ = ["PatchFeatures"]
