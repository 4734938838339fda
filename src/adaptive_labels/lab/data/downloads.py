"""Data sets as their makers publish them: where they are looked for, and downloads with known checksums."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from adaptive_labels.lab.data.archives import ARCHIVE_SUFFIXES
from adaptive_labels.lab.data.dataset import DataError
from adaptive_labels.lab.files import expanded, write_with

OnProgress = Callable[[int, int | None], None]
"""Called with the bytes that have come and those that will; None where the server does not say."""

_CHUNK = 1 << 18
_TIMEOUT = 30  # seconds without a byte


def place_of(data_dir: Path | None) -> tuple[Path, str]:
    """The folder that is looked in, and the same in words."""
    if data_dir is None:
        return Path(), "in the current folder"
    return expanded(data_dir), f"in {expanded(data_dir)}"


def find_published(root: Path, folder: str, archive: str, is_complete: Callable[[Path], bool]) -> Path | None:
    """The complete folder in `root`, or `root` itself, or else an archive in it or at it."""
    if root.is_file():
        return root
    for place in (root / folder, root):
        if is_complete(place):
            return place
    archives = (root / (archive + suffix) for suffix in ARCHIVE_SUFFIXES)
    return next(filter(Path.is_file, archives), None)


def not_found(name: str, folder: str, archive: str, where: str, url: str) -> DataError:
    return DataError(
        f"The data set {name} is neither as {folder} nor as {archive}.tar.gz {where}; name the folder that has it with "
        f"--data-dir, or have it fetched from {url} by `alr data prepare {name} --data-dir DIR`."
    )


def fetch(files: Mapping[Path, tuple[str, str]], progress: OnProgress) -> list[str]:
    """Download the files that are not there, each from its address with its checksum; what was done, in sentences."""
    done = []
    for path, (url, checksum) in files.items():
        if not path.is_file():
            download(url, path, checksum, progress)
            done.append(f"Downloaded {path} from {url}.")
    return done


def download(url: str, path: Path, checksum: str, progress: OnProgress) -> None:
    """Download `url` to `path`; a DataError, and no file, if it cannot be had or its checksum is another.

    The checksum is an MD5 or SHA-256 in hexadecimal, told apart by its length.
    """
    kind = "SHA-256" if len(checksum) == 64 else "MD5"
    digest = hashlib.sha256() if kind == "SHA-256" else hashlib.md5(usedforsecurity=False)

    def fill(file: IO[bytes]) -> None:
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:
                length = answer.headers.get("Content-Length")
                total = int(length) if length is not None else None
                while chunk := answer.read(_CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                    progress(file.tell(), total)
            if total is not None and file.tell() != total:
                raise http.client.IncompleteRead(b"", total - file.tell())
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()  # it is the server's answer, too, and holds the connection
            reason = getattr(error, "reason", None) or error
            raise DataError(
                f"{url} cannot be downloaded: {reason}; you can get it another way and put it at {path}."
            ) from error
        if digest.hexdigest() != checksum:
            here = digest.hexdigest()
            raise DataError(f"{url} is not the file it should be: its {kind} is {here}, expected is {checksum}.")

    path.parent.mkdir(parents=True, exist_ok=True)
    write_with(path, fill)
