"""Imports go one way, from data to the command line, and private attributes stay in their package."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
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
    "explanation",
    "io",
    "versions",
    "streaming",
    "dask",
    "report",
    "cli",
    "__main__",
]
_ROOT = Path(dropmargin.__file__).parent
#: Private attributes of other objects that a module may access, by module.
_EXCEPTIONS = {
    # Those of other libraries, which have no public names for them.
    "dask/fitting.py": {"_meta"},
    "io/data/text_encoder.py": {"_validate_params"},
    # Attributes of the module's own class, whose names other packages have as well.
    "dask/partitions.py": {"_parts"},
    "objective/moment.py": {"_evaluated"},
    "threads.py": {"_call", "_value"},
}
#: The documented interface of named tuples.
_NAMED_TUPLES = {"_replace", "_fields"}


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


def _is_own(node: ast.expr) -> bool:
    """Return whether an expression is ``self``, ``cls`` or ``super()``."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _defined_attributes(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.FunctionDef):
                    yield statement.name
                for target in getattr(statement, "targets", [getattr(statement, "target", None)]):
                    if isinstance(target, ast.Name):
                        yield target.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_own(node.value):
            yield node.attr


def test_private_attributes_stay_in_their_package():
    """``x._name`` is for the one package whose classes define it, if ``x`` is not ``self``, ``cls`` or ``super()``."""
    trees = {path.relative_to(_ROOT): ast.parse(path.read_text()) for path in _ROOT.rglob("*.py")}
    packages = defaultdict(set)
    for path, tree in trees.items():
        for name in _defined_attributes(tree):
            packages[name].add(path.parts[0])
    for path, tree in trees.items():
        allowed = _NAMED_TUPLES | _EXCEPTIONS.get(path.as_posix(), set())
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute) or _is_own(node.value) or node.attr in allowed:
                continue
            if node.attr.startswith("_") and not node.attr.endswith("__"):
                assert packages[node.attr] == {path.parts[0]}, f"{path}:{node.lineno} {ast.unparse(node)}"
