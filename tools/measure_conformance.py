"""Run the cases of `cvm conformance` in all engines, and write what is found to tools/conformance.json.

    python -m tools.measure_conformance [ENGINE ..]

`tools/generate_pages.py conformance` makes docs/conformance.md of it, without an engine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cvm.comparison import setting
from cvm.conformance import statement

__all__ = ["ENGINES", "RESULTS", "written"]

RESULTS = Path(__file__).with_name("conformance.json")
ENGINES = ("onnxruntime", "openvino:property.INFERENCE_PRECISION_HINT=f32", "litert", "tflite-reference")


def written(document: Mapping[str, Any]) -> str:
    """The document with one case a line, so that two versions of the file can be compared."""
    engines = []
    for engine in document["engines"]:
        rows = ",\n".join(json.dumps(row) for row in engine["cases"])
        head = json.dumps({key: value for key, value in engine.items() if key != "cases"})
        engines.append(f'{head[:-1]}, "cases": [\n{rows}\n]}}')
    return '{"engines": [\n' + ",\n".join(engines) + "\n]}\n"


def main(arguments: list[str]) -> int:
    found = statement([setting(text) for text in arguments or ENGINES])
    RESULTS.write_text(written(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
