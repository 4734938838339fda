"""``python -m adaptive_labels.losses.fused build``: compile the kernel of the fused loss."""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> int:
    """Build the kernel, or say whether there is one."""
    from adaptive_labels.losses.fused.build import build
    from adaptive_labels.losses.fused.kernel import find

    if arguments == ["build"]:
        try:
            print(f"built {build()}")
        except ValueError as error:
            print(f"adaptive_labels.losses.fused.kernel: {error}", file=sys.stderr)
            return 2
        return 0
    if not arguments:
        kernel, reason = find()
        print("the kernel is there" if kernel is not None else reason)
        return 0
    print("adaptive_labels.losses.fused.kernel: the one command is `build`", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
