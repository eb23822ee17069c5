"""Operators on quantised tensors as what they mean: DequantizeLinear, the operator on real numbers, QuantizeLinear.

Source: ONNX, QLinearConv and QLinearMatMul; ONNX Runtime, "Contrib operators" (com.microsoft).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cvm.frontends.onnx.grids import BIAS
from cvm.frontends.onnx.model import MICROSOFT, Attribute, Model, OnnxNode, invalid, refusal

__all__ = ["EXPANDED", "expanded"]


class _Writer:
    """The nodes that one node becomes; their intermediate names are of their own."""

    def __init__(self, node: OnnxNode, taken: set[str]) -> None:
        self.node = node
        self.nodes: list[OnnxNode] = []
        self._taken = taken

    def input(self, index: int) -> str:
        """The name of an input, "" if it is left out."""
        return self.node.inputs[index] if index < len(self.node.inputs) else ""

    def required(self, *indices: int) -> list[str]:
        """The names of inputs that must be there."""
        names = [self.input(index) for index in indices]
        if "" in names:
            raise invalid(self.node, "inputs", f"input {indices[names.index('')]} is missing")
        return names

    def add(
        self,
        op: str,
        inputs: Sequence[str],
        output: str = "",
        axis: int | None = None,
        given: Mapping[str, Attribute] | None = None,
    ) -> str:  # fmt: skip
        """A node with one result."""
        name = output
        number = 0
        while not name or (name in self._taken and name != output):
            number += 1
            name = f"{self.node.outputs[0]}.{op}.{number}"
        self._taken.add(name)
        attributes = dict(given or {})
        if axis is not None:
            attributes["axis"] = axis
        node = self.node
        self.nodes.append(OnnxNode(op, "", node.name, tuple(inputs), (name,), attributes, node.number))
        return name

    def real(self, *indices: int, axis: int | None = None) -> str:
        """The real numbers of codes, by their inputs: codes, scale, zero point (which may be left out)."""
        codes, scale, zero = indices
        names = [*self.required(codes, scale), *filter(None, [self.input(zero)])]
        return self.add("DequantizeLinear", names, axis=axis)

    def codes(self, real: str, scale: int, zero: int) -> None:
        """The codes of the result."""
        names = [real, *self.required(scale), *filter(None, [self.input(zero)])]
        self.add("QuantizeLinear", names, self.node.outputs[0])

    def attributes(self, *but: str) -> dict[str, Attribute]:
        """Those of the node."""
        return {key: value for key, value in self.node.attributes.items() if key not in but}


def _conv(w: _Writer) -> None:
    parts = [w.real(0, 1, 2), w.real(3, 4, 5, axis=0)]
    if w.input(8):
        parts.append(w.add(BIAS, [w.input(8), w.input(1), w.input(4)], axis=0))
    w.codes(w.add("Conv", parts, given=w.attributes()), 6, 7)


def _matmul(w: _Writer) -> None:
    parts = [w.real(0, 1, 2, axis=-2), w.real(3, 4, 5, axis=-1)]
    w.codes(w.add("MatMul", parts), 6, 7)


def _gemm(w: _Writer) -> None:
    if w.node.attributes.get("alpha", 1.0) != 1.0 and w.input(6):
        raise refusal(
            w.node, "it has a bias and an alpha other than 1, which is not computed", "fold alpha into the scale of A"
        )
    columns = -2 if w.node.attributes.get("transB", 0) else -1
    parts = [w.real(0, 1, 2), w.real(3, 4, 5, axis=columns)]
    if w.input(6):
        parts.append(w.add(BIAS, [w.input(6), w.input(1), w.input(4)], axis=-1))
    if not w.input(7):
        w.add("Gemm", parts, w.node.outputs[0], given=w.attributes())
        return
    w.codes(w.add("Gemm", parts, given=w.attributes()), 7, 8)


def _binary(op: str) -> Callable[[_Writer], None]:
    def write(w: _Writer) -> None:
        w.codes(w.add(op, [w.real(0, 1, 2), w.real(3, 4, 5)], given=w.attributes()), 6, 7)

    return write


def _unary(op: str) -> Callable[[_Writer], None]:
    def write(w: _Writer) -> None:
        w.codes(w.add(op, [w.real(0, 1, 2)], given=w.attributes("opset")), 3, 4)

    return write


def _pool(op: str) -> Callable[[_Writer], None]:
    def write(w: _Writer) -> None:
        if w.node.attributes.get("channels_last", 0):
            raise refusal(w.node, "channels_last is not computed", "export the model with channels first")
        w.codes(w.add(op, [w.real(0, 1, 2)], given=w.attributes("channels_last")), 3, 4)

    return write


def _softmax(w: _Writer) -> None:
    opset = w.node.attributes.get("opset", 13)
    if not isinstance(opset, int) or opset < 13:
        raise refusal(
            w.node,
            "a softmax of an opset below 13 is taken over several axes, which is not computed",
            "export it with opset 13",
        )
    w.codes(w.add("Softmax", [w.real(0, 1, 2)], given=w.attributes("opset")), 3, 4)


def _concat(w: _Writer) -> None:
    parts = [w.real(index, index + 1, index + 2) for index in range(2, len(w.node.inputs), 3)]
    if not parts:
        raise invalid(w.node, "inputs", "there is nothing to concatenate")
    w.codes(w.add("Concat", parts, given=w.attributes()), 0, 1)


def _where(w: _Writer) -> None:
    w.codes(w.add("Where", [*w.required(0), w.real(1, 2, 3), w.real(4, 5, 6)]), 7, 8)


EXPANDED: dict[tuple[str, str], Callable[[_Writer], None]] = {
    ("", "QLinearConv"): _conv,
    ("", "QLinearMatMul"): _matmul,
    (MICROSOFT, "QGemm"): _gemm,
    (MICROSOFT, "QLinearAdd"): _binary("Add"),
    (MICROSOFT, "QLinearMul"): _binary("Mul"),
    (MICROSOFT, "QLinearAveragePool"): _pool("AveragePool"),
    (MICROSOFT, "QLinearGlobalAveragePool"): _pool("GlobalAveragePool"),
    (MICROSOFT, "QLinearSigmoid"): _unary("Sigmoid"),
    (MICROSOFT, "QLinearLeakyRelu"): _unary("LeakyRelu"),
    (MICROSOFT, "QLinearReduceMean"): _unary("ReduceMean"),
    (MICROSOFT, "QLinearSoftmax"): _softmax,
    (MICROSOFT, "QLinearConcat"): _concat,
    (MICROSOFT, "QLinearWhere"): _where,
}
"""How each operator is written out."""


def expanded(model: Model) -> list[OnnxNode]:
    """The nodes of a model, those on quantised tensors written out."""
    taken = {value.name for value in model.inputs} | set(model.constants)
    taken.update(name for node in model.nodes for name in node.outputs)
    found: list[OnnxNode] = []
    for node in model.nodes:
        if node.op == BIAS:
            raise refusal(node, "this operator is not read", "docs/onnx.md lists those that are", "onnx.operator")
        write = EXPANDED.get((node.domain, node.op))
        if write is None:
            found.append(node)
            continue
        if not node.outputs or not node.outputs[0]:
            raise invalid(node, "outputs", "the result has no name")
        writer = _Writer(node, taken)
        write(writer)
        found += writer.nodes
    return found
