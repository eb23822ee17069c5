"""How a command declares itself: the function that Typer reads, and examples for its help."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Command", "Group"]


@dataclass(frozen=True, slots=True)
class Command:
    """A command. The function's signature is its arguments and options, its docstring the help; it returns the code."""

    function: Callable[..., int]
    examples: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The first sentence of the help, which lists of commands show."""
        first = " ".join((self.function.__doc__ or "").split("\n\n")[0].split())
        return re.split(r"(?<=\.)\s", first)[0]

    @property
    def epilog(self) -> str:
        """The examples as the end of a help text; its first character keeps the lines apart."""
        return "\b\nExamples:\n" + "\n".join(f"  {example}" for example in self.examples)


@dataclass(frozen=True, slots=True)
class Group:
    """Commands under a common name."""

    summary: str
    commands: Mapping[str, Command]
