"""Nodes under other names: inlining of the functions of a model, and of the bodies of control flow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from cvm.frontends.onnx.model import Attribute, Body, Function, Model, OnnxNode, Reference, invalid, refusal
from cvm.limits import Limits, require

__all__ = ["Names", "inlined", "renamed"]


class Names:
    """The set of names that are taken in a model."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._numbers: dict[str, int] = {}

    @staticmethod
    def of(model: Model) -> Names:
        """The names of a model's inputs, constants and node results."""
        names = Names([value.name for value in model.inputs])
        names._taken |= set(model.constants)
        names._taken.update(name for node in model.nodes for name in node.outputs)
        return names

    def free(self, name: str) -> bool:
        """Take a name; returns whether it was free before."""
        found = name not in self._taken
        self._taken.add(name)
        return found

    def fresh(self, wish: str) -> str:
        """Take a free name: the wish itself, or the wish with a number."""
        name = wish
        while name in self._taken:
            self._numbers[wish] = self._numbers.get(wish, 1) + 1
            name = f"{wish}.{self._numbers[wish]}"
        self._taken.add(name)
        return name


def renamed(
    nodes: Sequence[OnnxNode],
    names: dict[str, str],
    fresh: Callable[[str], str],
    change: Callable[[OnnxNode], OnnxNode],
) -> list[OnnxNode]:
    """The nodes with every name that they read or give replaced through ``names``, also inside of their bodies.

    A result without an entry gets the name ``fresh(name)`` and is entered in ``names``. A name that is neither in
    ``names`` nor a result of a node stays as it is. ``change`` is applied to each node first.
    """
    found = []
    for item in nodes:
        node = change(item)
        inputs = tuple(names.get(name, name) for name in node.inputs)
        attributes = {key: _renamed_body(value, names, fresh, change) for key, value in node.attributes.items()}
        for name in node.outputs:
            if name and name not in names:
                names[name] = fresh(name)
        outputs = tuple(names.get(name, name) for name in node.outputs)
        found.append(replace(node, inputs=inputs, outputs=outputs, attributes=attributes))
    return found


def _renamed_body(
    value: Attribute, names: Mapping[str, str], fresh: Callable[[str], str], change: Callable[[OnnxNode], OnnxNode]
) -> Attribute:
    """A body with its outer names replaced through ``names`` and with fresh names for its own tensors; others
    unchanged.
    """
    if not isinstance(value, Body):
        return value
    inner = dict(names)
    own = {name: fresh(name) for name in (*value.inputs, *value.constants)}
    inner.update(own)
    nodes = renamed(value.nodes, inner, fresh, change)
    constants = {own[name]: read for name, read in value.constants.items()}
    return Body(
        tuple(own[name] for name in value.inputs), tuple(inner.get(name, name) for name in value.outputs), tuple(nodes),
        constants,
    )  # fmt: skip


# Functions of the model


def inlined(model: Model, names: Names, limits: Limits) -> list[OnnxNode]:
    """The nodes of a model, with calls of its functions replaced by the nodes of the functions, at any depth.

    Raises `Invalid` for a function that calls itself, `LimitExceeded` for more nodes than an expansion may have.
    """
    if not model.functions:
        return list(model.nodes)
    return _Inliner(model, names, limits).nodes(model.nodes, ())


class _Inliner:
    def __init__(self, model: Model, names: Names, limits: Limits) -> None:
        self._model, self._names, self._limits = model, names, limits
        self._count = 0

    def nodes(self, nodes: Sequence[OnnxNode], stack: tuple[tuple[str, str, str], ...]) -> list[OnnxNode]:
        found: list[OnnxNode] = []
        for node in nodes:
            self._count += bool(stack)
            require("expansion", self._count, self._limits.expansion, "nodes of the functions that the model calls")
            key = (node.domain, node.op, node.overload)
            function = self._model.functions.get(key)
            if function is None:
                found.append(self._with_bodies(node, stack))
                continue
            if key in stack:
                raise invalid(node, "function", "the function calls itself, which ONNX does not allow")
            require("nesting", len(stack) + 1, self._limits.nesting, "depth of functions that call functions")
            found += self.nodes(self._called(node, function), (*stack, key))
        return found

    def _with_bodies(self, node: OnnxNode, stack: tuple[tuple[str, str, str], ...]) -> OnnxNode:
        attributes = {
            key: replace(value, nodes=tuple(self.nodes(value.nodes, stack))) if isinstance(value, Body) else value
            for key, value in node.attributes.items()
        }
        return replace(node, attributes=attributes)

    def _called(self, node: OnnxNode, function: Function) -> list[OnnxNode]:
        """The nodes of a function, renamed for one call of it."""
        if len(node.inputs) > len(function.inputs) or len(node.outputs) > len(function.outputs):
            raise invalid(node, "function", "it has more inputs or results than the function that it calls")
        given: dict[str, Attribute] = {**function.defaults, **node.attributes}
        for name in function.required:
            if name not in given:
                raise invalid(node, "attribute", f"attribute {name} is missing")
        origin = node.origin or node
        passed = (*node.inputs, *("" for _ in function.inputs[len(node.inputs) :]))
        names = dict(zip(function.inputs, passed, strict=True))
        wanted = dict(zip(function.outputs, node.outputs, strict=False))
        direct = {inner: outer for inner, outer in wanted.items() if outer and inner not in names}
        stem = next(filter(None, node.outputs), node.op)

        def change(item: OnnxNode) -> OnnxNode:
            attributes: dict[str, Attribute] = {}
            for key, value in item.attributes.items():
                if not isinstance(value, Reference):
                    attributes[key] = value
                elif value.name in given:
                    attributes[key] = given[value.name]
            opset = function.opsets.get(item.domain, self._model.opsets.get(item.domain))
            return replace(item, attributes=attributes, opset=opset, origin=origin)

        names.update(direct)
        nodes = renamed(function.nodes, names, lambda wish: self._names.fresh(f"{stem}/{wish}"), change)
        for inner, outer in zip(function.outputs, node.outputs, strict=False):
            if outer and direct.get(inner) != outer:  # an input that is passed through, or one result under two names
                if not names.get(inner):
                    raise refusal(node, f"its result {outer!r} is an input that is left out")
                nodes.append(OnnxNode("Identity", "", node.name, (names[inner],), (outer,), {}, node.number, "", None,
                                      origin))  # fmt: skip
        return nodes
