"""The exception that says that machine code must not be used for a network."""

from __future__ import annotations

__all__ = ["Distrusted"]


class Distrusted(Exception):
    """A plan was not proven, its code could not be made, or the code failed its rehearsal. The message says which."""
