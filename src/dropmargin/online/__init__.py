"""Online learning: each row is seen once, and what is kept of rows that are gone does not grow with their number.

``summary`` is what is kept, a penalty; ``stream`` minimises the objective of each block of rows with that penalty.
"""

from dropmargin.online.stream import Batch, Stream

__all__ = ["Batch", "Stream"]
