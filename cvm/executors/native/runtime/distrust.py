"""The verdict that machine code is not to be used for a network."""

from __future__ import annotations

__all__ = ["Distrusted"]


class Distrusted(Exception):
    """A plan was not proven, its code could not be made, or it gave other values when it was tried; in words."""
