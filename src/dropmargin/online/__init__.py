"""Online learning: each row is read once, and the size of the state does not depend on the number of rows.

``summary`` is the quadratic summary of earlier rows, ``sample`` a bounded sample of them, ``steps`` has the steps on a
block of rows with the summary as its penalty, ``stream`` the state and the blocks.
"""

from dropmargin.online.stream import Stream

__all__ = ["Stream"]
