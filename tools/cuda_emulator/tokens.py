"""The tokens of one line of LLVM IR, and a cursor over them that reads types."""

from __future__ import annotations

import re

from tools.cuda_emulator.defects import unknown
from tools.cuda_emulator.kinds import DOUBLE, VOID, Type, integer, pointer, vector_of

__all__ = ["Cursor", "unquoted"]

_TOKEN = re.compile(
    r"""c?"[^"]*" | [%@](?:"[^"]*"|[\w.$-]+) | [!\#][\w.]* | -?\d+\.\d+(?:e[+-]\d+)? | 0x[0-9A-Fa-f]+ | -?\d+
        | \.\.\. | [\w.]+ | [<>{}()\[\],=*:|]""",
    re.X,
)


def unquoted(name: str) -> str:
    """A name without its quotes: ``%"a b"`` is ``%a b``."""
    return name[0] + name[2:-1] if name[1:2] == '"' else name


class Cursor:
    """The tokens of a line and how many of them have been read."""

    def __init__(self, line: str) -> None:
        self.line, self.tokens, self.at = line, _TOKEN.findall(_uncommented(line)), 0

    def __bool__(self) -> bool:
        return self.at < len(self.tokens)

    @property
    def next(self) -> str:
        """The next token, which stays; empty at the end."""
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        """Read a token."""
        token = self.next
        if not token:
            raise unknown("the end of a line", self.line)
        self.at += 1
        return token

    def expect(self, *tokens: str) -> None:
        """Read tokens that must be there."""
        for token in tokens:
            if self.take() != token:
                raise unknown(f"{self.tokens[self.at - 1]!r} in the place of {token!r}", self.line)

    def accept(self, *tokens: str) -> str | None:
        """Read a token if it is one of these."""
        return self.take() if self.next in tokens else None

    def flags(self, *known: str) -> frozenset[str]:
        """Read any of these words."""
        found = set()
        while self.next in known:
            found.add(self.take())
        return frozenset(found)

    def number(self) -> int:
        """Read a decimal number."""
        token = self.take()
        if not token.lstrip("-").isdigit():
            raise unknown(f"{token!r} in the place of a number", self.line)
        return int(token)

    def type(self) -> Type:
        """Read a type."""
        token = self.take()
        if token[0] == "i" and token[1:].isdigit():
            return integer(int(token[1:]))
        match token:
            case "void":
                return VOID
            case "double":
                return DOUBLE
            case "ptr":
                return pointer(self.space())
            case "<" | "[":
                count = self.number()
                self.expect("x")
                element = self.type()
                self.expect(">" if token == "<" else "]")
                return vector_of(count, element) if token == "<" else Type("array", count=count, parts=(element,))
            case "{":
                parts = [self.type()]
                while self.accept(","):
                    parts.append(self.type())
                self.expect("}")
                return Type("struct", parts=tuple(parts))
        raise unknown(f"the type {token}", self.line)

    def space(self) -> int:
        """Read ``addrspace(n)``, if it is there; else 0."""
        if not self.accept("addrspace"):
            return 0
        self.expect("(")
        number = self.number()
        self.expect(")")
        return number


def _uncommented(line: str) -> str:
    """A line without what follows a semicolon outside quotes."""
    if ";" not in line:
        return line
    inside = False
    for place, letter in enumerate(line):
        if letter == '"':
            inside = not inside
        elif letter == ";" and not inside:
            return line[:place]
    return line
