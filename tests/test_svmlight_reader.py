"""svmlight files: exact, or an error with its place; the compiled and the plain parser say the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file

from datasets import make_sparse
from dealing import together
from dropmargin.io.data import DataFormatError, ReadOptions, read_chunks, read_data, svmlight
from dropmargin.io.data.svmlight import BlockParser, IndexRange

needs_compiled = pytest.mark.skipif(not svmlight.available(), reason="there is no compiled code")
ANY_BASE = IndexRange.from_options(ReadOptions())


def parse(text: bytes, compiled: bool, indices: IndexRange = ANY_BASE):
    """Return what a parser makes of lines: arrays, or its error's message."""
    buffer = bytearray(text + b"\n")
    parser = BlockParser("f", indices, compiled)
    try:
        rows = parser.parse(buffer, len(text))
    except DataFormatError as error:
        return str(error)
    return rows, parser.smallest, parser.largest


def assert_agree(text: bytes, indices: IndexRange = ANY_BASE):
    one, other = (parse(text, compiled, indices) for compiled in (True, False))
    if isinstance(one, str) or isinstance(other, str):
        assert one == other, text
        return
    for name in ("labels", "row_ends", "indices", "values"):
        left, right = getattr(one[0], name), getattr(other[0], name)
        assert (left is None) == (right is None), text
        if left is not None:
            assert left.dtype == right.dtype
            # bit for bit, so that -0 is not 0; NaN is NaN
            assert np.where(np.isnan(left), 0.0, left).tobytes() == np.where(np.isnan(right), 0.0, right).tobytes(), (
                text
            )
            np.testing.assert_array_equal(np.isnan(left), np.isnan(right))
    assert one[1:] == other[1:]


@pytest.fixture
def read(tmp_path):
    """Return a function that reads text as a file."""

    def read(text, **options):
        path = tmp_path / "train.svm"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_data(path, ReadOptions(**options))

    return read


@pytest.fixture(params=["compiled", "plain"])
def parser(request, monkeypatch):
    """Run a test with the compiled parser and without it."""
    if request.param == "plain":
        monkeypatch.setattr(svmlight, "_LIBRARY", None)
    elif not svmlight.available():
        pytest.skip("there is no compiled code")


# Malformed and unusual files: text, and the expected (X, y) or message    ------------------------------------------

