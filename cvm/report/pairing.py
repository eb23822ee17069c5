"""Which value of a program holds the codes of which tensor of the model, and why some tensors have no value.

The compiler's report, which a program carries as its provenance, gives the pairs; inputs, outputs and state repeat some
by name. First it is checked, as far as the program shows it, whether it was compiled from this model.
"""

from __future__ import annotations

from collections.abc import Sequence

from cvm.errors import CvmError, Location, Mismatch
from cvm.graph import GraphTensor, QuantizedGraph, computed_from_inputs, names_in
from cvm.lowering import lower
from cvm.passes.optimize import optimize
from cvm.program import Program
from cvm.program.model import Exactness
from cvm.program.verifier import VerifiedProgram
from cvm.quantization import Quantizer
from cvm.records import dataclass

__all__ = ["Absent", "Pair", "Source", "check_source", "pairs"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A tensor of the model, and the value of the program that holds its codes."""

    tensor: GraphTensor
    value: str
    interval: tuple[int, int]
    """The proven interval of the value."""
    exactness: Exactness | None
    """The compiler's proof about the tensor, if the program states it."""


@dataclass(frozen=True, slots=True)
class Absent:
    """A tensor of the model that no value of the program holds, and the reason."""

    tensor: GraphTensor
    reason: str


@dataclass(frozen=True, slots=True)
class Source:
    """The evidence that the program was compiled from the model."""

    document: bool | None
    """Whether the program names the document by its digest; None: it names none."""
    compiled: bool | None
    """Whether the model compiles to exactly this program; None: it does not compile."""


def check_source(verified: VerifiedProgram, graph: QuantizedGraph, itself: bool = False) -> Source:
    """The evidence that the model is the program's; ``itself`` says that the program was just compiled from it.

    Raises `Mismatch` (``report.model``) if inputs, outputs or reported tensors are not those of the model: their names,
    their shapes, or their quantisers, which decide what codes stand for.
    """
    program = verified.program
    _check_names("inputs", [item.value.name for item in program.inputs], graph.inputs)
    _check_names("outputs", [item.name for item in program.outputs], graph.outputs)
    for item in program.inputs:
        _check(verified, graph.tensors[item.value.name], "input", item.value.name, item.quantizer)
    for output in program.outputs:
        _check(verified, graph.tensors[output.name], "output", output.value, output.quantizer)
    for exactness in program.provenance.exactness:
        if exactness.tensor not in graph.tensors:
            raise _mismatch(f"the program was compiled from a model that has a tensor {exactness.tensor!r}")
    named = program.provenance.source_digest
    document = named == graph.source_digest if named and graph.source_digest else None
    return Source(document, True if itself else _compiles_to(graph, program))


def _check_names(what: str, found: Sequence[str], expected: Sequence[str]) -> None:
    if sorted(found) != sorted(expected):
        ours, theirs = (", ".join(map(repr, names)) or "none" for names in (found, expected))
        raise _mismatch(f"the {what} of the program are {ours}, those of the model {theirs}")


def _check(verified: VerifiedProgram, tensor: GraphTensor, what: str, value: str, quantizer: Quantizer | None) -> None:
    found, expected = verified.shapes[value], tensor.shape or (1,)
    if found != expected:
        shapes = f"has the shape {list(found)} in the program and {list(expected)} in the model"
        raise _mismatch(f"the {what} {tensor.name!r} {shapes}")
    if quantizer != tensor.quantizer:
        message = f"the {what} {tensor.name!r} has another quantiser in the program than in the model"
        raise _mismatch(f"{message}: if other quantisation information was compiled in, give it here as well")


def _mismatch(message: str) -> Mismatch:
    return Mismatch("report.model", f"this is not the model that the program was compiled from: {message}")


def _compiles_to(graph: QuantizedGraph, program: Program) -> bool | None:
    try:
        lowered = lower(graph)
        return program.digest in (lowered.digest, optimize(lowered).digest)
    except CvmError:
        return None


def pairs(verified: VerifiedProgram, graph: QuantizedGraph) -> tuple[tuple[Pair, ...], tuple[Absent, ...]]:
    """Every tensor of the model, in its order: paired with a value, or absent.

    Raises `Mismatch` (``report.model``) if a value holds codes that the tensor's quantiser does not have.
    """
    held, exactness = _held(verified)
    inputs, needed = computed_from_inputs(graph), _needed(graph)
    found: list[Pair] = []
    absent: list[Absent] = []
    for tensor in graph.tensors.values():
        value = held.get(tensor.name)
        if value is None:
            absent.append(Absent(tensor, _reason(tensor, inputs, needed)))
        elif _extents(verified.shapes[value]) != _extents(tensor.shape):
            shape = list(verified.shapes[value])
            absent.append(Absent(tensor, f"its codes are those of {value!r}, which has the shape {shape}"))
        else:
            found.append(_pair(tensor, value, verified.ranges[value].hull(), exactness.get(tensor.name)))
    return tuple(found), tuple(absent)


def _pair(tensor: GraphTensor, value: str, interval: tuple[int, int], exactness: Exactness | None) -> Pair:
    quantizer = tensor.quantizer
    if quantizer is not None and not quantizer.lo <= interval[0] <= interval[1] <= quantizer.hi:
        message = f"its codes lie in {list(interval)} there, and its quantiser in the model has {quantizer.lo} to"
        error = _mismatch(f"{message} {quantizer.hi}")
        error.location = Location(tensor=tensor.name)
        raise error
    return Pair(tensor, value, interval, exactness)


def _held(verified: VerifiedProgram) -> tuple[dict[str, str], dict[str, Exactness]]:
    """The value of each tensor that has one, and the compiler's report on each, by the tensor's name."""
    program = verified.program
    given = [item.value.name for item in program.inputs] + [item.value.name for item in program.state]
    computed = set(given)
    computed |= {value.name for node in program.nodes for value in node.outputs}
    exactness = {item.tensor: item for item in program.provenance.exactness}
    held = {item.tensor: item.value for item in exactness.values() if item.value in computed}
    held |= {name: name for name in given}
    held |= {item.name: item.value for item in program.outputs if item.value in computed}
    return held, exactness


def _extents(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The extents that decide how elements lie in memory: all but those that are 1."""
    return tuple(extent for extent in shape if extent != 1)


def _reason(tensor: GraphTensor, inputs: frozenset[str], needed: frozenset[str]) -> str:
    """The reason why a tensor has no value of its own."""
    if tensor.name not in inputs:
        return "constant: known when compiling, and part of the program's constants"
    if tensor.name not in needed:
        return "no output needs it"
    if tensor.quantizer is None:
        return "no quantiser: carried exactly as a combination of other values, and never rounded by itself"
    return "merged: the program computes what follows from it without its codes"


def _needed(graph: QuantizedGraph) -> frozenset[str]:
    """The tensors that an output or an update needs."""
    found = set(graph.outputs)
    for operation in reversed(graph.operations):
        if operation.name == "update" or any(name in found for name in operation.outputs):
            found.update(name for operand in operation.inputs.values() for name in names_in(operand))
    return frozenset(found)
