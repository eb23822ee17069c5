"""The page ``docs/webnn.md``: what the builder runs, its decisions, and tables per operator."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from cvm.frontends.webnn.declarations import DATA_TYPES, OPERATORS, Operator, Tensor
from tools.generated_pages.page import DOCS, Page

__all__ = ["PAGE", "markdown"]

_INTRODUCTION = """\
# WebNN graphs

Generated from the declarations in `cvm/frontends/webnn` by `tools/generate_pages.py`; do not edit.

`cvm.webnn` is the graph-builder API of the [Web Neural Network API](https://www.w3.org/TR/webnn/) for graphs of
integers and for quantised graphs. Calibration with representative inputs makes a quantised graph from a graph of
floats. So it is not a full WebNN implementation, whose results would be floats to the last digits.

```python
import numpy as np
from cvm import webnn

context = webnn.ML().create_context()
builder = webnn.MLGraphBuilder(context)
x = builder.input("x", ("int8", [1, 4]))
scale, zero_point = builder.constant(np.full((1, 1), 0.5, np.float32)), builder.constant(np.zeros((1, 1), np.int8))
real = builder.relu(builder.dequantize_linear(x, scale, zero_point), label="act")
graph = builder.build({"y": builder.quantize_linear(real, scale, zero_point)})
context.compute(graph, {"x": np.array([[-3, 5, 100, -128]], np.int8)})["y"]  # [[0, 5, 100, 0]]
graph.program.save("graph.cvm")  # an ordinary program
print(graph.explain())  # what each call became
```

`graph.quantized_graph` is the graph of real numbers that the program computes. `cvm.reference.Reference` evaluates it
in float64, and `cvm.report.compare` says, tensor by tensor, what the rounding costs (`clip=True` keeps the clipping).

Methods have the specification's names in snake_case; camelCase works too. Options are keywords, or one dictionary with
the specification's names: `builder.conv2d(x, w, {"padding": [1, 1, 1, 1], "inputLayout": "nhwc"})`. Wherever an operand
is expected, a NumPy array is a constant. Operands have Python's operators (`2 * x + w`, `-x`, `x @ w`, `x ** 2`,
`x < y`; not `==`, and `/` for real operands only); a number in them becomes a constant of the operand's type.
`create_tensor` takes an MLTensorDescriptor, `create_context` an MLContextOptions, `read_tensor` and `write_tensor`
buffers of bytes. `context.lost` is a future that `destroy` resolves: `await context.lost`, or
`context.lost.add_done_callback(..)`. `destroy` also destroys the context's graphs and tensors, but not their programs.
Where the specification throws TypeError, cvm raises `MLTypeError`, a TypeError and a ValueError, whose message names
label, operand, rule and section. A valid graph that cvm cannot run raises `NotSupportedError` at `build`; the message
says what to do instead.

## Meaning

* A quantised graph means the exact real-number graph, rounded half to even once at every `quantizeLinear`. Scales and
  other float constants are the exact rationals that they are. Any number of operators may stand between
  `dequantizeLinear` and `quantizeLinear`. A float value that ends in no `quantizeLinear` is refused at build.
* A float input is read through `quantizeLinear`, and a float output is given through `dequantizeLinear`. Both run on
  the host, exactly, outside the program, whose inputs and outputs are the integers.
* 8-bit integers wrap in two's complement; `integer_overflow="error"` refuses graphs where they may wrap. Integers of 32
  and 64 bits must be proven to fit -(2^31 - 1) .. 2^31 - 1, the machine integers. `input(.., value_range=(lo, hi))`
  promises a range, which every run checks. The range may exceed the machine integers if all calls that read the input
  give the same result for the nearest machine integer (`sign`, `relu`, `clamp`). Inputs that are only read as indices
  need no promise. Unsigned results that are outputs wrap below zero.
* x / 0 is 0; a negative power of an integer is the truncated quotient. Of equal items `argMin` and `argMax` give the
  first index. A negative index counts from the end. An index out of range is clipped, also beyond 32 bits; a
  constant one of a scatter is refused. Of equal indices a scatter keeps the last one in row-major order. Linear
  resampling of integers is rounded once, half to even.
* `softmax` without an axis uses the last axis. NaN and Infinity as a bound of `clamp` mean no bound; -Infinity as its
  `minValue` is a TypeError.
* Scales and zero points must be constant, have the rank of the tensor that they scale, and be positive.
  `strict_scale_rank=False` accepts lower ranks, aligned at the last axis; `allow_negative_scale=True` accepts negative
  scales. The zero point may be left out.
* Functions of one number are correctly rounded for every code. Norms, logarithms of sums, and normalisation by mean and
  variance are decided exactly, in integers. `softmax` and `reduceLogSumExp` of many items are within the bound that
  `explain()` gives.
* A `quantizeLinear` to int32 or uint32 must be proven not to reach +-(2^31 - 1).

## Graphs of floats

If `build` gets samples of the inputs, it finds the quantisers that the graph does not have, and says how far the
outputs then are from float64:

```python
import numpy as np
from cvm import webnn

context = webnn.ML().create_context()
builder = webnn.MLGraphBuilder(context)
x = builder.input("x", ("float32", [1, 4]))
weights = builder.constant(np.eye(4, 3, dtype=np.float32))
samples = [{"x": np.random.default_rng(seed).standard_normal((1, 4), np.float32)} for seed in range(32)]
graph = builder.build({"y": builder.sigmoid(builder.matmul(x, weights))}, calibration=samples)
print(graph.quantization_errors["y"])  # error at most 0.00.., .. dB over 32 samples, in steps of 0.00..
context.compute(graph, samples[0])["y"]  # float32, quantised and dequantised on the host
```

