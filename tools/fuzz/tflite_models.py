"""Fuzzer of the reader of TFLite: files of small models with changed bytes and words, read and lowered.

    python -m tools.fuzz.tflite_models --count 10000 --seed 1

A case is the file of a model. Whatever it holds, it is read and lowered, or refused with an error of cvm: with the
exact meaning, with the meaning of the reference kernels, and as a float network, which is only read.
"""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from functools import lru_cache, partial

import numpy as np

from cvm.errors import CvmError
from cvm.frontends import tflite
from cvm.frontends.tflite.writing import Graph, Operator, Tensor, written
from cvm.lowering import lower
from tools.fuzz.harness import Fuzzer, main

__all__ = ["FUZZER", "examine", "make"]

_EDGES = (0, 1, 2, 127, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1)


@lru_cache(maxsize=1)
def _sources() -> list[bytes]:
    """Valid files: a convolution, a layer with state, and operators with lists of options."""
    image, plane = Tensor((1, 6, 6, 2), "int8", (0.05,), (-3,)), Tensor((1, 3, 3, 4), "int8", (0.4,), (7,))
    weights = Tensor((4, 3, 3, 2), "int8", (0.01, 0.02, 0.03, 0.04), (), 0, np.arange(72).reshape(4, 3, 3, 2) - 36)
    bias = Tensor((4,), "int32", (0.0005, 0.001, 0.0015, 0.002), (), 0, np.array([5, -7, 1000, 0]))
    pooled, flat = Tensor((1, 1, 1, 4), "int8", (0.4,), (7,)), Tensor((1, 4), "int8", (0.3,), (0,))
    shape = Tensor((2,), "int32", values=np.array([1, -1]))
    options = {"Padding": 0, "StrideH": 2, "StrideW": 2, "FusedActivationFunction": 1}
    pool = {"Padding": 1, "StrideH": 3, "StrideW": 3, "FilterHeight": 3, "FilterWidth": 3}
    convolution = Graph(
        [image, weights, bias, plane, pooled, shape, flat],
        [
            Operator("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", options),
            Operator("AVERAGE_POOL_2D", [3], [4], "Pool2DOptions", pool),
            Operator("RESHAPE", [4, 5], [6]),
        ],
        [0],
        [6],
    )
    return [written(convolution), written(*_stateful()), written(_moved()), written(_layers()), written(_remembering())]


def _stateful() -> tuple[Graph, Graph]:
    handle, state = Tensor((), "resource"), Tensor((1, 4), "int8", (0.5,), (1,), values=np.array([[1, 2, 3, 4]]))
    given, names = Tensor((1, 4), "int8", (0.5,), (1,)), {"Container": "", "SharedName": "memory"}
    main_ = Graph(
        [given, handle, given, given],
        [
            Operator("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": 1}),
            Operator("VAR_HANDLE", [], [1], "VarHandleOptions", names),
            Operator("READ_VARIABLE", [1], [2]),
            Operator("ADD", [0, 2], [3], "AddOptions", {}),
            Operator("ASSIGN_VARIABLE", [1, 3], []),
        ],
        [0],
        [3],
    )
    first = Graph(
        [handle, state],
        [Operator("VAR_HANDLE", [], [0], "VarHandleOptions", names), Operator("ASSIGN_VARIABLE", [0, 1], [])],
        [],
        [],
    )
    return main_, first


def _layers() -> Graph:
    """Layers that the reference kernels compute in their own ways."""

    def codes(*shape: int) -> Tensor:
        return Tensor(shape, "int8", (0.1,), (4,))

    slopes = Tensor((1, 1, 2), "int8", (0.02,), (0,), values=np.array([[[9, -30]]]))
    size = Tensor((2,), "int32", values=np.array([3, 5]))
    target = Tensor((4,), "int32", values=np.array([1, 6, 10, 2]))
    weights = Tensor((2, 3, 3, 2), "int8", (0.01, 0.02), (), 0, np.arange(36).reshape(2, 3, 3, 2) - 18)
    order = Tensor((4,), "int32", values=np.array([0, 1, 3, 2]))
    tensors = [
        codes(1, 2, 3, 2), slopes, codes(1, 2, 3, 2), size, codes(1, 3, 5, 2), target, weights, codes(1, 6, 10, 2),
        order, codes(1, 6, 2, 10), codes(1, 6, 2, 2), Tensor((1, 6, 2, 2), "int8", (1 / 256,), (-128,)),
    ]  # fmt: skip
    operators = [
        Operator("PRELU", [0, 1], [2]),
        Operator("RESIZE_BILINEAR", [2, 3], [4], "ResizeBilinearOptions", {"HalfPixelCenters": True}),
        Operator("TRANSPOSE_CONV", [5, 6, 4], [7], "TransposeConvOptions", {"Padding": 0, "StrideW": 2, "StrideH": 2}),
        Operator("TRANSPOSE", [7, 8], [9]),
        Operator("BATCH_MATMUL", [9, 7], [10], "BatchMatMulOptions", {}),
        Operator("SOFTMAX", [10], [11], "SoftmaxOptions", {"Beta": 1.0}),
    ]
    return Graph(tensors, operators, [0], [11])


