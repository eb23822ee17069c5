"""Programs as C99: readable, self-contained, without heap, floats or anything that C leaves undefined."""

from cvm.export.c.writing import Exported, arena_bytes, exported

__all__ = ["Exported", "arena_bytes", "exported"]
