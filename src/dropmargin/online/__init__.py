"""Online learning: each row is seen once, and what is kept of rows that are gone does not grow with their number.

``past`` is what is kept, ``rows`` the derivatives of the rows at hand, ``descent`` the steps, ``stream`` the blocks.
"""

from dropmargin.online.stream import Batch, Stream

__all__ = ["Batch", "Stream"]
