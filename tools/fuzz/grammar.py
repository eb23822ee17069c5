"""Random documents by the grammar and, mostly, by the rules: NNEF 1.0.1 and the provisional specification.

Shapes are tracked, so most documents are valid and exercise the whole checker. Values of compile-time
expressions are not tracked, so some expressions divide by zero or leave an array.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Style", "document"]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Style:
    """The notation of one edition of the language."""

    provisional: bool

    @property
    def integer(self) -> str:
        """The type of whole numbers."""
        return "extent" if self.provisional else "integer"

    @property
    def tensor(self) -> str:
        """The type of a tensor of scalars."""
        return "tensor" if self.provisional else "tensor<scalar>"

    def comprehension(self, name: str, array: str, item: str, condition: str | None) -> str:
        """A loop over an array."""
        where = "" if condition is None else f" if {condition}"
        if self.provisional:
            return f"[{item} for {name} in {array}{where}]"
        return f"[for {name} in {array}{where} yield {item}]"


_UNARY = [
    "relu",
    "sigmoid",
    "tanh",
    "exp",
    "log",
    "abs",
    "sign",
    "neg",
    "rcp",
    "floor",
    "ceil",
    "round",
    "sqr",
    "sqrt",
    "rsqr",
    "rsqrt",
    "log2",
    "elu",
    "softplus",
]
_BINARY = ["add", "sub", "mul", "div", "pow", "min", "max"]
_REDUCE = ["sum_reduce", "max_reduce", "min_reduce", "mean_reduce"]


class _Document:
    """Writes one document; one generator makes all random choices."""

    def __init__(self, random_: random.Random, style: Style) -> None:
        self.random = random_
        self.style = style
        self.operators = not style.provisional and random_.random() < 0.6
        self.fragments: list[tuple[str, str, str]] = []  # name, attribute that it needs, text
        self.tensors: list[tuple[str, Shape]] = []
        self.lines: list[str] = []
        self.labels = 0

    def text(self) -> str:
        random_, style = self.random, self.style
        for _ in range(random_.choice((0, 0, 1, 2, 3))):
            self.fragments.append(self.fragment(f"f{len(self.fragments)}"))
        rank = random_.choice((1, 2, 2, 3, 4, 4))
        inputs = [("x", tuple(random_.choice((1, 2, 3, 4, 8)) for _ in range(rank)))]
        if random_.random() < 0.3:
            inputs.append(("x2", inputs[0][1]))
        for name, shape in inputs:
            self.lines.append(f"{name} = external(shape = {self.numbers(shape)})")
            self.tensors.append((name, shape))
        for _ in range(random_.randrange(1, 9)):
            self.statement()
        result = self.tensors[-1][0]
        end = "" if style.provisional and random_.random() < 0.7 else ";"
        body = "".join(f"    {line}{end}\n" for line in self.lines)
        head = "version 1.0" if style.provisional else "version 1.0;" + self.extensions()
        parameters = ", ".join(name for name, _ in inputs)
        fragments = "".join(text for _, _, text in self.fragments)
        return f"{head}\n{self.comment()}{fragments}graph net( {parameters} ) -> ( {result} )\n{{\n{body}}}\n"

    def extensions(self) -> str:
        names = ["KHR_enable_fragment_definitions"] if self.fragments or self.random.random() < 0.1 else []
        names += ["KHR_enable_operator_expressions"] if self.operators or self.fragments else []
        self.operators = self.operators or bool(self.fragments)
        return "\nextension " + " ".join(names) + ";" if names else ""

    def comment(self) -> str:
        return self.random.choice(("", "", "# a comment, 'with' [things] in it\n", "\t \f\n"))

    def numbers(self, items: Shape) -> str:
        return "[" + ",".join(map(str, items)) + "]"

    # compile-time expressions

    def expression(self, kind: str, names: dict[str, str], depth: int = 0) -> str:
        """A random expression of a type, made of literals and of names with their types."""
        choices: list[Callable[[], str]] = [lambda: self.literal(kind)]
        known = [name for name, type_ in names.items() if type_ == kind]
        if known:
            choices += [lambda: self.random.choice(known)] * 3
        if depth < 3:
            sub: Callable[[str], str] = lambda wanted: self.expression(wanted, names, depth + 1)  # noqa: E731
            choices += [lambda: f"({sub(kind)})", lambda: f"{sub(kind)} if {sub('logical')} else {sub(kind)}"]
            integer = self.style.integer
            match kind:
                case "integer" | "scalar":
                    choices += [
                        lambda: f"{sub(kind)} {self.random.choice('+-*/^')} {sub(kind)}",
                        lambda: f"-{sub(kind)}",
                    ]
                    if kind == "integer":
                        choices += [lambda: f"length_of({sub('integers')})", lambda: f"{sub('integers')}[{sub(kind)}]"]
                        choices += [lambda: f"{integer}({sub('scalar')})"]
                    else:
                        choices += [lambda: f"scalar({sub('integer')})", lambda: f"scalar({sub('logical')})"]
                case "logical":
                    choices += [
                        lambda: f"{sub('integer')} {self.random.choice(('<', '<=', '==', '!=', '>'))} {sub('integer')}",
                        lambda: f"{sub(kind)} {self.random.choice(('&&', '||'))} {sub(kind)}",
                        lambda: f"!{sub(kind)}",
                    ]
                case "string":
                    choices += [lambda: f"{sub(kind)} + {sub(kind)}", lambda: f"string({sub('integer')})"]
                case "integers":
                    choices += [
                        lambda: f"{sub(kind)} + {sub(kind)}",
                        lambda: f"{sub(kind)} * 2",
                        lambda: f"range_of({sub(kind)})",
                        lambda: f"{sub(kind)}[{sub('integer')}:]",
                        lambda: self.loop(names, depth),
                    ]
        return self.random.choice(choices)()

    def loop(self, names: dict[str, str], depth: int) -> str:
        inner = {**names, f"i{depth}": "integer"}
        condition = f"({self.expression('logical', inner, depth + 2)})" if self.random.random() < 0.3 else None
        item = self.expression("integer", inner, depth + 2)
        array = f"({self.expression('integers', names, depth + 2)})"
        return self.style.comprehension(f"i{depth}", array, item, condition)

    def literal(self, kind: str) -> str:
        match kind:
            case "integer":
                return str(self.random.choice((0, 1, 2, 3, 5)))
            case "scalar":
                return self.random.choice(("0.0", "1.0", "0.5", "2.5", "1e-3", "1E+2", "0.1"))
            case "logical":
                return self.random.choice(("true", "false"))
            case "string":
                return self.random.choice(("'a'", '"b"', "''", r"'it\'s'", r"'\\'"))
        return self.random.choice(("[]", "[1]", "[1,2]", "[0,1,2]"))

    # fragments

    def fragment(self, name: str) -> tuple[str, str, str]:
        """A fragment with one tensor, perhaps one attribute, and a result of the same shape."""
        random_, style = self.random, self.style
        kind, type_ = random_.choice(
            (("", ""), ("scalar", "scalar"), ("integer", style.integer), ("integers", f"{style.integer}[]"))
        )
        names = {"k": kind} if kind else {}
        end = random_.choice(("", ";")) if style.provisional else ";"
        body: list[str] = []
        if random_.random() < 0.5:
            body.append(f"t = {self.expression(random_.choice(('integer', 'logical', 'string', 'integers')), names)}")
        tensors = ["x"]
        for index in range(random_.randrange(0, 3)):
            body.append(f"u{index} = {self.tensor(tensors)}")
            tensors.append(f"u{index}")
        scalar = self.expression("scalar", names)
        body.append(f"y = {random_.choice((self.tensor(tensors), f'x * ({scalar})', f'max({tensors[-1]}, {scalar})'))}")
        parameter = f", k: {type_}" + (f" = {self.literal(kind)}" if random_.random() < 0.4 else "") if kind else ""
        lines = "".join(f"    {line}{end}\n" for line in body)
        text = f"fragment {name}( x: {style.tensor}{parameter} ) -> ( y: {style.tensor} )\n{{\n{lines}}}\n"
        return name, kind, text

    def tensor(self, names: list[str], depth: int = 0) -> str:
        """A tensor expression that has the shape of the named tensors."""
        random_ = self.random
        choices: list[Callable[[], str]] = [lambda: random_.choice(names)]
        if depth < 3:
            sub: Callable[[], str] = lambda: self.tensor(names, depth + 1)  # noqa: E731
            choices += [
                lambda: f"{random_.choice(_UNARY)}({sub()})",
                lambda: f"{random_.choice(_BINARY)}({sub()}, {sub()})",
                lambda: f"{sub()} {random_.choice('+-*/')} {sub()}",
                lambda: f"-{sub()}",
                lambda: f"select({sub()} < {sub()}, {sub()}, {self.literal('scalar')})",
                lambda: f"({sub()} + {self.literal('scalar')})",
                lambda: f"add_n([{sub()}, {sub()}])",
                lambda: f"{sub()} if {self.expression('logical', {}, 2)} else {sub()}",
            ]
            if self.fragments:
                choices.append(lambda: self.call(sub()))
        return random_.choice(choices)()

    def call(self, argument: str) -> str:
        name, kind, _ = self.random.choice(self.fragments)
        if not kind or self.random.random() < 0.2:
            return f"{name}({argument})"
        return f"{name}({argument}, k = {self.literal(kind)})"

    # the graph

    def statement(self) -> None:
        """One more line, or a few, of the graph."""
        name = f"t{len(self.lines)}"
        operand, shape = self.random.choice(self.tensors)
        makers = [self.unary, self.binary, self.reduce, self.reshape, self.transpose, self.concat, self.split]
        makers += [self.unary, self.binary, self.linear, self.normalize, self.introduced, self.comparison]
        makers += [self.window] * (3 if len(shape) == 4 else 0) + [self.invoke] * (3 if self.fragments else 0)
        made = self.random.choice(makers)(name, operand, shape)
        if made is not None:
            self.tensors.append((name, made))

    def say(self, name: str, text: str, shape: Shape) -> Shape:
        self.lines.append(f"{name} = {text}")
        return shape

    def variable(self, name: str, shape: Shape) -> str:
        self.labels += 1
        label = f"{self.random.choice(('w', 'a/b', 'x.y', 'A-'))}{self.labels}"
        self.lines.append(f"{name} = variable(shape = {self.numbers(shape)}, label = '{label}')")
        return name

    def unary(self, name: str, x: str, shape: Shape) -> Shape:
        return self.say(name, f"{self.random.choice(_UNARY)}({x})", shape)

    def binary(self, name: str, x: str, shape: Shape) -> Shape:
        same = [other for other, found in self.tensors if found == shape]
        other = self.random.choice([*same, "0.5", "-1.0"])
        if self.operators and self.random.random() < 0.4:
            return self.say(name, f"{x} {self.random.choice('+-*/')} {self.tensor(same, 1)}", shape)
        return self.say(name, f"{self.random.choice(_BINARY)}({x}, {other})", shape)

    def comparison(self, name: str, x: str, shape: Shape) -> Shape:
        self.lines.append(f"{name}c = lt({x}, 0.0)")
        return self.say(name, f"select({name}c, {x}, 1.0)", shape)

    def invoke(self, name: str, x: str, shape: Shape) -> Shape:
        return self.say(name, self.call(x), shape)

    def reduce(self, name: str, x: str, shape: Shape) -> Shape:
        axes = tuple(sorted(self.random.sample(range(len(shape)), self.random.randrange(1, len(shape) + 1))))
        reduced = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
        return self.say(name, f"{self.random.choice(_REDUCE)}({x}, axes = {self.numbers(axes)})", reduced)

    def normalize(self, name: str, x: str, shape: Shape) -> Shape:
        axis = self.random.randrange(len(shape))
        operation = self.random.choice(("softmax", "l1_normalization", "l2_normalization"))
        return self.say(name, f"{operation}({x}, axes = [{axis}])", shape)

    def reshape(self, name: str, x: str, shape: Shape) -> Shape:
        volume = math.prod(shape)
        divisors = [d for d in range(1, volume + 1) if volume % d == 0]
        first = self.random.choice(divisors)
        new = (first, volume // first)
        written = (first, -1) if self.random.random() < 0.3 else new
        return self.say(name, f"reshape({x}, shape = {self.numbers(written)})", new)

    def transpose(self, name: str, x: str, shape: Shape) -> Shape:
        axes = tuple(self.random.sample(range(len(shape)), len(shape)))
        word = "perm" if self.style.provisional else "axes"
        return self.say(name, f"transpose({x}, {word} = {self.numbers(axes)})", tuple(shape[axis] for axis in axes))

    def concat(self, name: str, x: str, shape: Shape) -> Shape:
        axis = self.random.randrange(len(shape))
        joined = tuple(2 * extent if index == axis else extent for index, extent in enumerate(shape))
        return self.say(name, f"concat([{x}, {x}], axis = {axis})", joined)

    def split(self, name: str, x: str, shape: Shape) -> Shape | None:
        even = [axis for axis, extent in enumerate(shape) if extent % 2 == 0]
        if not even:
            return None
        axis = self.random.choice(even)
        half = tuple(extent // 2 if index == axis else extent for index, extent in enumerate(shape))
        self.lines.append(f"[{name}, {name}b] = split({x}, axis = {axis}, ratios = [1,1])")
        return half

    def linear(self, name: str, x: str, shape: Shape) -> Shape | None:
        if len(shape) != 2:
            return None
        channels = self.random.choice((1, 2, 5))
        filter_ = self.variable(f"{name}w", (channels, shape[1]))
        if self.random.random() < 0.5:
            return self.say(name, f"linear({x}, {filter_}, 0.5)", (shape[0], channels))
        word = "trB" if self.style.provisional else "transposeB"
        return self.say(name, f"matmul({x}, {filter_}, {word} = true)", (shape[0], channels))

    def window(self, name: str, x: str, shape: Shape) -> Shape:
        batch, channels, height, width = shape
        if self.random.random() < 0.5:
            out = self.random.choice((1, 2, 4))
            filter_ = self.variable(f"{name}f", (out, channels, 1, 1))
            return self.say(name, f"conv({x}, {filter_}, padding = [(0,0),(0,0)])", (batch, out, height, width))
        operation = self.random.choice(("max_pool", "avg_pool", "box"))
        stride = self.random.choice((1, 2))
        pooled = (batch, channels, -(-height // stride), -(-width // stride))
        return self.say(name, f"{operation}({x}, size = [1,1,2,2], stride = [1,1,{stride},{stride}])", pooled)

    def introduced(self, name: str, x: str, shape: Shape) -> Shape:
        if self.random.random() < 0.5:
            self.variable(name, shape)
            return shape
        values = ", ".join(self.random.choice(("0.5", "-1.25", "1e-3", "3.0")) for _ in range(math.prod(shape)))
        values = values if math.prod(shape) < 40 else "0.75"
        return self.say(name, f"constant(shape = {self.numbers(shape)}, value = [{values}])", shape)


def document(random_: random.Random, provisional: bool = False) -> str:
    """The text of a random document."""
    return _Document(random_, Style(provisional)).text()
