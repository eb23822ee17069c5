"""The page ``docs/openvx.md``: the interface, its decisions, and tables of kernels and errors from the declarations."""

from __future__ import annotations

import inspect

from cvm.frontends.openvx import errors
from cvm.frontends.openvx.declarations import KERNELS, KernelDeclaration, Parameter
from cvm.frontends.openvx.formats import FORMATS
from tools.generated_pages.page import Page

__all__ = ["PAGE", "markdown"]

_INTRODUCTION = """\
# The OpenVX neural-network extension

Generated from the declarations in `cvm/frontends/openvx` by `tools/generate_pages.py`; do not edit.

`cvm.openvx` is the neural-network extension of [OpenVX](https://www.khronos.org/openvx/), `KHR_NN_8` and `KHR_NN_16`:
convolutional networks in fixed point. Each kernel computes exactly what the specification says, and a graph compiles to
a program like any other. Vision nodes are not part of it.

```python
import numpy as np
from cvm import openvx as vx

context = vx.create_context()
graph = vx.create_graph(context)
image = vx.create_tensor(context, [8, 8, 3], vx.TYPE_INT16, 8, name="image")  # width, height, channels; Q7.8
weights = vx.Tensor.from_numpy(context, np.full((4, 3, 3, 3), 32, np.int16))  # in C order: OFM, IFM, y, x
maps = vx.create_tensor(context, [8, 8, 4], vx.TYPE_INT16, 8, name="maps")
params = vx.NNConvolutionParams(
    padding_x=1,
    padding_y=1,
    overflow_policy=vx.CONVERT_POLICY_SATURATE,
    rounding_policy=vx.ROUND_POLICY_TO_NEAREST_EVEN,
)
node = vx.convolution_layer(graph, image, weights, None, params, maps, name="conv1")
vx.verify_graph(graph)  # or graph.verify()
image.from_float(np.ones((3, 8, 8)))
vx.process_graph(graph)  # or graph.process()
maps.to_float()[0, 4, 4]  # 3.375 = 27 / 8
node.skip_x  # 1: derived from the sizes
graph.program.save("graph.cvm")  # an ordinary program, whose input is `image` and output `maps`
```

`python -m cvm.demo.openvx_digits` runs a LeNet for digits in Q7.8, built layer by layer with virtual tensors between
the layers ([its source](../cvm/demo/openvx_digits.py)). It gets all 40 test images of `cvm.demo` right, and so does the
float network that its weights come from. Of 250 images of its test data both get 249 right, and both give the same
class for every image.

## The interface

* Functions have the names of the specification without `vx`, in snake_case, and its parameters in order. The number of
  dimensions of a list, and the size of a structure in bytes, are left out. Every function that creates a node takes a
  `name`. Structures have the C names of their fields. Enumerators have their C names and values, with or without `VX_`.
* Dimensions stand in OpenVX's order, dimension 0 first in memory: the NumPy array of [width, height, IFM] has the shape
  (IFM, height, width) in C order. `Tensor.numpy`, `copy_from` and `from_numpy` use C order; `order="vx"` transposes.
  Elements are raw integers; `from_float` and `to_float` convert from and to the numbers that they stand for.
* You create, verify and process a graph. Verifying checks everything that needs more than one argument, fixes what
  is [static], and compiles. After a change of the graph, or of a [static] tensor, the graph must be verified again;
  processing it before that is an error.
* The inputs of `graph.program` are the tensors that nodes read and no node writes. Its outputs are the tensors that
  nodes write. Both have the names of the tensors (`input_0`, `output_0`, .. without one). Virtual tensors are neither.
* `create_tensor_from_view` splits and merges: nodes read and write views. Elements that no node writes do not change.
* `get_kernel_by_name`, `create_generic_node` and `set_parameter_by_index` make nodes of any kernel; scalars may be
  plain numbers.
* Contexts, graphs and tensors are context managers. `create_context(executor=..)` chooses an executor of cvm.
* An argument that is wrong by itself is refused when the node is made, where C returns a node with a bad status.
  Every error is an `Error`, a RuntimeError and an error of cvm, with `status`, `node`, `code` and `location`.

## Formats

| format | data type | fixed-point position | integers |
|---|---|---|---|
"""

_MEANING = """
All tensors of a node have one format. An integer `raw` stands for raw / 2^position.

## Meaning

* Convolution, deconvolution and fully connected layers round the exact sum of products and the bias once, by
  the rounding policy, and convert it once, by the overflow policy. The bias has the tensor's own fixed-point position
  and is added before the rounding. TO_ZERO truncates, TO_NEAREST_EVEN rounds ties to the even integer; SATURATE clips,
  WRAP keeps the low bits. Sums of up to 131,071 products of S16 always compile.
* skip is the least skip that gives the output's size under the rounding of the parameters, and 1 for an output of one
  item. upscale follows from the sizes. A graph is refused if no skip or upscale gives its sizes.
* Maxima of pooling include the zeros of the padding, and of windows that overhang. Means divide by the whole
  window and truncate.
* Activation functions, softmax and normalisations are computed on real numbers and rounded half to even once. `a`, `b`,
  `alpha`, `beta` and `bias` are the rationals that their float32 values are. Tables of activations are correctly
  rounded. For softmax, and for normalisation where 1 / beta is no integer, the program decides with numbers whose error
  is below 2^-60 steps of the result. Only a number nearer to a tie than that could come out one integer off, and the
  report of the program says so. Ties themselves are decided exactly.
* Coordinates of regions are raw integers in every format.

## Kernels

Static parameters are marked with s, optional ones with ?, results with an arrow.

| kernel | number | parameters | meaning | `compat="khronos-sample-1.3"` |
|---|---|---|---|---|
"""

_COMPAT = """
`create_graph(context, compat="khronos-sample-1.3")` computes what the sample implementation of OpenVX 1.3 computes, bit
for bit, for kernels that the sample computes in integers. A dash marks kernels that it computes in floats: such a node
is refused in that mode. The sample's results are not those of the specification; the mode is for comparing with it.

## Errors

| class | status | meaning |
|---|---|---|
"""


def markdown() -> str:
    """The page."""
    formats = (f"| {f.name} | `{f.data_type.name}` | {f.position} | {f.lo} .. {f.hi} |\n" for f in FORMATS.values())
    kernels = (_row(item) for item in KERNELS.values())
    classes = (getattr(errors, name) for name in errors.__all__ if name != "Error")
    faults = (f"| `{item.__name__}` | `{item.status.name}` | {inspect.getdoc(item)} |\n" for item in classes)
    return "".join((_INTRODUCTION, *formats, _MEANING, *kernels, _COMPAT, *faults))


def _row(item: KernelDeclaration) -> str:
    parameters = ", ".join(f"{index} {_parameter(parameter)}" for index, parameter in enumerate(item.parameters))
    cells = (f"`{item.function}`", f"{item.kernel:#x}", parameters, item.meaning, item.compat or "-")
    return f"| {' | '.join(cells)} |\n"


def _parameter(parameter: Parameter) -> str:
    marks = ("s" if parameter.static else "") + ("?" if parameter.optional else "")
    return f"{'→ ' if parameter.output else ''}`{parameter.name}`{f' ({marks})' if marks else ''}"


PAGE = Page("openvx.md", markdown)
