"""A generated page: its file, its text, and the heading of the part that holds measured numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DOCS", "Page"]

DOCS = Path(__file__).resolve().parents[2] / "docs"


@dataclass(frozen=True)
class Page:
    """A page of docs/: a text that is the same on every machine and, below ``heading``, numbers measured on one.

    ``text`` returns the first part. A page without a ``heading`` has no second part; ``measure`` measures that part.
    """

    name: str
    text: Callable[[], str]
    heading: str = ""
    measure: Callable[[], str] | None = None

    @property
    def file(self) -> Path:
        """The file of the page."""
        return DOCS / self.name

    def written(self) -> str:
        """The text of the file; empty if the file does not exist."""
        return self.file.read_text(encoding="utf-8") if self.file.is_file() else ""

    def fresh(self) -> bool:
        """Whether the file has the current text. The measured numbers are not compared."""
        if self.heading:
            return self.written().startswith(self.text() + self.heading)
        return self.written() == self.text()

    def write(self, measure: bool = False) -> None:
        """Write the file. Measured numbers are kept, unless ``measure`` asks for new ones or there are none."""
        text = self.text() + self.heading
        kept = self.written().partition(self.heading)[2] if self.heading else ""
        if self.measure is not None and (measure or not kept):
            kept = self.measure()
        self.file.write_text(text + kept, encoding="utf-8")
