"""Programs that a verifier accepts, for the intervals that it derives: each op under drawn ranges, and programs whose
ranges become coarser because there would be too many bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from cvm.errors import Invalid
from cvm.ops.ranges import channel_axis
from cvm.ops.specification import STATEMENTS
from cvm.program import Output, Program, ProgramBuilder
from tools.vector_cases.answers import FAMILIES, vector_tensor
from tools.vector_cases.case import Case, Tensor, parameter, tensor
from tools.vector_cases.networks import NETWORKS, network
from tools.vector_cases.stream import Stream
from tools.vector_cases.verdict_edges import built

__all__ = [
    "Accepted",
    "drawn_programs",
    "exact_programs",
    "example_program",
    "network_programs",
    "refused_cases",
    "resolutions",
]

Accepted = tuple[str, str, Program]
"""Name, aim, program."""

_LARGEST = 200
"""The most elements of the tensors of a drawn case."""
_EACH = 16
"""The number of drawn cases of each op."""


class _Operands:
    """The operands of a drawn case: inputs, inputs plus a constant for each channel, or constants."""

    def __init__(self, label: str) -> None:
        self.builder = ProgramBuilder()
        self.stream = Stream(label)

    def drawn(self, shape: Sequence[int]) -> str:
        """A tensor of some range."""
        role = self.stream.choice(("input", "channels", "channels", "constant"))
        if role == "constant":
            return self.fixed(self.stream.tensor(shape, -9, 9))
        lo = self.stream.between(-9, 3)
        name = self.builder.input(f"x{self.stream.word():016x}", shape, lo, lo + self.stream.between(0, 12))
        axis = channel_axis(len(shape))
        if role == "input" or shape[axis] == 1:
            return name
        extents = [extent if k == axis else 1 for k, extent in enumerate(shape)]
        offsets = self.fixed(self.stream.tensor(extents, -20, 20))
        return self.builder.add("broadcast_add", [name, offsets], {}, "channels")[0]

    def fixed(self, item: Tensor) -> str:
        """A constant."""
        return self.builder.constant(vector_tensor(item).array(), kind=item.kind)

    def program(self, op: str, operands: Sequence[str], attributes: dict[str, Any]) -> Program:
        """The program that applies an op to them."""
        results = self.builder.add(op, operands, attributes, "y")
        return self.builder.build([Output(result, result) for result in results])


def _cases(op: str) -> list[Case]:
    """The cases of the vectors of an op."""
    (maker,) = (family[op] for family in FAMILIES if op in family)
    return maker(op).items


def drawn_programs(op: str) -> Iterator[Accepted]:
    """The op with shapes and attributes of its vectors, on operands of drawn ranges."""
    fitting = [
        item for item in _cases(op) if item.code is None and sum(len(t.elements) for t in item.inputs) <= _LARGEST
    ]
    every = max(1, len(fitting) // (2 * _EACH))
    found = 0
    for item in fitting[::every]:
        operands = _Operands(f"verdicts/{op}/{item.name}")
        names = [operands.drawn(t.shape) if t.kind == "tensor" else operands.fixed(t) for t in item.inputs]
        try:
            program = operands.program(op, names, item.attributes)
        except Invalid:  # not proven for these ranges
            continue
        yield f"{op}_{item.name}", f"{op} on operands of drawn ranges", program
        found += 1
        if found == _EACH:
            return


def example_program(op: str) -> Accepted:
    """The example of the op in docs/ops.md."""
    example = STATEMENTS[op].example
    operands = _Operands("")
    names = []
    for index, item in enumerate(example.inputs):
        if item.role == "input":
            names.append(operands.builder.input(f"x{index}", item.shape, *item.interval))
        else:
            make = parameter if item.role == "parameter" else tensor
            names.append(operands.fixed(make(item.shape, item.elements)))
    return f"{op}_example", f"the example of {op} in docs/ops.md", operands.program(op, names, dict(example.attributes))


def exact_programs(op: str) -> Iterator[Accepted]:
    """The vectors of requantize on constants: its range rules have ends that drawn ranges seldom reach."""
    if op == "requantize":
        for item in _cases(op):
            if item.code is None:
                yield f"{op}_exact_{item.name}", item.aim, built(op, item)


def refused_cases(op: str) -> list[Case]:
    """The cases of the vectors of an op that break its rules."""
    return [item for item in _cases(op) if item.code is not None]


def network_programs() -> Iterator[Accepted]:
    """The programs of the vectors of whole programs, and the example of docs/verifier.md."""
    for name in NETWORKS:
        found = network(name)
        yield name, found.aim, found.program
    b = ProgramBuilder()
    x = b.input("X", (1, 2, 2), 0, 10)
    (product,) = b.add("broadcast_mul", [x, b.constant([[1], [-1]], "C")], {})
    (y,) = b.add("sum", [product], {"axes": (1,)})
    yield "page_example", "the example of docs/verifier.md", b.build([Output("y", y)])


class _Chain:
    """A program of results that depend on one another, all of which are outputs."""

    def __init__(self) -> None:
        self.b = ProgramBuilder()
        self.results: list[str] = []

    def channels(self, shape: Sequence[int], values: Sequence[int], axis: int | None = None) -> str:
        """An input in [0, 3] plus a constant that varies along an axis, by default that of the channels."""
        axis = channel_axis(len(shape)) if axis is None else axis
        x = self.b.input(f"x{len(self.results)}", shape, 0, 3)
        extents = [extent if k == axis else 1 for k, extent in enumerate(shape)]
        return self.add("broadcast_add", x, self.fixed(extents, values))

    def fixed(self, shape: Sequence[int], values: Sequence[int]) -> str:
        """A constant of repeated values."""
        repeated = (list(values) * (prod(shape) // len(values) + 1))[: prod(shape)]
        return self.b.constant(vector_tensor(tensor(shape, repeated)).array())

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """The first result of an op."""
        found = self.b.add(op, inputs, attributes)
        self.results += found
        return found[0]

    def program(self) -> Program:
        """The program with all results."""
        return self.b.build([Output(result, result) for result in self.results])


def _repeats() -> Program:
    c = _Chain()
    pair = c.fixed((2,), (0, 5))
    c.add("repeat", pair, axis=0, repeats=2**17)
    c.add("repeat", pair, axis=0, repeats=2**17 + 1)
    many = c.add("repeat", pair, axis=0, repeats=64)
    c.add("tile", many, reps=(2, 2048))
    c.add("tile", many, reps=(2049,))
    return c.program()


def _kept() -> Program:
    c = _Chain()
    wide = c.add("repeat", c.fixed((2,), (-1, 5)), axis=0, repeats=2**17)
    for _ in range(6):
        wide = c.add("negative", wide)
    small = c.add("relu", c.fixed((3,), (1, 2, 3)))
    last = c.add("clip", wide, a_min=-3, a_max=4)
    c.add("abs", small)
    c.add("negative", last)
    return c.program()


def _moved() -> Program:
    c = _Chain()
    x = c.channels((1, 3, 300, 300), (1, -2, 7))
    c.add("reshape", x, target_shape=(3, 90_000))
    c.add("reshape", x, target_shape=(1, 3, 90_000))
    c.add("reshape", x, target_shape=(9, 1, 30_000))
    c.add("flatten", x)
    c.add("transpose", x, axes=(1, 0, 2, 3))
    c.add("transpose", x, axes=(0, 2, 1, 3))
    small = c.channels((2, 3, 2), (4, 0, -9))
    c.add("flatten", small)
    c.add("reshape", small, target_shape=(1, 2, 3, 2))
    c.add("reshape", small, target_shape=(2, 6))
    fixed = c.fixed((2, 3), (1, -2, 3, 4, 5, -6))
    for target in ((3, 2), (2, 1, 3), (1, 6), (1, 2, 3, 1)):
        c.add("reshape", fixed, target_shape=target)
    c.add("expand_dims", small, axis=1, num_newaxis=1)
    c.add("squeeze", c.channels((1, 1, 4), (1, 2, 3, 4), 2), axes=())
    return c.program()


def _broadcasts() -> Program:
    c = _Chain()
    column, row = c.fixed((600, 1), range(-60, 60)), c.fixed((500,), range(-20, 90))
    for op in (
        "broadcast_add",
        "broadcast_sub",
        "broadcast_mul",
        "broadcast_div",
        "broadcast_max",
        "broadcast_greater",
    ):
        c.add(op, column, row)
    c.add("broadcast_add", c.fixed((300, 1), range(-60, 60)), row)
    choice = c.add("broadcast_greater", c.channels((1, 3, 2), (-9, -1, 9)), c.fixed((1,), (0,)))
    c.add("where", choice, c.channels((1, 3, 2), (10, 20, 30)), c.channels((1, 3, 2), (-10, -20, -30)))
    c.add("where", c.fixed((3,), (0, 1, 0)), c.fixed((3, 2), (1, 2, 3)), c.channels((3, 2), (-10, 10)))
    return c.program()


def _selections() -> Program:
    c = _Chain()
    table = c.fixed((520, 2), range(-64, 64))
    index = c.b.input("i", (2,), 0, 1)
    c.add("take", table, c.fixed((510,), (0, 1, 1)), axis=1)
    c.add("take", table, c.fixed((3,), (0, 1, 7)), axis=1)
    c.add("take", table, index, axis=0)
    c.add("take", table, index)
    c.add("take", c.channels((2, 3, 2), (1, 50, 100)), index, axis=1)
    c.add("take", c.channels((2, 3, 2), (1, 50, 100)), index, axis=-1)
    c.add("cvm_lut", c.fixed((5,), (9, -1, 4, 7, 3)), c.channels((1, 3), (-2, 0, 1)))
    c.add("slice", c.channels((2, 5), (1, 2, 3, 4, 5)), begin=(0, 4), end=(2, 0), strides=(1, -2))
    c.add("slice_like", c.channels((2, 5), (1, 2, 3, 4, 5)), c.fixed((1, 3), (0,)), axes=())
    return c.program()


def _joins() -> Program:
    c = _Chain()
    a, b = c.channels((1, 2, 2), (1, -5)), c.b.input("b", (1, 2, 2), -9, 9)
    fixed = c.fixed((1, 2, 2), (7, 8, 9, -70))
    c.add("concatenate", a, b, fixed, axis=1)
    c.add("concatenate", a, b, fixed, axis=2)
    c.add("concatenate", a, fixed, axis=-3)
    wide = c.add("repeat", c.fixed((2,), (0, 5)), axis=0, repeats=2**17)
    c.add("concatenate", wide, c.fixed((1,), (9,)), axis=0)
    c.add("sum", a, axes=(1,), keepdims=True)
    c.add("sum", fixed, axes=(2,), keepdims=False)
    c.add("max", fixed, axes=(0, 2), keepdims=False)
    c.add("max", a, axes=(2,), keepdims=True, exclude=True)
    return c.program()


def _products() -> Program:
    c = _Chain()
    x, weights = c.channels((1, 4, 3, 3), (0, -4, 1, 9)), c.fixed((2, 2, 3, 3), (1, -2, 0, 3, 2))
    bias = c.fixed((2,), (100, -100))
    c.add("conv2d", x, weights, bias, padding=(1, 2), groups=2)
    c.add("conv2d", x, weights, padding=(4, 4), stride=(2, 3), dilation=(2, 3), groups=2)
    c.add("conv2d", x, c.channels((2, 4, 2, 2), (1, 0, -1, 2)), bias)
    c.add("conv2d", x, c.b.input("w", (3, 4, 1, 1), -2, 2))
    rows, matrix = c.fixed((3, 2), (1, -2, 5, 3)), c.fixed((2, 2), (7, -1, 2))
    c.add("dense", rows, matrix, bias)
    c.add("dense", rows, c.fixed((1, 2), (7, -1)))
    c.add("dense", rows, c.channels((2, 2), (1, -3)))
    c.add("dense", c.channels((3, 2), (1, -3)), c.channels((2, 2), (1, -3)), bias)
    c.add("dense", c.channels((3, 2), (1, -3)), matrix)
    c.add("max_pool2d", x, pool_size=(2, 2), strides=(2, 2), ceil_mode=True)
    c.add("upsampling", x, scale=2)
    return c.program()


def _detections() -> Program:
    c = _Chain()
    rows = c.fixed((2, 3, 6), (0, 50, 0, 0, 9, 9, 1, 10, 2, 2, 8, 8, -1, 70, 0, 0, 1, 1))
    c.add("get_valid_count", rows, score_threshold=20)
    c.add("get_valid_count", c.channels((2, 3, 6), (-9, 50, 19)), score_threshold=20)
    c.add("get_valid_count", c.b.input("s", (2, 3, 6), 0, 100), score_threshold=20)
    c.add("non_max_suppression", rows, c.b.input("n", (2,), 0, 3), iou_threshold=50)
    return c.program()


def resolutions() -> Iterator[Accepted]:
    """Programs for which the fineness of ranges matters."""
    yield "repeats", "repetitions up to 2^18 bounds and beyond", _repeats()
    yield "kept", "results of more than 2^21 bounds together", _kept()
    yield "moved", "bounds that lie along another axis, or along none", _moved()
    yield "broadcasts", "broadcasts of more than 2^18 bounds, and choices", _broadcasts()
    yield "selections", "elements at positions that are known, or within an interval", _selections()
    yield "joins", "concatenations and reductions along the channels and beside them", _joins()
    yield "products", "windows on the padding, groups, weights that are no constants", _products()
    yield "detections", "counts of rows, and rows", _detections()
