"""One file from the web, checked before it gets its name."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO

from adaptive_labels.data.dataset import DataError
from adaptive_labels.files import write_with

_CHUNK = 1 << 18
_TIMEOUT = 30  # seconds without a byte


def download(
    url: str,
    path: Path,
    *,
    md5: str | None = None,
    sha256: str | None = None,
    progress: Callable[[int, int | None], None],
) -> None:
    """Download `url` to `path`; a DataError, and no file, if it cannot be had or is not the one with that sum.

    Args:
        url: where the file is.
        path: its name here; its folder is made if it is not there.
        md5: of the content, in hexadecimal; this or the next.
        sha256: of the content, in hexadecimal.
        progress: called with the bytes that have come and those that will, or None where the server does not say.
    """
    name, expected = ("MD5", md5) if md5 is not None else ("SHA-256", sha256)
    digest = hashlib.md5(usedforsecurity=False) if md5 is not None else hashlib.sha256()

    def fill(file: IO[bytes]) -> None:
        try:
            _stream(url, file, digest, progress)
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()  # it is the server's answer, too, and holds the connection
            reason = getattr(error, "reason", None) or error
            raise DataError(
                f"{url} cannot be downloaded: {reason}; you can get it another way and put it at {path}."
            ) from error
        found = digest.hexdigest()
        if found != expected:
            raise DataError(f"{url} is not the file it should be: its {name} is {found}, expected is {expected}.")

    path.parent.mkdir(parents=True, exist_ok=True)
    write_with(path, fill)


def _stream(url: str, file: IO[bytes], digest: "hashlib._Hash", progress: Callable[[int, int | None], None]) -> None:
    """Write what comes to the file, and add it to the digest."""
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:
        length = answer.headers.get("Content-Length")
        total = int(length) if length is not None else None
        done = 0
        while chunk := answer.read(_CHUNK):
            file.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            progress(done, total)
    if total is not None and done != total:
        raise http.client.IncompleteRead(b"", total - done)
