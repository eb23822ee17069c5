"""Small cases of every kernel and format with what the independent model gives, as a file of plain JSON.

    python -m tests.frontends.openvx.vectors        writes vectors.json beside this module

The file holds what the specification means in numbers, so that neither the product nor the model can drift unseen.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.frontends.openvx.draws import DRAWS
from tests.frontends.openvx.model import expected

PATH = Path(__file__).with_name("vectors.json")
FORMATS = ("U8", "S8", "S16")
EACH = 3
_MOST = 150
"""Elements of one case."""


def drawn() -> list[dict[str, Any]]:
    """The cases, the same every time."""
    found = []
    for kernel, draw in DRAWS.items():
        for fmt in FORMATS:
            random, count = Random(f"vectors {kernel} {fmt}"), 0
            while count < EACH:
                case = draw(random, fmt)
                if sum(items.size for items in case.arrays.values()) + np.prod(case.shape) > _MOST:
                    continue
                wanted = expected(kernel, fmt, dict(case.params), dict(case.arrays), case.shape)
                arrays = {name: items.tolist() for name, items in case.arrays.items()}
                found.append(
                    {"kernel": kernel, "format": fmt, "params": dict(case.params), **arrays, "outputs": wanted.tolist()}
                )
                count += 1
    return found


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in drawn())
    PATH.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
