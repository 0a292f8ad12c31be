"""``python -m dropmargin`` is the command ``dropmargin``."""

import sys

from dropmargin.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
