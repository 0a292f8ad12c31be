"""Build hook: compiles the kernels if there is a C compiler, and leaves them out if there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SOURCE = Path("src/dropmargin/linalg/_kernels.c")
# gnu11 for always_inline and target_clones; no fused multiply-add, so that every machine gets the same digits
_FLAGS = ["-O3", "-std=gnu11", "-shared", "-fPIC", "-ffp-contract=off"]


class KernelBuildHook(BuildHookInterface):
    """Compile ``_kernels.c`` to ``_kernels.so`` beside it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and tell hatchling that the wheel is for this platform."""
        source = Path(self.root) / _SOURCE
        target = source.with_suffix(".so")
        compiler = os.environ.get("CC") or (sysconfig.get_config_var("CC") or "cc").split()[0]
        target.unlink(missing_ok=True)
        if shutil.which(compiler) is None:
            self.app.display_warning(f"no C compiler ({compiler}): dropmargin will use SciPy's products")
            return
        done = subprocess.run([compiler, *_FLAGS, str(source), "-o", str(target)], capture_output=True, text=True)
        if done.returncode != 0:
            self.app.display_warning(f"{compiler} failed, dropmargin will use SciPy's products:\n{done.stderr}")
            return
        build_data["artifacts"].append(str(target.relative_to(self.root)))
        build_data["pure_python"] = False
        # The kernels are plain C, called through ctypes: one wheel serves every Python 3.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
