"""Sessions that start from the cache, without decoding and verifying the program file again.

For each program file that a session has verified, the cache holds what a run needs to know of it: its inputs, outputs
and state, and the name of its compiled network. The name of the entry is a digest of the SHA-256 of the file and of the
code that verifies programs. An entry says what the same code found out about the same bytes, and lies beside the
machine code, which must be trusted just as much (`cvm.executors.native.runtime.cache`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.runtime import cache
from cvm.executors.native.runtime.networks import Network, read_bounds
from cvm.executors.native.runtime.select import candidate
from cvm.program.model import Constant, Input, Output, ProgramParts, State, Value
from cvm.quantization.quantizer import LinearQuantizer, LogarithmicQuantizer, Quantizer
from cvm.records import dataclass

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Started", "keep", "recall"]

MOST = 2**22
"""Nothing is kept for a program whose state begins with more bytes than this."""


@dataclass(frozen=True, slots=True)
class Started:
    """A network that was loaded from the cache, and the parts of its program that a run needs: all but the nodes, and
    of the constants those that the state begins with. ``shapes`` are the shapes of inputs, state and outputs, and
    ``ends`` the least and the greatest code of each output; ``digest`` and ``gas`` are those of the program.
    """

    parts: ProgramParts
    shapes: dict[str, tuple[int, ...]]
    ends: dict[str, tuple[int, int]]
    digest: str
    gas: int
    network: Network
    machine: Machine
    reason: str


def keep(file_hash: str, threads: int, verified: VerifiedProgram, network: Network) -> None:
    """Store what `recall` needs, if that is possible. ``file_hash`` is the SHA-256 of the file that was verified."""
    program = verified.program
    begun = {state.initial for state in program.state}
    constants = [one for one in program.constants if one.name in begun]
    if sum(len(one.data) for one in constants) > MOST:
        return
    outputs = {output.value for output in program.outputs} | {state.update for state in program.state}
    document = {
        "network": network.name,
        "inputs": [(*_value(item.value), _document(item.quantizer)) for item in program.inputs],
        "outputs": [(item.name, item.value, _document(item.quantizer)) for item in program.outputs],
        "state": [(*_value(item.value), item.initial, item.update) for item in program.state],
        "constants": [(one.name, one.kind, one.shape, one.width, len(one.data)) for one in constants],
        "shapes": {name: verified.shapes[name] for name in outputs},
        "ends": {output.value: verified.ranges[output.value].hull() for output in program.outputs},
        "digest": program.digest,
        "gas": verified.gas,
        "op_set": program.op_set,
        "limits": program.limits,
    }
    text = json.dumps(document).encode()
    data = b"".join([len(text).to_bytes(8, "little"), text, *(one.data for one in constants)])
    cache.write(_name(network.machine, file_hash, threads), data)


def recall(file_hash: str, threads: int, known: Callable[[], object] = lambda: None) -> Started | None:
    """What is known of a program file with this SHA-256, or None if a part of it is not in the cache.

    ``known`` is called before the constants are read, when the entry of the file has been found.
    """
    if cache.new_host():
        return None
    found = candidate()
    data = None if found.machine is None else cache.read(_name(found.machine, file_hash, threads))
    if found.machine is None or data is None:
        return None
    known()
    end = 8 + int.from_bytes(data[:8], "little")
    document = json.loads(data[8:end])
    parts = _parts(document, data[end:])
    shapes = {name: tuple(shape) for name, shape in document["shapes"].items()}
    fed = [*(one.value for one in parts.inputs), *(one.value for one in parts.state)]
    shapes |= {value.name: value.shape for value in fed}
    bounds = read_bounds(parts)[: len(parts.inputs) if parts.state else None]  # the state stays in its arrays
    try:
        network = Network(_missing, found.machine, threads, document["network"], bounds, shapes, lambda *_: None)
    except LookupError:
        return None
    ends = {name: (lo, hi) for name, (lo, hi) in document["ends"].items()}
    return Started(parts, shapes, ends, document["digest"], document["gas"], network, found.machine, found.reason)


def _missing(_: object) -> Any:
    raise LookupError("the network is not in the cache")


def _name(machine: Machine, file_hash: str, threads: int) -> str:
    return cache.key(machine, ("start", file_hash, str(threads)))


def _parts(document: dict[str, Any], data: bytes) -> ProgramParts:
    constants, start = [], 0
    for name, kind, shape, width, size in document["constants"]:
        constants.append(Constant(name, kind, tuple(shape), width, data[start : start + size]))
        start += size
    return ProgramParts(
        tuple(Input(Value(name, tuple(shape), lo, hi), _quantizer(q)) for name, shape, lo, hi, q in document["inputs"]),
        tuple(Output(name, value, _quantizer(q)) for name, value, q in document["outputs"]),
        tuple(constants),
        tuple(
            State(Value(name, tuple(shape), lo, hi), initial, update)
            for name, shape, lo, hi, initial, update in document["state"]
        ),
        (),
        document["op_set"],
        document["limits"],
    )


def _value(value: Value) -> tuple[str, tuple[int, ...], int, int]:
    return value.name, value.shape, value.lo, value.hi


def _document(quantizer: Quantizer | None) -> Any:
    if quantizer is None:
        return None
    if isinstance(quantizer, LogarithmicQuantizer):
        return ["logarithmic", quantizer.top, quantizer.bits]
    numbers = [[(one.numerator, one.denominator) for one in many] for many in (quantizer.scale, quantizer.offset)]
    return ["linear", *numbers, quantizer.lo, quantizer.hi, quantizer.axis, quantizer.rounding]


def _quantizer(document: Any) -> Quantizer | None:
    if document is None:
        return None
    kind, *parts = document
    if kind == "logarithmic":
        return LogarithmicQuantizer(*parts)
    scale, offset = (tuple(Fraction(*pair) for pair in pairs) for pairs in parts[:2])
    return LinearQuantizer(scale, offset, *parts[2:])
