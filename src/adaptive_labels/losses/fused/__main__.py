"""``python -m adaptive_labels.losses.fused build``: compile the kernel of the fused loss."""

import sys


def main(arguments: list[str]) -> int:
    """Build the kernel, or say whether it is built."""
    from adaptive_labels.losses.fused.build import build
    from adaptive_labels.losses.fused.kernel import find

    try:
        if arguments not in ([], ["build"]):
            raise ValueError("the one command is `build`")
        print(f"built {build()}" if arguments else find()[1] or "the kernel is there")
    except ValueError as error:
        print(f"adaptive_labels.losses.fused: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
