"""The costs of one-step proofs: their sizes and the leaves that they open, for every op of a program, as tables.

    python tools/dispute_costs.py [MODEL..] [--wide] [--language] [--elements N]

A MODEL is a program file or a model; --wide is a program of ops on tensors that are hard to split: rows longer than a
leaf, strides across many leaves, many operands; --language has the shapes of a language model of 12 heads, width 768
and 1,024 tokens. Inputs are drawn. For every target of every op, the first, the last and
N other elements are proven, each at its first, second, middle and last step. The tables have the largest numbers found,
by op, and a bound on the bytes of the proof of any step. Every proof is judged.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from cvm.audit.dispute import Evidence, computed, encode_proof, largest_proof, most_rounds, verify_step
from cvm.audit.dispute.targets import auxiliary_count
from cvm.cli.models import open_program
from cvm.program import Output, Program, ProgramBuilder, VerifiedProgram, verify

COLUMNS = ("op", "ops", "steps", "elements read", "leaves of one operand", "leaves", "bytes", "at most")


@dataclass(frozen=True)
class Cost:
    """The cost of one step, or the greatest cost among several steps."""

    op: str
    steps: int
    """Of the element."""
    read: int
    """How many elements are read of the operand that is read most: not fewer than the multiply-adds."""
    leaves_of_one: int
    leaves: int
    size: int
    """The bytes of the proof."""


def wide_program() -> Program:
    """Ops on tensors that are awkward to split into steps."""
    builder = ProgramBuilder()
    random = np.random.default_rng(1)

    def weights(*shape: int) -> str:
        return builder.constant(random.integers(-8, 8, shape))

    def convolve(x: str, w: str, stride: int = 1, dilation: int = 1, groups: int = 1) -> None:
        pair = {"padding": (1, 1), "stride": (stride, stride), "dilation": (dilation, dilation), "groups": groups}
        given.extend(builder.add("conv2d", [x, w], pair))

    given: list[str] = []
    photo = builder.input("photo", (1, 3, 224, 224), -128, 127)
    row = builder.input("row", (1, 4, 12, 2000), -128, 127)
    deep = builder.input("deep", (1, 512, 28, 28), -128, 127)
    convolve(photo, weights(4, 3, 7, 7), stride=2)
    convolve(photo, weights(2, 3, 3, 3), dilation=30)
    convolve(photo, weights(2, 3, 20, 20), stride=16)
    convolve(row, weights(4, 1, 3, 3), groups=4)
    convolve(row, weights(2, 4, 1, 700), stride=4)
    convolve(deep, weights(4, 512, 1, 1), stride=3)
    convolve(deep, weights(4, 512, 3, 3), stride=3)
    matrix = builder.add("reshape", [deep], {"target_shape": (98, 4096)})[0]
    given += builder.add("dense", [matrix, weights(3, 4096), weights(3)])
    for axes in ((0,), (1,), (1, 3), (2, 3), ()):
        for op in ("sum", "max"):
            given += builder.add(op, [deep], {"axes": axes, "keepdims": False, "exclude": False})
    window = {"padding": (1, 1), "strides": (3, 3), "ceil_mode": False}
    given += builder.add("max_pool2d", [row], {"pool_size": (3, 3), **window})
    given += builder.add("max_pool2d", [row], {"pool_size": (10, 300), **window})
    parts = [builder.add("slice", [deep], {"begin": (0, k), "end": (1, k + 12), "strides": ()})[0] for k in range(40)]
    given += builder.add("concatenate", parts, {"axis": 1})
    channels = (512, 1, 1)
    terms = [deep] * 8 + [builder.parameter(np.arange(512).reshape(channels) + k) for k in range(8)]
    rounding = {"rounding": "half_even", "lo": -128, "hi": 127}
    ends = [builder.parameter(np.arange(512).reshape(channels)), builder.parameter(np.full(channels, 20))]
    given += builder.add("requantize", [*terms, *ends], rounding)
    given += _computed(builder, deep)
    given += builder.add("transpose", [deep], {"axes": (0, 2, 3, 1)})
    rows = builder.input("rows", (2, 5000, 32), -1, 100)
    given += builder.add("get_valid_count", [rows], {"score_threshold": 30})
    boxes = builder.input("boxes", (1, 1500, 6), -1, 100)
    count = builder.input("count", (1,), 1400, 1500)
    overlap = {"iou_threshold": 40, "max_output_size": -1, "force_suppress": False, "top_k": -1}
    given += builder.add("non_max_suppression", [boxes, count], overlap)
    return builder.build([Output(name, name) for name in given])


def _computed(builder: ProgramBuilder, deep: str) -> list[str]:
    """The ops of op-set 2, with operands of which all are large."""
    channels = (512, 1, 1)

    def parameter(least: int) -> str:
        return builder.parameter(np.arange(least, least + 512).reshape(channels))

    (positive,) = builder.add("abs", [deep])
    one = [builder.parameter(np.array([item])) for item in (2**40, 2**41, 2**42, 1)]
    bytes_ = {"rounding": "half_even", "lo": -128, "hi": 127}
    operands = [*[deep] * 6, *[positive] * 3, *(parameter(k) for k in range(6)), *one[:3], parameter(7), one[3]]
    given = [*builder.add("quotient", operands, {**bytes_, "terms": 6})]
    for axes in ((1,), (3,), (1, 2, 3)):
        row = [parameter(2**30), parameter(-99), parameter(2**20), builder.parameter(np.array([1000])), one[3]]
        given += builder.add("normalize", [deep, *row], {**bytes_, "axes": axes, "statistic": "variance"})
    index = builder.input("index", (1,), 0, 600)
    (part,) = builder.add("slice", [deep], {"begin": (0, 7), "end": (1, 19), "strides": ()})
    given += builder.add("update_slice", [deep, part, index], {"axis": 1})
    for transposed in (False, True):
        given += builder.add("matmul", [deep, deep], {"transpose_a": transposed, "transpose_b": not transposed})
    return given


_NARROW_WINDOWS = (
    # the photo, the filter, the padding
    ((1, 256, 1, 1), (2, 256, 1, 1), 0),
    ((1, 512, 2, 2), (2, 512, 2, 1), 0),
    ((1, 512, 2, 2), (2, 512, 2, 2), 1),
    ((1, 8, 300, 2), (2, 8, 300, 1), 0),
    ((1, 8, 300, 2), (2, 8, 128, 2), 3),
    ((1, 8, 8, 300), (2, 8, 6, 6), 4),
)
_NARROW_ROWS = (
    # the tensor, the axes over which a row goes
    ((256, 1, 1, 1, 1, 1), (0, 1, 2, 3, 4, 5)),
    ((1, 1, 1, 1, 256, 1), (4, 0, 1, 2, 3, 5)),
    ((2,) * 8, (0, 1, 2, 3, 4, 5, 6, 7)),
    ((2,) * 8, (0, 2, 4, 6)),
    ((128, 2, 2), (0, 2)),
)


def narrow_program() -> Program:
    """Ops whose steps go over long thin boxes: windows of one pixel or one column, axes of one index."""
    builder = ProgramBuilder()
    random = np.random.default_rng(3)
    inputs: dict[tuple[int, ...], str] = {}

    def tensor(extents: tuple[int, ...]) -> str:
        if extents not in inputs:
            inputs[extents] = builder.input(f"x{len(inputs)}", extents, -128, 127)
        return inputs[extents]

    given: list[str] = []
    for photo, window, padding in _NARROW_WINDOWS:
        filters = builder.constant(random.integers(-8, 8, window))
        one = {"stride": (1, 1), "dilation": (1, 1), "groups": 1}
        given += builder.add("conv2d", [tensor(photo), filters], {**one, "padding": (padding, padding)})
    for size, before in (((300, 1), (0, 0)), ((256, 1), (100, 0)), ((128, 2), (0, 1)), ((1, 2), (0, 1))):
        window_ = {"pool_size": size, "strides": size, "padding": before, "ceil_mode": False}
        given += builder.add("max_pool2d", [tensor((1, 8, 300, 2))], window_)
    statistic = [builder.parameter(np.array([item])) for item in (2**20, 0, 2**10, 1, 1)]
    for extents, axes in _NARROW_ROWS:
        for op in ("sum", "max"):
            given += builder.add(op, [tensor(extents)], {"axes": axes, "keepdims": False, "exclude": False})
        rounding = {"rounding": "half_even", "lo": -128, "hi": 127, "statistic": "variance"}
        given += builder.add("normalize", [tensor(extents), *statistic], {"axes": axes, **rounding})
    return builder.build([Output(name, name) for name in given])


def language_program() -> Program:
    """The ops of op-set 2 in the shapes of a language model: 12 heads of 64, width 768, 1,024 tokens kept."""
    builder = ProgramBuilder()
    random = np.random.default_rng(2)
    heads, tokens, width = 12, 1024, 768
    given: list[str] = []

    def add(op: str, inputs: list[str], **attributes: object) -> str:
        (name,) = builder.add(op, inputs, attributes)
        given.append(name)
        return name

    def parameter(count: int, least: int, largest: int) -> str:
        return builder.parameter(random.integers(least, largest, count))

    row = builder.input("row", (2, width), -32768, 32767)
    one = [builder.parameter(np.array([item])) for item in (1000, 2**30)]
    factors = [parameter(width, -(2**40), 2**40), parameter(width, -(2**40), 2**40), parameter(width, 1, 2**30), *one]
    for statistic in ("variance", "mean_square", "square_sum"):
        add("normalize", [row, *factors], axes=(1,), statistic=statistic, rounding="half_even", lo=-32768, hi=32767)
    wide = builder.input("wide", (2, 4 * width), -128, 127)
    matrix = builder.input("matrix", (4 * width, width), -128, 127)
    add("matmul", [wide, matrix])
    add("matmul", [wide, builder.input("across", (width, 4 * width), -128, 127)], transpose_b=True)
    add("dense", [wide, builder.constant(random.integers(-127, 128, (width, 4 * width)))])
    queries = builder.input("queries", (heads, 2, 64), -128, 127)
    keys, values = (builder.input(name, (heads, tokens, 64), -128, 127) for name in ("keys", "values"))
    index = builder.input("index", (1,), 0, tokens)
    part = builder.input("part", (heads, 1, 64), -128, 127)
    kept = [add("update_slice", [cache, part, index], axis=1) for cache in (keys, values)]
    add("matmul", [queries, kept[0]], transpose_b=True)
    powers = builder.input("powers", (heads, 2, tokens), 0, 2**20)
    sums = add("sum", [powers], axes=(2,), keepdims=True)
    ends = [builder.parameter(np.array([item])) for item in (2**40 + 1, 2**33, 5, 2**20)]
    rounding = {"rounding": "half_up", "lo": 0, "hi": 127}
    add("matmul", [add("quotient", [powers, sums, *ends], terms=1, **rounding), kept[1]])
    own = [parameter(tokens, -(2**40), 2**40) for _ in range(7)]
    weights = [builder.parameter(np.array([item])) for item in (2**40, 2**41, 2**42, 1)]
    add("quotient", [*[powers] * 9, *own[:6], *weights[:3], own[6], weights[3]], terms=6, **rounding)
    return builder.build([Output(name, name) for name in given])


def evidence_of(verified: VerifiedProgram, seed: int = 0) -> Evidence:
    """A run on drawn inputs."""
    random = np.random.default_rng(seed)
    inputs = {
        item.value.name: random.integers(item.value.lo, item.value.hi + 1, item.value.shape).astype(np.int32)
        for item in verified.program.inputs
    }
    return computed(verified, inputs, codes=True)


def costs(true: Evidence, elements: int, seed: int = 0) -> Iterator[tuple[int, int, Cost]]:
    """The costs of steps of every op, with the numbers of the op and of its target."""
    for op, target, element, step, partials in drawn_steps(true, elements, seed):
        yield op, target, cost(true, op, target, element, step, partials)


def drawn_steps(true: Evidence, elements: int, seed: int = 0) -> Iterator[tuple[int, int, int, int, list[int]]]:
    """Four steps of the first, the last and of drawn elements of every target of every op: the numbers of op, target,
    element and step, and the partials of the element.
    """
    random = Random(seed)
    for op, node in enumerate(true.program.program.nodes):
        for target in range(auxiliary_count(node.op) + len(node.outputs)):
            size = true.tensor(op, target).size
            for element in {0, size - 1, *(random.randrange(size) for _ in range(elements))}:
                partials = true.partials(op, target, element)
                for step in {0, min(1, len(partials) - 1), len(partials) // 2, len(partials) - 1}:
                    yield op, target, element, step, partials


def cost(true: Evidence, op: int, target: int, element: int, step: int, partials: list[int]) -> Cost:
    """The cost of one step, which must be accepted."""
    proof = true.prove(op, target, element, step, partials)
    verdict = verify_step(proof.claim, proof.witness)
    if not verdict.accepted:
        raise AssertionError(f"op {op}, target {target}, element {element}, step {step}: {verdict.reason}")
    before = partials[step - 1] if step else true.fold(op, target, element)[0].start
    reads = true.reads(op, target, element, step, before)
    return Cost(
        op=true.program.program.nodes[op].op,
        steps=len(partials),
        read=max(map(len, reads.values()), default=0),
        leaves_of_one=max((len(operand.leaves) for operand in proof.witness.operands), default=0),
        leaves=sum(len(operand.leaves) for operand in proof.witness.operands),
        size=len(encode_proof(proof)),
    )


def table(name: str, true: Evidence, elements: int) -> Iterator[str]:
    """The largest numbers by op, as lines of a table."""
    found: dict[str, list[Cost]] = {}
    bounds: dict[str, int] = {}
    for op, target, item in costs(true, elements):
        found.setdefault(item.op, []).append(item)
        bounds[item.op] = max(bounds.get(item.op, 0), largest_proof(true.program, op, target))
    nodes = [node.op for node in true.program.program.nodes]
    yield f"{name}: {len(nodes)} ops, at most {most_rounds(true.program)} rounds"
    yield ""
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "|---|" + "---:|" * (len(COLUMNS) - 1)
    for what in sorted(found, key=lambda what: -max(item.size for item in found[what])):
        most = [
            max(getattr(item, part) for item in found[what])
            for part in ("steps", "read", "leaves_of_one", "leaves", "size")
        ]
        yield (
            "| "
            + " | ".join([f"`{what}`", str(nodes.count(what)), *(f"{number:,}" for number in (*most, bounds[what]))])
            + " |"
        )
    yield ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL")
    parser.add_argument("--wide", action="store_true", help="also the program of awkward shapes")
    parser.add_argument("--language", action="store_true", help="also the program with the shapes of a language model")
    parser.add_argument("--elements", type=int, default=20, metavar="N", help="drawn elements of every target")
    options = parser.parse_args()
    programs = {path.name: open_program(path) for path in options.models}
    if options.wide:
        programs["wide"] = verify(wide_program())
    if options.language:
        programs["language"] = verify(language_program())
    for name, verified in programs.items():
        for line in table(name, evidence_of(verified), options.elements):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
