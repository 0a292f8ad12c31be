"""Imports go one way, from data to the command line, and private attributes stay in their package."""

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
    "plotting",
    "evaluation",
    "tables",
    "io",
    "versions",
    "streaming",
    "dask",
    "torch",
    "report",
    "cli",
    "__main__",
]
_ROOT = Path(dropmargin.__file__).parent


def _imported_names(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def _imported_packages(path: Path) -> set[str]:
    parts = [name.split(".") for name in _imported_names(path)]
    return {names[1] for names in parts if names[0] == "dropmargin" and len(names) > 1}


def test_imports_go_one_way():
    for path in _ROOT.rglob("*.py"):
        package = path.relative_to(_ROOT).parts[0].removesuffix(".py")
        if package == "__init__":
            continue
        allowed = set(_ORDER[: _ORDER.index(package) + 1])
        # noise and losses stand side by side
        allowed -= {"noise"} if package == "losses" else set()
        assert _imported_packages(path) <= allowed, path


def test_the_library_does_not_import_the_reproduction():
    for path in _ROOT.rglob("*.py"):
        names = {name.split(".")[0] for name in _imported_names(path)}
        assert "reproduction" not in names, path


def test_only_data_asks_whether_x_is_sparse():
    asking = {p.relative_to(_ROOT).parts[0] for p in _ROOT.rglob("*.py") if "issparse" in p.read_text()}
    assert asking == {"data"}
