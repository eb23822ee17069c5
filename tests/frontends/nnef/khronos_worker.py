"""What the package ``nnef`` of Khronos says of documents, one JSON line on stdout for each path on stdin.

Run as a program of its own, since the package ends the process on some documents. It imports nothing of cvm, so that
the interpreter may be one that has the package and not cvm.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any


def verdict(text: str) -> dict[str, Any]:
    """Whether a document is accepted, with the shapes of its tensors."""
    import nnef

    own = re.findall(r"\bfragment\s+([A-Za-z_]\w*)[^;{]*\{", text)
    try:
        graph = nnef.parse_string(text, lowered=own)
    except nnef.Error as error:
        return {"accepted": False, "stage": "parse", "message": str(error)}
    try:
        nnef.infer_shapes(graph)
    except nnef.Error as error:
        return {"accepted": False, "stage": "shapes", "message": str(error)}
    shapes = {name: tensor.shape and list(tensor.shape) for name, tensor in graph.tensors.items()}
    return {"accepted": True, "stage": "shapes", "shapes": shapes}


def main() -> None:
    """Answer for each line."""
    for line in sys.stdin:
        try:
            answer = verdict(Path(line.rstrip("\n")).read_text("utf-8"))
        except Exception as error:
            answer = {"accepted": False, "stage": "crash", "message": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
