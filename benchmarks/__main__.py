"""The suite of benchmarks: python -m benchmarks --short takes at most ten minutes, python -m benchmarks a night.

Each benchmark is a process of its own, on one thread, and stores its results in a folder as JSON lines with machine and
versions; the tables that are printed at the end are made from these files (`benchmarks.tables`). The short suite needs
no data but what comes with pip (``pip install 'dropmargin[bench]'``). What needs data or packages that are not there is
left out, and says so: benchmarks/README.md has where they are from.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

#: The arguments of each benchmark in the short suite, or None; all of them run in the long one, with their defaults.
SUITE: dict[str, list[str] | None] = {
    "fits": ["--short", "small", "wide", "--repeats", "5"],
    "gaps": ["small", "--repeats", "2", "--budget", "10"],
    "search": ["iris", "wine", "cancer", "digits", "--rounds", "2"],
    "missing_cells": ["wine", "cancer"],
    "lost_columns": ["--short"],
    "embeddings": ["--short"],
    "coverage": ["cancer", "wine"],
    "calibration": ["cancer"],
    "text": None,
    "missing": None,
    "torch_head": None,
    "online": None,
    "stability": None,
    "streaming": None,
    "dask_scaling": None,
}


def main() -> int:
    """Run the benchmarks of the command line; return 1 if one of them failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"of {[*SUITE]}; all if none is named")
    parser.add_argument("--short", action="store_true", help="the part that takes at most ten minutes")
    parser.add_argument("--out", type=Path, default=Path("benchmark-results"), help="folder of the results")
    options = parser.parse_args()
    if wrong := [name for name in options.names if name not in SUITE]:
        parser.error(f"unknown benchmark {wrong[0]!r}: choose from {[*SUITE]}")
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "DROPMARGIN_RESULTS": str(options.out.resolve())}
    failed = []
    for name in options.names or SUITE:
        arguments = SUITE[name] if options.short else []
        if arguments is None:
            continue
        print(f"== python -m benchmarks.{name} {' '.join(arguments)}".rstrip(), flush=True)
        began, before = time.perf_counter(), os.times()
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *arguments], env=environment, check=False)
        used = os.times().children_user - before.children_user
        print(f"== {name}: {time.perf_counter() - began:.0f} s, {used:.0f} s of the processor", flush=True)
        failed += [name] if done.returncode else []
    subprocess.run([sys.executable, "-m", "benchmarks.tables"], env=environment, check=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
