"""The codes of all errors that cvm raises, with class and message, read from the source.

A code is the first argument of an error class of ``cvm/errors.py``, or of a function that passes one of its parameters
on to such a class, at any depth. A part that only a run knows is written as ``<name>``: ``ops.<name>.arity``.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cvm import errors

__all__ = ["Raised", "Source", "raised"]

ROOT = Path(__file__).resolve().parents[1]
CLASSES = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.CvmError)}
DEPTH = 6
"""The most functions through which a code goes to its class."""

SHARED = ("cvm", "frontends", "common")
"""The package whose functions receive objects of several front ends, and whose objects they use."""

Function = ast.FunctionDef


@dataclass(frozen=True, order=True)
class Raised:
    """A code that the source can raise: its class, its message, and where it is raised."""

    code: str
    kind: str
    message: str
    module: str
    line: int


@dataclass(frozen=True)
class Text:
    """A string made of pieces: literal text, parameters of the enclosing function, and words that only a run knows."""

    pieces: tuple[tuple[str, str], ...] = ()

    def filled(self, values: Mapping[str, Text]) -> Text:
        """The text with the texts of arguments in place of parameters."""
        unknown = {name: Text((("unknown", name),)) for sort, name in self.pieces if sort == "parameter"}
        given = {**unknown, **values}
        return Text(
            sum((given[text].pieces if sort == "parameter" else ((sort, text),) for sort, text in self.pieces), ())
        )

    def has(self, sort: str) -> bool:
        """Whether a piece of that sort exists."""
        return any(found == sort for found, _ in self.pieces)

    def shown(self, unknown: str) -> str:
        """The text; a word that only a run knows has the form ``unknown``, in which ``{}`` stands for its name."""
        return "".join(text if sort == "written" else unknown.format(_word(text)) for sort, text in self.pieces)


@dataclass(frozen=True)
class Wrapper:
    """A function that raises an error whose code contains parameters of the function."""

    module: str
    name: str
    owner: str | None
    parameters: tuple[str, ...]
    kind: str
    code: Text
    message: Text
    defaults: tuple[tuple[str, Text], ...] = ()


@dataclass(frozen=True)
class Body:
    """A function with the facts that the search needs often: its class, parameters, named values and calls."""

    function: Function
    owner: str | None
    parameters: tuple[str, ...]
    own: Mapping[str, list[ast.expr]]
    calls: tuple[ast.Call, ...]


class Source:
    """The modules of a folder, and the errors that their functions raise."""

    def __init__(self, folder: Path) -> None:
        files = sorted(folder.rglob("*.py"))
        self._modules = {_module(file, folder.parent): ast.parse(file.read_text("utf-8")) for file in files}
        self._imports = {name: dict(_imported(tree)) for name, tree in self._modules.items()}
        self._bases: dict[str, tuple[str, ...]] = {name: (name,) for name in CLASSES}
        self._made = set(CLASSES)
        for tree in [*self._modules.values()] * 2:  # twice: a class may stand before its base class
            self._bases.update(_derived(tree, self._bases))
        self._bodies = {name: tuple(_bodies(tree)) for name, tree in self._modules.items()}
        for bodies in self._bodies.values():
            self._made.update(str(one.owner) for one in bodies if one.function.name == "__init__")
        self._used: set[Wrapper] = set()

    def raised(self) -> list[Raised]:
        """All codes, sorted; each once for each class, with the message of its first occurrence."""
        found: list[Raised] = []
        wrappers: list[Wrapper] = []
        for _ in range(DEPTH):
            again, found = wrappers, []
            wrappers = []
            for module, bodies in self._bodies.items():
                for one in self._calls(module, bodies, again):
                    if isinstance(one, Raised):
                        found.append(one)
                    elif one not in wrappers:
                        wrappers.append(one)
            if set(again) == set(wrappers):
                break
        found += [_unresolved(one) for one in wrappers if one not in self._used]
        found = [item for item in found if "." in item.code or item.code.isidentifier()]  # others are raised again
        first: dict[tuple[str, str], Raised] = {}
        for item in sorted(found, key=lambda item: (item.code, item.kind, not item.message, item.module, item.line)):
            first.setdefault((item.code, item.kind), item)
        return list(first.values())

    def _constructor(self, name: str) -> str:
        """The class whose ``__init__`` an error class has: itself, or its first base that is an error."""
        while name not in self._made:
            name = self._bases[name][0]
        return name

    def _calls(self, module: str, bodies: tuple[Body, ...], wrappers: list[Wrapper]) -> Iterator[Raised | Wrapper]:
        for body in bodies:
            names = body.parameters
            for call in body.calls:
                for kind, code, message in self._errors(module, body.owner, call, wrappers, set(names), body.own):
                    if code.has("parameter"):
                        defaults = tuple(_defaults(body.function))
                        yield Wrapper(module, body.function.name, body.owner, names, kind, code, message, defaults)
                    else:
                        yield Raised(code.shown("<{}>"), kind, message.shown("{{{}}}"), module, call.lineno)

    def _errors(
        self, module: str, owner: str | None, call: ast.Call, wrappers: list[Wrapper], names: set[str],
        own: Mapping[str, list[ast.expr]],
    ) -> Iterator[tuple[str, Text, Text]]:  # fmt: skip
        """Class, code and message of the errors that a call makes."""
        target = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        direct = target in self._bases and self._constructor(target) in CLASSES
        if call.args and (direct or (target == "__init__" and owner in self._bases and _is_super(call))):
            for code in _texts(call.args[0], names, own):
                message = next(_texts(call.args[1], names, own), Text()) if len(call.args) > 1 else Text()
                yield target if direct else str(owner), code, message
            return
        for wrapper in self._reached(module, owner, call, target, wrappers):
            for values in _arguments(call, wrapper.parameters, names, own):
                self._used.add(wrapper)
                given = {**dict(wrapper.defaults), **values}
                kind = target if target in self._bases else wrapper.kind
                yield kind, wrapper.code.filled(given), wrapper.message.filled(given)

    def _reached(
        self, module: str, owner: str | None, call: ast.Call, name: str, wrappers: list[Wrapper]
    ) -> Iterator[Wrapper]:
        """The wrappers that a call may mean: by import, by class, or the nearest methods of the name."""
        if isinstance(call.func, ast.Name):
            home, original = self._imports[module].get(name, (module, name))
            yield from (
                one for one in wrappers if one.name == original and one.owner is None and _same(one.module, home)
            )
            if original in self._bases:
                made = self._constructor(original)
                yield from (one for one in wrappers if one.name == "__init__" and one.owner == made)
            return
        base = getattr(getattr(call.func, "value", None), "id", None)
        if base in self._imports[module]:
            home = ".".join(self._imports[module][base])
            yield from (one for one in wrappers if one.name == name and one.owner is None and _same(one.module, home))
        methods = [one for one in wrappers if one.name == name != "__init__" and one.owner is not None]
        if base == "self":
            same = [one for one in methods if (one.module, one.owner) == (module, owner)]
            methods = same or methods
        room = _room(module)
        rooms = (room, SHARED) if room[:2] == SHARED[:2] else (room,)
        methods = [one for one in methods if _room(one.module) in rooms or room == SHARED]
        nearest = max((_shared(one.module, module) for one in methods), default=0)
        yield from (one for one in methods if _shared(one.module, module) == nearest)


def _unresolved(wrapper: Wrapper) -> Raised:
    """The error of a function that no call in the source gives a known code."""
    code, message = wrapper.code.filled({}), wrapper.message.filled({})
    return Raised(code.shown("<{}>"), wrapper.kind, message.shown("{{{}}}"), wrapper.module, 0)


def _is_super(call: ast.Call) -> bool:
    base = call.func.value if isinstance(call.func, ast.Attribute) else None
    return isinstance(base, ast.Call) and isinstance(base.func, ast.Name) and base.func.id == "super"


def _derived(tree: ast.Module, errors: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The classes of a module that derive from error classes, with those."""
    for node in _statements(tree):
        if isinstance(node, ast.ClassDef) and node.name not in CLASSES:
            bases = tuple(base.id for base in node.bases if isinstance(base, ast.Name) and base.id in errors)
            if bases:
                yield node.name, bases


