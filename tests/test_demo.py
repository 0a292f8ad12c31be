"""``dropmargin demo``: the files, the line to remember, and folders with files of the same names."""

from __future__ import annotations

import json

import pytest

from dropmargin.cli import demo as module
from dropmargin.cli.main import main
from pages import assert_self_contained


def test_the_sensors_are_the_same_each_time():
    assert module.sensor_table().equals(module.sensor_table())
    assert module.sensor_table().shape == (1200, 17)


@pytest.mark.slow  # half a minute of processor time: a search over bases
def test_demo(tmp_path, capsys):
    assert main(["demo", str(tmp_path / "new"), "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(module.FILES)
    assert found["verdict"].startswith("Half of the sensors are dead: dropmargin is wrong in ")
    ours, boosting, logistic = (errors[2] for errors in found["errors"].values())
    assert ours < boosting < logistic
    assert "warning" not in err
    assert_self_contained((tmp_path / "new" / "report.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", module.FILES)
def test_a_folder_with_files_of_these_names_is_refused(tmp_path, capsys, name):
    (tmp_path / name).write_text("mine")
    assert main(["demo", str(tmp_path)]) == 2
    assert "exists (--force replaces a file)" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]
