"""`alr` and `python -m adaptive_labels`: the command line, if the extra `lab` is installed."""

import signal
import sys

# The packages of the extra `lab`, by the names they are imported under.
NEEDED = ("filelock", "jinja2", "pandas", "PIL", "rich", "safetensors", "scipy", "sklearn", "typer")


def main() -> None:
    """Run the command, or say how to install what it needs; Ctrl-C ends it with a sentence, whenever it comes."""
    try:
        if lacks := missing():
            print(f"alr: the command needs {', '.join(lacks)}: pip install 'adaptive-labels[lab]'", file=sys.stderr)
            sys.exit(2)
        from adaptive_labels.lab.cli import main as run

        run()
    except (KeyboardInterrupt, Exception) as error:  # while the command was being imported, or was ending already
        if not _is_interrupt(error):
            raise
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("alr: stopped; the same command goes on from where it was", file=sys.stderr)
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Python ends now, and has nothing left to interrupt


def missing() -> list[str]:
    """The packages of the extra `lab` that are not installed."""
    import importlib.util  # here, where Ctrl-C gets a sentence already

    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: a library in C that it meets while it is loaded says that it failed."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or _is_interrupt(error.__cause__))


if __name__ == "__main__":
    main()
