"""The page ``docs/onnx.md``: what models of ONNX mean, what is refused, and a table per operator from the declarations.

What was measured stands at the end of the page; `tools.onnx_networks.report` measures it.
"""

from __future__ import annotations

from cvm.frontends.onnx.declarations import FIRST, LAST, OPERATORS, TYPES, Operator
from tools.generated_pages.page import Page

__all__ = ["MEASURED", "PAGE", "markdown"]

MEASURED = "## Measured\n"
"""The heading of what was measured."""

_INTRODUCTION = """\
# Models of ONNX

Generated from the declarations in `cvm/frontends/onnx` by `tools/generate_pages.py`, but for the last section; do
not edit.

`cvm compile model.onnx -o model.cvm` reads quantised models, with QuantizeLinear and DequantizeLinear around
operators on floats (QDQ) or with operators on quantised tensors (QLinear..), and models of integers. The format is
read by the package `onnx`: `pip install 'cvm[onnx]'`. What `onnxruntime.quantization.quantize_static` writes for
convolutional networks, perceptrons and attention compiles as it is. Models of floats, or quantised in part, become
programs by `cvm quantize model.onnx -i data.npz -o model.cvm` ([calibration.md](calibration.md)).

<!-- files: onnx -->

```sh
cvm compile model.onnx -o model.cvm --input-shape image=1,1,8,8
cvm run model.cvm -i image=photo.npy -o result.npz
cvm run model.onnx -i image=photo.npy -o result.npz
```

From Python: `cvm.compile("model.onnx", input_shapes={"image": (1, 3, 224, 224)})`.

`cvm report model.onnx -i images.npy -o report.html` measures, tensor by tensor, what the rounding costs. The other side
of the comparison is the same model in float64 without the rounding. It keeps the clipping of every QuantizeLinear:
quantisation tools leave a Relu out where the range of the next QuantizeLinear begins at 0.

## Meaning

* A quantised model means the exact real-number graph, rounded half to even once at every `QuantizeLinear`. Scales and
  other float constants are the exact rationals that their bits are; operators on floats are exact arithmetic, also
  where their data type is `float16`, and a Cast from float to float is the same number. ONNX Runtime computes with
  floats, and so gives other codes now and then: see the last section.
* `QLinearConv`, `QLinearMatMul` and the operators of `com.microsoft` below are DequantizeLinear, the operator on real
  numbers, QuantizeLinear. A bias of QLinearConv or QGemm has the exact product of both scales; in QDQ models it has
  the float that the model stores, which is that product rounded.
* A float input is an input of the program under the quantiser of the QuantizeLinear that reads it, also behind
  operators that only move elements: `cvm run` quantises floats exactly. Where the zero point is odd, the program's
  codes are the integers less the zero point. A float output must be the result of DequantizeLinear, or be moved or
  chosen from such: the program gives its codes, and `cvm run` writes the numbers. A float that is not quantised on
  its way is refused by node.
* Integers of 8 and 16 bits wrap in two's complement. Those of 32 and 64 bits must be proven to fit -(2^31 - 1) ..
  2^31 - 1, the integers of the machine: `--input-range NAME=LO,HI` promises a range of an input, which every run
  checks.
* Operators of older versions mean what those versions say, and are written as the newest version has them: axes,
  bounds, widths and counts as attributes; a Softmax before version 13 is of all axes behind `axis` as one; an Upsample
  and a Resize before version 11 take the item at or before x / scale. Resize of integers in linear mode is truncated.
* Functions of the model are replaced by their nodes, at any depth but recursion. An `If` whose condition is constant
  is the nodes of its branch; a `Loop` or a `Scan` whose count is known is written out, iteration by iteration. Counts
  and conditions may be computed from shapes. All that is written out is at most 65,536 nodes.
* LSTM, GRU and RNN are products, sums and functions of gates, step by step in the order of time. Gates and states need
  scales: `cvm quantize` finds them.
* ONNX has no state: a model takes it as an input and gives it back as an output. `--state NAME=OUTPUT` makes an input
  state of the program: zero before the first run, and what the output was after each, under the input's quantiser. With
  `cvm quantize`, samples are cycles then, one after the other. The output stays an output.
* An infinite constant that is added, compared or chosen from (Max, Min, Where, additive masks) is a number beyond every
  number that it meets: 2^200. Elsewhere it is refused, and so is every NaN.
* x / 0 is 0, x mod 0 is x. Of equal items ArgMax, ArgMin and TopK take the first (or the last, where
  `select_last_index` says so). An index that is read is clipped to those that exist; of equal indices a scatter keeps
  the last.
* An extent that the model leaves open is 1 if it is the first of an input; `cvm run` takes batches of such inputs.
  Others need `--input-shape`. Shapes that are computed from shapes are constants. Nodes that no output needs are not
  looked at.
* Constants in other files are read within the folder of the model alone.

## Refused

Control flow that depends on the data, functions that call themselves, sparse tensors, training information,
strings, sequences and optional values, complex numbers, floats of 4, 6 and 8 bits, tensors without items, opsets
after {last}, operators that are not in the table, and attributes that an operator has not. The message names the
node, the operator, the tensor, and what to do instead. Scales and zero points must be constant and scales above 0.
Limits are checked before anything is allocated.

## Operators

*integer*: on integers, and on real numbers inside of a quantised region. *real*: inside of a quantised region alone.
*boundary*: where a region ends. *written out*: as the operators that it consists of. *folded*: when compiling, of
constant operands. *refused*: the remark says what to do instead. The data types are those of the first operand:
{types}. Operators are read from the opset that stands in the table up to {last}.

| operator | opset | kind | operand | remark |
|---|---|---|---|---|
"""


def markdown() -> str:
    """The page, without its last section."""
    types = "; ".join(f"*{name}* {', '.join(items)}" for name, items in TYPES.items())
    head = _INTRODUCTION.replace("{types}", types).replace("{last}", str(LAST))
    rows = (_row(domain, name, operator) for (domain, name), operator in sorted(OPERATORS.items()))
    return head + "".join(rows) + "\n"


def _row(domain: str, name: str, operator: Operator) -> str:
    spelled = f"`{domain}.{name}`" if domain else f"`{name}`"
    opset = "1" if domain else str(min(operator.since, FIRST) if operator.kind == "refused" else operator.since)
    cells = (spelled, opset, operator.kind, operator.types if operator.kind != "refused" else "", operator.note)
    return f"| {' | '.join(cells)} |\n"


def _measured() -> str:
    from tools.onnx_networks.report import section

    return section()


PAGE = Page("onnx.md", markdown, MEASURED, _measured)
