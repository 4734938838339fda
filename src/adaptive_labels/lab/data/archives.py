"""Archives with data in them: tar files, read member by member, and zip files, unpacked once into the cache."""

import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from adaptive_labels.errors import UserError
from adaptive_labels.lab import limits
from adaptive_labels.lab.data.cache import cache_folder, hash_of, kept
from adaptive_labels.lab.data.dataset import DataError
from adaptive_labels.lab.files import file_hash, open_regular
from adaptive_labels.lab.words import first_line

ARCHIVE_SUFFIXES = (".tar.gz", ".tgz", ".tar", ".tar.xz", ".tar.bz2")
BROKEN_ARCHIVE = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError)


def why_broken(error: Exception) -> str:
    """What is wrong with an archive, in words."""
    return (getattr(error, "strerror", None) or first_line(error)).rstrip(":")


def members(path: Path) -> Iterator[tuple[PurePosixPath, IO[bytes]]]:
    """Yield the name and the open content of each file in an archive, decompressed as it is read."""
    taken = 0
    with open_regular(path) as content, tarfile.open(fileobj=content) as archive:
        for number, member in enumerate(archive, start=1):
            taken += member.size
            limits.check(limits.MEMBERS, number, f"The archive {path}")
            limits.check(limits.ARCHIVE, taken, f"The archive {path}")
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                with file:
                    yield PurePosixPath(member.name), file


def unzipped(path: Path) -> Path:
    """The folder with what an archive holds: the innermost one that everything is in."""

    def make(folder: Path) -> None:
        try:
            with open_regular(path) as file, zipfile.ZipFile(file) as archive:
                # Finder adds a shadow of every file.
                wanted = [info for info in archive.infolist() if not info.filename.startswith("__MACOSX/")]
                limits.check(limits.MEMBERS, len(wanted), path)
                size, free = sum(info.file_size for info in wanted), shutil.disk_usage(folder).free
                limits.check(limits.ARCHIVE, size, path)
                if size > free:
                    room = f"{cache_folder()} has room for {free / 1e9:,.1f} GB only"
                    raise DataError(f"{path} holds {size / 1e9:,.1f} GB, but {room}.")
                for info in wanted:  # absolute names and those with .. in them stay inside
                    archive.extract(info, folder / path.stem)
        except UserError:
            raise
        except Exception as error:  # each way to compress and each part of an archive has errors of its own
            if isinstance(error, OSError) and error.errno is not None:  # the disk's
                raise
            raise DataError(f"{path} cannot be unpacked: {error}.") from error

    found = kept("unzipped", hash_of([file_hash(path), path.stem]), make) / path.stem
    if not found.is_dir():
        raise DataError(f"{path} is empty.")
    while len(inside := [one for one in found.iterdir() if not one.name.startswith(".")]) == 1 and inside[0].is_dir():
        found = inside[0]
    return found
