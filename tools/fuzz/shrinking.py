"""Small programs that still fail: outputs, nodes, terms, extents and constants are left out as long as possible.

The caller gives a function that says whether a program and its inputs still fail in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import CvmError
from cvm.program import Output, Program, ProgramBuilder, verify
from cvm.program.model import Constant, Input, Node
from tools.fuzz.edge_feeds import Feed
from tools.fuzz.merging import pruned

__all__ = ["Case", "regression_test", "shrunk"]


@dataclass(frozen=True, slots=True)
class Case:
    """A program and inputs for its runs."""

    program: Program
    runs: tuple[Feed, ...]

    @property
    def size(self) -> tuple[int, int, int, int]:
        """The numbers that shrinking reduces: nodes, elements, numbers that are not simple, runs."""
        arrays = [constant.array() for constant in self.program.constants]
        fed = [one.value.shape for one in self.program.inputs]
        elements = sum(array.size for array in arrays) + sum(int(np.prod(shape)) for shape in fed)
        windows = (window for node in self.program.nodes for window in _windows(node))
        attributes = sum(abs(n - plain) for extents, plain in windows for n in extents)
        return len(self.program.nodes), elements, sum(map(_weight, arrays)) + attributes, len(self.runs)


_PLAIN = {"padding": 0, "stride": 1, "dilation": 1}
"""Attributes of windows, and their simplest values."""


def _windows(node: Node) -> list[tuple[tuple[int, ...], int]]:
    """The attributes of a node that `_PLAIN` names, each with the simplest number that it may have."""
    given = ((node.attributes[key], _PLAIN[key]) for key in _PLAIN.keys() & node.attributes)
    return [(value, plain) for value, plain in given if isinstance(value, tuple)]


def _weight(array: npt.NDArray[Any]) -> int:
    """A measure of how complex the elements are: 0 for zero, 1 for a power of two, else the number of its bits."""
    return sum(abs(x).bit_length() if abs(x) & (abs(x) - 1) else x != 0 for x in map(int, array.flat))


def shrunk(case: Case, fails: Callable[[Case], bool], tries: int = 400) -> Case:
    """The smallest case that was found to fail; ``fails`` is called at most ``tries`` times."""
    left = tries
    progress = True
    while progress and left > 0:
        progress = False
        for step in _STEPS:
            for smaller in step(case):
                if left <= 0:
                    return case
                if smaller.size >= case.size or not _valid(smaller):
                    continue
                left -= 1
                if fails(smaller):
                    case, progress = smaller, True
                    break
            if progress:
                break
    return case


def _valid(case: Case) -> bool:
    try:
        verify(case.program)
    except CvmError:
        return False
    return all(
        item.value.lo <= int(feed[item.value.name].min()) and int(feed[item.value.name].max()) <= item.value.hi
        for feed in case.runs
        for item in case.program.inputs
    )


# Steps: each gives smaller cases, the smallest first. Invalid cases are skipped. -----------------------------------


def _fewer_outputs(case: Case) -> Iterator[Case]:
    names = [output.name for output in case.program.outputs]
    count = len(names)
    while count > 1:
        count = (count + 1) // 2
        for first in range(0, len(names), count):
            part = names[first : first + count]
            if len(part) < len(names):
                yield _pruned(case, part)
        if count == 1:
            return


def _pruned(case: Case, names: Sequence[str]) -> Case:
    program = pruned(case.program, names)
    kept = [one.value.name for one in program.inputs]
    return Case(program, tuple({name: feed[name] for name in kept} for feed in case.runs))


def _fewer_runs(case: Case) -> Iterator[Case]:
    if len(case.runs) > 1:
        yield from (Case(case.program, (run,)) for run in case.runs)
        yield Case(case.program, case.runs[: len(case.runs) // 2])
        yield Case(case.program, case.runs[len(case.runs) // 2 :])


def _shorter_ends(case: Case) -> Iterator[Case]:
    """Cases whose outputs are taken before their last node."""
    producer = {value.name: node for node in case.program.nodes for value in node.outputs}
    for index, output in enumerate(case.program.outputs):
        node = producer.get(output.value)
        for name in node.inputs if node is not None else ():
            if name in producer:
                outputs = list(case.program.outputs)
                outputs[index] = Output(output.name, name)
                program = replace(case.program, outputs=tuple(outputs))
                yield _pruned(Case(program, case.runs), [one.name for one in outputs])


def _bypassed(case: Case) -> Iterator[Case]:
    """Cases without one node: its first operand of the same shape replaces its result."""
    shapes = {value.name: value.shape for node in case.program.nodes for value in node.outputs}
    shapes |= {one.value.name: one.value.shape for one in case.program.inputs}
    shapes |= {one.value.name: one.value.shape for one in case.program.state}
    for node in case.program.nodes:
        for name in node.inputs:
            if len(node.outputs) == 1 and shapes.get(name) == node.outputs[0].shape:
                yield from _rebuilt(case, renamed={node.outputs[0].name: name})


def _fewer_terms(case: Case) -> Iterator[Case]:
    for number, node in enumerate(case.program.nodes):
        count = (len(node.inputs) - 2) // 2
        if node.op == "requantize" and count > 1:
            for term in range(1, count):
                inputs = [name for k, name in enumerate(node.inputs) if k not in (term, count + term)]
                nodes = list(case.program.nodes)
                nodes[number] = replace(node, inputs=tuple(inputs))
                yield from _rebuilt(Case(replace(case.program, nodes=tuple(nodes)), case.runs))


def _smaller_extents(case: Case) -> Iterator[Case]:
    """Cases in which all axes of one extent are shortened, wherever that extent occurs."""
    shapes = [one.value.shape for one in case.program.inputs] + [one.shape for one in case.program.constants]
    for extent in sorted({n for shape in shapes for n in shape if n > 1}, reverse=True):
        for kept in _parts(extent):
            yield from _rebuilt(case, cut=(extent, kept))


def _parts(extent: int) -> Iterator[slice]:
    """Parts of an axis: single indices of short axes, halves, all but one end."""
    if extent <= 8:
        yield from (slice(k, k + 1) for k in range(extent))
    half = extent // 2
    yield from (slice(0, half), slice(half, extent), slice(0, extent - 1), slice(1, extent))


def _plain_windows(case: Case) -> Iterator[Case]:
    for number, node in enumerate(case.program.nodes):
        for key in sorted(_PLAIN.keys() & node.attributes):
            nodes = list(case.program.nodes)
            nodes[number] = replace(node, attributes={**node.attributes, key: (_PLAIN[key],) * 2})
            yield from _rebuilt(Case(replace(case.program, nodes=tuple(nodes)), case.runs))


def _simpler_constants(case: Case) -> Iterator[Case]:
    for constant in case.program.constants:
        array = constant.array()
        for simpler in _simpler(array):
            if not np.array_equal(simpler, array):
                yield from _rebuilt(case, constants={constant.name: simpler})


def _simpler(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    for value in (0, 1, int(array.flat[0])):
        yield np.full_like(array, value)
    if array.size > 32:
        return
    for index in range(array.size):
        x = int(array.flat[index])
        near = 2 ** (abs(x).bit_length() - 1) * (1 if x > 0 else -1) if x else 0
        for value in (0, 1, near, x // 2):
            changed = array.copy()
            changed.flat[index] = value
            yield changed


def _simpler_runs(case: Case) -> Iterator[Case]:
    if len(case.runs) != 1:
        return
    for name, fed in case.runs[0].items():
        for value in {0, 1, int(fed.min()), int(fed.max())}:
            if (fed != value).any():
                yield _Simpler(case.program, ({**case.runs[0], name: np.full_like(fed, value)},))


class _Simpler(Case):
    """A case that counts as smaller although only its inputs are simpler."""

    @property
    def size(self) -> tuple[int, int, int, int]:
        """See `Case.size`."""
        *whole, runs = Case.size.fget(self)  # type: ignore[attr-defined]
        return (*whole, runs - 1)


_STEPS = (_fewer_outputs, _fewer_runs, _shorter_ends, _bypassed, _fewer_terms, _plain_windows,
          _smaller_extents, _simpler_constants,
          _simpler_runs)  # fmt: skip


def _rebuilt(
    case: Case,
    renamed: dict[str, str] | None = None,
    cut: tuple[int, slice] | None = None,
    constants: dict[str, npt.NDArray[Any]] | None = None,
) -> Iterator[Case]:
    """The case built again with changes, so that all shapes and intervals are right; nothing if it is refused."""
    try:
        yield _Rebuilding(case, renamed or {}, cut, constants or {}).case()
    except CvmError:
        return


class _Rebuilding:
    def __init__(
        self, case: Case, renamed: dict[str, str], cut: tuple[int, slice] | None, constants: dict[str, npt.NDArray[Any]]
    ) -> None:
        self.before, self.renamed, self.cut_to, self.constants = case, renamed, cut, constants
        self.builder = ProgramBuilder()
        self.names: dict[str, str] = {}

    def case(self) -> Case:
        """The new case."""
        program = self.before.program
        for one in program.inputs:
            shape = self.cut(np.broadcast_to(np.int32(0), one.value.shape)).shape
            self.names[one.value.name] = self.builder.input(one.value.name, shape, one.value.lo, one.value.hi)
        for constant in program.constants:
            self.constant(constant)
        for kept in program.state:
            value = kept.value
            self.names[value.name] = self.builder.state(value.name, self.names[kept.initial], value.lo, value.hi)
        for node in program.nodes:
            self.node(node)
        for kept in program.state:
            self.builder.update(kept.value.name, self.names[kept.update])
        outputs = [Output(one.name, self.names[one.value]) for one in program.outputs]
        built = self.builder.build(outputs)
        runs = tuple({name: np.ascontiguousarray(self.cut(fed)) for name, fed in feed.items()}
                     for feed in self.before.runs)  # fmt: skip
        return _pruned(Case(built, runs), [output.name for output in outputs])

    def cut(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The array with all axes of the extent shortened."""
        if self.cut_to is None:
            return array
        extent, kept = self.cut_to
        return array[tuple(kept if n == extent else slice(None) for n in array.shape)]

    def constant(self, constant: Constant) -> None:
        array = self.constants.get(constant.name, constant.array())
        self.names[constant.name] = self.builder.constant(self.cut(array), kind=constant.kind)

    def node(self, node: Node) -> None:
        attributes = dict(node.attributes)
        if self.cut_to is not None:
            extent, kept = self.cut_to
            for key in ("target_shape", "groups"):
                attributes[key] = _with_extent(attributes.get(key), extent, kept.stop - kept.start)
            attributes = {key: value for key, value in attributes.items() if value is not None}
        inputs = [self.names[self.renamed.get(name, name)] for name in node.inputs]
        found = self.builder.add(node.op, inputs, attributes)
        self.names |= {value.name: name for value, name in zip(node.outputs, found, strict=True)}


