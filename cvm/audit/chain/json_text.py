"""JSON of strangers: a deployment file, an answer of a node."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["read_json"]

_NESTING = 64
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(rb"[\[\]{}]")


def read_json(data: bytes) -> Any:
    """The value. Raises ValueError for bytes that are no JSON, and for brackets more than 64 deep.

    The parser of Python descends with the brackets, and may end the process where the limit on recursion was raised.
    """
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", data)):
        depth += 1 if bracket in b"[{" else -1
        if depth > _NESTING:
            raise ValueError("brackets are nested too deep")
    return json.loads(data)
