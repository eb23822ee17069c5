"""The page ``docs/tflite.md``: what models of TFLite mean, what is refused, and the operators that cvm reads."""

from __future__ import annotations

import inspect

from cvm.frontends.tflite.compat import REFERENCE
from cvm.frontends.tflite.folding import FOLDED
from cvm.frontends.tflite.rules import RULES
from cvm.frontends.tflite.translation import Rule
from tools.generated_pages.page import Page

__all__ = ["PAGE", "markdown"]

_INTRODUCTION = """\
# Models of TFLite

Generated from the rules in `cvm/frontends/tflite` by `tools/generate_pages.py`; do not edit.

`cvm compile model.tflite -o model.cvm` reads quantised models: 8 bits, 16-bit activations with 8-bit filters, filters
of 4 bits, scales per tensor and per axis, and models whose inputs and outputs are floats next to QUANTIZE and
DEQUANTIZE. The schema comes with the package `tflite`: `pip install 'cvm[tflite]'`; TensorFlow is not needed.

<!-- files: tflite -->

```sh
cvm compile model.tflite -o model.cvm
cvm run model.cvm -i image=photo.npy -o result.npz
```

Float models, and models that are quantised in part, become programs with
`cvm quantize model.tflite -i data.npz -o model.cvm` ([calibration.md](calibration.md)).

From Python: `cvm.compile("model.tflite")`. `cvm report model.tflite -i images.npy` measures what the rounding costs.

## Meaning

* A model means exact arithmetic on real numbers, rounded once for every tensor that has a scale. Code q stands for
  (q - zero point) * scale, where the scale is the rational that its 32 bits are. A number gets the nearest code; a tie
  gets the greater code. TFLite's kernels round several times, each release at other points, and so give other codes now
  and then.
* Channels stay last for inputs and outputs, as in the file. Inputs and outputs have the names of the first signature,
  or, without a signature, of the tensors.
* Resource variables, and the variable tensors of SVDF, are state of the program. Their first values come from the
  subgraph that CALL_ONCE runs, or are zero. A read sees what was assigned before it in the same run.
* Integers without a scale are integers. Shapes and indices that follow from constants are computed when compiling.
* If the scales of a constant name an axis with another extent, and exactly one axis has the extent of the list, that
  axis is used: some converters write a wrong number.
* `--compat tflite-reference` computes the integers of TFLite's reference kernels instead (below).

## Refused

cvm refuses sparse and string tensors; control flow; operators and custom operators that are not in the table;
scales per axis of computed tensors; shuffled weights. The message names the operator by its number and name,
and the tensor. Offsets and lengths in the file are checked before anything is allocated.

## Operators

| operator | meaning |
|---|---|
"""


_REFERENCE = """\
## As the reference kernels compute

`cvm compile model.tflite -o model.cvm --compat tflite-reference`, or `cvm.compile("model.tflite",
compat="tflite-reference")`, gives the codes of TFLite's reference kernels (those of TFLite 2.14 with the resolver
`BUILTIN_REF`), byte for byte. So people who have devices with such kernels can check their results, with receipts and
disputes. Scales become multipliers of 31 bits, as TFLite derives them in floats of 64 or 32 bits. Products are rounded
twice, the second time with ties away from zero. ADD and SUB shift by 20 bits first, averages divide codes, and
exponentials and reciprocals of softmax are fixed-point polynomials. Ordinary ops compute all of it, and
every tensor is proven exact, as the kernel defines it. Kernels that are optimised for a processor, and other
releases, may give other codes now and then.

Operators that are not in the table are refused by name. Codes of 16 bits are refused too, except for convolutions,
transposed or not, FULLY_CONNECTED, ADD, SUB, MUL and RESIZE_BILINEAR, if the operator has such a kernel. TFLite's own
constraints hold: if a kernel needs one scale for all its tensors, other scales are refused. If a shift to the left
leaves 32 bits, which a kernel does not define, no bits are lost.

| operator | what its kernel computes |
|---|---|
"""


def _reference() -> str:
    own = {name for name in REFERENCE if "tflite.compat" in REFERENCE[name].__module__}
    moved = sorted(name for name in own if REFERENCE[name].__name__ == "rule_")
    rows = [f"| `{name}` | {_sentence(REFERENCE[name])} |" for name in sorted(own.difference(moved))]
    others = sorted(set(REFERENCE) - own)
    named = [", ".join(f"`{name}`" for name in names) for names in (moved, others)]
    moves = f"Computed on codes of one scale and zero point: {named[0]}."
    return _REFERENCE + "\n".join(rows) + f"\n\n{moves} As above: {named[1]}.\n"


def _sentence(rule: Rule) -> str:
    return " ".join((inspect.getdoc(rule) or "").split())


def markdown() -> str:
    """The page."""
    rows = [f"| `{name}` | {_sentence(RULES[name])} |" for name in sorted(RULES)]
    names = ", ".join(sorted(FOLDED))
    folded = f"On shapes and constants these are computed when compiling, those without a row as well: {names}."
    return _INTRODUCTION + "\n".join(rows) + f"\n\n{folded}\n\n" + _reference()


PAGE = Page("tflite.md", markdown)
