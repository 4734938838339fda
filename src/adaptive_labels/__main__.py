"""`alr` and `python -m adaptive_labels`: the command line, if what it needs is installed."""

import importlib.util
import sys

# The packages of the extra `lab`, by the names they are imported under.
NEEDED = ("filelock", "PIL", "rich", "safetensors", "scipy", "typer")


def main() -> None:
    """Run the command, or say how to install what it needs."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        words = f"alr: the command needs {', '.join(missing)}: pip install 'adaptive-labels[lab]'"
        print(words, file=sys.stderr)
        sys.exit(2)
    from adaptive_labels.cli import main as run

    run()


if __name__ == "__main__":
    main()
