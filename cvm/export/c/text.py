"""Lines of C with their indentation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

__all__ = ["Text", "comment"]


class Text:
    """Lines of C inside nested blocks."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def line(self, words: str) -> None:
        """Add a line."""
        self.lines.append("    " * self._depth + words if words else "")

    def all(self, lines: Sequence[str]) -> None:
        """Add lines."""
        for words in lines:
            self.line(words)

    @contextmanager
    def block(self, opening: str, closing: str = "}") -> Iterator[None]:
        """A block: what is added inside is indented."""
        self.line(f"{opening} {{" if opening else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line(closing)

    @contextmanager
    def loop(self, counter: str, end: int | str, begin: int | str = 0) -> Iterator[None]:
        """A loop over ``counter`` from ``begin`` up to, not including, ``end``. A loop of one step has no loop."""
        if end == 1 and begin == 0:
            with self.block(""):
                declared = len(self.lines)
                self.line(f"const int32_t {counter} = 0;")
                yield
                if not any(re.search(rf"\b{counter}\b", words) for words in self.lines[declared + 1 :]):
                    del self.lines[declared]
            return
        with self.block(f"for (int32_t {counter} = {begin}; {counter} < {end}; {counter}++)"):
            yield

    @contextmanager
    def loops(self, counters: Sequence[str], extents: Sequence[int]) -> Iterator[None]:
        """Loops inside each other, the first one outermost."""
        if not counters:
            yield
            return
        with self.loop(counters[0], extents[0]), self.loops(counters[1:], extents[1:]):
            yield

    def __str__(self) -> str:
        return "\n".join(self.lines)


def comment(words: str) -> str:
    """Words that can stand in a comment of C: printable ASCII, and no end of the comment."""
    return re.sub("[^ -~]", "?", words).replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")
