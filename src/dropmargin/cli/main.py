"""The entry point of ``dropmargin``; it does not need click, so that it can say that click is missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Parameters
    ----------
    argv : sequence of str, default=None
        The arguments. ``None`` means those of the process.

    Returns
    -------
    int
        0 on success, 1 after a failure, 2 after wrong usage, 130 after an interrupt, 141 if the reader of the output
        has closed it.
    """
    try:
        import click  # noqa: F401
    except ImportError:
        print("dropmargin: error: the command line needs click: pip install 'dropmargin[cli]'", file=sys.stderr)
        return 1
    from dropmargin.cli.commands import dropmargin
    from dropmargin.cli.program import run_program

    return run_program(dropmargin, argv, "dropmargin")
