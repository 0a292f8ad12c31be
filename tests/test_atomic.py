"""A failed or killed write leaves the whole old file or the whole new one; a failed one leaves no temporary file."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile
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


_LIMITED = """
import resource, sys
from dropmargin.io.atomic import write_atomically

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_atomically(sys.argv[1], [b"new" * 700])
except OSError as error:
    print(error)
"""


def test_a_file_that_exceeds_the_size_limit_is_not_written(path):
    message = _run(_LIMITED, path)
    assert str(path) in message
    assert "unchanged" in message
    assert path.read_bytes() == OLD
    assert list(path.parent.iterdir()) == [path]


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


def test_errors_of_the_content_are_passed_on(path):
    def chunks():
        yield NEW
        raise FileNotFoundError("input.csv")

    with pytest.raises(FileNotFoundError, match=r"^input.csv$"):
        write_atomically(path, chunks())
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


def test_short_writes_are_continued(path, monkeypatch):
    original = os.write
    monkeypatch.setattr(atomic.os, "write", lambda descriptor, data: original(descriptor, data[:7]))
    write_atomically(path, [NEW])
    assert path.read_bytes() == NEW


def test_a_symbolic_link_is_followed(tmp_path):
    target = tmp_path / "real" / "file"
    target.parent.mkdir()
    link = tmp_path / "link"
    link.symlink_to(Path("real") / "file")
    for content in (OLD, NEW):  # the link is dangling at first
        write_atomically(link, [content])
        assert link.is_symlink()
        assert target.read_bytes() == content
    assert list(target.parent.iterdir()) == [target]


def test_permissions(path):
    for mode in (0o600, 0o640, 0o444):
        path.chmod(mode)
        write_atomically(path, [NEW])
        assert stat.S_IMODE(path.stat().st_mode) == mode
    usual, written = path.parent / "usual", path.parent / "written"
    usual.touch()
    write_atomically(written, [NEW])
    assert written.stat().st_mode == usual.stat().st_mode


def test_folders_and_devices_are_not_replaced(tmp_path):
    with pytest.raises(IsADirectoryError, match="cannot write: it is a folder"):
        write_atomically(tmp_path, [NEW])
    with pytest.raises(OSError, match="cannot write: it is not a regular file"):
        write_atomically("/dev/null", [NEW])
    assert not Path("/dev/null").is_file()
    with pytest.raises(FileNotFoundError, match="cannot write"):
        write_atomically(tmp_path / "absent" / "file", [NEW])


def test_a_read_only_folder():
    with tempfile.TemporaryDirectory() as folder:  # other users have no access to the folders above tmp_path
        path = Path(folder) / "file"
        path.write_bytes(OLD)
        path.parent.chmod(0o555)
        user = os.geteuid()
        try:
            if user == 0:  # permissions do not restrict the superuser
                os.seteuid(65534)
            with pytest.raises(PermissionError, match="Permission denied; the existing file is unchanged"):
                write_atomically(path, [NEW])
        finally:
            os.seteuid(user)
            path.parent.chmod(0o755)
        assert path.read_bytes() == OLD
        assert list(path.parent.iterdir()) == [path]
