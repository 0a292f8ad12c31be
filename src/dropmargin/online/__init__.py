"""Online learning: each row is read once, and the size of the state does not depend on the number of rows.

``summary`` is the quadratic summary of earlier rows, ``block`` the objective of a block of rows with the summary as its
penalty, ``steps`` the steps on a block, ``stream`` the state and the blocks.
"""

from dropmargin.online.stream import Stream

__all__ = ["Stream"]
