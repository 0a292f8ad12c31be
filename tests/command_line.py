"""How the tests run commands: in this process, or in one of their own."""

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
    """What a command returned and wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on standard output."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line of an error."""
        lines = [line for line in self.err.splitlines() if line.startswith("dropmargin: error: ")]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        return lines[0].removeprefix("dropmargin: error: ")


def environment() -> dict[str, str]:
    """Return the environment of a process that finds the library, the reproduction and the tests' modules."""
    paths = [str(_ROOT), str(_ROOT / "src"), str(_ROOT / "tests")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "ignore"}


def spawn(*arguments: Any, **options: Any) -> subprocess.CompletedProcess:
    """Run a command in a process of its own."""
    command = [sys.executable, "-m", "dropmargin.cli", *map(str, arguments)]
    return subprocess.run(command, env=environment(), capture_output="stdout" not in options, text=True, **options)


def run_script(script: str, *arguments: Any) -> str:
    """Run Python code in a process of its own, which must end well, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
