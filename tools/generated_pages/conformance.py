"""The page ``docs/conformance.md``: what engines do to each quantised operator, from tools/conformance.json."""

from __future__ import annotations

import json
from pathlib import Path

from cvm.conformance import VERDICTS, markdown
from tools.generated_pages.page import Page

__all__ = ["PAGE", "text"]

RESULTS = Path(__file__).resolve().parents[1] / "conformance.json"

_INTRODUCTION = """\
# What engines do to quantised operators

Generated from `tools/conformance.json` by `tools/generate_pages.py`; do not edit. `python -m tools.measure_conformance`
runs the engines and writes that file; `cvm conformance --engine ENGINE` states the same of one engine.

Each case is a model of one operator whose numbers are hard: products of scales that are no powers of two, ties and
numbers near to ties, saturation, tiny and huge scales, zero points at both ends of the range, padding, strides,
dilations, wide sums. Data and weights are codes of 8 and 16 bits, per tensor or per channel, and weights of 4 bits in
TFLite. Inputs are drawn codes with both ends of the range, or all codes of 8 bits. The exact codes are the exact
meaning of the file, rounded once ([onnx.md](onnx.md), [tflite.md](tflite.md)).

{verdicts}

A rule is a rounding model of [compare.md](compare.md) that gives the engine's codes; it is tried on all codes of a
case. "none" means that no model gives a code that differs. Measured on one machine (AMD EPYC, Zen 5).

"""


def text() -> str:
    """The page."""
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    verdicts = "\n".join(f"* **{verdict}**: {words}." for verdict, words in VERDICTS.items())
    return _INTRODUCTION.format(verdicts=verdicts) + markdown(document)


PAGE = Page("conformance.md", text)