MALFORMED = {
    "index 2^63": ("1 9223372036854775808:1\n", ":1: feature index 9223372036854775808, but at most"),
    "index 2^64": ("1 18446744073709551616:1\n", ":1: feature index of more than 64 bits, but at most"),
    "index 2^31": ("1 1:1\n1 2147483648:1\n", ":2: feature index 2147483648, but at most 4194304 features"),
    "index of a thousand digits": (f"1 {'9' * 5000}:1\n", ":1: feature index of more than 64 bits"),
    "negative index": ("1 -3:1\n", ":1:3: the feature index '-3' is not an integer"),
    "index with a sign": ("1 +3:1\n", ":1:3: the feature index '+3' is not"),
    "index 0, base 1": ("1 0:1\n", ":1: feature index 0, but indices start at 1 (use --zero-based)"),
    "index a fraction": ("1 1.0:1\n", ":1:3: the feature index '1.0' is not"),
    "duplicate index": ("1 1:1\n-1 3:1 2:1 3:2\n", ":2: feature index 3 occurs twice"),
    "unsorted indices": ("1 3:3 1:1 2:2\n", ([[1.0, 2.0, 3.0]], [1])),
    "value 1e400": ("1 1:1e400\n", ":1:3: the value '1e400' of feature 1 is too large"),
    "value 1e-400": ("1 1:1e-400 2:1\n", ([[0.0, 1.0]], [1])),
    "value nan": ("1 1:nan 2:NaN\n", ([[np.nan, np.nan]], [1])),
    "value inf": ("1 1:-inf\n", ":1:3: the value of feature 1 is infinite"),
    "value missing": ("1 1:\n", ":1:3: the value of feature 1 is missing"),
    "value hexadecimal": ("1 1:0x10\n", ":1:3: the value '0x10' of feature 1 is not a number"),
    "label abc": ("abc 1:1\n", ":1:1: the label 'abc' is not a number"),
    "label missing": ("1 1:1\n1:1 2:1\n", ":2:1: the label is missing: the line begins with '1:1'"),
    "label nan": ("nan 1:1\n", ":1:1: the label 'nan' is not a number"),
    "label beyond 2^53": ("9007199254740993 1:1\n9007199254740994 1:1", ":2:1: the label '9007199254740994' is too"),
    "several labels": ("1,2 1:1\n", ":1:1: several labels, '1,2', but a row has one"),
    "truncated last line": ("1 1:1\n-1 1", ":2:4: expected index:value, got '1'"),
    "1:2:3": ("1 1:2:3\n", ":1:3: the value '2:3' of feature 1 is not a number"),
    "underscores": ("1 1_0:1_000\n", ":1:3: the feature index '1_0' is not"),
    "empty": ("", ": there are no rows"),
    "nothing but comments": ("# a\n\n", ": there are no rows"),
    "byte order mark": ("\ufeff1 1:1\n", ([[1.0]], [1])),
    "comments": ("# head\n1 1:1 # one\n\n  \n-1 1:2#two\n", ([[1.0], [2.0]], [1, -1])),
    "CRLF": ("1 1:1\r\n-1 1:2 \r\n", ([[1.0], [2.0]], [1, -1])),
    "CR alone": ("1 1:1\r-1 1:2\r", ":1:3: the value '1\\r-1' of feature 1 is not a number"),
    "tabs and blanks": ("\t 1 \t 2:1  3:4\t\n", ([[0.0, 1.0, 4.0]], [1])),
    "no newline at the end": ("1 1:1\n-1 1:2", ([[1.0], [2.0]], [1, -1])),
    "rows without entries": ("1\n-1\n1 2:1\n", ([[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]], [1, -1, 1])),
    "UTF-16": ("1 1:1\n".encode("utf-16"), ": the text is UTF-16"),
    "bytes": (b"1 1:1\n\xff\xfe\x00 1:1\n", ":2:1: the label '\\xff\\xfe\\x00' is not a number"),
    "qid not second": ("1 1:1 qid:3\n", ":1:7: qid must follow the label"),
    "qid of letters": ("1 qid:a 1:1\n", ":1:3: 'qid:a' should be qid: and digits"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_files(case, read, tmp_path):
    text, wanted = MALFORMED[case]
    if isinstance(wanted, str):
        with pytest.raises(DataFormatError) as caught:
            read(text, zero_based=False)
        message = str(caught.value)
        assert message.startswith(f"{tmp_path / 'train.svm'}{wanted}")
        assert "\n" not in message
        assert len(message) < len(str(tmp_path)) + 200
    else:
        data = read(text, zero_based=False)
        np.testing.assert_array_equal(data.X.toarray(), wanted[0])
        np.testing.assert_array_equal(data.y, wanted[1])
        assert data.y.dtype == np.int64


@needs_compiled
@together("case", MALFORMED)
def test_parsers_agree_on_malformed_files(case):
    text = MALFORMED[case][0]
    text = text if isinstance(text, bytes) else text.encode()
    for zero_based in (None, False):
        assert_agree(text, IndexRange.from_options(ReadOptions(zero_based=zero_based)))


@pytest.mark.usefixtures("parser")
def test_both_parsers_read_a_file_and_raise_an_error(read):
    np.testing.assert_array_equal(read("# head\n1 3:3 1:1 2:2\n-1 2:4\n").X.toarray(), [[1, 2, 3], [0, 4, 0]])
    with pytest.raises(DataFormatError, match=":2: feature index 3 occurs twice"):
        read("1 1:1\n-1 3:1 2:1 3:2\n")


# Numbers ----------------------------------------------------

_HARD_NUMBERS = [
    *("0", "-0", "+0.0", "0e99999999999999999999", "1e23", "8.5e22", "9007199254740993", "9007199254740992.5"),
    *(
        "1.7976931348623157e308",
        "1.7976931348623159e308",
        "4.9e-324",
        "2.4e-324",
        "2.5e-324",
        "2.2250738585072011e-308",
    ),
    *("9223372036854775807", "9999999999999999999", "18446744073709551615", "18446744073709551616", "1e19", "1e-19"),
    *(
        "0.1",
        ".5",
        "5.",
        "00000000000000000000000000001.5",
        "0.00000000000000000000000000000001",
        "123456789012345678e-19",
    ),
    *(
        "9007199254740993e1",
        "9007199254740993e-1",
        "4503599627370497.5",
        "4503599627370496.5",
        "1e22",
        "1e-22",
        "3e-23",
    ),
    "1e" + "0" * 5000 + "5",
    "0." + "0" * 5000 + "1e5000",
    "1" * 400,
]


@needs_compiled
def test_numbers_are_rounded_as_by_python():
    rng = np.random.default_rng(0)
    numbers = list(_HARD_NUMBERS)
    for _ in range(3000):
        n_digits = int(rng.integers(1, 25))
        digits = "".join(rng.choice(list("0123456789"), size=n_digits))
        point = int(rng.integers(0, n_digits + 1))
        exponent = f"e{rng.integers(-40, 40)}" if rng.random() < 0.6 else ""
        numbers.append(digits[:point] + "." + digits[point:] + exponent)
    # Doubles, and the midpoints between two of them, where wrong rounding has an effect.
    doubles = rng.integers(0, 2**63, size=3000, dtype=np.int64).view(np.float64)
    numbers += [repr(x) for x in np.abs(doubles[np.isfinite(doubles)]).tolist()]
    for whole in rng.integers(2**53, 2**59, size=2000).tolist():
        step = 2 ** (int(whole).bit_length() - 53)
        middle = whole // step * step + step // 2
        numbers += [str(middle), str(middle + 1), str(middle - 1), f"{middle}e-1", f"{middle}e-17", f"{middle}e3"]
    entries = " ".join(f"{j}:{number}" for j, number in enumerate(numbers) if np.isfinite(float(number)))
    rows, _, _ = parse(f"1 {entries}".encode(), compiled=True)
    wanted = np.array([float(number) for number in numbers if np.isfinite(float(number))])
    assert rows.values.tobytes() == wanted.tobytes()


def test_random_files_keep_every_bit(tmp_path):
    X, y = make_sparse(80, 50, 0.2)
    X.data = np.random.default_rng(0).normal(size=X.nnz) * 10.0 ** np.random.default_rng(1).integers(-200, 200, X.nnz)
    for zero_based in (False, True):
        path = tmp_path / f"{zero_based}.svm"
        lines = []
        for i in range(X.shape[0]):
            row = X[[i]]
            entries = (f"{j + (not zero_based)}:{v!r}" for j, v in zip(row.indices, row.data.tolist(), strict=True))
            lines.append(" ".join([str(y[i]), *entries]))
        path.write_text("\n".join(lines))
        data = read_data(path, ReadOptions(zero_based=zero_based, n_features=50))
        assert (data.X != X).nnz == 0
        np.testing.assert_array_equal(data.y, y)


# Options ----------------------------------------------------


def test_the_whole_file_determines_zero_based(read):
    early, late = read("1 0:1 5:1\n-1 1:7\n"), read("1 1:1 5:1\n" * 10 + "-1 0:7\n")
    assert early.zero_based
    assert late.zero_based
    assert early.X.shape == (2, 6)
    assert late.X[[0]].indices.tolist() == [1, 5]
    one_based = read("1 1:1 5:1\n")
    assert not one_based.zero_based
    assert one_based.X.shape == (1, 5)


def test_chunks_need_zero_based_and_n_features(tmp_path):
    path = tmp_path / "part.svm"
    path.write_text("1 1:7 5:1\n")
    with pytest.raises(ValueError, match="zero_based must be given"):
        next(read_chunks(path))
    with pytest.raises(ValueError, match="n_features must be given"):
        next(read_chunks(path, ReadOptions(zero_based=True)))
    (part,) = read_chunks(path, ReadOptions(zero_based=True, n_features=6))
    assert part.X.indices.tolist() == [1, 5]


def test_max_features(read):
    # 24 bytes that would need gigabytes of coefficients
    with pytest.raises(DataFormatError, match=r":1: feature index 268435455, but .* --max-features"):
        read("1 268435455:1\n-1 1:1\n")
    assert read("1 268435455:1\n-1 1:1\n", max_features=2**28).X.shape == (2, 2**28 - 1)


def test_indices_past_32_bits(read):
    data = read(f"1 {2**40}:1 3:2\n", max_features=2**41)
    assert data.X.shape == (1, 2**40)
    assert data.X.indices.dtype == np.int64
    assert data.X.indices.tolist() == [2, 2**40 - 1]


def test_n_features_and_ignore_extra(read):
    text = "1 1:1 7:2\n-1 9:1\n-1 2:5\n"
    with pytest.raises(DataFormatError, match=r":1: feature index 7, but there are 3 features \(--ignore-extra"):
        read(text, n_features=3)
    data = read(text, n_features=3, ignore_extra=True)
    np.testing.assert_array_equal(data.X.toarray(), [[1, 0, 0], [0, 0, 0], [0, 5, 0]])
    with pytest.raises(DataFormatError, match="feature index 3, but there are 3 features, counted from 0"):
        read("1 0:1 3:1\n", n_features=3)


def test_labels_and_qids_which_are_ignored(read):
    assert read("1.5 1:1\n2 1:1\n").y.tolist() == [1.5, 2.0]
    assert read("+1 1:1\n-1.0 1:1\n").y.dtype == np.int64
    data = read("1 qid:7 1:1\n0 qid:9223372036854775807 1:1\n2 1:1\n")
    assert data.y.tolist() == [1, 0, 2]


@pytest.mark.usefixtures("parser")
def test_tokens_of_a_megabyte(read):
    zeros = "0" * 2**20
    data = read(f"1 {zeros}3:0.{zeros}1e{2**20} # {zeros}\n-1 1:{'1' * 300}{zeros[:2]}\n")
    assert data.X[0, 2] == pytest.approx(0.1, rel=1e-15)
    for bad in (f"1 1:{'9' * 2**20}\n", f"{'x' * 2**20} 1:1\n", f"1 {'9' * 2**20}:1\n", f"1 qid:{'9' * 2**20} 1:1\n"):
        with pytest.raises(DataFormatError) as caught:
            read(bad)
        assert len(str(caught.value)) < 500


def test_many_unsorted_entries_of_one_row_take_no_quadratic_time(read):
    indices = np.random.default_rng(0).permutation(200_000) + 1
    for order in (indices, np.arange(200_000, 0, -1)):
        data = read("1 " + " ".join(f"{j}:{j}" for j in order))
        np.testing.assert_array_equal(data.X.data, np.arange(1, 200_001))


# Chunks and parsers --------------------------------------------------


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("chunk_bytes", [1, 64, 10**6])
def test_chunks_are_equal_to_the_whole_file(tmp_path, chunk_bytes):
    path = tmp_path / "data.svm"
    X, y = make_sparse(60, 40, 0.1)
    with path.open("wb") as file:
        dump_svmlight_file(X, y, file, zero_based=False)
    whole = read_data(path, ReadOptions(zero_based=False, n_features=40))
    assert (whole.X != X).nnz == 0
    parts = list(read_chunks(path, ReadOptions(zero_based=False, n_features=40), chunk_bytes=chunk_bytes))
    assert len(parts) > 1 or chunk_bytes > 100
    np.testing.assert_array_equal(np.vstack([part.X.toarray() for part in parts]), whole.X.toarray())
    np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), y)


