"""A data set as its makers publish it: a folder of files with known sums, or that folder in one archive."""

import hashlib
import lzma
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from adaptive_labels.data.dataset import DataError
from adaptive_labels.data.download import download
from adaptive_labels.files import write_bytes

ARCHIVE_SUFFIXES = (".tar.gz", ".tgz", ".tar", ".tar.xz", ".tar.bz2")
BROKEN_ARCHIVE = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError)


@dataclass(frozen=True)
class Bundle:
    """What is published: the data set's name here, its folder, the MD5 of each file in it, and its archive.

    The archive at `url` is a .tar.gz of the folder, with the MD5 `archive_md5`; others are read as well, because it is
    the files that are checked.
    """

    name: str
    folder: str
    archive: str
    md5: Mapping[str, str]
    archive_md5: str
    url: str

    @property
    def archives(self) -> list[str]:
        """The names an archive may have."""
        return [self.archive + suffix for suffix in ARCHIVE_SUFFIXES]


def find(bundle: Bundle, data_dir: Path | None) -> Path:
    """The folder or, failing that, the archive, in `data_dir` (the current folder if None) or that path itself."""
    root = Path() if data_dir is None else data_dir.expanduser()
    if root.is_file():
        return root
    folders = [root / bundle.folder, root]
    for folder in folders:
        if not _missing(bundle, folder):
            return folder
    for name in bundle.archives:
        if (root / name).is_file():
            return root / name
    there = folders[0] if folders[0].is_dir() else root
    absent = _missing(bundle, there)
    lacks = f" ({there} lacks {', '.join(absent)})" if len(absent) < len(bundle.md5) else ""
    where = f"in {root}" if data_dir is not None else "in the current folder"
    raise DataError(
        f"The data set {bundle.name} is neither as {bundle.folder}/ nor as {bundle.archives[0]} {where}{lacks}; name "
        f"the folder that has it with --data-dir, or have {bundle.url} fetched by "
        f"`alr data prepare {bundle.name} --data-dir DIR`."
    )


def read_members(bundle: Bundle, path: Path) -> dict[str, bytes]:
    """The content of each file, from the folder or the archive at `path`; a DataError if one is not as published."""
    if path.is_dir():
        contents = {name: (path / name).read_bytes() for name in bundle.md5}
    else:
        contents = _read_archive(bundle, path)
    for name, expected in bundle.md5.items():
        found = hashlib.md5(contents[name], usedforsecurity=False).hexdigest()
        if found != expected:
            raise DataError(
                f"{path / name} is not the published file of {bundle.name}: its MD5 is {found}, expected is {expected}."
            )
    return contents


def fetch(bundle: Bundle, data_dir: Path, progress: Callable[[int, int | None], None]) -> list[str]:
    """Download what is not there yet, and unpack it; what was done, in sentences.

    Args:
        bundle: what to get.
        data_dir: the folder it goes to, made if it is not there.
        progress: called with the bytes that have come and those that will, or None where the server does not say.
    """
    done: list[str] = []
    if data_dir.is_file():
        return done
    if _missing(bundle, data_dir / bundle.folder) and _missing(bundle, data_dir):
        archive = next((data_dir / name for name in bundle.archives if (data_dir / name).is_file()), None)
        if archive is None:
            archive = data_dir / bundle.archives[0]
            download(bundle.url, archive, md5=bundle.archive_md5, progress=progress)
            done.append(f"Downloaded {archive} from {bundle.url}.")
        folder = data_dir / bundle.folder
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in read_members(bundle, archive).items():
            write_bytes(folder / name, content)
        done.append(f"Unpacked {archive} to {folder}, which is read from now on.")
    return done


def _missing(bundle: Bundle, folder: Path) -> list[str]:
    return [name for name in bundle.md5 if not (folder / name).is_file()]


def _read_archive(bundle: Bundle, path: Path) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if name in bundle.md5 and PurePosixPath(member.name).parent.name == bundle.folder:
                    file = archive.extractfile(member)
                    if file is not None:
                        contents[name] = file.read()
                if len(contents) == len(bundle.md5):  # what follows need not be decompressed
                    return contents
    except BROKEN_ARCHIVE as error:
        raise DataError(f"The archive {path} cannot be read: {error}.") from error
    lacking = [name for name in bundle.md5 if name not in contents]
    raise DataError(f"The archive {path} has no {bundle.folder}/{lacking[0]}.")