def _with_extent(value: Any, extent: int, smaller: int) -> Any:
    """An attribute of extents, with one extent replaced."""
    if isinstance(value, tuple):
        return tuple(smaller if n == extent else n for n in value)
    return smaller if value == extent and extent > 1 else value


# Text -------------------------------------------------------------------------------------------------------------


def regression_test(case: Case, name: str) -> str:
    """The text of a test that builds the program and compares native code with NumPy."""
    lines = [f"def test_{name}() -> None:", "    builder = ProgramBuilder()"]
    known: dict[str, str] = {}
    for number, one in enumerate(case.program.inputs):
        known[one.value.name] = f"x{number}"
        lines.append(_input(f"x{number}", one))
    for number, constant in enumerate(case.program.constants):
        known[constant.name] = f"k{number}"
        kind = "parameter" if constant.kind == "parameter" else "constant"
        items = f"np.array({list(constant.integers())}).reshape({constant.shape})"
        lines.append(f"    k{number} = builder.{kind}({items})")
    for number, kept in enumerate(case.program.state):
        known[kept.value.name] = f"s{number}"
        value = kept.value
        lines.append(f"    s{number} = builder.state({value.name!r}, {known[kept.initial]}, {value.lo}, {value.hi})")
    for number, node in enumerate(case.program.nodes):
        results = [f"y{number}_{k}" for k in range(len(node.outputs))]
        known |= {value.name: result for value, result in zip(node.outputs, results, strict=True)}
        inputs = ", ".join(known[name] for name in node.inputs)
        lines.append(f"    {', '.join(results)}, = builder.add({node.op!r}, [{inputs}], {dict(node.attributes)})")
    lines += [f"    builder.update({kept.value.name!r}, {known[kept.update]})" for kept in case.program.state]
    outputs = ", ".join(f"Output({one.name!r}, {known[one.value]})" for one in case.program.outputs)
    lines.append(f"    program = builder.build([{outputs}])")
    runs = ", ".join("{" + ", ".join(f"{key!r}: {_text(fed)}" for key, fed in feed.items()) + "}" for feed in case.runs)
    lines.append(f"    compare(program, [{runs}])")
    return "\n".join(lines) + "\n"


def _text(fed: npt.NDArray[np.int32]) -> str:
    first = int(fed.flat[0])
    if (fed == first).all():
        return f"np.full({fed.shape}, {first}, np.int32)"
    return f"np.array({fed.tolist()}, np.int32)"


def _input(name: str, one: Input) -> str:
    value = one.value
    return f"    {name} = builder.input({value.name!r}, {value.shape}, {value.lo}, {value.hi})"
