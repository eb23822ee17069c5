"""Control flow with a constant condition or count: the nodes of the branch of an If, or of each iteration of Loop and
Scan.

Source: ONNX, If, Loop and Scan. A body reads outer tensors by their names; the tensors that it makes get fresh names.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cvm.frontends.onnx.call import OnnxCall
from cvm.frontends.onnx.expansions.registry import expansion
from cvm.frontends.onnx.model import Body, refusal
from cvm.frontends.onnx.writing import Writer

__all__: list[str] = []


def _body(call: OnnxCall, name: str) -> Body:
    found = call.node.attributes.get(name)
    call.ignore(name)
    if not isinstance(found, Body):
        raise call.invalid("attribute", f"attribute {name} must be a graph")
    return found


@expansion("If")
def if_(w: Writer) -> None:
    """If: the nodes of the branch that the constant condition selects."""
    call = w.call
    then, other = _body(call, "then_branch"), _body(call, "else_branch")
    condition = call.operand(0)
    if condition.values is None:
        message = f"control flow: the condition {condition.name!r} depends on the data, so that the branch is not known"
        advice = "make it an initializer, compute both branches and choose with Where, or export one of them"
        raise refusal(w.node, message, advice, "onnx.operator")
    if condition.values.size != 1:
        raise call.invalid("shape", f"the condition has the shape {list(condition.shape)}; it must be one truth value")
    body = then if condition.values.any() else other
    if len(body.outputs) != len(w.node.outputs) or body.inputs:
        raise call.invalid("attribute", "the branches must have no input, and a result for each of the node")
    names = dict(zip(body.outputs, w.node.outputs, strict=True))
    inside = {name for node in body.nodes for name in node.outputs}
    direct = {inner: outer for inner, outer in names.items() if outer and inner in inside}
    found = w.extend_body(body, direct)
    for inner, outer in zip(body.outputs, w.node.outputs, strict=True):
        if outer and direct.get(inner) != outer:
            w.add("Identity", [found.get(inner, inner)], outer)


@expansion("Loop")
def loop(w: Writer) -> None:
    """Loop: the nodes of each iteration in order; the count and the condition after each iteration say when it ends."""
    call, body = w.call, _body(w.call, "body")
    state = list(w.node.inputs[2:])
    count = len(state)
    if len(body.inputs) != count + 2 or len(body.outputs) < count + 1:
        raise call.invalid("attribute", "the body must take and give what is carried from iteration to iteration")
    if len(w.node.outputs) > len(body.outputs) - 1 or "" in state:
        raise call.invalid("outputs", "the loop has more results than its body, or a state without a value")
    most, going = _trips(call), _condition(call)
    w.require_expansion((most or 1) * max(len(body.nodes), 1) if going else 0)
    collected: list[list[str]] = [[] for _ in body.outputs[count + 1 :]]
    condition = w.constant(np.array(going), "bool")
    step = 0
    while going and (most is None or step < most):
        names = dict(zip(body.inputs, [w.constant(np.array(step, np.int64), "int64"), condition, *state], strict=True))
        names = w.extend_body(body, names)
        condition, *others = (names.get(name, name) for name in body.outputs)
        state = others[:count]
        for into, name in zip(collected, others[count:], strict=True):
            into.append(name)
        w.flush(*others)
        step += 1
        w.require_expansion(step)
        going = _decided(w, condition, step, most)
    for index, name in enumerate(state):
        w.result("Identity", [name], index=index)
    for index, names_of in enumerate(collected):
        _stack(w, names_of, 0, count + index)


def _trips(call: OnnxCall) -> int | None:
    operand = call.optional(0)
    if operand is None:
        return None
    if operand.values is None:
        message = f"control flow: the count of iterations {operand.name!r} depends on the data"
        raise refusal(call.node, message, "make it an initializer, or export the model unrolled", "onnx.operator")
    if operand.values.size != 1:
        raise call.invalid("shape", f"the count of iterations has the shape {list(operand.shape)}")
    return max(int(operand.values.ravel()[0]), 0)


def _condition(call: OnnxCall) -> bool:
    operand = call.optional(1)
    if operand is None:
        return True
    if operand.values is None or operand.values.size != 1:
        message = f"control flow: the condition {operand.name!r} depends on the data"
        raise refusal(call.node, message, "make it an initializer, or export the model unrolled", "onnx.operator")
    return bool(operand.values.any())


def _decided(w: Writer, condition: str, step: int, most: int | None) -> bool:
    """Whether another iteration follows after ``step`` iterations."""
    if step == most or not w.call.operands[1:2] or w.call.operands[1] is None:
        if most is None:
            raise w.call.invalid("inputs", "there is neither a count of iterations nor a condition")
        return step != most
    values = w.operand(condition).values
    if values is None:
        message = (
            f"control flow: the condition after iteration {step} depends on the data, so that their number is not known"
        )
        raise refusal(w.node, message, "export the model unrolled, with a fixed number of iterations", "onnx.operator")
    return bool(values.any())


def _stack(w: Writer, parts: Sequence[str], axis: int, index: int, reverse: bool = False) -> None:
    """Stack the values that the iterations gave along a new axis, as result ``index`` of the node."""
    if index >= len(w.node.outputs) or not w.node.outputs[index] or not parts:
        return  # without an iteration there is no tensor; the translation refuses the result where it is read
    ordered = list(parts)[::-1] if reverse else list(parts)
    wider = [w.add("Unsqueeze", [name, w.integers([axis])]) for name in ordered]
    w.result("Concat", wider, index=index, axis=axis)


@expansion("Scan")
def scan(w: Writer) -> None:
    """Scan: the nodes of one iteration per element of the sequences; the states pass from iteration to iteration."""
    call, body = w.call, _body(w.call, "body")
    if call.version < 9:
        raise call.refuse(f"the Scan of version {call.version} is not read", "export the model with opset 9 or later")
    count = call.integer("num_scan_inputs", 0)
    states = len(w.node.inputs) - count
    results = len(body.outputs) - states
    if not 1 <= count <= len(w.node.inputs) or len(body.inputs) != len(w.node.inputs) or results < 0:
        raise call.invalid("attribute", "num_scan_inputs and the body do not fit the inputs")
    if len(w.node.outputs) > len(body.outputs):
        raise call.invalid("outputs", "the scan has more results than its body")
    into = [call.operand(states + i) for i in range(count)]
    given = call.sized("scan_input_axes", call.integers("scan_input_axes"), count, 0)
    axes = [call.axis(axis, item.rank, "scan_input_axes") for axis, item in zip(given, into, strict=True)]
    extents = {item.shape[axis] for item, axis in zip(into, axes, strict=True)}
    if len(extents) != 1:
        raise call.invalid("shape", f"the sequences have different lengths: {sorted(extents)}")
    backward = call.sized("scan_input_directions", call.integers("scan_input_directions"), count, 0)
    reverse = call.sized("scan_output_directions", call.integers("scan_output_directions"), results, 0)
    behind = call.sized("scan_output_axes", call.integers("scan_output_axes"), results, 0)
    (length,) = extents
    w.require_expansion(length * max(len(body.nodes), 1))
    state = w.required(*range(states))
    collected: list[list[str]] = [[] for _ in range(results)]
    for step in range(length):
        items = []
        for item, axis, back in zip(into, axes, backward, strict=True):
            at = w.constant(np.array(length - 1 - step if back else step, np.int64), "int64")
            items.append(w.add("Gather", [item.name, at], axis=axis))
        names = w.extend_body(body, dict(zip(body.inputs, [*state, *items], strict=True)))
        found = [names.get(name, name) for name in body.outputs]
        state = found[:states]
        for part, name in zip(collected, found[states:], strict=True):
            part.append(name)
    for index, name in enumerate(state):
        w.result("Identity", [name], index=index)
    for index, (parts, axis, back) in enumerate(zip(collected, behind, reverse, strict=True)):
        _stack(w, parts, axis, states + index, bool(back))
