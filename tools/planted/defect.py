"""A defect: one module of the native executor with other source text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["MODULES", "Defect", "dotted", "source"]

PACKAGE = "cvm.executors.native"
FOLDER = Path(__file__).resolve().parents[2] / "cvm" / "executors" / "native"
MODULES = (
    "arena", "calls", "contraction", "contractions", "cover", "depthwise", "depthwise_sums", "elements", "epilogue",
    "exact", "exchange", "expressions", "folds", "formats", "formula", "formulas", "fused", "gains", "groups", "homes",
    "ir", "layout", "loops", "machine", "merging", "movement", "narrow", "nest", "operands", "packing", "packs",
    "planner", "pointwise", "reductions", "requantize", "residual", "saturation", "sharing", "square_sums", "squares",
    "steps", "sums", "tiles", "transposition", "view", "vision", "window_sums", "windows", "winograd",
)  # fmt: skip
"""The planner and the emitter, which the checker, the rehearsal and the trial guard."""


_FILES = {file.stem: file for file in FOLDER.rglob("*.py") if file.stem != "__init__"}


def dotted(module: str) -> str:
    """The full name of a module, which defects name without its package."""
    return ".".join([PACKAGE, *_FILES[module].relative_to(FOLDER).with_suffix("").parts])


def source(module: str) -> str:
    """The text of a module."""
    return _FILES[module].read_text("utf-8")


@dataclass(frozen=True)
class Defect:
    """The name of a change, its class, and the changed module."""

    name: str
    kind: str
    module: str
    text: str

    @staticmethod
    def scripted(kind: str, module: str, old: str, new: str) -> Defect:
        """A defect that replaces a snippet of the text. Raises `ValueError` unless it occurs exactly once."""
        text = source(module)
        if text.count(old) != 1 or old == new:
            raise ValueError(f"{module}: {text.count(old)} occurrences instead of one: {old!r}")
        return Defect(f"{module}: {_line(old)} -> {_line(new)}", kind, module, text.replace(old, new))


def _line(text: str) -> str:
    return " ".join(text.split())
