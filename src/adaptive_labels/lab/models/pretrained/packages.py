"""The files of installed packages: found without importing the package, and checked by their SHA-256."""

import functools
import importlib.util
import os
from importlib import metadata
from pathlib import Path

from adaptive_labels.errors import UserError
from adaptive_labels.lab.files import file_hash

INSTALL = "pip install 'adaptive-labels[encoders]'"


SWITCH = "ALR_ENCODERS"
"""The environment variable that, set to "off", keeps pretrained encoders from being chosen by default."""


def is_switched_off() -> bool:
    """Whether no pretrained encoder is to be chosen by default."""
    return os.environ.get(SWITCH) == "off"


def is_offered(package: str, *modules: str) -> bool:
    """Whether a package and importable modules are installed, and pretrained encoders are not switched off."""
    if is_switched_off() or not all(map(importlib.util.find_spec, modules)):
        return False
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


class PackageError(UserError):
    """A package that a pretrained network needs is missing, or its file is not the published one."""


@functools.lru_cache
def packaged_file(needed_by: str, package: str, name: str, sha256: str) -> Path:
    """Where a file of an installed package is; none of the package's code is run.

    Args:
        needed_by: the model that needs the file, for the message.
        package: the package's name, as pip has it.
        name: the file's path from the folder that packages are installed in.
        sha256: of the file's content, in hexadecimal.
    """
    try:
        path = Path(str(metadata.distribution(package).locate_file(name)))
    except metadata.PackageNotFoundError as error:
        raise PackageError(f"{needed_by!r} needs {package}, which is not installed: {INSTALL}") from error
    try:
        digest = file_hash(path)
    except OSError as error:
        raise PackageError(f"{path} of {package} cannot be read ({error.strerror}); install it again") from error
    if digest != sha256:
        raise PackageError(
            f"{path} is not the file that {needed_by!r} was made for (SHA-256 {digest[:12]}… instead of "
            f"{sha256[:12]}…); install {package} again"
        )
    return path
