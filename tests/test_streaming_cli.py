"""``dropmargin train --memory-limit``."""

from __future__ import annotations

import pytest
from numpy.testing import assert_array_equal

from dropmargin import DropoutSVC, load
from dropmargin.streaming import fit
from stream_data import make_rows, write_parts

pytestmark = pytest.mark.timeout(120)


def test_a_folder_is_trained_on_within_a_limit(run, tmp_path):
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y)
    model = tmp_path / "model.json"
    options = ["--memory-limit", "1GB", "--checkpoint", str(tmp_path / "fit.log"), "--cache", str(tmp_path / "cache")]
    facts = run("train", folder, model, *options, "--noise", "0.3", "--json").json
    assert facts["converged"]
    assert facts["zero_based"] is False
    expected = fit(DropoutSVC(noise=0.3), folder, memory_limit="1GB", progress=False)
    assert_array_equal(load(model).coef_, expected.coef_)
    assert (tmp_path / "fit.log").exists()
    assert (tmp_path / "cache").is_dir()
    run("predict", folder / "part-0.svm", model, "-o", tmp_path / "labels.csv")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--checkpoint", "x"], 2, "--checkpoint is for --memory-limit"),
        (["--cache", "x"], 2, "--cache is for --memory-limit"),
        (["--memory-limit", "1GB", "--text", "x"], 2, "--text cannot be used with --memory-limit"),
        (["--memory-limit", "lots"], 2, "--memory-limit: expected a size such as 2GB"),
        (["--memory-limit", "1MB"], 2, "--memory-limit: 1 MB is too small"),
        (["--memory-limit", "1GB", "--missing", "conditional"], 2, "--missing conditional needs all rows in memory"),
        (["--memory-limit", "1GB", "--target", "y"], 2, "--target: this is for csv"),
        (["--memory-limit", "1GB", "--format", "csv"], 2, "--memory-limit: this is for svmlight, parquet"),
        (["--memory-limit", "1GB", "--format", "parquet"], 2, "--target: name the column of the labels"),
    ],
)
def test_options_that_do_not_go_together(options, code, message, run, tmp_path):
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y)
    assert message in run("train", folder, tmp_path / "model.json", *options, code=code).error
    assert not (tmp_path / "model.json").exists()
