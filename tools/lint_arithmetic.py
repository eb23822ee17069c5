"""Check that no fixed-width arithmetic on integers can wrap silently.

    python tools/lint_arithmetic.py [ROOT]         (default: the repository)

NumPy's integers wrap if a result does not fit. This tool reports every expression of ``cvm`` that adds, subtracts,
multiplies, shifts left, divides, negates, sums or narrows an integer array, unless

* it is written with Python integers or with `cvm.executors.native.exact`, so that it is not found;
* its function, or one around it, first calls `require_fits` (`cvm.bounds`) with a bound in Python integers;
* the function is listed in `tools/arithmetic_places.py` with the reason for its bound.

The text of the source tells which expressions are integer arrays; this is not proven:

* names and attributes annotated as ``NDArray`` or as an alias of it (`Array`, `Bounds`, ..), unless of floats,
  truth values or objects; an attribute that a class of the same module, or every class that has it, annotates so;
* the bounds (``lo``, ``hi``, ``values``) of objects annotated as a `Range`, or taken from ``.ranges``;
* results of NumPy's functions, and of functions and methods that every definition in the package annotates so; results
  of `astype`, `reshape` and other methods of arrays; parts, rows and elements of integer arrays;
* operations with at least one such operand; the parameter of a lambda that is passed to `monotone` or `moved`;
* names to which any assignment, loop, ``with`` or comprehension of the function assigns one of these.

Prints FILE:LINE: what, and exits 1 on a finding. A table entry that nothing needs is a finding, too.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.arithmetic_places import PLACES as LISTED  # noqa: E402

GUARDS = ("holding", "require_fits", "roomy")
"""Functions that take a bound in Python integers, and raise, or choose integers that hold it."""
CLASSES = {
    "cvm.ops.ranges.Range": "range",
    "cvm.ops.ranges.Exact": "range",
    "cvm.executors.native.exact.Exact": "exact",
}
"""Classes whose instances have a kind of their own."""
EXEMPT = ("cvm/executors/native/exact.py", "cvm/bounds.py")
"""The modules whose arithmetic is trusted."""


@dataclass(frozen=True)
class Many:
    """A container of items of one kind."""

    item: Kind


@dataclass(frozen=True)
class Few:
    """A tuple of items of several kinds."""

    items: tuple[Kind, ...]


@dataclass(frozen=True)
class Gives:
    """A callable that returns an object of some kind."""

    item: Kind


Kind: TypeAlias = "str | Many | Few | Gives | None"
"""``array`` (of integers), ``range``, ``exact``, a container of these, or None: anything else."""

SEQUENCES = ("list", "Sequence", "Iterable", "Iterator", "Collection", "Generator", "set", "frozenset", "deque")
MAPPINGS = ("dict", "Mapping", "MutableMapping", "defaultdict", "OrderedDict")
OTHERWISE = ("float", "bool", "object", "complex", "str_", "bytes_", "<f", ">f", "'f", "'O'")
"""Parts of the names of types that are not fixed-width integers."""

BUILT = {"array": 1, "asarray": 1, "ascontiguousarray": 1, "frombuffer": 1, "fromiter": 1, "full": 2, "full_like": 2}
"""Functions that build arrays, and the index of the argument with the type of the elements."""
BUILT_OF_FLOATS = {"zeros": 1, "ones": 1, "empty": 1}
"""The same, for functions whose default type is float."""
NUMBERS = ("arange", "indices", "argsort", "argwhere", "flatnonzero", "searchsorted", "bincount", "argmax", "argmin",
          "count_nonzero", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "intp",
          "lexsort", "argpartition", "ravel_multi_index", "digitize")  # fmt: skip
"""Functions that return integers for any argument."""
SEVERAL = (
    "unique",
    "nonzero",
    "divmod",
    "unravel_index",
    "meshgrid",
    "broadcast_arrays",
    "split",
    "array_split",
    "ix_",
)
ELSE = ("all", "any", "isfinite", "isnan", "isinf", "equal", "not_equal", "greater", "greater_equal", "less",
        "less_equal", "logical_and", "logical_or", "logical_not", "array_equal", "isin", "sqrt", "floor", "ceil",
        "rint", "trunc", "exp", "log", "log2", "ldexp", "frexp", "float32", "float64", "true_divide", "divide", "mean",
        "var", "std",
        "broadcast_shapes", "shape", "ndim", "size", "issubdtype", "dtype", "array2string", "array_str", "signbit",
        "can_cast", "bool_", "shares_memory", "percentile", "quantile", "result_type", "hypot", "tanh", "cos", "sin",
        "iinfo", "finfo", "ndindex")  # fmt: skip
"""Functions that do not return integers."""

ARITHMETIC = ("abs", "absolute", "add", "convolve", "correlate", "cumprod", "cumsum", "diff", "divmod", "dot", "einsum",
              "floor_divide", "inner", "kron", "left_shift", "matmul", "mod", "multiply", "negative", "outer", "power",
              "prod", "ptp", "remainder", "square", "subtract", "sum", "tensordot", "trace", "vdot",
              "nansum")  # fmt: skip
SUMMING = ("cumprod", "cumsum", "dot", "prod", "ptp", "sum", "trace")
"""Methods of arrays that add or multiply."""
KEEPING = ("astype", "reshape", "ravel", "flatten", "copy", "transpose", "swapaxes", "squeeze", "min", "max", "clip",
           "view", "repeat", "take", "diagonal", "compress", "choose", "newbyteorder", "byteswap",
           "round", *SUMMING)  # fmt: skip
"""Methods of integer arrays that return integer arrays."""
ELEMENTS = ("array", "stored")
"""Methods without arguments that return the elements of a constant, in any class."""
TEXTS = ("decode", "encode", "format", "join", "replace", "split")
"""Methods of texts and bytes that other classes have as well."""
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.LShift: "<<", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.MatMult: "@",
}  # fmt: skip


@dataclass(eq=False)
class Module:
    """The definitions of a module: the annotations of its names, and the sources of its imports."""

    name: str
    path: str
    tree: ast.Module
    package: str
    imported: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, ast.expr] = field(default_factory=dict)
    functions: dict[str, ast.expr] = field(default_factory=dict)
    attributes: dict[str, list[ast.expr]] = field(default_factory=lambda: defaultdict(list))
    methods: dict[str, list[ast.expr | None]] = field(default_factory=lambda: defaultdict(list))
    classes: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                parts = self.package.split(".")[: len(self.package.split(".")) - node.level + 1] if node.level else []
                source = ".".join([*parts, *([node.module] if node.module else [])])
                self.imported.update({alias.asname or alias.name: f"{source}.{alias.name}" for alias in node.names})
            elif isinstance(node, ast.ClassDef):
                self._class(node)
        for statement in self.tree.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.aliases[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                    alias = value is not None and ast.unparse(annotation).endswith("TypeAlias")
                    self.aliases[name] = value if alias and value is not None else annotation
                case ast.FunctionDef(name=name, returns=ast.expr() as returns):
                    self.functions[name] = returns

    def _class(self, node: ast.ClassDef) -> None:
        self.classes.add(node.name)
        for statement in node.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                    self.attributes[name].append(annotation)
                case ast.FunctionDef(name=name, returns=returns, decorator_list=decorators):
                    if any("property" in ast.unparse(decorator) for decorator in decorators):
                        if returns is not None:
                            self.attributes[name].append(returns)
                    else:
                        self.methods[name].append(returns)
        for inner in ast.walk(node):
            match inner:
                case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name), annotation=annotation):
                    self.attributes[name].append(annotation)
                case ast.FunctionDef(name="__init__", args=arguments, body=body):
                    given = {one.arg: one.annotation for one in arguments.args}
                    for line in body:
                        match line:
                            case ast.Assign(
                                targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Name(id=source)
                            ) if (declared := given.get(source)) is not None:
                                self.attributes[name].append(declared)


class Package:
    """All modules, and their annotations."""

    def __init__(self, root: Path) -> None:
        self.modules: dict[str, Module] = {}
        for file in sorted((root / "cvm").rglob("*.py")):
            parts = file.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            tree = ast.parse(file.read_text("utf-8"))
            self.modules[name] = Module(name, file.relative_to(root).as_posix(), tree, ".".join(parts[:-1]))
        self.resolved = cache(self._resolved)
        self.of_attribute = cache(self._of_attribute)
        self.of_method = cache(self._of_method)
        self.common_attributes = self._common("attributes")
        self.common_methods = self._common("methods")

    def _common(self, part: str) -> dict[str, Kind]:
        """The kinds of attributes, or methods, for which every definition in the package has the same annotation."""
        said: dict[str, set[Kind]] = defaultdict(set)
        for module in self.modules.values():
            for name, found in getattr(module, part).items():
                said[name].update(self.annotated(one, module) for one in found)
        return {name: next(iter(kinds)) for name, kinds in said.items() if len(kinds) == 1}

    def annotated(self, annotation: ast.expr | None, module: Module, seen: tuple[str, ...] = ()) -> Kind:
        """The kind that an annotation names."""
        match annotation:
            case ast.Constant(value=str(text)):
                return self.annotated(ast.parse(text, mode="eval").body, module, seen)
            case ast.Name(id=name):
                return self.named(module, name, seen)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return self.annotated(left, module, seen) or self.annotated(right, module, seen)
            case ast.Subscript(value=value, slice=inner):
                return self._generic(ast.unparse(value).rsplit(".", 1)[-1], inner, module, seen)
        return None

    def _generic(self, name: str, inner: ast.expr, module: Module, seen: tuple[str, ...]) -> Kind:
        given = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if name == "NDArray":
            return None if any(word in ast.unparse(inner) for word in OTHERWISE) else "array"
        if name == "Callable":
            return Gives(self.annotated(given[-1], module, seen))
        if name == "tuple" and not any(isinstance(one, ast.Constant) and one.value is ... for one in given):
            return Few(tuple(self.annotated(one, module, seen) for one in given))
        if name in ("tuple", *SEQUENCES):
            return Many(self.annotated(given[0], module, seen))
        if name in MAPPINGS:
            return Many(self.annotated(given[-1], module, seen))
        return (
            self.annotated(given[0], module, seen) if name in ("Annotated", "Final", "ClassVar", "Optional") else None
        )

    def named(self, module: Module, name: str, seen: tuple[str, ...] = ()) -> Kind:
        """The kind of the object that a name of a module stands for in an annotation."""
        full = f"{module.name}.{name}"
        if full in seen:
            return None
        if full in CLASSES:
            return CLASSES[full]
        if name in module.aliases:
            return self.annotated(module.aliases[name], module, (*seen, full))
        source = self._source(module, name)
        return self.named(*source, (*seen, full)) if source else None

    def _source(self, module: Module, name: str) -> tuple[Module, str] | None:
        """The module from which a name is imported, and its name there."""
        home, _, there = module.imported.get(name, "").rpartition(".")
        return (self.modules[home], there) if home in self.modules else None

    def _resolved(self, module: Module, name: str, seen: tuple[str, ...] = ()) -> Kind:
        """The kind of the result of a module's function, or of a module's value."""
        if name in module.functions:
            return Gives(self.annotated(module.functions[name], module))
        if name in module.classes:
            return Gives(CLASSES.get(f"{module.name}.{name}"))
        source, here = self._source(module, name), f"{module.name}.{name}"
        return self._resolved(*source, (*seen, here)) if source and here not in seen else None

    def _of_attribute(self, module: Module, name: str) -> Kind:
        """The kind of an attribute, as a class of the module annotates it, or else every class that has it."""
        own = [self.annotated(one, module) for one in module.attributes.get(name, ())]
        if own:
            return next((kind for kind in own if kind), None)
        return self.common_attributes.get(name)

    def _of_method(self, module: Module, name: str) -> Kind:
        """The kind of a method's result, as a class of the module annotates it, or else every class that has it."""
        own = [self.annotated(one, module) for one in module.methods.get(name, ())]
        if own:
            return next((kind for kind in own if kind), None)
        return self.common_methods.get(name)


