"""How a command declares itself: the function that Typer reads, and examples for the help."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from cvm.records import dataclass

__all__ = ["Command", "Group"]


@dataclass(frozen=True, slots=True)
class Command:
    """A command: the function's signature declares arguments and options, its docstring is the help."""

    function: Callable[..., int]
    examples: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The first sentence of the help, for lists of commands."""
        first = " ".join((self.function.__doc__ or "").split("\n\n")[0].split())
        return re.split(r"(?<=\.)\s", first)[0]

    @property
    def epilog(self) -> str:
        """The examples as the end of a help text; its first character keeps the lines separate."""
        return "\b\nExamples:\n" + "\n".join(f"  {example}" for example in self.examples)


@dataclass(frozen=True, slots=True)
class Group:
    """Commands under a common name."""

    summary: str
    commands: Mapping[str, Command]
