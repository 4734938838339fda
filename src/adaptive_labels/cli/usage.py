"""How the command line itself answers: fast help, and one sentence for what was mistyped."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

# typer brings its own copy of click or imports it, by its version: this is the class in either.
UsageError: Any = typer.BadParameter.__mro__[1]


class Group(TyperGroup):
    """A group of commands whose help takes no time."""

    def get_help_option(self, ctx: Any) -> Any:
        """The option --help, off unless given: for one that is left open typer imports pydantic, in 0.15 s."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option


def usage_sentence(error: Any) -> str:
    """A usage error in one sentence, with the nearest name and where the help is."""
    near = getattr(error, "possibilities", None)
    if near:
        message = f"{error.message}, did you mean {' or '.join(sorted(near))}?"
    else:
        message = error.format_message().replace(". Did you mean", ", did you mean").rstrip(".")
    message = message[0].lower() + message[1:]
    context = error.ctx
    if context is None:
        return message
    join = " " if message.endswith("?") else "; "
    return f"{message}{join}see `{context.command_path} --help`"
