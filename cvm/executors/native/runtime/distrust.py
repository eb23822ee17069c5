"""The exceptions that say that machine code must not be used for a network."""

from __future__ import annotations

__all__ = ["Distrusted", "Failed"]


class Distrusted(Exception):
    """A plan was not proven, its code could not be made, or the code failed its rehearsal. The message says which."""


class Failed(Distrusted):
    """The machine for which the code was made fails its trial. The message names the class of kernels."""