@dataclass(eq=False)
class Scope:
    """The names of a function, or of a module, and their kinds."""

    package: Package
    module: Module
    node: ast.FunctionDef | ast.Module
    qualified: str
    outer: Scope | None = None
    kinds: dict[str, Kind] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.node, ast.FunctionDef):
            spec = self.node.args
            for one in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs):
                self.kinds[one.arg] = self.package.annotated(one.annotation, self.module)
            if spec.vararg:
                self.kinds[spec.vararg.arg] = Many(self.package.annotated(spec.vararg.annotation, self.module))
        for _ in range(4):
            before = dict(self.kinds)
            for node in self.nodes():
                self._bound(node)
            if self.kinds == before:
                break

    def nodes(self) -> Iterator[ast.AST]:
        """The nodes of the function, without those of functions and classes inside it."""
        waiting: list[ast.AST] = list(reversed(self.node.body))
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            yield node
            waiting.extend(reversed(list(ast.iter_child_nodes(node))))

    def named(self, name: str) -> Kind:
        """The kind of a name."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.kinds:
                return scope.kinds[name]
            scope = scope.outer
        return self.package.resolved(self.module, name)

    def _bound(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._give(target, self.kind(value))
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                self._give(ast.Name(name), self.package.annotated(annotation, self.module))
            case ast.For(target=target, iter=items) | ast.comprehension(target=target, iter=items):
                self._give(target, element(self.kind(items)))
            case ast.NamedExpr(target=target, value=value):
                self._give(target, self.kind(value))
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                self._give(target, self.kind(value))
            case ast.Call(func=ast.Attribute(attr="monotone" | "moved"), args=[ast.Lambda(args=spec), *_]):
                for one in spec.args[:1]:
                    self.kinds[one.arg] = "array"

    def _give(self, target: ast.expr, kind: Kind) -> None:
        match target:
            case ast.Name(id=name):
                self.kinds[name] = kind or self.kinds.get(name)
            case ast.Starred(value=inner):
                self._give(inner, Many(element(kind)))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for index, part in enumerate(parts):
                    few = isinstance(kind, Few) and len(kind.items) == len(parts)
                    self._give(part, kind.items[index] if few and isinstance(kind, Few) else element(kind))

    def kind(self, node: ast.expr) -> Kind:
        """The kind of an expression."""
        match node:
            case ast.Name(id=name):
                return self.named(name)
            case ast.Starred(value=inner) | ast.UnaryOp(op=ast.USub() | ast.Invert() | ast.UAdd(), operand=inner):
                return self.kind(inner)
            case ast.NamedExpr(value=inner):
                return self.kind(inner)
            case ast.BinOp(left=left, op=op, right=right) if not isinstance(op, ast.Div):
                kinds = [self.kind(left), self.kind(right)]
                return next((kind for kind in ("exact", "array", "range") if kind in kinds), None) or _joined(kinds, op)
            case ast.IfExp(body=a, orelse=b):
                return self.kind(a) or self.kind(b)
            case ast.BoolOp(values=values):
                return next((kind for kind in map(self.kind, values) if kind), None)
            case ast.Tuple(elts=items):
                return Few(tuple(map(self.kind, items)))
            case ast.List(elts=items) | ast.Set(elts=items):
                return Many(next((kind for kind in map(self.kind, items) if kind), None))
            case ast.ListComp(elt=item) | ast.GeneratorExp(elt=item) | ast.DictComp(value=item):
                return Many(self.kind(item))
            case ast.Dict(values=items):
                return Many(next((kind for kind in map(self.kind, items) if kind), None))
            case ast.Subscript(value=value, slice=index):
                return _part(self.kind(value), index)
            case ast.Attribute(value=value, attr=name):
                return self._attribute(value, name)
            case ast.Call():
                return self._called(node)
        return None

    def _attribute(self, value: ast.expr, name: str) -> Kind:
        if name == "ranges":
            return Many("range")
        kind = self.kind(value)
        if kind == "range":
            return "array" if name in ("lo", "hi", "values") else None
        if kind == "array":
            return "array" if name in ("T", "flat", "real") else None
        if name in ("lo", "hi", "values"):  # many classes have these; some hold integers
            own = [self.package.annotated(one, self.module) for one in self.module.attributes.get(name, ())]
            return "array" if own and all(one == "array" for one in own) else None
        return self.package.of_attribute(self.module, name)

    def _called(self, call: ast.Call) -> Kind:
        match call.func:
            case ast.Attribute(value=ast.Name(id="np"), attr=name):
                return self._numpy(name, call)
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="np"), attr=name)):  # np.add.reduce
                return self._numpy(name, call)
            case ast.Attribute(value=value, attr=name):
                return self._method(self.kind(value), name, call)
            case ast.Name(id="zip"):
                return Many(Few(tuple(element(self.kind(one)) for one in call.args)))
            case ast.Name(id="enumerate"):
                return Many(Few((None, element(self.kind(call.args[0])))))
            case ast.Name(id="list" | "tuple" | "reversed" | "sorted" | "iter") if call.args:
                return Many(element(self.kind(call.args[0])))
            case ast.Name(id="map") if len(call.args) > 1:
                gives = self.kind(call.args[0])
                return Many(gives.item if isinstance(gives, Gives) else None)
            case ast.Name(id="abs" | "sum" | "min" | "max" | "next" as name) if call.args:
                kind = self.kind(call.args[0])
                return kind if name == "abs" else element(kind)
            case ast.Name(id="replace" | "cast" | "deepcopy"):
                return self.kind(call.args[-1 if ast.unparse(call.func) == "cast" else 0])
            case function:
                kind = self.kind(function)
                return kind.item if isinstance(kind, Gives) else None

    def _method(self, kind: Kind, name: str, call: ast.Call) -> Kind:
        if name in TEXTS:
            return None
        if kind == "exact":
            return "array" if name in ("int32", "int64") else "exact"
        if kind == "array":
            if name == "astype":
                return None if _otherwise(_type(call, 0)) else "array"
            return "array" if name in KEEPING else None
        if kind == "range":
            return "range" if name in ("wide", "over", "per_channel", "monotone", "moved", "union", "total",
                                       "for_terms") else None  # fmt: skip
        if name == "astype":  # to a float type, or to truth values
            return "array" if "int" in (_type(call, 0) or "") else None
        if name in ("items", "values", "get", "pop", "copy") and isinstance(kind, Many):
            return (
                Many(Few((None, kind.item))) if name == "items" else kind if name in ("values", "copy") else kind.item
            )
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            home = self.module.imported.get(call.func.value.id, "")
            if home in self.package.modules:
                gives = self.package.resolved(self.package.modules[home], name)
                return gives.item if isinstance(gives, Gives) else None
        if name in ELEMENTS and not call.args:
            return "array"
        return self.package.of_method(self.module, name)

    def _numpy(self, name: str, call: ast.Call) -> Kind:
        if name in ELSE or _otherwise(_type(call, {**BUILT, **BUILT_OF_FLOATS}.get(name))):
            return None
        if name in BUILT_OF_FLOATS:
            return None if _type(call, BUILT_OF_FLOATS[name]) is None else "array"
        if name in SEVERAL:
            return Many("array") if any(self._holds(one) for one in call.args) else None
        if name in NUMBERS or name in BUILT:
            return "array"
        return "array" if any(self._holds(one) for one in call.args) else None

    def _holds(self, node: ast.expr) -> bool:
        """Whether an argument is an integer array, or contains several."""
        kind = self.kind(node)
        return kind == "array" or (isinstance(kind, Many | Few) and element(kind) == "array")

    def sites(self) -> Iterator[tuple[int, str]]:
        """The expressions with fixed-width arithmetic: line and description."""
        for node in self.nodes():
            match node:
                case ast.BinOp(op=op) if type(op) in OPERATORS:
                    if self.kind(node) == "array":
                        yield node.lineno, OPERATORS[type(op)]
                case ast.AugAssign(target=target, op=op, value=value) if type(op) in OPERATORS:
                    if "array" in (kinds := (self.kind(target), self.kind(value))) and "exact" not in kinds:
                        yield node.lineno, f"{OPERATORS[type(op)]}="
                case ast.UnaryOp(op=ast.USub(), operand=operand) if self.kind(operand) == "array":
                    yield node.lineno, "-"
                case ast.Call():
                    what = self._call_site(node)
                    if what is not None:
                        yield node.lineno, what

    def _call_site(self, call: ast.Call) -> str | None:
        """The arithmetic of a call on integer arrays, or None."""
        match call.func:
            case (
                ast.Attribute(value=ast.Name(id="np"), attr=name)
                | ast.Attribute(value=ast.Attribute(value=ast.Name(id="np"), attr=name))
            ):
                if not any(self._holds(one) for one in call.args):
                    return None
                said = _type(call, BUILT.get(name))
                if name in ARITHMETIC and not _otherwise(said):
                    return f"np.{name}"
                return f"np.{name} as {said}" if name in BUILT and _narrow(said) else None
            case ast.Attribute(value=value, attr=name) if name in SUMMING and self.kind(value) == "array":
                return None if _otherwise(_type(call, None)) else f".{name}"
            case ast.Attribute(value=value, attr="astype") if self.kind(value) == "array" and _narrow(_type(call, 0)):
                return f".astype({_type(call, 0)})"
            case ast.Name(id="abs" | "pow" as name) if call.args and self.kind(call.args[0]) == "array":
                return name
            case ast.Name(id="sum") if call.args and element(self.kind(call.args[0])) == "array":
                return "sum"
        return None


def element(kind: Kind) -> Kind:
    """The kind of the elements of a container or an array."""
    match kind:
        case Many(item=item):
            return item
        case Few(items=items):
            return next((item for item in items if item), None)
        case "array":
            return "array"
    return None


def _joined(kinds: Iterable[Kind], op: ast.operator) -> Kind:
    """The kind of joined containers."""
    found = next((kind for kind in kinds if isinstance(kind, Many | Few)), None)
    return Many(element(found)) if found is not None and isinstance(op, ast.Add | ast.Mult) else None


def _part(kind: Kind, index: ast.expr) -> Kind:
    if isinstance(kind, Few) and isinstance(index, ast.Constant) and isinstance(index.value, int):
        return kind.items[index.value] if index.value < len(kind.items) else None
    if isinstance(kind, Many | Few) and isinstance(index, ast.Slice):
        return Many(element(kind))
    return element(kind)


def _type(call: ast.Call, index: int | None) -> str | None:
    """The type of elements that a call names."""
    for keyword in call.keywords:
        if keyword.arg == "dtype":
            return ast.unparse(keyword.value)
    return ast.unparse(call.args[index]) if index is not None and len(call.args) > index else None


def _otherwise(said: str | None) -> bool:
    return said is not None and any(word in said for word in OTHERWISE)


def _narrow(said: str | None) -> bool:
    return said is not None and said not in ("np.int64", "int") and not _otherwise(said)


def scopes(package: Package, module: Module) -> Iterator[Scope]:
    """The module and all functions in it, outer ones first."""

    def inside(node: ast.AST, name: str, outer: Scope) -> Iterator[Scope]:
        for child in ast.iter_child_nodes(node):
            scope, inner = outer, name
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}" if name else child.name
            if isinstance(child, ast.FunctionDef):
                scope = Scope(package, module, child, inner, outer)
                yield scope
            yield from inside(child, inner, scope)

    whole = Scope(package, module, module.tree, "")
    yield whole
    yield from inside(module.tree, "", whole)


def guarded(scope: Scope) -> int:
    """The first line of a function, or of one around it, in which a bound is checked; a large number if none is."""
    lines = [
        node.lineno
        for node in scope.nodes()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in GUARDS
    ]
    own = min(lines, default=sys.maxsize)
    return own if scope.outer is None else min(own, guarded(scope.outer))


def findings(package: Package, listed: Iterable[tuple[str, str]]) -> Iterator[tuple[str, int, str]]:
    """Expressions without a bound, and entries of the table that nothing needs: path, line and what."""
    entries = set(listed)
    needed: set[tuple[str, str]] = set()
    for module in package.modules.values():
        if module.path in EXEMPT:
            continue
        for scope in scopes(package, module):
            checked = guarded(scope)
            open_ = sorted({(line, what) for line, what in scope.sites() if line < checked})
            entry = next((one for one in _entries(module.path, scope.qualified) if one in entries), None)
            if entry is not None and open_:
                needed.add(entry)
                continue
            for line, what in open_:
                where = f"in {scope.qualified}" if scope.qualified else "at the top"
                yield module.path, line, f"{what} of fixed width {where}, and no bound is checked before it"
    paths = {module.path for module in package.modules.values()}
    for path, function in sorted(entries - needed):
        if path in paths:
            yield path, 1, f"tools/arithmetic_places.py lists {function}, which computes nothing without a bound"
        else:
            yield path, 1, f"tools/arithmetic_places.py lists {function} of a module that is not there"


def _entries(path: str, function: str) -> Iterator[tuple[str, str]]:
    """The entries that cover a function: its own, those of the functions around it, and that of the module."""
    parts = function.split(".")
    yield from ((path, ".".join(parts[:count])) for count in range(len(parts), 0, -1))
    yield path, "*"


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else ROOT
    package = Package(root)
    if not package.modules:
        print(f"{root}: no Python files under cvm", file=sys.stderr)
        return 1
    listed = [entry for entry in LISTED if not arguments or (root / entry[0]).exists()]
    found = sorted(findings(package, listed))
    for path, line, what in found:
        print(f"{root / path}:{line}: {what}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
