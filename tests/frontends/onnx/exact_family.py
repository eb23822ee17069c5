"""The operators that networks of the family have beyond those of `exact`, in the same exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import onnx

from tests.frontends.onnx.exact import PRECISION, Evaluator, Real, convolution, dequantised, moved, of_reals, quantised
from tests.frontends.onnx.exact import real as real_of

DIGITS = 80


def _erf(x: Decimal) -> Decimal:
    """2 / sqrt(pi) * the sum of (-1)^n x^(2n+1) / (n! (2n+1)); far from 0 it is 1 to more digits than count."""
    if abs(x) > 14:
        return Decimal(1).copy_sign(x)
    with localcontext() as context:
        context.prec = DIGITS + 200  # the summands are as large as e^(x^2)
        term, total, n = x, x, 0
        while abs(term) > Decimal(10) ** -(DIGITS + 5):
            n += 1
            term = term * -x * x / n
            total += term / (2 * n + 1)
        pi = Decimal(
            "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651"
        )
        return total * 2 / pi.sqrt()


FUNCTIONS: dict[str, Callable[[Decimal], Decimal]] = {
    "Sigmoid": lambda x: 1 / (1 + (-x).exp()),
    "Tanh": lambda x: 1 - 2 / ((2 * x).exp() + 1),
    "Erf": _erf,
}


def function(op: str, x: Real) -> Real:
    """A function of every item, to 60 digits."""
    known: dict[int, int] = {}
    with localcontext() as context:
        context.prec = DIGITS
        for item in set(x.items.ravel().tolist()):
            known[item] = int((FUNCTIONS[op](Decimal(item) / Decimal(x.denominator)) * PRECISION).to_integral_value())
    flat = np.array([*(known[item] for item in x.items.ravel().tolist()), None], dtype=object)[:-1]
    return Real(flat.reshape(x.items.shape), PRECISION)


def layer_norm(x: Real, scale: Real, offset: Real, epsilon: Fraction) -> Real:
    """Over the last axis."""
    n = x.items.shape[-1]
    total = x.items.sum(axis=-1, keepdims=True)
    centred = x.items * n - total  # over n * denominator
    squares = (centred * centred).sum(axis=-1, keepdims=True)  # over n^3 * denominator^2
    roots = np.vectorize(
        lambda s: Fraction(
            PRECISION**2,
            math.isqrt(int((Fraction(int(s), n**3 * x.denominator**2) + epsilon) * PRECISION**4)),
        ),
        otypes=[object],
    )(squares)
    normal = np.vectorize(lambda c, r: round(c * r * PRECISION / (n * x.denominator)), otypes=[object])(centred, roots)
    return Real(normal, PRECISION) * scale + offset


def transposed_convolution(x: Real, w: Real, bias: Real) -> Real:
    """Of windows that do not overlap."""
    n, _, height, width = x.items.shape
    _, channels, size, _ = w.items.shape
    spread = np.einsum("nchw,cdij->ndhiwj", x.items, w.items).reshape(n, channels, height * size, width * size)
    return Real(spread, x.denominator * w.denominator) + bias.moved(lambda a: a.reshape(1, -1, 1, 1))


def resized(x: Real, mode: str) -> Real:
    """Twice as large: each item twice, or 3/4 and 1/4 of neighbours."""
    if mode == "nearest":
        return x.moved(lambda a: a.repeat(2, 2).repeat(2, 3))
    items = x.items
    for axis in (2, 3):
        count = items.shape[axis]
        near = [i // 2 for i in range(2 * count)]
        other = [min(max(i // 2 + (1 if i % 2 else -1), 0), count - 1) for i in range(2 * count)]
        items = 3 * items.take(near, axis) + items.take(other, axis)
    return Real(items, x.denominator * 16)


def joined(parts: list[Real], axis: int) -> Real:
    whole = math.lcm(*(part.denominator for part in parts))
    return Real(np.concatenate([part.items * (whole // part.denominator) for part in parts], axis), whole)


def divided(x: Real, y: Real) -> Real:
    """By one constant for all."""
    (number,) = set(y.fractions())
    return Real(x.items * number.denominator, x.denominator * number.numerator)


def lifted(x: Real, w: Real, bias: Real | None, attributes: Mapping[str, Any]) -> Real:
    """A convolution of one axis, or of two."""
    if x.items.ndim == 4:
        return convolution(x, w, bias, attributes)
    pads = attributes.get("pads", [0, 0])
    two = {
        "group": attributes.get("group", 1), "pads": [0, pads[0], 0, pads[1]],
        "strides": [1, *attributes.get("strides", [1])], "dilations": [1, *attributes.get("dilations", [1])],
    }  # fmt: skip
    found = convolution(x.moved(lambda a: a[:, :, None]), w.moved(lambda a: a[:, :, None]), bias, two)
    return found.moved(lambda a: a[:, :, 0])


class FamilyEvaluator(Evaluator):
    """One model of the family; `run` gives all tensors."""

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        tensors: dict[str, Any] = dict(self.constants)
        for name, values in feeds.items():
            tensors[name] = Real.of(values) if np.asarray(values).dtype.kind == "f" else np.asarray(values)
        for node in self.model.graph.node:
            inputs = [tensors[name] if name else None for name in node.input]
            attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
            found = self.several(node, inputs, attributes)
            tensors.update(zip(node.output, found, strict=True))
        return tensors

    def several(self, node: onnx.NodeProto, x: list[Any], attributes: dict[str, Any]) -> list[Any]:
        if node.op_type == "Split":
            ends = np.cumsum(x[1])[:-1]
            parts = np.split(x[0].items if isinstance(x[0], Real) else x[0], ends, attributes.get("axis", 0))
            return [Real(part, x[0].denominator) if isinstance(x[0], Real) else part for part in parts]
        return [self.node(node, x, attributes)]

    def node(self, node: onnx.NodeProto, x: list[Any], attributes: dict[str, Any]) -> Any:
        op = node.op_type
        moves = {"Gather", "Unsqueeze", "Squeeze", "Slice", "DepthToSpace", "Where", "Cast", "MaxPool", "Resize"}
        if op in moves and not (op == "Cast" and attributes["to"] != 1):
            return self.selection(op, x, attributes)
        if op in ("QLinearConcat", "QLinearSigmoid", "QLinearSoftmax", "QLinearAveragePool", "QLinearConv"):
            return self.further(op, x, attributes)
        if op not in FURTHER:
            return super().node(node, x, attributes)
        return FURTHER[op]([None if part is None else real_of(part) for part in x], attributes)

    def further(self, op: str, x: list[Any], attributes: dict[str, Any]) -> Any:
        if op == "QLinearConcat":
            parts = [dequantised(x[i], x[i + 1], x[i + 2], 1) for i in range(2, len(x), 3)]
            return quantised(joined(parts, attributes["axis"]), x[0], x[1])
        first = dequantised(x[0], x[1], x[2], 1)
        if op == "QLinearConv":
            second = dequantised(x[3], x[4], x[5], 0)
            bias = None if len(x) < 9 else Real(x[8].astype(object)) * Real.of(x[1]) * Real.of(np.atleast_1d(x[4]))
            return quantised(lifted(first, second, bias, attributes), x[6], x[7])
        attributes.pop("opset", None)
        return quantised(FURTHER[op[7:]]([first], attributes), x[3], x[4])

    @staticmethod
    def grid(node: onnx.NodeProto, tensors: Mapping[str, Any]) -> tuple[Any, Any] | None:
        """Scale and zero point of the codes that a node gives; None where it gives none."""
        op = node.op_type
        if op == "QuantizeLinear":
            at = 1
        elif op == "QLinearConcat":
            at = 0
        elif op.startswith("QLinear") or op == "QGemm":
            at = {"QLinearConv": 6, "QLinearMatMul": 6, "QLinearAdd": 6, "QLinearMul": 6, "QGemm": 7}.get(op, 3)
        else:
            return None
        return tensors[node.input[at]], tensors[node.input[at + 1]]

    def selection(self, op: str, x: list[Any], attributes: dict[str, Any]) -> Any:
        if op == "Cast":
            return Real(np.asarray(x[0]).astype(object))
        if op == "Where":
            yes, no = (real_of(part) for part in x[1:])
            whole = math.lcm(yes.denominator, no.denominator)
            parts = [part.items * (whole // part.denominator) for part in (yes, no)]
            return Real(np.where(x[0], *parts), whole)
        first = x[0] if isinstance(x[0], Real) else Real(x[0])
        if op == "Gather":
            found = first.moved(lambda a: np.take(a, x[1], attributes.get("axis", 0)))
        elif op in ("Unsqueeze", "Squeeze"):
            change = np.expand_dims if op == "Unsqueeze" else np.squeeze
            found = first.moved(lambda a: change(a, tuple(x[1].tolist())))
        elif op == "Slice":
            found = first.moved(lambda a: np.take(a, range(*map(int, (x[1][0], x[2][0]))), int(x[3][0])))
        elif op == "DepthToSpace":
            n, c, h, w = first.items.shape
            found = first.moved(
                lambda a: a.reshape(n, c // 4, 2, 2, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // 4, 2 * h, 2 * w)
            )
        elif op == "Resize":
            found = resized(first, attributes["mode"].decode())
        else:
            found = moved(op, first, x, attributes)
        # Integers that are resampled are truncated; they are not negative here.
        return found if isinstance(x[0], Real) else np.asarray(found.items // found.denominator, dtype=x[0].dtype)


def _mean(parts: list[Any], attributes: Mapping[str, Any]) -> Real:
    from tests.frontends.onnx.exact import windows

    kernel = list(attributes["kernel_shape"])
    view = windows(parts[0].items, kernel, attributes, 0)
    return Real(view.sum(axis=(4, 5)), parts[0].denominator * math.prod(kernel))


def _hard(parts: list[Any], attributes: Mapping[str, Any]) -> Real:
    alpha = Fraction(attributes.get("alpha", np.float32(0.2).item()))
    beta = Fraction(attributes.get("beta", 0.5))
    found = [min(max(alpha * item + beta, Fraction(0)), Fraction(1)) for item in parts[0].fractions()]
    return Real.of(np.array(found, dtype=object).reshape(parts[0].items.shape))


FURTHER: dict[str, Callable[[list[Any], dict[str, Any]], Real]] = {
    "Sigmoid": lambda x, a: function("Sigmoid", x[0]),
    "Tanh": lambda x, a: function("Tanh", x[0]),
    "Erf": lambda x, a: function("Erf", x[0]),
    "HardSigmoid": _hard,
    "AveragePool": _mean,
    "Softmax": lambda x, a: of_reals("Softmax", x[0], [], a),
    "Conv": lambda x, a: lifted(x[0], x[1], x[2] if len(x) > 2 else None, a),
    "ConvTranspose": lambda x, a: transposed_convolution(x[0], x[1], x[2]),
    "Concat": lambda x, a: joined(x, a["axis"]),
    "Div": lambda x, a: divided(x[0], x[1]),
    "Sub": lambda x, a: x[0] + x[1].moved(lambda items: -items),
    "Pow": lambda x, a: x[0] * x[0] * x[0],
    "LayerNormalization": lambda x, a: layer_norm(x[0], x[1], x[2], Fraction(a["epsilon"])),
}
