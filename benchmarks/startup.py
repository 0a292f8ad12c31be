"""How long a fresh process waits: the import of our classifiers against `sklearn.linear_model`, and the first fit.

python -m benchmarks.startup [ROUNDS]
"""

from __future__ import annotations

import subprocess
import sys

_IMPORT = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
_FITS = """
import time
import numpy as np
from scipy import sparse
from dropmargin import DropoutSVC
X = sparse.random_array((2000, 5000), density=0.01, random_state=np.random.default_rng(0), format="csr")
y = np.arange(2000) % 2
for _ in range(3):
    t = time.perf_counter()
    DropoutSVC().fit(X, y)
    print(time.perf_counter() - t)
"""


def run(code: str) -> list[float]:
    """Return the numbers that a fresh process prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


def main() -> None:
    """Print the best of several alternating runs."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    names = ("sklearn.linear_model", "dropmargin.estimators")
    imports: dict[str, list[float]] = {name: [] for name in names}
    waits = []
    for _ in range(rounds):
        for name in names:
            imports[name] += run(_IMPORT.format(name))
        first, *later = run(_FITS)
        waits.append(first - min(later))
    peer, ours = (min(imports[name]) for name in names)
    print(f"import: {ours:.3f} s against {peer:.3f} s, ratio {ours / peer:.2f} (best of {rounds})")
    print(f"first fit: {min(waits):.3f} s more than a later one (best of {rounds}; worst {max(waits):.3f} s)")


if __name__ == "__main__":
    main()
