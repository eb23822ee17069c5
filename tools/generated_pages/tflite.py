"""The page ``docs/tflite.md``: what models of TFLite mean, what is refused, and the operators that are read."""

from __future__ import annotations

import inspect

from cvm.frontends.tflite.folding import FOLDED
from cvm.frontends.tflite.rules import RULES
from tools.generated_pages.page import Page

__all__ = ["PAGE", "markdown"]

_INTRODUCTION = """\
# Models of TFLite

Generated from the rules in `cvm/frontends/tflite` by `tools/generate_pages.py`; do not edit.

`cvm compile model.tflite -o model.cvm` reads quantised models: 8 bits, 16-bit activations with 8-bit filters, filters
of 4 bits, scales per tensor and per axis, and models whose inputs and outputs are floats next to QUANTIZE and
DEQUANTIZE. The schema comes with the package `tflite`: `pip install 'cvm[tflite]'`; TensorFlow is not needed.

```sh
cvm compile model.tflite -o model.cvm
cvm run model.cvm -i image=photo.npy -o result.npz
```

Models of floats, or quantised in part, become programs by
`cvm quantize model.tflite -i data.npz -o model.cvm` ([calibration.md](calibration.md)).

From Python: `cvm.compile("model.tflite")`. `cvm report model.tflite -i images.npy` measures what the rounding costs.

## Meaning

* A model means exact arithmetic on real numbers, rounded once for every tensor that has a scale. Code q stands for
  (q - zero point) * scale, where the scale is the rational that its 32 bits are; a number gets the nearest code, of
  two the greater. TFLite's kernels round several times on the way, each release in its own places, and so give other
  codes now and then.
* Channels stay last at the border, as the file has them. Names of inputs and outputs are those of the first signature,
  else of the tensors.
* Resource variables, and the variable tensors of SVDF, are state of the program; their first values come from the
  subgraph that CALL_ONCE runs, or are zero. A read sees what was assigned before it in the same run.
* Integers without a scale are integers. Shapes and indices that follow from constants are computed when compiling.
* Where the scales of a constant name an axis of another extent, and one axis alone has theirs, that axis is taken:
  some converters write a wrong number.

## Refused

Sparse and string tensors; control flow; operators and custom operators that are not in the table;
scales per axis of tensors that are computed; shuffled weights. The message names the operator by its number and name,
and the tensor. Offsets and lengths of the file are checked before anything is allocated.

## Operators

| operator | meaning |
|---|---|
"""


def markdown() -> str:
    """The page."""
    rows = [f"| `{name}` | {' '.join((inspect.getdoc(RULES[name]) or '').split())} |" for name in sorted(RULES)]
    names = ", ".join(sorted(FOLDED))
    folded = f"On shapes and constants these are computed when compiling, those without a row as well: {names}."
    return _INTRODUCTION + "\n".join(rows) + f"\n\n{folded}\n"


PAGE = Page("tflite.md", markdown)
