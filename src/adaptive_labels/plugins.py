"""Methods and models of your own: a Python file that registers them, and the hash that tells its versions apart."""

import functools
import hashlib
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from adaptive_labels.errors import UserError

_PREFIX = "adaptive_labels_plugin_"
_loaded: dict[str, str] = {}  # a plugin's path → the hash of its content


def load_plugin(path: str | Path) -> None:
    """Run a Python file, whose decorators register methods and models. One that has been run already is left alone.

    The file is a program: it does what it likes.
    """
    file = Path(path).expanduser().absolute()
    try:
        source = file.read_bytes()
    except OSError as error:
        raise UserError(f"plugin: {path} cannot be read: {error.strerror}") from error
    content_hash = hashlib.sha256(source).hexdigest()
    if _loaded.get(str(file)) == content_hash:
        return
    module = ModuleType(_PREFIX + file.stem)
    module.__file__ = str(file)
    vars(module)["__source_hash__"] = content_hash
    before, sys.modules[module.__name__] = sys.modules.get(module.__name__), module
    try:
        exec(compile(source, file, "exec"), vars(module))
    except Exception as error:
        if before is not None:
            sys.modules[module.__name__] = before
        raise UserError(f"plugin: {path}, line {_line(error, file)}: {_words(error)}") from error
    _loaded[str(file)] = content_hash


def loaded_plugins() -> tuple[str, ...]:
    """The paths of the plugins that this process has run: other processes that do its runs need them, too."""
    return tuple(_loaded)


def source_hash(registered: Any) -> str | None:
    """Which code a registered function or class is: None for the package's own.

    Of a plugin it is the hash of the whole file; in a notebook or a script that of the function's or class's source. It
    is empty where the source cannot be read.
    """
    while isinstance(registered, functools.partial):
        registered = registered.func
    if registered.__module__.partition(".")[0] == "adaptive_labels":
        return None
    whole = getattr(sys.modules.get(registered.__module__), "__source_hash__", None)
    if whole is not None:
        return str(whole)
    functions = [member for member in vars(registered).values() if inspect.isfunction(member)]  # of a class
    try:
        source = "".join(map(inspect.getsource, functions)) if inspect.isclass(registered) else ""
        source = source or inspect.getsource(registered)
    except (OSError, TypeError):
        return ""
    return hashlib.sha256(source.encode()).hexdigest()


def in_session_only(registered: Any) -> bool:
    """Whether code was typed into a session, so that no other process can have it."""
    main = sys.modules["__main__"]
    return registered.__module__ == "__main__" and not Path(getattr(main, "__file__", None) or "<none>").exists()


def _line(error: Exception, file: Path) -> int:
    """The line of a file in which an error arose."""
    if isinstance(error, SyntaxError):
        return error.lineno or 1
    line, trace = 1, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
