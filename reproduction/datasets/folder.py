"""The folder of the data files, and the download of missing files."""

from __future__ import annotations

import gzip
import logging
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dropmargin.io.data.errors import one_line
from dropmargin.progress import Progress

#: Environment variable with the path of the data folder.
VARIABLE = "DROPMARGIN_DATA"
_MEGABYTE = 10**6
_COPY_BYTES = 2**20
_TIMEOUT_SECONDS = 30


class DatasetError(OSError):
    """A file of a data set is missing and was not downloaded; the message names the file and its folder."""


@dataclass(frozen=True)
class Remote:
    """A file of an official page.

    Parameters
    ----------
    name : str
        Path relative to the data folder.
    address : str
        URL.
    checksum : str or None
        ``algorithm:digits`` of the published file, or None if no checksum is published; then the file must be a valid
        gzip file.
    """

    name: str
    address: str
    checksum: str | None


def data_folder(data_home: str | os.PathLike[str] | None = None) -> Path:
    """Return the data folder.

    Parameters
    ----------
    data_home : path, default=None
        The folder. By default that of the environment variable ``DROPMARGIN_DATA``, or ``dropmargin`` in the user's
        cache folder if that is not set.
    """
    if data_home is None:
        data_home = os.environ.get(VARIABLE) or cache_folder()
    if not isinstance(data_home, str | os.PathLike):
        raise TypeError(f"data_home must be a path, or None for the default folder, got {data_home!r}.")
    return Path(data_home).expanduser().absolute()


def cache_folder() -> Path:
    """Return the folder ``dropmargin`` in the user's cache folder of this operating system."""
    return _user_cache() / "dropmargin"


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def find_file(path: Path) -> Path | None:
    """Return the path of a file, with or without the ending ``.gz``; None if neither exists."""
    plain = path.with_name(path.name.removesuffix(".gz"))
    for candidate in (path, plain, plain.with_name(plain.name + ".gz")):
        if candidate.is_file():
            return candidate
    return None


def fetch(
    remote: Remote, folder: Path, *, download: bool, wanted: Path | None = None, or_else: str | None = None
) -> Path:
    """Return the path of an official file, and download it if it is missing.

    Parameters
    ----------
    remote : Remote
    folder : Path
        The data folder.
    download : bool
        Whether to download a missing file.
    wanted : Path, optional
        The file to name in the error, if it is one of an archive.
    or_else : str, optional
        An alternative, for the error.

    Raises
    ------
    DatasetError
        If the file is missing and was not downloaded. An incomplete download is removed.
    """
    path = folder / remote.name
    if path.is_file():
        return path
    reason = _download(remote, path) if download else "download=False"
    if reason is None:
        return path
    get = f"get it from {remote.address} and put it there"
    if wanted is not None:
        get = f"get {remote.address} and put it at {path}"
    raise DatasetError(f"{wanted or path} is missing ({reason}): {get}{f', or {or_else}' if or_else else ''}.")


def _download(remote: Remote, path: Path) -> str | None:
    """Download a file; return None, or the reason if it failed."""
    try:
        import pooch
        from requests import exceptions
    except ImportError:
        return "the download needs pooch: pip install 'dropmargin[reproduction]'"
    try:
        with _quiet(pooch.get_logger()):
            pooch.retrieve(
                remote.address,
                known_hash=remote.checksum,
                fname=path.name,
                path=path.parent,
                downloader=partial(_write_to, remote),
            )
    except (exceptions.ConnectionError, exceptions.Timeout):
        return f"no connection to {urlsplit(remote.address).netloc}"
    except exceptions.ChunkedEncodingError:
        return "the connection was lost"
    except ValueError:  # the check of pooch
        return f"the downloaded file does not have the checksum {remote.checksum}"
    except OSError as error:
        return f"the download failed: {one_line(error).rstrip('.')}"
    return None


def _write_to(remote: Remote, address: str, target: str, caller: Any) -> None:
    """Download a file for pooch, which then checks and renames it."""
    import pooch

    bar = _Bar(Path(remote.name).name)
    # Another encoding of the transfer would change the bytes of the checksum.
    headers = {"Accept-Encoding": "identity"}
    get = pooch.HTTPDownloader(progressbar=bar, headers=headers, timeout=_TIMEOUT_SECONDS)
    try:
        get(address, target, caller)
    finally:
        bar.close()
    if remote.checksum is None:
        _check_gzip(target)


def _check_gzip(path: str) -> None:
    """Raise an OSError if a file is not a complete gzip file."""
    try:
        with gzip.open(path) as stream:
            while stream.read(_COPY_BYTES):
                pass
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise OSError(f"the downloaded file is not a complete gzip file: {one_line(error)}") from error


class _Bar:
    """A progress bar with the interface that pooch needs."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._progress: Progress | None = None
        self._total = self._n_bytes = self._n_shown = 0

    @property
    def total(self) -> int:
        """The size of the file in bytes; 0 if the server does not send it."""
        return self._total

    @total.setter
    def total(self, n_bytes: int) -> None:
        self._total = n_bytes
        self._progress = Progress(-(-n_bytes // _MEGABYTE), f"downloading {self._name} (MB)")

    def update(self, n_bytes: int) -> None:
        """Add to the number of downloaded bytes."""
        self._n_bytes += n_bytes
        done = min(self._n_bytes, self._total) // _MEGABYTE
        if self._progress is not None and done > self._n_shown:
            self._progress.advance(done - self._n_shown)
            self._n_shown = done

    def reset(self) -> None:
        """Set the number of bytes to 0; pooch does so before it completes the bar."""
        self._n_bytes = 0

    def close(self) -> None:
        """Remove the bar."""
        if self._progress is not None:
            self._progress.__exit__(None, None, None)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Turn off the messages of pooch, which repeat the progress bar and the errors."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
