"""Fitted models in files, without code."""

from dropmargin.io.model.files import describe, load, load_described, save
from dropmargin.io.model.values import ModelFormatError

__all__ = ["ModelFormatError", "describe", "load", "load_described", "save"]
