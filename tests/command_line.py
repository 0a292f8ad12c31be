"""Functions that run commands in this process or in a new one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Outcome:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON object on standard output."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The line of the error, of which there is one."""
        lines = [line for line in self.err.splitlines() if line.startswith("dropmargin: error: ")]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        return lines[0].removeprefix("dropmargin: error: ")


def environment() -> dict[str, str]:
    """Return the environment of a process that can import the library, the reproduction and the tests."""
    paths = [str(_ROOT), str(_ROOT / "src"), str(_ROOT / "tests")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "ignore"}


def spawn(*arguments: Any, env: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess:
    """Run a command in a new process, with these variables added to its environment."""
    command = [sys.executable, "-m", "dropmargin", *map(str, arguments)]
    env = environment() | (env or {})
    return subprocess.run(command, env=env, capture_output="stdout" not in options, text=True, **options)


def run_script(script: str, *arguments: Any) -> str:
    """Run Python code in a new process, which must succeed, and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
