"""A save that fails or is killed leaves the old model or the new one, and nothing else."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from datasets import make_binary
from dealing import round_robin
from dropmargin import DropoutSVC, load, save
from dropmargin.io.model import atomic

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals, links and permissions of POSIX")


@pytest.fixture
def old_and_new():
    X, y = make_binary()
    return DropoutSVC(C=0.5).fit(X, y), DropoutSVC(C=2.0).fit(X, y)


def _run(script, *arguments):
    source = Path(__file__).parent.parent / "src"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(source), str(Path(__file__).parent)])}
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Killed in the middle -----------------------------------------------------------------------------------------------

# Each child counts the calls to the system that a save makes, and kills itself before or after one of them.
_KILLED = """
import os, sys
from pathlib import Path
from datasets import make_binary
from dropmargin import DropoutSVC, load, save
from dropmargin.io.model import atomic
from killing import Killing

folder, ending, nameless = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "nameless"
X, y = make_binary()
old, new = DropoutSVC(C=0.5).fit(X, y), DropoutSVC(C=2.0).fit(X, y)
path = folder / f"model.{ending}"
if not nameless:
    atomic._open_nameless = lambda folder, mode: None

point, seen = 0, []
while True:
    point += 1
    save(old, path)
    child = os.fork()
    if child == 0:
        atomic.os = Killing(point)
        try:
            save(new, path)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    seen.append(load(path).C)
    assert seen[-1] in (0.5, 2.0)
    strays = [p for p in folder.iterdir() if p != path]
    for stray in strays:
        stray.unlink()
    print(point, seen[-1], len(strays), os.WIFSIGNALED(status))
    if not os.WIFSIGNALED(status):
        break
"""


@pytest.mark.parametrize(("ending", "kind"), round_robin(["json", "zip"], ["nameless", "named"]))
def test_kill_9_leaves_the_old_model_or_the_new_one(ending, kind, tmp_path):
    lines = [line.split() for line in _run(_KILLED, tmp_path, ending, kind).splitlines()]
    values = [float(line[1]) for line in lines]
    assert len(values) > 10
    assert values[0] == 0.5
    assert values[-1] == 2.0
    assert values == sorted(values)  # old up to the moment of renaming, new ever after
    if kind == "nameless" and atomic._open_nameless(str(tmp_path), 0o600) is not None:
        assert sum(int(line[2]) for line in lines) == 2  # after a name is given and before it is changed


# Full disks ---------------------------------------------------------------------------------------------------------

_LIMITED = """
import resource, sys
import numpy as np
from pathlib import Path
from datasets import make_binary
from dropmargin import DropoutSVC, load, save
from dropmargin.io.model import atomic
from killing import Killing

folder, ending = Path(sys.argv[1]), sys.argv[2]
X, y = make_binary()
path = folder / f"model.{ending}"
save(DropoutSVC(C=0.5).fit(X, y), path)
new = DropoutSVC(C=2.0).fit(X, y)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for nameless in (atomic._open_nameless, lambda folder, mode: None):
    atomic._open_nameless = nameless
    try:
        save(new, path)
    except OSError as error:
        assert str(path) in str(error) and "as it was" in str(error), error
        print(type(error).__name__, load(path).C, [p.name for p in folder.iterdir()] == [path.name])
"""


@pytest.mark.parametrize("ending", ["json", pytest.param("zip", marks=pytest.mark.slow)])
def test_limit_on_file_size_leaves_the_old_model(ending, tmp_path):
    assert _run(_LIMITED, tmp_path, ending).splitlines() == ["OSError 0.5 True"] * 2


@pytest.mark.parametrize("call", ["write", "fsync", "replace", "open"])
@pytest.mark.parametrize("named", [True, False])
def test_full_disk_leaves_the_old_model_and_no_stray_file(call, named, old_and_new, tmp_path, monkeypatch):
    path = tmp_path / "model.json"
    save(old_and_new[0], path)
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if named:
        monkeypatch.setattr(atomic, "_open_nameless", lambda folder, mode: None)
    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, call, fail)
        with pytest.raises(OSError, match="No space left on device; the file of that name is as it was") as caught:
            save(old_and_new[1], path)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupt_leaves_no_stray_file(old_and_new, tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic, "_open_nameless", lambda folder, mode: None)
    monkeypatch.setattr(atomic.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(old_and_new[0], tmp_path / "model.json")
    assert list(tmp_path.iterdir()) == []


def test_file_is_synchronised_before_it_is_renamed_and_the_folder_after(old_and_new, tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        found = getattr(os, name)

        def note(*args, name=name, found=found):
            what = "folder" if name == "fsync" and stat.S_ISDIR(os.fstat(args[0]).st_mode) else "file"
            calls.append((name, what))
            return found(*args)

        monkeypatch.setattr(atomic.os, name, note)
    save(old_and_new[0], tmp_path / "model.json")
    assert calls == [("fsync", "file"), ("replace", "file"), ("fsync", "folder")]


# Links, permissions, odd targets ------------------------------------------------------------------------------------


def test_a_link_is_followed(old_and_new, tmp_path):
    target = tmp_path / "real" / "model.json"
    target.parent.mkdir()
    link = tmp_path / "latest.json"
    link.symlink_to(Path("real") / "model.json")
    for model in old_and_new:  # at first the link points to nothing
        save(model, link)
        assert link.is_symlink()
        assert load(target).C == model.C
    assert [p.name for p in target.parent.iterdir()] == ["model.json"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_permissions_are_kept(mode, old_and_new, tmp_path):
    path = tmp_path / "model.json"
    save(old_and_new[0], path)
    path.chmod(mode)
    save(old_and_new[1], path)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert load(path).C == 2.0


def test_new_files_have_the_usual_permissions(old_and_new, tmp_path):
    (tmp_path / "usual").write_text("")
    save(old_and_new[0], tmp_path / "model.json")
    assert (tmp_path / "model.json").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_folders_and_devices_are_not_replaced(old_and_new, tmp_path):
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        save(old_and_new[0], tmp_path)
    with pytest.raises(OSError, match="not an ordinary file"):
        save(old_and_new[0], "/dev/null")
    assert not Path("/dev/null").is_file()
    with pytest.raises(FileNotFoundError, match="cannot write"):
        save(old_and_new[0], tmp_path / "nowhere" / "model.json")


def test_a_folder_without_permission(old_and_new):
    folder = Path(tempfile.mkdtemp())
    path = folder / "model.json"
    save(old_and_new[0], path)
    before = path.read_bytes()
    folder.chmod(0o555)
    user = os.geteuid()
    try:
        if user == 0:  # whom permissions do not stop
            os.seteuid(65534)
        with pytest.raises(PermissionError, match="cannot write"):
            save(old_and_new[1], path)
    finally:
        os.seteuid(user)
        folder.chmod(0o755)
    assert path.read_bytes() == before
    assert list(folder.iterdir()) == [path]
    path.unlink()
    folder.rmdir()


def test_a_model_of_zeros_bytes_longer_than_one_write(tmp_path, monkeypatch):
    """Short writes, as a signal or a pipe may cause, are continued."""
    found = os.write
    monkeypatch.setattr(atomic.os, "write", lambda descriptor, data: found(descriptor, data[:7]))
    X, y = make_binary()
    model = DropoutSVC().fit(X, y)
    save(model, tmp_path / "model.zip")
    np.testing.assert_array_equal(load(tmp_path / "model.zip").coef_, model.coef_)