def _remembering() -> Graph:
    """A layer with a state of 16 bits, and a sum of 16 bits."""
    state = Tensor((1, 12), "int16", (0.01,), (0,), is_variable=True)
    tensors = [
        Tensor((1, 3), "int8", (0.05,), (-3,)),
        Tensor((4, 3), "int8", (0.02,), (0,), values=np.arange(12).reshape(4, 3) - 6),
        Tensor((4, 3), "int16", (0.0003,), (0,), values=np.arange(12).reshape(4, 3) * 999 - 6000),
        Tensor((2,), "int32", (0.01 * 0.0003,), (0,), values=np.array([500, -7])),
        state,
        Tensor((1, 2), "int8", (0.3,), (0,)),
        Tensor((1, 2), "int16", (0.001,), (0,)),
        Tensor((1, 2), "int16", (0.002,), (0,)),
    ]
    operators = [
        Operator("SVDF", [0, 1, 2, 3, 4], [5], "SVDFOptions", {"Rank": 2}),
        Operator("ADD", [6, 6], [7], "AddOptions", {"PotScaleInt16": False}),
    ]
    return Graph(tensors, operators, [0, 6], [5, 7])


def _moved() -> Graph:
    def codes(*shape: int) -> Tensor:
        return Tensor(shape, "int8", (0.1,), (4,))

    tensors = [
        codes(2, 3, 4),
        Tensor((3,), "int32", values=np.array([2, 0, 1])),
        codes(4, 2, 3),
        Tensor((3,), "int32", values=np.array([0, 1, 0])),
        Tensor((3,), "int32", values=np.array([4, 2, 3])),
        Tensor((3,), "int32", values=np.array([2, 1, 1])),
        codes(2, 3),
        Tensor((2,), "int32", values=np.array([0, 2])),
        codes(2, 2),
    ]
    operators = [
        Operator("TRANSPOSE", [0, 1], [2]),
        Operator("STRIDED_SLICE", [2, 3, 4, 5], [6], "StridedSliceOptions", {"ShrinkAxisMask": 2}),
        Operator("GATHER", [6, 7], [8], "GatherOptions", {"Axis": 1}),
    ]
    return Graph(tensors, operators, [0], [8])


def make(random_: random.Random) -> bytes:
    """One damaged file."""
    data = random_.choice(_sources())
    kind = random_.random()
    if kind < 0.05:
        return data[: random_.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(random_.choice((1, 1, 1, 2, 4, 16))):
        if kind < 0.5:
            changed[random_.randrange(len(data))] = random_.choice((*range(8), 127, 128, 255, random_.randrange(256)))
        else:
            at = random_.randrange(0, len(data) - 4, 4)
            word = random_.choice((*_EDGES, random_.randrange(2**32), random_.randrange(len(data))))
            changed[at : at + 4] = struct.pack("<I", word)
    return bytes(changed)


def examine(case: bytes) -> str:
    """Read and lower the file in all ways; the outcome of the exact way is counted."""
    for read in (partial(tflite.loads, compat="tflite-reference"), partial(tflite.loads, floats=True)):
        with suppress(CvmError):
            graph = read(memoryview(case)).graph  # as a mapped file
            if not any(tensor.quantizer is None and tensor.dtype == "scalar" for tensor in graph.tensors.values()):
                lower(graph)
    try:
        lower(tflite.loads(case).graph)
    except CvmError as error:
        return error.code
    return "valid, lowered"


FUZZER = Fuzzer("tools.fuzz.tflite_models", make, examine)

if __name__ == "__main__":
    raise SystemExit(main(FUZZER))
