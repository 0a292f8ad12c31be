"""Build hook: compiles the C files if there is a C compiler, and leaves them out if there is none."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Each becomes a library beside it; without it, what is named takes over.
_SOURCES = {Path("src/dropmargin/data/_kernels.c"): "SciPy's products"}
# gnu11 for target_clones, which the C code uses with GNU's compiler and C library only; no fused multiply-add, so that
# every machine gets the same digits.
_FLAGS = ["-O3", "-std=gnu11", "-shared", "-ffp-contract=off"]
# On Windows MinGW's gcc is tried, or MSVC with CC=cl: the C code needs no extensions.
_FLAGS.append("-static-libgcc" if os.name == "nt" else "-fPIC")
_MSVC_FLAGS = ["/nologo", "/O2", "/LD", "/fp:precise"]
_DEFAULT_COMPILER = "gcc" if os.name == "nt" else "cc"


class KernelBuildHook(BuildHookInterface):
    """Compile every C file to an ``.so`` beside it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and tell hatchling that the wheel is for this platform."""
        # CC may have arguments, as in CC="ccache gcc -pipe".
        compiler = (
            shlex.split(os.environ.get("CC", "")) or (sysconfig.get_config_var("CC") or _DEFAULT_COMPILER).split()[:1]
        )
        built = [path for path, instead in _SOURCES.items() if self._build(Path(self.root) / path, compiler, instead)]
        if not built:
            return
        build_data["artifacts"] += [str(path.with_suffix(".so")) for path in built]
        build_data["pure_python"] = False
        # The kernels are plain C, called through ctypes: one wheel serves every Python 3.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def _build(self, source: Path, compiler: list[str], instead: str) -> bool:
        """Return whether a file could be compiled; if not, say what takes over."""
        target = source.with_suffix(".so")
        target.unlink(missing_ok=True)
        if shutil.which(compiler[0]) is None:
            self.app.display_warning(f"no C compiler ({compiler[0]}): dropmargin will use {instead}")
            return False
        # What the environment demands comes last, and so overrides ours; macOS names its architectures so.
        wanted = [flag for name in ("CFLAGS", "ARCHFLAGS") for flag in shlex.split(os.environ.get(name, ""))]
        is_msvc = Path(compiler[0]).stem.lower() in ("cl", "clang-cl")
        output = [f"/Fe{target}"] if is_msvc else ["-o", str(target)]
        command = [*compiler, *(_MSVC_FLAGS if is_msvc else _FLAGS), *wanted, str(source), *output]
        # MSVC leaves object files in the current folder.
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            self.app.display_warning(f"{shlex.join(compiler)} failed, dropmargin will use {instead}:\n{done.stderr}")
        return done.returncode == 0
