"""``python -m reproduction EXPERIMENT`` runs the paper's experiments."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command and return its exit code; a missing package is an error of one line."""
    try:
        from reproduction.command import main as run
    except ModuleNotFoundError as error:
        if error.name == "reproduction":
            hint = "the package reproduction is not found: run python -m reproduction in the root of the repository"
        else:
            hint = (
                f"the package {error.name} is not installed: "
                "run pip install -e '.[reproduction]' in the root of the repository"
            )
        print(f"dropmargin: error: {hint}", file=sys.stderr)
        return 1
    return run()


if __name__ == "__main__":
    sys.exit(main())