* Quantisers of the graph are kept, integers stay exact, and so are tensors between two quantisers. Each input, and
  every result that lowering cannot use without rounding, gets a quantiser. Sums of products are not rounded before
  clipping, or before constants that are added or multiplied. Weights of products are rounded per channel.
* `bits=` (8), `weight_bits=`, `per_channel=` (True), `method=` ("minmax") and `percentile=` are those of
  [calibration.md](calibration.md). Numbers beyond those of the samples are clipped: the samples must be representative.
* `lstm`, `gru` and their cells are expanded step by step. Sums before an activation, its results, and states are
  rounded. Through its peephole, the output gate of an LSTM reads the old cell state, as in the specification's
  decomposition (ONNX: the new one).
* A divisor of both signs gets codes of which none stands for zero. A cast of floats to integers truncates the numbers
  that the codes stand for and clips them to the type. If the exponent of a power is computed and its base is negative,
  the result has the sign for the integer nearest to the exponent.
* NaN and infinities are refused, in samples, constants and computed tensors.

## Operators

*integer*: on integers, and on real numbers inside a quantised region. *real*: only inside a quantised region.
*calibrated*: built if `build` gets samples.
*refused*: validated, but refused at build; the remark says what to do instead. ANY stands for all of {everything}.
The largest rank is 8.

| operator | section | kind | operands | result | remark |
|---|---|---|---|---|---|
"""


_CONFORMANCE = """
## Cases of the web platform tests

`tools/webnn_conformance.py` replays {cases} cases on a machine that has them; this table says what became of each. In
*equal* cases every bit is equal (integers, quantised graphs and single quantisers). In *in order* cases, an operator of
floats only moves or compares its items, and the result is equal on integers of the same order. *refused* cases raise
the error of the builder, with the reason. If `build` gets no samples, every graph of floats is refused; with the case's
own inputs as samples (`--floats`), a graph is within the error that it states. The tests of the project check the
results of quantised graphs, against models in rationals and intervals. The types int4 and uint4 are not in the
specification; they are held in int8 and uint8, with a `clamp` to their range after `quantizeLinear`.

| operator | cases | equal | of these quantised graphs | in order | refused |
|---|---|---|---|---|---|
"""


def markdown(record: Mapping[str, Mapping[str, Any]]) -> str:
    """The page. ``record`` says for each set of cases how many there are, how many are equal or refused, and why."""
    rows = (_row(name, operator) for name, operator in OPERATORS.items())
    page = _INTRODUCTION.replace("{everything}", ", ".join(DATA_TYPES)) + "".join(rows)
    return page + _conformance(record)


def _conformance(record: Mapping[str, Mapping[str, Any]]) -> str:
    names = {name.removeprefix("qdq_"): None for name in record}
    listed = [name for name in OPERATORS if name in names] + sorted(set(names) - set(OPERATORS))
    counts = {name: _counts(record.get(name, {}), record.get(f"qdq_{name}", {})) for name in listed}
    whole: Counter[str] = sum(counts.values(), Counter())
    lines = [
        _cells(f"`{name}`" if name in OPERATORS else _ELSE.get(name, name), found) for name, found in counts.items()
    ]
    return _CONFORMANCE.replace("{cases}", f"{whole['cases']:,}") + "".join(lines) + _cells("all", whole)


_ELSE = {"subgraph": "graphs of several", "roundtrip": "quantised and back"}
"""Sets of cases that belong to no operator."""


def _counts(plain: Mapping[str, Any], quantised: Mapping[str, Any]) -> Counter[str]:
    found: Counter[str] = Counter(cases=plain.get("cases", 0) + quantised.get("cases", 0))
    for part in (plain, quantised):
        equal = part.get("equal", {})
        found["equal"] += equal.get("as it is", 0)
        found["in order"] += equal.get("in integers of the same order", 0)
        found.update({f"refused: {reason}": count for reason, count in part.get("refused", {}).items()})
    found["quantised"] = quantised.get("equal", {}).get("as it is", 0)
    return found


def _cells(name: str, found: Mapping[str, int]) -> str:
    refused = "; ".join(
        f"{count} {reason.removeprefix('refused: ')}"
        for reason, count in sorted(found.items())
        if "refused: " in reason
    )
    numbers = (str(found.get(key) or "") for key in ("cases", "equal", "quantised", "in order"))
    return f"| {' | '.join((name, *numbers, refused))} |\n"


def _row(name: str, operator: Operator) -> str:
    operands = "; ".join(f"`{key}` {_tensor(tensor)}" for key, tensor in operator.operands.items())
    cells = (f"`{name}`", operator.section, operator.kind, operands, _tensor(operator.output), operator.note)
    return f"| {' | '.join(cells)} |\n"


def _tensor(tensor: Tensor) -> str:
    types = "ANY" if tensor.data_types == DATA_TYPES else ", ".join(tensor.data_types)
    ranks = str(tensor.least) if tensor.least == tensor.most else f"{tensor.least}..{tensor.most}"
    return f"{types}, rank {ranks}"


def _with_the_record() -> str:
    """The page, with the record that tools/webnn_conformance.py keeps."""
    return markdown(json.loads((DOCS / "webnn-conformance.json").read_text(encoding="utf-8")))


PAGE = Page("webnn.md", _with_the_record)