def _module(file: Path, root: Path) -> str:
    return ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _same(home: str, imported: str) -> bool:
    """Whether a name imported from one module may be defined in another: packages pass on names of their modules."""
    return home == imported or home.startswith(f"{imported}.")


def _room(module: str) -> tuple[str, ...]:
    """The package of a module, to whose methods its calls are limited; SHARED is an exception."""
    parts = module.split(".")
    return tuple(parts[: 3 if parts[1:2] == ["frontends"] else 2])


def _shared(one: str, other: str) -> int:
    """How many parts two module names have in common at their beginning."""
    pairs = list(zip(one.split("."), other.split("."), strict=False))
    return next((index for index, (a, b) in enumerate(pairs) if a != b), len(pairs))


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements in a node, without their expressions, in the order of `ast.walk`."""
    todo = deque([tree])
    while todo:
        node = todo.popleft()
        todo.extend(_inner(node))
        yield node


def _inner(node: ast.AST) -> Iterator[ast.AST]:
    """The statements of the blocks of a node."""
    for block in ("body", "handlers", "orelse", "finalbody", "cases"):
        yield from getattr(node, block, ())


def _imported(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    for node in _statements(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for name in node.names:
                yield name.asname or name.name, (node.module, name.name)


def _functions(tree: ast.Module) -> Iterator[tuple[str | None, Function]]:
    """All functions with their classes; a function inside a function counts by itself."""

    def walk(node: ast.AST, owner: str | None) -> Iterator[tuple[str | None, Function]]:
        for child in _inner(node):
            if isinstance(child, ast.FunctionDef):
                yield owner, child
                yield from walk(child, None)
            else:
                yield from walk(child, child.name if isinstance(child, ast.ClassDef) else owner)

    yield from walk(tree, None)


def _bodies(tree: ast.Module) -> Iterator[Body]:
    constants = _constants(tree)
    for owner, function in _functions(tree):
        own = {**constants, **_assigned(function)}
        yield Body(function, owner, _parameters(function, owner), own, tuple(_own_calls(function)))


def _own_calls(function: Function) -> Iterator[ast.Call]:
    """The calls of a function, without those of functions inside it."""
    todo: list[ast.AST] = list(ast.iter_child_nodes(function))
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Call):
            yield node
        if not isinstance(node, ast.FunctionDef):
            todo.extend(ast.iter_child_nodes(node))


def _parameters(function: Function, owner: str | None) -> tuple[str, ...]:
    arguments = function.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return tuple(names[1:] if owner is not None and names[:1] in (["self"], ["cls"]) else names)


def _defaults(function: Function) -> Iterator[tuple[str, Text]]:
    """The parameters with a default that is a string."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = list(zip(reversed(positional), reversed(arguments.defaults), strict=False))
    pairs += [(one, value) for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
    for parameter, value in pairs:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield parameter.arg, Text((("written", value.value),))


def _assigned(function: Function) -> dict[str, list[ast.expr]]:
    """The values assigned to each name of a function, by plain assignments and by loops."""
    found: dict[str, list[ast.expr]] = {}
    for node in _statements(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and isinstance(node.iter, ast.Tuple):
            found.setdefault(node.target.id, []).extend(node.iter.elts)
    return found


def _constants(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """The strings that a module assigns to names."""
    found: dict[str, list[ast.expr]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.JoinedStr | ast.BinOp):
            found.update({target.id: [node.value] for target in node.targets if isinstance(target, ast.Name)})
    return found


def _arguments(
    call: ast.Call, parameters: tuple[str, ...], names: set[str], own: Mapping[str, list[ast.expr]]
) -> Iterator[dict[str, Text]]:
    """The texts of a call's arguments by parameter; one for each value of the first argument with several values."""
    given = dict(zip(parameters, call.args, strict=False))
    given.update({word.arg: word.value for word in call.keywords if word.arg is not None})
    texts = {name: list(_texts(value, names, own)) for name, value in given.items()}
    many = next((name for name, found in texts.items() if len(found) > 1), None)
    single = {name: found[0] for name, found in texts.items() if found}
    for text in texts[many] if many is not None else [None]:
        yield single if many is None or text is None else {**single, many: text}


def _texts(node: ast.expr, names: set[str], own: Mapping[str, list[ast.expr]], depth: int = 0) -> Iterator[Text]:
    """The possible texts of an expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield Text((("written", node.value),))
    elif isinstance(node, ast.JoinedStr):
        yield from _joined(node, names, own, depth)
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body, names, own, depth)
        yield from _texts(node.orelse, names, own, depth)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _texts(value, names, own, depth)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _texts(node.left, names, own, depth)
    elif isinstance(node, ast.Name) and node.id in own and depth < DEPTH:
        for value in own[node.id]:
            yield from _texts(value, names, own, depth + 1)
    elif isinstance(node, ast.Name):
        yield Text((("parameter" if node.id in names else "unknown", node.id),))
    elif not (isinstance(node, ast.Attribute) and node.attr in ("code", "message")):  # those are raised again
        yield Text((("unknown", _name(node)),))


def _joined(node: ast.JoinedStr, names: set[str], own: Mapping[str, list[ast.expr]], depth: int) -> Iterator[Text]:
    """The texts of an f-string: one for each value of the first piece that has several."""
    found = [Text()]
    for piece in node.values:
        inner = piece.value if isinstance(piece, ast.FormattedValue) else piece
        texts = list(_texts(inner, names, own, depth + 1)) or [Text((("unknown", "text"),))]
        if isinstance(inner, ast.Name) and len(texts) > 4:
            texts = [Text((("unknown", inner.id),))]
        found = [Text(one.pieces + text.pieces) for one in found for text in texts]
    yield from found


def _word(text: str) -> str:
    word = text.strip("_").lower()
    return {"path": "format", "format_name": "format", "first": "name", "st_size": "size"}.get(word, word)


def _name(node: ast.expr) -> str:
    """A word for a value that only a run knows."""
    while isinstance(node, ast.Call | ast.Subscript | ast.Starred):
        node = node.args[0] if isinstance(node, ast.Call) and node.args else getattr(node, "func", None) or node.value  # type: ignore[union-attr]
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else "value"


@cache
def raised() -> tuple[Raised, ...]:
    """All codes of the package ``cvm``."""
    return tuple(Source(ROOT / "cvm").raised())
