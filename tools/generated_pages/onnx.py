"""The page ``docs/onnx.md``: what models of ONNX mean, what is refused, and a table per operator from the declarations.

The last section of the page holds measured numbers; `tools.onnx_networks.report` measures them.
"""

from __future__ import annotations

from cvm.frontends.onnx.declarations import FIRST, LAST, OPERATORS, TYPES, Operator
from tools.generated_pages.page import Page

__all__ = ["MEASURED", "PAGE", "markdown"]

MEASURED = "## Measured\n"
"""The heading of the measured section."""

_INTRODUCTION = """\
# Models of ONNX

`tools/generate_pages.py` generates this page from the declarations in `cvm/frontends/onnx`, except for the last
section; do not edit.

`cvm compile model.onnx -o model.cvm` reads models of integers and quantised models. A quantised model has
QuantizeLinear and DequantizeLinear around operators on floats (QDQ), or operators on quantised tensors (QLinear..). The
package `onnx` reads the format: `pip install 'cvm[onnx]'`. Convolutional networks, perceptrons and attention that
`onnxruntime.quantization.quantize_static` has written compile unchanged. Float models, and models quantised in part,
become programs with `cvm quantize model.onnx -i data.npz -o model.cvm` ([calibration.md](calibration.md)).

<!-- files: onnx -->

```sh
cvm compile model.onnx -o model.cvm --input-shape image=1,1,8,8
cvm run model.cvm -i image=photo.npy -o result.npz
cvm run model.onnx -i image=photo.npy -o result.npz
```

From Python: `cvm.compile("model.onnx", input_shapes={"image": (1, 3, 224, 224)})`.

`cvm report model.onnx -i images.npy -o report.html` measures, tensor by tensor, what the rounding costs. It compares
with the same model in float64 without the rounding. This keeps the clipping of every QuantizeLinear, because
quantisation tools leave out a Relu if the range of the next QuantizeLinear begins at 0.

## Meaning

* A quantised model means the exact real-number graph, rounded half to even once at every `QuantizeLinear`. Scales and
  other float constants are the exact rationals that their bits are. Operators on floats are exact arithmetic, also
  for the data type `float16`, and a Cast from float to float does not change a number. ONNX Runtime computes with
  floats, and so gives other codes now and then: see the last section.
* `QLinearConv`, `QLinearMatMul` and the operators of `com.microsoft` below mean DequantizeLinear, the operator on real
  numbers, and QuantizeLinear. A bias of QLinearConv or QGemm has the exact product of both scales; in QDQ models it has
  the float that the model stores, which is that product rounded.
* A float input is an input of the program under the quantiser of the QuantizeLinear that reads it, directly or through
  operators that only move elements: `cvm run` quantises floats exactly. If the zero point is odd, the program's
  codes are the integers less the zero point. A float output must be the result of DequantizeLinear, or be moved or
  chosen from such results: the program gives its codes, and `cvm run` writes the numbers. A float that is never
  quantised is refused, and the message names the node.
* Integers of 8 and 16 bits wrap in two's complement. Those of 32 and 64 bits must be proven to fit -(2^31 - 1) ..
  2^31 - 1, the machine integers: `--input-range NAME=LO,HI` promises a range of an input, which every run checks.
* Operators of older versions mean what those versions say; the reader converts them to the newest version. In older
  versions, axes, bounds, widths and counts are attributes; a Softmax before version 13 treats all axes from `axis` on
  as one; an Upsample, or a Resize before version 11, takes the item at or before x / scale. Resize of integers in
  linear mode is truncated.
* Functions of the model are replaced by their nodes, at any depth, but not if they call themselves. An `If` whose
  condition is constant becomes the nodes of its branch. A `Loop` or a `Scan` whose count is known is unrolled. Counts
  and conditions may be computed from shapes. All expansions together may have at most 65,536 nodes.
* LSTM, GRU and RNN become products, sums and functions of gates, step by step in the order of time. Gates and states
  need scales: `cvm quantize` finds them.
* ONNX has no state: a model takes it as an input and gives it back as an output. `--state NAME=OUTPUT` makes an input
  state of the program. It is zero before the first run, and takes the output's value after each run, under the input's
  quantiser. With `cvm quantize`, the samples are then cycles, one after the other. The output stays an output.
* An infinite constant that is added, compared or chosen from (Max, Min, Where, additive masks) becomes 2^200, which
  exceeds every number that it meets. Elsewhere it is refused, and so is every NaN. So nothing that is computed is NaN,
  and IsNaN of it is false.
* x / 0 is 0, x mod 0 is x. Of equal items ArgMax, ArgMin and TopK take the first (or the last, if
  `select_last_index` says so). An index that is read is clipped to those that exist. Of equal indices a scatter keeps
  the last.
* If the model leaves open the first extent of an input, it is 1, and `cvm run` takes batches of such inputs.
  Other open extents need `--input-shape`. Shapes that are computed from shapes are constants. Nodes that no output
  needs are ignored.
* Constants in other files are read only from the folder of the model.

## Transformers

Exporters write parts of transformers as many operators. These are read as one operation each, so that nothing between
them needs a quantiser, with float models as well as in regions of QDQ models where nothing between is quantised:

* **Layer and RMS normalisation**, in any order of sums, products and roots: by named operators (LayerNormalization,
  RMSNormalization, SimplifiedLayerNormalization, SkipLayerNormalization), as `x * rsqrt(mean(x^2) + epsilon)`, with the
  variance as a mean of squares. With `--op-set 2` each is one op and exact, at any width.
* **Softmax**, also written with exponentials, and **masks** before it. A mask is a tensor whose elements are 0 or at
  most -1000 (-inf, the least float, -10000), which is added; or a choice of such a number. It may be constant or
  computed from truth values and from integers of few values, such as `(1 - mask) * -10000` with
  `--input-range mask=0,1`. Hidden items count nothing. Where a mask hides all items of a row, an added one changes
  nothing, as in exact arithmetic, and a choice makes all items alike; several masks hide what any of them hides.
  Lowering proves that the mask is below all that it meets, or refuses.
* **Functions of one number** (GELU by the error function or by tanh, SiLU, softplus ..) become one table. Gates (GeGLU,
  SwiGLU) are products of two tensors.
* **Rotary embeddings**, by RotaryEmbedding or written out, are sums of two products with constant or computed angles.
* **Grouped queries**: heads of keys and values that the model repeats (Expand and Reshape) are multiplied as they are.
* **Attention** (also MultiHeadAttention and GroupQueryAttention of ONNX Runtime) is written out. A query that sees no
  key gives 0.
* **Caches**: TensorScatter, ScatterElements and ScatterND at a position that `--input-range` bounds replace one slice;
  Concat and Slice move rows.

`python -m pytest tests/frontends/onnx/test_transformers.py` compares every tensor of a block of GPT-2, Llama, Gemma,
BERT, T5, ViT and Whisper with exact arithmetic.

## Refused

cvm refuses control flow that depends on the data, functions that call themselves, sparse tensors, training information,
strings, sequences and optional values, complex numbers, floats of 4, 6 and 8 bits, tensors without items, opsets
after {last}, operators that are not in the table, and attributes that an operator does not have. The message names the
node, the operator, the tensor, and what to do instead. Scales and zero points must be constant, and scales above 0.
Limits are checked before anything is allocated.

## Operators

*integer*: on integers, and on real numbers inside a quantised region. *real*: only inside a quantised region.
*boundary*: begins or ends a region. *written out*: replaced by the operators that it consists of. *folded*: computed
from constant operands when compiling. *refused*: the remark says what to do instead. The data types are those of the
first operand: {types}. An operator is read from the opset in the table up to opset {last}.

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
