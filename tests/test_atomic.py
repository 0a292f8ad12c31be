"""A failed or killed write leaves the whole old file or the whole new one; a failed one leaves no temporary file."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dropmargin.io import atomic
from dropmargin.io.atomic import write_atomically

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals, links and permissions of POSIX")

OLD, NEW = b"old" * 500, b"new" * 700


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    return path


def _run(script, *arguments):
    folders = [Path(__file__).parent.parent / "src", Path(__file__).parent]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Each child process kills itself before or after one of the system calls of a write.
_KILLED = """
import os, sys
from pathlib import Path
from dropmargin.io import atomic
from killing import Killing

path = Path(sys.argv[1])
old, new = path.read_bytes(), b"new" * 700
for point in range(1, 100):
    path.write_bytes(old)
    child = os.fork()
    if child == 0:
        atomic.os = Killing(point)
        try:
            atomic.write_atomically(path, [new[:1000], memoryview(new)[1000:]])
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    print([old, new].index(path.read_bytes()), os.WIFSIGNALED(status))
    if not os.WIFSIGNALED(status):
        break
"""


def test_kill_9_leaves_the_old_file_or_the_new_one(path):
    lines = [line.split() for line in _run(_KILLED, path).splitlines()]
    found = [int(line[0]) for line in lines]
    assert len(found) > 20
    assert found == sorted(found)  # old until the file is renamed, new afterwards
    assert (found[0], found[-1], lines[-1][1]) == (0, 1, "False")


@pytest.mark.parametrize("call", ["write", "fsync", "replace", "open", "fchmod"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_system_call_leaves_the_old_file_alone(call, error, path, monkeypatch):
    def fail(*args, **kwargs):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, call, fail)
        with pytest.raises(type(error)) as caught:
            write_atomically(path, [NEW])
    if isinstance(error, OSError):
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
        assert "No space left on device; the existing file is unchanged" in str(caught.value)
    assert path.read_bytes() == OLD
    assert list(path.parent.iterdir()) == [path]


def test_the_file_is_synchronised_before_it_is_renamed_and_the_folder_after(path, monkeypatch):
    calls = []
    originals = {name: getattr(os, name) for name in ("fsync", "replace")}
    for name in originals:

        def note(*args, name=name):
            is_folder = name == "fsync" and stat.S_ISDIR(os.fstat(args[0]).st_mode)
            calls.append((name, "folder" if is_folder else "file"))
            return originals[name](*args)

        monkeypatch.setattr(atomic.os, name, note)
    write_atomically(path, [NEW])
    assert calls == [("fsync", "file"), ("replace", "file"), ("fsync", "folder")]
