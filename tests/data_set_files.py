"""Small files in the formats of the published data sets, and a web server for them that can fail."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import struct
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

#: Where the data sets themselves may be; they may not be shipped.
SHARED = Path(os.environ.get("DROPMARGIN_DATA", Path(__file__).parents[2] / "shared" / "data"))
MNIST = {
    "train-images-idx3-ubyte.gz": np.random.RandomState(0).randint(0, 256, (7, 28, 28)),
    "train-labels-idx1-ubyte.gz": np.array([3, 1, 4, 1, 5, 9, 2]),
    "t10k-images-idx3-ubyte.gz": np.random.RandomState(1).randint(0, 256, (4, 28, 28)),
    "t10k-labels-idx1-ubyte.gz": np.array([6, 5, 3, 5]),
}
REVIEWS = {
    "positive": "good:2 good_book:1 a:b:3 #label#:positive\ngood:1 the:4 #label#:positive\n",
    "negative": "bad:1 the:1 #label#:negative\nbad:2 dull:1 #label#:negative\n",
    "unlabeled": "the:1 rare:7 bad:1 #label#:negative\nthe:2 dull:1 #label#:positive\nnew:1 #label#:positive\n",
}


def md5(data: bytes) -> str:
    """Return the md5 checksum as text."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def idx(array: np.ndarray) -> bytes:
    """Return an array of bytes in MNIST's format."""
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def cifar_batches() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return pixels (n x 3,072) and labels of six small batches."""
    rng = np.random.RandomState(2)
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    sizes = (2, 3, 1, 2, 2, 4)
    return {
        name: (rng.randint(0, 256, (n, 3072)).astype(np.uint8), rng.randint(0, 10, n).astype(np.uint8))
        for name, n in zip(names, sizes, strict=True)
    }


def binary_batch(pixels: np.ndarray, labels: np.ndarray) -> bytes:
    """Return a batch in the binary layout."""
    return np.hstack([labels[:, None], pixels]).astype(np.uint8).tobytes()


def python_batch(pixels: np.ndarray, labels: np.ndarray) -> bytes:
    """Return a batch pickled as by Python 2 in the official archive, with the same opcodes."""
    return b"".join(
        [
            b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03U\x06labelsq\x04]q\x05(",
            *(b"K" + bytes([label]) for label in labels),
            b"eU\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\t",
            b"(K\x01J" + struct.pack("<i", len(pixels)) + b"M\x00\x0c\x86cnumpy\ndtype\nq\nU\x02u1K\x00K\x01\x87Rq\x0b",
            b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<i", pixels.size),
            pixels.tobytes(),
            b"tbU\tfilenamesq\x0c]q\r(U\x05a.pngq\x0eU\x05b.pngq\x0feu.",
        ]
    )


def tar_gz(files: dict[str, bytes]) -> bytes:
    """Return an archive of these files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def write(path: Path, data: bytes | str) -> None:
    """Write a file, gzipped if its name ends in .gz, and create its folder if needed."""
    data = data.encode() if isinstance(data, str) else data
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" and not path.name.endswith(".tar.gz") else data)


class Server:
    """A web server: ``files`` by path; responses to paths in ``short`` are cut off."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.short = False
        self.n_requests = 0
        self.address = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Handle a request."""
        self.n_requests += 1
        data = self.files.get(request.path)
        if data is None:
            request.send_error(404)
            return
        request.send_response(200)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data[: len(data) // 2] if self.short else data)


@contextlib.contextmanager
def serving():
    """Yield a `Server` on this machine."""
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            server.answer(self)

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        server.address = f"http://127.0.0.1:{listening.server_port}/"
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()
