"""The wheel: C files are compiled by the compiler that CC names, and left out if there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")

ROOT = Path(__file__).parent.parent
LIBRARIES = {"dropmargin/data/_kernels.so", "dropmargin/io/data/_svmlight.so"}
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return a copy of what a wheel is built from, without compiled libraries."""
    folder = tmp_path_factory.mktemp("build") / "project"
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.mark.parametrize(
    ("compiler", "libraries"),
    [
        pytest.param("cc -pipe -DNOTE='a b'", LIBRARIES, marks=[needs_cc, pytest.mark.slow]),
        ("no-such-compiler -pipe", set()),
    ],
)
def test_libraries_in_the_wheel(project, tmp_path, compiler, libraries):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=project, env=os.environ | {"CC": compiler}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if name.endswith(".so")} == libraries
    assert wheel.name.endswith("-any.whl") == (not libraries)
    assert ("no C compiler" in done.stdout + done.stderr) == (not libraries)
