"""Shapes of element-wise operations and of operations composed of them: NNEF 1.0.1 sections 4.2, 4.9.1, 4.9.5 and
4.9.6.
"""

from __future__ import annotations

from cvm.graph.shapes.shape_call import Results, ShapeCall, rule

__all__: list[str] = []

_MAX_BITS = 64


@rule("4.2.1", "copy", "neg", "rcp", "exp", "log", "abs", "sign", "not", "floor", "ceil", "round")
@rule("4.2.1", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")
@rule("4.2.4", "sqr", "sqrt", "rsqr", "rsqrt", "log2")
@rule("4.9.1", "sigmoid", "relu", "leaky_relu", "elu", "tanh", "softplus", "selu", "gelu", "silu", "softabs")
def unary(call: ShapeCall) -> Results:
    """The shape of the operand."""
    return (call.shape("x"),)


@rule("4.2.2", "add", "sub", "mul", "div", "pow", "lt", "gt", "le", "ge", "eq", "ne", "and", "or")
@rule("4.2.4", "min", "max")
def binary(call: ShapeCall) -> Results:
    """The common shape of the operands."""
    return (call.broadcast(call.shape("x"), call.shape("y")),)


@rule("4.2.3", "select")
def select(call: ShapeCall) -> Results:
    """The common shape of the condition and both values."""
    return (call.broadcast(call.shape("condition"), call.shape("true_value"), call.shape("false_value")),)


@rule("4.2.4", "clamp")
def clamp(call: ShapeCall) -> Results:
    """The common shape of the operand and its bounds."""
    return (call.broadcast(call.shape("x"), call.shape("a"), call.shape("b")),)


@rule("4.9.1", "prelu")
def prelu(call: ShapeCall) -> Results:
    """The common shape of the operand and the slopes."""
    return (call.broadcast(call.shape("x"), call.shape("alpha")),)


@rule("4.9.1", "softmax")
def softmax(call: ShapeCall) -> Results:
    """The shape of the operand. Every item of ``axes`` must be an axis of the operand."""
    shape = call.shape("x")
    call.axes(len(shape))
    call.accuracy()
    return (shape,)


def _bits(call: ShapeCall) -> None:
    if not 1 <= call.integer("bits") <= _MAX_BITS:
        raise call.invalid("bits", f"bits must be in 1..{_MAX_BITS}, found {call.integer('bits')}")


@rule("4.9.5", "linear_quantize")
def linear_quantize(call: ShapeCall) -> Results:
    """The common shape of the operand and the range."""
    _bits(call)
    return (call.broadcast(call.shape("x"), call.shape("min"), call.shape("max")),)


@rule("4.9.5", "logarithmic_quantize")
def logarithmic_quantize(call: ShapeCall) -> Results:
    """The common shape of the operand and the maximum."""
    _bits(call)
    return (call.broadcast(call.shape("x"), call.shape("max")),)


@rule("4.9.6", "copy_n")
def copy_n(call: ShapeCall) -> Results:
    """The shape of the operand, once for each of the ``times`` results."""
    times = call.integer("times")
    if times < 1:
        raise call.invalid("times", f"times must be positive, found {times}")
    return (call.repeat(call.shape("x"), times),)


@rule("4.9.6", "add_n")
def add_n(call: ShapeCall) -> Results:
    """The common shape of all operands. Without an operand the result is a scalar."""
    return (call.broadcast(*call.array("x")),)
