"""Exact lowering: from a `cvm.graph.QuantizedGraph` to an integer `cvm.program.Program`.

`forms` describe a tensor before it has codes; `context` holds what rules read and write. Each module of `rules` lowers
the operations of one section of NNEF chapter 4; several rules share `parts`. `proofs` compute the codes of a form. The
program computes exactly the codes that the graph denotes, tensor by tensor; where a rule is only bounded, the program's
provenance says so.
"""

from __future__ import annotations

import cvm.lowering.rules  # noqa: F401  (the import enters the rules)
from cvm.errors import Unsupported
from cvm.graph import QuantizedGraph, names_in
from cvm.limits import DEFAULT, Limits
from cvm.lowering.claims import CLAIMS, REFUSALS, Claim, with_accuracy
from cvm.lowering.compared import with_coded_thresholds
from cvm.lowering.context import RULES, Coded, Lowering, Result
from cvm.lowering.finish import finished
from cvm.lowering.forms.form import Known, LinearForm, constant_of, requantized
from cvm.lowering.forms.logarithms import known_powers
from cvm.lowering.outputs import output
from cvm.lowering.proofs.fixed_point import requantize
from cvm.lowering.rules.state import introduce_state, updated_variables
from cvm.program import Program
from cvm.program.model import OP_SET, Provenance
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer
from cvm.timing import timed

__all__ = ["CLAIMS", "REFUSALS", "RULES", "Claim", "lower"]


def lower(graph: QuantizedGraph, limits: Limits = DEFAULT, op_set: int = OP_SET) -> Program:
    """The integer program that computes the graph, with ops of op-set versions up to ``op_set``.

    Raises `Unsupported` if an operation has no rule (``lowering.operation``), a tensor needs a quantiser
    (``lowering.unquantized``) or no exact form fits (``lowering.unprovable``); `Invalid` if a constant breaks a rule.
    """
    graph = with_coded_thresholds(graph)
    lowering = Lowering(graph, limits, op_set)
    with timed("lowering", "inputs and constants"):
        updated = updated_variables(lowering)
        for tensor in graph.tensors.values():
            if tensor.name in updated:
                introduce_state(lowering, tensor)
            else:
                lowering.introduce(tensor)
    read_last = _last_readers(graph)
    for operation, done_with in zip(graph.operations, read_last, strict=True):
        with lowering.at(operation), timed("lowering", operation.name):
            accuracy = operation.attributes.get("accuracy", "default")
            lower_rule = RULES.get(with_accuracy(operation.name, accuracy))
            if lower_rule is None:
                raise lowering.unsupported("this operation has no lowering rule")
            for name, result in zip(operation.outputs, lower_rule(lowering), strict=True):
                with lowering.serving(name):
                    _accept(lowering, name, result)
        for name in done_with:
            if name in lowering.known:
                del lowering.known[name]
    with timed("lowering", "outputs"):
        outputs = [output(lowering, name) for name in graph.outputs]
        provenance = Provenance("cvm", graph.name, graph.source_digest, tuple(lowering.report))
        values = {name: value.name for name, value in lowering.values.items()}
        return finished(lowering.builder.build(outputs, provenance), values)


def _last_readers(graph: QuantizedGraph) -> list[list[str]]:
    """For each operation, the tensors that neither a later operation nor the caller reads. Constants among them are
    released.
    """
    later = set(graph.outputs)
    found: list[list[str]] = []
    for operation in reversed(graph.operations):
        names = {name for operand in operation.inputs.values() for name in names_in(operand)} | {*operation.outputs}
        found.append(sorted(names - later))
        later |= names
    return found[::-1]


def _accept(lowering: Lowering, name: str, result: Result) -> None:
    """Compute the codes of a result if its tensor has a quantiser; otherwise keep its form."""
    tensor = lowering.graph.tensors[name]
    shape = tensor.shape or (1,)
    if isinstance(result, LinearForm) and not result.terms:
        result = constant_of(result)
    if isinstance(result, Known):
        if isinstance(tensor.quantizer, LogarithmicQuantizer):
            result = known_powers(result.rationals().broadcast(shape), tensor.quantizer)
        elif tensor.quantizer is not None:
            result = requantized(result, shape, tensor.quantizer)
        lowering.claim(None, "constant")
        lowering.known[name] = result
        return
    quantizer = tensor.quantizer
    if isinstance(result, Coded):
        if isinstance(quantizer, LinearQuantizer) and quantizer.rounding != "half_up" and not result.any_rounding:
            given = f"{lowering.operation.name} gives codes that are rounded half up"
            message = f"{given}; {name!r} is rounded {quantizer.rounding}"
            raise Unsupported("lowering.rounding", message, lowering.location)
        value = result.value
        lowering.claim(value, result.note, result.bound)
    elif quantizer is None:
        lowering.forms[name] = result
        return
    else:
        reported = len(lowering.report)
        value = requantize(lowering, result, quantizer)
        if len(lowering.report) == reported:
            lowering.claim(value, "the same codes")
    lowering.hold(tensor, value)
