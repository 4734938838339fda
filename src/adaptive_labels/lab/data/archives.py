"""Archives with data in them: tar files, read member by member."""

import lzma
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from adaptive_labels.lab.files import open_regular
from adaptive_labels.lab.limits import check_limit
from adaptive_labels.lab.words import first_line

ARCHIVE_SUFFIXES = (".tar.gz", ".tgz", ".tar", ".tar.xz", ".tar.bz2")
BROKEN_ARCHIVE = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError)


def why_broken(error: Exception) -> str:
    return (getattr(error, "strerror", None) or first_line(error)).rstrip(":")


def members(path: Path) -> Iterator[tuple[PurePosixPath, IO[bytes]]]:
    """Yield the name and the open content of each file in an archive, decompressed as it is read."""
    taken = 0
    with open_regular(path) as content, tarfile.open(fileobj=content) as archive:
        for number, member in enumerate(archive, start=1):
            taken += member.size
            check_limit("members", number, f"The archive {path}")
            check_limit("archive", taken, f"The archive {path}")
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                with file:
                    yield PurePosixPath(member.name), file
