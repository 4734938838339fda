"""Small words for notes and messages."""


def counted(count: int, thing: str, things: str | None = None) -> str:
    """The number with its noun: '1 file', '1,203 files'."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"
