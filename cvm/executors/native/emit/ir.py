"""A small writer of LLVM IR: typed values, structured loops, and vectors of any number of lanes.

The writer produces text directly: a network's code has tens of thousands of instructions, and an object for each would
cost more time than compiling them. Every value carries its type; a Python integer stands for a constant of the other
operand's type. A vector of one lane is a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

__all__ = ["Code", "Module", "Scalar", "V", "lanes", "typed", "vector", "whole"]


class V(NamedTuple):
    """An SSA value or constant: its IR type and its text."""

    type: str
    text: str

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


Scalar = V | int
"""A number that is known when the code runs (`V`) or when it is written (int)."""


def vector(bits: int, count: int) -> str:
    """The type of ``count`` integers of ``bits`` bits."""
    return f"i{bits}" if count == 1 else f"<{count} x i{bits}>"


@cache
def lanes(type_: str) -> int:
    """The number of lanes of a type."""
    return int(type_[1:].split(" ", 1)[0]) if type_[0] == "<" else 1


@cache
def element(type_: str) -> str:
    """The type of one lane."""
    return type_[1:-1].split(" x ")[1] if type_[0] == "<" else type_


def typed(type_: str, value: int) -> V:
    """A constant, the same in all lanes."""
    if type_[0] != "<":
        return V(type_, str(value))
    return V(type_, f"splat ({element(type_)} {value})" if value else "zeroinitializer")


def whole(number: Scalar) -> V:
    """The number as an i64 value."""
    return V("i64", str(number)) if isinstance(number, int) else number


class Module:
    """Functions by name, and the declarations that they need.

    ``widens``: products of the lanes of two vectors are best written as products of lanes that are widened first.
    """

    def __init__(self, widens: bool = False) -> None:
        self.widens = widens
        self.functions: dict[str, str] = {}
        self.declarations: set[str] = set()
        self.declared: set[tuple[str, str, tuple[str, ...]]] = set()
        """The result, name and operands of the functions that `Code.call` has declared: their text is made once."""

    def __str__(self) -> str:
        return "\n".join([*sorted(self.declarations), *self.functions.values()])


class Code:
    """The body of one function, written in order.

    ``parameters`` are the types and names of the arguments. `finish` ends the function and adds it to the module.
    """

    def __init__(self, module: Module, name: str, parameters: Sequence[V], result: str = "void") -> None:
        self._module, self._name, self._parameters, self._result = module, name, tuple(parameters), result
        self._rooms: list[str] = []
        self._masks: set[str] = set()
        self._lines: list[str] = []
        self._count = 0
        self._block = "entry"

    def finish(self, returned: str = "void") -> None:
        """End the function with a return."""
        self.line(f"ret {returned}")
        parameters = ", ".join(map(str, self._parameters))
        # A large frame touches every page of the stack on its way down: a thread with too small a stack must end at the
        # page that guards it, and not write behind that page.
        probes = ' "probe-stack"="inline-asm"' if self._rooms else ""
        header = f"define {self._result} @{self._name}({parameters}) nounwind{probes} {{"
        self._module.functions[self._name] = "\n".join([header, "entry:", *self._rooms, *self._lines, "}"])

    @property
    def widens(self) -> bool:
        """See `Module`."""
        return self._module.widens

    # Instructions ---------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Append a line of code that yields no value."""
        self._lines.append("  " + text)

    def value(self, type_: str, text: str) -> V:
        """Append an instruction, and return its value."""
        self._count += 1
        name = f"%v{self._count}"
        self._lines.append(f"  {name} = {text}")
        return V(type_, name)

    def binary(self, op: str, a: V, b: Scalar) -> V:
        """An arithmetic or bitwise instruction on two values of one type."""
        other = typed(a.type, b) if isinstance(b, int) else b
        return self.value(a.type, f"{op} {a}, {other.text}")

    def add(self, a: Scalar, b: Scalar) -> Scalar:
        """``a + b`` in i64, computed at once if both are Python integers."""
        if isinstance(a, int):
            if isinstance(b, int):
                return a + b
            a, b = b, a
        return a if b == 0 else self.binary("add", a, b)

    def mul(self, a: Scalar, b: int) -> Scalar:
        """``a * b`` in i64, computed at once if both are Python integers."""
        if isinstance(a, int):
            return a * b
        return 0 if b == 0 else a if b == 1 else self.binary("mul", a, b)

    def minus(self, a: Scalar, b: Scalar) -> Scalar:
        """``a - b`` in i64, computed at once if both are Python integers."""
        if isinstance(b, int):
            return self.add(a, -b)
        return self.binary("sub", whole(a), b)

    def quotient(self, a: Scalar, b: int) -> Scalar:
        """floor(a / b) for a >= 0 in i64, computed at once if both are Python integers."""
        if isinstance(a, int):
            return a // b
        return a if b == 1 else self.binary("udiv", a, b)

    def smaller(self, a: Scalar, b: int) -> Scalar:
        """min(a, b) in i64, computed at once if both are Python integers."""
        return min(a, b) if isinstance(a, int) else self.intrinsic("smin", a, b)

    def larger(self, a: Scalar, b: int) -> Scalar:
        """max(a, b) in i64, computed at once if both are Python integers."""
        return max(a, b) if isinstance(a, int) else self.intrinsic("smax", a, b)

    def call(self, type_: str, name: str, *arguments: V) -> V:
        """Call an intrinsic or an external function, and add its declaration to the module."""
        types = tuple([argument.type for argument in arguments])
        if (type_, name, types) not in self._module.declared:
            self._module.declared.add((type_, name, types))
            self._module.declarations.add(f"declare {type_} @{name}({', '.join(types)})")
        text = f"call {type_} @{name}({', '.join([f'{one.type} {one.text}' for one in arguments])})"
        if type_ == "void":
            self.line(text)
            return V("void", "")
        return self.value(type_, text)

    def intrinsic(self, name: str, a: V, b: Scalar) -> V:
        """@llvm.<name> of two values, for the names smax, smin, umax and umin."""
        other = typed(a.type, b) if isinstance(b, int) else b
        return self.call(a.type, f"llvm.{name}.{_suffix(a.type)}", a, other)

    def compare(self, predicate: str, a: V, b: Scalar) -> V:
        """Compare two values (icmp). The result is an i1 or a vector of i1."""
        other = typed(a.type, b) if isinstance(b, int) else b
        return self.value(vector(1, lanes(a.type)), f"icmp {predicate} {a}, {other.text}")

    def select(self, condition: V, a: V, b: Scalar) -> V:
        """``a`` where the condition holds, else ``b``."""
        other = typed(a.type, b) if isinstance(b, int) else b
        return self.value(a.type, f"select {condition}, {a}, {other}")

    def cast(self, op: str, a: V, bits: int) -> V:
        """sext, zext or trunc to another number of bits per lane."""
        type_ = vector(bits, lanes(a.type))
        return a if type_ == a.type else self.value(type_, f"{op} {a} to {type_}")

    def bitcast(self, a: V, type_: str) -> V:
        """The same bits as another type."""
        return a if a.type == type_ else self.value(type_, f"bitcast {a} to {type_}")

    def splat(self, a: V, count: int) -> V:
        """A scalar in ``count`` lanes."""
        if count == 1:
            return a
        type_ = f"<{count} x {a.type}>"
        if a.text[0] != "%":
            return typed(type_, int(a.text))
        first = self.value(type_, f"insertelement {type_} poison, {a}, i64 0")
        return self.shuffle(first, first, [0] * count)

    def alloca(self, type_: str, count: int) -> V:
        """Reserve memory for ``count`` values on the stack. The code for it stands at the beginning of the function."""
        self._count += 1
        name = f"%s{self._count}"
        self._rooms.append(f"  {name} = alloca [{count} x {type_}], align 64")
        return V("ptr", name)

    def constant(self, name: str, value: V) -> str:
        """The name of a constant in memory, which the module has once."""
        self._module.declarations.add(f"@{name} = internal constant {value}")
        return f"@{name}"

    def even_lanes(self, count: int) -> V:
        """A mask of the even ones of ``count`` >= 8 lanes. An empty assembly instruction hides its value from the code
        generator, which would rewrite a select with a known mask as a permutation: that needs the units of products.
        """
        name = f"%even{count}"
        if name not in self._masks:
            self._masks.add(name)
            bits = sum(1 << lane for lane in range(0, count, 2))
            self._rooms.append(f'  {name}.bits = call i{count} asm "", "=r,0"(i{count} {bits})')
            self._rooms.append(f"  {name} = bitcast i{count} {name}.bits to <{count} x i1>")
        return V(vector(1, count), name)

    def shuffle(self, a: V, b: V, indices: Sequence[int]) -> V:
        """A vector of lanes by index: 0 .. n-1 are the lanes of ``a``, n .. 2n-1 those of ``b``."""
        if len(indices) == 1:
            count = lanes(a.type)
            return self.extract(a if indices[0] < count else b, indices[0] % count)
        return self.value(f"<{len(indices)} x {element(a.type)}>", f"shufflevector {a}, {b}, {_mask(tuple(indices))}")

    def extract(self, a: V, lane: int) -> V:
        """One lane of a vector."""
        return a if a.type[0] != "<" else self.value(element(a.type), f"extractelement {a}, i64 {lane}")

    def gathered(self, values: Sequence[V]) -> V:
        """Scalars as the lanes of a vector."""
        if len(values) == 1:
            return values[0]
        type_ = f"<{len(values)} x {values[0].type}>"
        whole = V(type_, "poison")
        for lane, value in enumerate(values):
            whole = self.value(type_, f"insertelement {whole}, {value}, i64 {lane}")
        return whole

    def bytes(self, data: bytes) -> V:
        """A constant vector of bytes."""
        return V(vector(8, len(data)), f"<{', '.join(f'i8 {byte}' for byte in data)}>")

    def at(self, pointer: V, offset: Scalar) -> V:
        """The address ``offset`` bytes behind a pointer."""
        if isinstance(offset, int) and offset == 0:
            return pointer
        distance = offset if isinstance(offset, int) else offset.text
        return self.value(pointer.type, f"getelementptr i8, {pointer}, i64 {distance}")

    def load(self, type_: str, pointer: V, align: int = 1) -> V:
        """Load the value at an address."""
        return self.value(type_, f"load {type_}, {pointer}, align {align}")

    def store(self, a: V, pointer: V, align: int = 1) -> None:
        """Store a value at an address."""
        self.line(f"store {a}, {pointer}, align {align}")

    def prefetch(self, pointer: V, near: bool = True) -> None:
        """Prefetch a cache line that will be read soon, into the nearest cache or the second one. The address need not
        be valid.
        """
        flags = [V("i32", "0"), V("i32", "3" if near else "2"), V("i32", "1")]  # for reading; how near; data
        self.call("void", "llvm.prefetch.p0", pointer, *flags)

    # Control --------------------------------------------------------------------------------------------------------

    def label(self, name: str) -> None:
        """Begin a block."""
        self._lines.append(f"{name}:")
        self._block = name

    @property
    def block(self) -> str:
        """The label of the block that is being written."""
        return self._block

    def fresh(self) -> str:
        """A new label."""
        self._count += 1
        return f"b{self._count}"

    def loop(
        self,
        lo: Scalar,
        hi: Scalar,
        step: Scalar,
        body: Callable[[V, list[V]], Sequence[V]],
        carried: Sequence[V] = (),
    ) -> list[V]:
        """Write a loop over i = lo, lo + step, .. below hi, and return the values after its last iteration.

        ``body(i, values)`` writes one iteration and returns the next values; the first ones are ``carried``. The loop
        is not entered if lo >= hi. That takes a test, unless both bounds are Python integers.
        """
        surely = isinstance(lo, int) and isinstance(hi, int)
        if surely and lo >= hi:  # type: ignore[operator]
            return list(carried)
        before, top, done = self._block, self.fresh(), self.fresh()
        low, high = (str(bound) if isinstance(bound, int) else bound.text for bound in (lo, hi))
        if surely:
            self.line(f"br label %{top}")
        else:
            enters = self.value("i1", f"icmp slt i64 {low}, {high}")
            self.line(f"br {enters}, label %{top}, label %{done}")
        self.label(top)
        top_line = len(self._lines)
        self._count += 1
        index, following = V("i64", f"%i{self._count}"), V("i64", f"%j{self._count}")
        inside = []
        for value in carried:
            self._count += 1
            inside.append(V(value.type, f"%c{self._count}"))
        after = list(body(index, inside))
        self.line(f"{following.text} = add nsw i64 {index.text}, {step if isinstance(step, int) else step.text}")
        again = self.value("i1", f"icmp slt i64 {following.text}, {high}")
        end = self._block
        self.line(f"br {again}, label %{top}, label %{done}")
        heads = [f"  {index.text} = phi i64 [{low}, %{before}], [{following.text}, %{end}]"]
        for first, phi, last in zip(carried, inside, after, strict=True):
            heads.append(f"  {phi.text} = phi {phi.type} [{first.text}, %{before}], [{last.text}, %{end}]")
        self._lines[top_line:top_line] = heads
        self.label(done)
        if surely:
            return after
        results = []
        for first, last in zip(carried, after, strict=True):
            results.append(self.value(last.type, f"phi {last.type} [{first.text}, %{before}], [{last.text}, %{end}]"))
        return results

    def search(self, first: V, condition: Callable[[V], V], following: Callable[[V], V]) -> V:
        """The first of first, following(first), .. for which the condition does not hold."""
        before, top, inside, done = self._block, self.fresh(), self.fresh(), self.fresh()
        self.line(f"br label %{top}")
        self.label(top)
        top_line = len(self._lines)
        self._count += 1
        value = V(first.type, f"%w{self._count}")
        self.line(f"br {condition(value)}, label %{inside}, label %{done}")
        self.label(inside)
        after = following(value)
        end = self._block
        self.line(f"br label %{top}")
        head = f"  {value.text} = phi {value.type} [{first.text}, %{before}], [{after.text}, %{end}]"
        self._lines.insert(top_line, head)
        self.label(done)
        return value

    def each(self, lo: Scalar, hi: Scalar, body: Callable[[Scalar], None], step: int = 1) -> None:
        """Write ``body(i)`` for i = lo, lo + step, .. below hi. There is no loop if i takes a single value that is
        known when the code is written.
        """
        if isinstance(lo, int) and isinstance(hi, int) and lo < hi <= lo + step:
            body(lo)
            return

        def once(index: V, _: list[V]) -> list[V]:
            body(index)
            return []

        self.loop(lo, hi, step, once)

    def strips(self, extent: int, width: int, body: Callable[[Scalar, int], None]) -> None:
        """Write ``body(first, count)`` for pieces that cover an extent: whole vectors first, then powers of two.

        LLVM makes slow code for vectors of other lengths.
        """
        done = extent // width * width
        if done:
            self.each(0, done, lambda index: body(index, width), step=width)
        while done < extent:
            count = 1 << ((extent - done).bit_length() - 1)
            body(done, count)
            done += count

    def unused(self) -> str:
        """A name for a value that is never read."""
        self._count += 1
        return f"%u{self._count}"

    def when(self, condition: V, body: Callable[[], None]) -> None:
        """Write code that runs only if the condition holds."""
        inside, done = self.fresh(), self.fresh()
        self.line(f"br {condition}, label %{inside}, label %{done}")
        self.label(inside)
        body()
        self.line(f"br label %{done}")
        self.label(done)


@cache
def _mask(indices: tuple[int, ...]) -> str:
    """A constant vector of lane numbers. Kernels use few masks many times."""
    if not any(indices):  # short, since the first lane is often repeated
        return f"<{len(indices)} x i32> zeroinitializer"
    return f"<{len(indices)} x i32> <{', '.join(f'i32 {index}' for index in indices)}>"


def _suffix(type_: str) -> str:
    """The suffix that a type has in the names of intrinsics."""
    return type_ if type_[0] != "<" else f"v{lanes(type_)}{element(type_)}"
