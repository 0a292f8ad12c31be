"""Marks and patterns that the tests of bad input share."""

from __future__ import annotations

import re

from datasets import estimators

ESTIMATORS = estimators()


def says(*parts):
    """Return a pattern that finds all of these texts, in any order."""
    return "(?s)" + "".join(f"(?=.*{re.escape(part)})" for part in parts)