def test_errors_in_later_chunks_have_the_line(tmp_path):
    path = tmp_path / "data.svm"
    path.write_text("1 1:1\n# c\n\n" * 500 + "1 0:1\n")
    options = ReadOptions(zero_based=False, n_features=3)
    with pytest.raises(DataFormatError, match=r"data.svm:1501: feature index 0, but indices start at 1"):
        list(read_chunks(path, options, chunk_bytes=100))


_PIECES = [b"1", b"-1", b"2.5", b" ", b" ", b"\t", b"3:1", b"1:2", b"7:0.5", b"qid:3", b"#", b"\r", b"\n", b":", b"_"]
_PIECES += [b"nan", b"inf", b"e5", b".", b"0", b"+", b"-", b"\0", b"\xff", b"0x1", b"12345678901234567890", b","]
_LINE = st.lists(st.sampled_from(_PIECES), max_size=14).map(b"".join)


@needs_compiled
@settings(max_examples=400, deadline=None)
@given(_LINE)
@example(b"1 1:1\r\r\n")
@example(b"1 1:1 \r \n")
@example(b"1 1:1\r#\n")
@example(b"1 qid:1")
@example(b"1 q")
@example(b"1 1:n")
def test_parsers_agree_on_anything(text):
    assert_agree(text)


@pytest.mark.slow
def test_another_locale_changes_nothing(tmp_path):
    """A locale with decimal commas, in which C's own strtod would read 1.5 as 1."""
    made = (
        subprocess.run(
            ["localedef", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")], capture_output=True, check=False
        )
        if Path("/usr/share/i18n/locales/de_DE").exists()
        else None
    )
    if made is None or not (tmp_path / "de_DE.UTF-8").exists():
        pytest.skip("the locale de_DE cannot be made here")
    numbers = ["1.5", "0.12345678901234567890123", "1.5e300"]
    (tmp_path / "data.svm").write_text("1 " + " ".join(f"{j}:{number}" for j, number in enumerate(numbers, 1)))
    script = (
        "import locale; locale.setlocale(locale.LC_ALL, 'de_DE.UTF-8'); assert locale.str(1.5) == '1,5'\n"
        f"from dropmargin.io.data import read_data; print(read_data({str(tmp_path / 'data.svm')!r}).X.data.tolist())"
    )
    environment = {**os.environ, "LOCPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([float(number) for number in numbers])
