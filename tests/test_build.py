"""Builds: C files are compiled if CC names a compiler, else left out; the wheel works in an empty environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from dropmargin import compiled

pytest.importorskip("hatchling")

ROOT = Path(__file__).parent.parent
LIBRARIES = {"dropmargin/data/_kernels.so"}
SMOKE_TEST = """
import dropmargin, numpy as np
from scipy import sparse
from dropmargin.data import kernels
X = np.array([[0.0, 1.0], [1.0, np.nan], [0.2, 0.8], [0.9, 0.1]])
model = dropmargin.DropoutSVC(missing="rescale").fit(X, ["a", "b", "a", "b"])
assert model.converged_ and model.predict(X).tolist() == ["a", "b", "a", "b"]
dropmargin.save(model, "model.safetensors")
assert (dropmargin.load("model.safetensors").coef_ == model.coef_).all()
for _ in range(2):
    dropmargin.DropoutSVC().fit(sparse.csr_array(np.eye(4)), ["a", "b", "a", "b"])
print(dropmargin.__file__)
print(kernels.available())
"""
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return a copy of what a wheel is built from, without compiled libraries."""
    folder = tmp_path_factory.mktemp("build") / "project"
    for name in ("src", "reproduction"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


def build(project, target, folder, **environment):
    """Build a wheel or an sdist; return its path and what was printed."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    done = subprocess.run(command, cwd=project, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.*")
    return path, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("compiler", "libraries"),
    [
        pytest.param("cc -pipe -DNOTE='a b'", LIBRARIES, marks=[needs_cc, pytest.mark.slow]),
        ("no-such-compiler -pipe", set()),
    ],
)
def test_libraries_in_the_wheel(project, tmp_path, compiler, libraries):
    wheel, output = build(project, "wheel", tmp_path, CC=compiler)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name for name in names if name.endswith(".so")} == libraries
    assert {name.split("/")[0].split("-")[0] for name in names} == {"dropmargin"}
    assert {"dropmargin/report/page.html", "dropmargin/report/colours.css"} <= set(names)
    assert wheel.name.endswith("-any.whl") == (not libraries)
    assert ("no C compiler" in output) == (not libraries)
    assert_works_in_an_empty_environment(wheel, tmp_path / "environment", has_libraries=bool(libraries))


@needs_cc
def test_flags_of_the_environment_come_last(project, tmp_path):
    script = tmp_path / "compiler"
    script.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\nexec cc "$@"\n')
    script.chmod(0o755)
    build(project, "wheel", tmp_path / "out", CC=str(script), CFLAGS="-O1 -g", ARCHFLAGS="-DARCH=1")
    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments.index("-O3") < arguments.index("-O1") < arguments.index("-g") < arguments.index("-DARCH=1")


@needs_cc
@pytest.mark.parametrize(("number", "is_used"), [(compiled.ABI, True), (compiled.ABI - 1, False), (None, False)])
def test_a_library_of_another_version_is_not_used(tmp_path, monkeypatch, number, is_used):
    monkeypatch.delenv("DROPMARGIN_KERNELS", raising=False)
    source, library = tmp_path / "code.c", tmp_path / "code.so"
    source.write_text("int other;\n" if number is None else f"int dropmargin_abi(void) {{ return {number}; }}\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    assert (compiled.load_library(library) is not None) == is_used
    assert (library in compiled.problems) != is_used


def assert_works_in_an_empty_environment(wheel, folder, has_libraries):
    """Install the wheel as users do, beside the dependencies of this environment (no download), and use it."""
    venv.create(folder, with_pip=False)
    scripts, executable = ("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")
    python = folder / scripts / executable
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True)
    # A folder in a .pth file is searched, but the .pth files in it are not read: an editable install is not found.
    target = Path(sysconfig.get_path("purelib", scheme="venv", vars={"base": str(folder)}))
    (target / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    isolated = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONWARNINGS", "DROPMARGIN_KERNELS")}
    done = subprocess.run(
        [str(python), "-I", "-c", SMOKE_TEST], env=isolated, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    package, libraries = done.stdout.splitlines()
    assert Path(package).is_relative_to(folder)
    assert libraries == str(has_libraries)
    assert done.stderr.count("compiled kernels of dropmargin are not in use") == (not has_libraries)  # at most once
    command = [str(folder / scripts / "dropmargin"), "--version"]
    done = subprocess.run(command, env=isolated, cwd=folder, capture_output=True, text=True)
    assert done.stdout.startswith("dropmargin"), done.stderr


def test_a_release_is_published_after_its_tests_and_without_other_files():
    yaml = pytest.importorskip("yaml")
    folder = ROOT / ".github" / "workflows"
    if not folder.is_dir():
        pytest.skip("the workflows are in the repository")
    jobs, tests = (yaml.safe_load((folder / f"{name}.yml").read_text())["jobs"] for name in ("release", "ci"))
    publish = jobs["publish"]
    assert {"tests", "wheels", "sdist"} <= set(publish["needs"])
    assert jobs["tests"]["uses"] == "./.github/workflows/ci.yml"
    (pattern,) = [step["with"]["pattern"] for step in publish["steps"] if "download" in step.get("uses", "")]
    for name, job in (jobs | tests).items():
        for step in job.get("steps", []):
            if "upload-artifact" in step.get("uses", ""):
                assert fnmatch(step["with"]["name"], pattern) == (name in ("wheels", "sdist")), name


def test_the_sdist_has_the_experiments(project, tmp_path):
    path, _ = build(project, "sdist", tmp_path)
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"reproduction/__main__.py", "reproduction/datasets/amazon.py", "src/dropmargin/py.typed"} <= names
