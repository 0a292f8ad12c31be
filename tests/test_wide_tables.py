"""Tables of very many columns: the work is linear in their number."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from dropmargin import DropoutSVC, load, save
from dropmargin.io.data import ReadOptions, TableEncoder, read_chunks, read_data

N_WIDE = 10_001


class CountedName(str):
    """A name that counts how often it is compared with another."""

    n_comparisons = 0
    __slots__ = ()

    def __eq__(self, other):
        CountedName.n_comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.fixture
def counted_frame():
    """Return a function that makes a table of numbers and categories whose names count comparisons."""

    def make(n_columns):
        names = tuple(CountedName(f"column {i}") for i in range(n_columns))
        numbers, categories = np.array([1.0, 2.0]), np.array(["a", "b"], dtype=object)
        CountedName.n_comparisons = 0
        return {name: (numbers, categories)[i % 2] for i, name in enumerate(names)}

    return make


@pytest.mark.parametrize("step", ["transform", "categorical"])
def test_names_are_compared_about_once_per_column(counted_frame, step):
    n_columns = 500
    frame = counted_frame(n_columns)
    if step == "transform":
        # Equal names that are other objects, as in another file.
        TableEncoder().fit(frame).transform(counted_frame(n_columns))
    else:
        TableEncoder(categorical=[str(name) for name in frame]).fit(frame)
    assert CountedName.n_comparisons <= 20 * n_columns


@pytest.fixture(scope="module")
def wide_csv(tmp_path_factory):
    """Return a file of four rows and N_WIDE columns besides the labels, one of them of categories."""
    path = tmp_path_factory.mktemp("wide") / "wide.csv"
    header = ['"label"', "colour", *(f"x{i}" for i in range(N_WIDE - 1))]
    rows = [
        [label, colour, *(str((i * j) % 7) for i in range(N_WIDE - 1))]
        for j, (label, colour) in enumerate([("yes", "red"), ("no", "blue"), ("yes", "red"), ("no", "green")], 1)
    ]
    path.write_text("\n".join(map(",".join, [header, *rows])) + "\n")
    return path


def test_a_wide_file_is_read_whole_and_in_chunks(wide_csv):
    data = read_data(wide_csv, ReadOptions(target="label"))
    assert data.X.shape == (4, N_WIDE)
    assert data.X["x5"].tolist() == [5.0, 3.0, 1.0, 6.0]
    with pytest.warns(UserWarning, match="left out: 'x.*': it is constant; .*more"):
        encoder = TableEncoder().fit(data.X)
    assert encoder.transform(data.X).shape == (4, N_WIDE + 2 - len(encoder.left_out_))
    options = ReadOptions(target="label", columns=encoder.column_kinds_)
    parts = list(read_chunks(wide_csv, options, chunk_bytes=10**6))
    assert sum(part.n_samples for part in parts) == 4
    assert parts[-1].X["colour"].tolist()[-1] == "green"


@pytest.mark.slow
def test_commands_on_a_wide_file(run, wide_csv):
    assert 0.8 * N_WIDE < run("train", wide_csv, "m.json", "--target", "label", "--json").json["features"] < N_WIDE
    assert run("predict", wide_csv, "m.json").out.split() == ["label", "yes", "no", "yes", "no"]
    assert run("evaluate", wide_csv, "m.json", "--json").json["accuracy"] == 1.0


@pytest.mark.slow
def test_a_model_of_many_columns_of_categories_can_be_loaded(tmp_path):
    table = {f"x{i}": ["a", "b", "b", "c"] for i in range(60_000)}
    model = make_pipeline(TableEncoder(), DropoutSVC()).fit(table, [0, 1, 0, 1])
    save(model, tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert again[0].column_kinds_ == model[0].column_kinds_
    np.testing.assert_array_equal(again[0].transform(table), model[0].transform(table))
