"""Imports go one way, from linalg to the command line; see ARCHITECTURE.md."""

from __future__ import annotations

import ast
from pathlib import Path

import dropmargin

_ORDER = [
    "typing",
    "errors",
    "progress",
    "compiled",
    "threads",
    "data",
    "noise",
    "losses",
    "penalties",
    "objective",
    "solvers",
    "online",
    "estimators",
    "model_selection",
    "baselines",
    "evaluation",
    "plotting",
    "io",
    "streaming",
    "dask",
    "datasets",
    "features",
    "reproduction",
    "report",
    "cli",
]
_ROOT = Path(dropmargin.__file__).parent


def _imported_packages(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "dropmargin" and len(parts) > 1:
                found.add(parts[1])
    return found


def test_imports_go_one_way():
    for path in _ROOT.rglob("*.py"):
        package = path.relative_to(_ROOT).parts[0].removesuffix(".py")
        if package == "__init__":
            continue
        allowed = set(_ORDER[: _ORDER.index(package) + 1])
        # noise and losses stand side by side
        allowed -= {"noise"} if package == "losses" else set()
        assert _imported_packages(path) <= allowed, path


def test_only_linalg_asks_whether_x_is_sparse():
    asking = {p.relative_to(_ROOT).parts[0] for p in _ROOT.rglob("*.py") if "issparse" in p.read_text()}
    assert asking == {"data"}
