"""From the text of a module to kernels.

LLVM reads and verifies the text first; what is parsed here is the text that it writes back, which has one form only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import llvmlite.binding as llvm

from cvm.errors import Malformed
from tools.cuda_emulator.constants import constant, content
from tools.cuda_emulator.defects import unknown
from tools.cuda_emulator.kinds import VOID, Type, integer, pointer, vector_of
from tools.cuda_emulator.module import CONSTANT, GLOBAL, SHARED, Block, Function, Instruction, Module, Operand, Variable
from tools.cuda_emulator.tokens import Cursor, unquoted

__all__ = ["parse"]

_LABEL = re.compile(r'^([\w.$-]+|"[^"]*"):')
_WRAPS = ("nuw", "nsw", "exact", "disjoint", "samesign", "nneg", "inbounds", "nusw")
_ATTRIBUTES = ("noundef", "zeroext", "signext", "immarg", "nonnull", "noalias", "nocapture", "readonly", "writeonly")
_BINARY = (
    "add", "sub", "mul", "udiv", "sdiv", "urem", "srem", "shl", "lshr", "ashr", "and", "or", "xor",
    "fadd", "fsub", "fmul", "fdiv",
)  # fmt: skip
_CASTS = (
    "trunc", "zext", "sext", "bitcast", "sitofp", "uitofp", "fptosi", "fptoui", "ptrtoint", "addrspacecast",
)  # fmt: skip


def parse(ir: str) -> Module:
    """Parse a module. Raises `Malformed` for what LLVM refuses, `NotEmulated` for what the emulator does not know."""
    try:
        module = llvm.parse_assembly(ir)
        module.verify()
    except RuntimeError as error:
        raise Malformed("emulator.ir", f"LLVM refuses the module: {str(error).strip()}") from None
    lines = str(module).splitlines()
    variables: dict[str, Variable] = {}
    for line in lines:
        if line.startswith("@"):
            variable = _variable(Cursor(line), len(variables) + 1)
            variables[variable.name] = variable
    functions = {}
    for header, body in _bodies(lines):
        function = _Reader(variables).function(header, body)
        functions[function.name] = function
    return Module(functions, variables)


def _bodies(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The header and the lines of each defined function."""
    header = ""
    body: list[str] = []
    for line in lines:
        if line.startswith("define "):
            header, body = line, []
        elif line == "}" and header:
            yield header, body
            header = ""
        elif header and line.strip() and not line.startswith(";"):
            body.append(line)


def _variable(cursor: Cursor, number: int) -> Variable:
    name = unquoted(cursor.take())
    cursor.expect("=")
    external = "external" in cursor.flags(
        "external", "internal", "private", "dso_local", "local_unnamed_addr", "unnamed_addr", "hidden"
    )
    space = cursor.space()
    cursor.flags("unnamed_addr", "local_unnamed_addr")
    constants = cursor.accept("global", "constant") == "constant"
    kind = cursor.type()
    if space == SHARED:
        if not external and cursor.accept("undef", "poison") is None:
            raise unknown("an initial value of shared memory", cursor.line)
        return Variable(name, SHARED << 60 | 2 * number << 40, kind.size, external, None)
    if not constants or external:
        raise unknown("a variable that is neither constant nor shared memory", cursor.line)
    return Variable(name, CONSTANT << 60 | 2 * number << 40, kind.size, False, content(cursor, kind))


class _Reader:
    """Reads one function."""

    def __init__(self, variables: dict[str, Variable]) -> None:
        self._variables = variables

    def function(self, header: str, body: list[str]) -> Function:
        """Parse a function: a kernel with addresses as parameters."""
        cursor = Cursor(header)
        cursor.expect("define")
        if "ptx_kernel" not in cursor.flags("ptx_kernel", "dso_local", "internal") or cursor.type() != VOID:
            raise unknown("a function that is not a ptx_kernel", header)
        name = unquoted(cursor.take())
        cursor.expect("(")
        parameters, aligned = [], []
        while cursor.next != ")":
            if cursor.type() not in (pointer(GLOBAL), integer(64)):
                raise unknown("a parameter that is neither an address in global memory nor an i64", header)
            aligned.append(self._attributes(cursor))
            parameters.append(unquoted(cursor.take()))
            cursor.accept(",")
        unnamed = sum(parameter[1:].isdigit() for parameter in parameters)
        blocks = self._blocks(body, str(unnamed))
        return Function(name[1:], tuple(parameters), tuple(aligned), tuple(blocks))

    def _blocks(self, body: list[str], first: str) -> list[Block]:
        blocks: list[Block] = []
        for line in body:
            label = _LABEL.match(line)
            if label or not blocks:
                blocks.append(Block(label[1].strip('"') if label else first))
            if not label:
                blocks[-1].instructions.append(self.instruction(line))
        return blocks

    def _attributes(self, cursor: Cursor) -> int:
        """Read the attributes of a parameter or an argument, and return its alignment."""
        align = 1
        while cursor.next in (*_ATTRIBUTES, "align", "captures"):
            word = cursor.take()
            if word == "align":
                align = cursor.number()
            elif word == "captures":
                cursor.expect("(", "none", ")")
        return align

    def operand(self, cursor: Cursor, type_: Type) -> Operand:
        """Read a value of a known type."""
        if cursor.next[:1] == "%":
            return Operand(type_, name=unquoted(cursor.take()))
        return Operand(type_, value=constant(cursor, type_, self._variables))

    def typed(self, cursor: Cursor) -> Operand:
        """Read a type and a value."""
        return self.operand(cursor, cursor.type())

    def instruction(self, line: str) -> Instruction:
        """Parse an instruction."""
        cursor = Cursor(line)
        result = None
        if cursor.next[:1] == "%":
            result = unquoted(cursor.take())
            cursor.expect("=")
        cursor.flags("tail", "notail")
        op = cursor.take()
        if op in _BINARY:
            found = self._binary(cursor, op, result)
        elif op in _CASTS:
            found = self._cast(cursor, op, result)
        elif op in _FORMS:
            found = _FORMS[op](self, cursor, op, result)
        else:
            raise unknown(f"the instruction {op}", line)
        while cursor.accept(","):
            self._metadata(cursor)
        if cursor and cursor.next[0] != "#":
            raise unknown(repr(cursor.next), line)
        return found

    def _metadata(self, cursor: Cursor) -> None:
        kind, number = cursor.take(), cursor.take()
        if kind not in ("!invariant.load", "!llvm.loop", "!srcloc", "!range", "!noundef") or number[0] != "!":
            raise unknown(f"{kind}", cursor.line)

    def _made(self, cursor: Cursor, op: str, result: str | None, type_: Type, *operands: Operand) -> Instruction:
        return Instruction(op, type_, result, operands, cursor.line.strip())

    def _binary(self, cursor: Cursor, op: str, result: str | None) -> Instruction:
        flags = cursor.flags(*_WRAPS)
        first = self.typed(cursor)
        cursor.expect(",")
        second = self.operand(cursor, first.type)
        return Instruction(op, first.type, result, (first, second), cursor.line.strip(), flags=flags)

    def _cast(self, cursor: Cursor, op: str, result: str | None) -> Instruction:
        flags = cursor.flags(*_WRAPS)
        value = self.typed(cursor)
        cursor.expect("to")
        return Instruction(op, cursor.type(), result, (value,), cursor.line.strip(), flags=flags)

    def _compare(self, cursor: Cursor, op: str, result: str | None) -> Instruction:
        cursor.accept("samesign")
        word = cursor.take()
        first = self.typed(cursor)
        cursor.expect(",")
        second = self.operand(cursor, first.type)
        bit = integer(1)
        type_ = vector_of(first.type.count, bit) if first.type.kind == "vector" else bit
        return Instruction(op, type_, result, (first, second), cursor.line.strip(), word)

    def _select(self, cursor: Cursor, op: str, result: str | None) -> Instruction:
        operands = [self.typed(cursor)]
        for _ in range(2):
            cursor.expect(",")
            operands.append(self.typed(cursor))
        return self._made(cursor, op, result, operands[1].type, *operands)

    def _one(self, cursor: Cursor, op: str, result: str | None) -> Instruction:
        operand = self.typed(cursor)
        return self._made(cursor, op, result, operand.type, operand)

    def _element(self, cursor: Cursor, op: str, result: str | None) -> Instruction:
        operands = [self.typed(cursor)]
        while cursor.accept(","):
            operands.append(self.typed(cursor))
        first = operands[0].type
        return self._made(cursor, op, result, first.element if op == "extractelement" else first, *operands)

    def _shuffle(self, cursor: Cursor, op: str, result: str | None) -> Instruction:
        first = self.typed(cursor)
        cursor.expect(",")
        second = self.typed(cursor)
        cursor.expect(",")
        mask = cursor.type()
        numbers = _lanes(cursor, mask.count)
        type_ = vector_of(mask.count, first.type.element)
        return Instruction(op, type_, result, (first, second), cursor.line.strip(), numbers=numbers)

    def _field(self, cursor: Cursor, op: str, result: str | None) -> Instruction:
        operand = self.typed(cursor)
        cursor.expect(",")
        number = cursor.number()
        type_ = operand.type.parts[number]
        return Instruction(op, type_, result, (operand,), cursor.line.strip(), numbers=(number,))

    def _distance(self, cursor: Cursor, op: str, result: str | None) -> Instruction:
        cursor.flags(*_WRAPS)
        kind = cursor.type()
        operands = []
        while cursor.accept(","):
            operands.append(self.typed(cursor))
        return Instruction(op, operands[0].type, result, tuple(operands), cursor.line.strip(), kind=kind)

    def _align(self, cursor: Cursor, default: int) -> int:
        if cursor.next == "," and cursor.tokens[cursor.at + 1] == "align":
            cursor.expect(",", "align")
            return cursor.number()
        return default

    def _load(self, cursor: Cursor, op: str, result: str | None) -> Instruction:
        kind = cursor.type()
        cursor.expect(",")
        address = self.typed(cursor)
        align = self._align(cursor, kind.size)
        flags = frozenset({"invariant"} if "!invariant.load" in cursor.tokens else ())
        return Instruction(op, kind, result, (address,), cursor.line.strip(), flags=flags, kind=kind, align=align)

    def _store(self, cursor: Cursor, op: str, result: str | None) -> Instruction:
        value = self.typed(cursor)
        cursor.expect(",")
        address = self.typed(cursor)
        align = self._align(cursor, value.type.size)
        return Instruction(op, VOID, None, (address, value), cursor.line.strip(), kind=value.type, align=align)

    def _atomic(self, cursor: Cursor, op: str, result: str | None) -> Instruction:
        word = cursor.take()
        address = self.typed(cursor)
        cursor.expect(",")
        value = self.typed(cursor)
        if cursor.accept("syncscope"):
            cursor.at += 3
        cursor.flags("monotonic", "seq_cst", "acq_rel", "acquire", "release")
        align = self._align(cursor, value.type.size)
        operands = (address, value)
        return Instruction(op, value.type, result, operands, cursor.line.strip(), word, kind=value.type, align=align)

    def _room(self, cursor: Cursor, op: str, result: str | None) -> Instruction:
        kind = cursor.type()
        if cursor.next == "," and cursor.tokens[cursor.at + 1] != "align" and cursor.tokens[cursor.at + 1][0] == "i":
            raise unknown("an alloca of a number of elements", cursor.line)
        align = self._align(cursor, 16)
        space = 0
        if cursor.accept(","):
            space = cursor.space()
        return Instruction(op, pointer(space), result, (), cursor.line.strip(), kind=kind, align=align)

    def _call(self, cursor: Cursor, op: str, result: str | None) -> Instruction:
        type_ = cursor.type()
        if cursor.accept("asm"):
            word = f"asm {cursor.take()}"
            cursor.expect(",")
            word += f" {cursor.take()}"
        elif cursor.next[:1] == "@":
            word = unquoted(cursor.take())[1:]
        else:
            raise unknown("this call", cursor.line)
        cursor.expect("(")
        operands = []
        while cursor.next != ")":
            kind = cursor.type()
            self._attributes(cursor)
            operands.append(self.operand(cursor, kind))
            cursor.accept(",")
        cursor.take()
        return Instruction(op, type_, result, tuple(operands), cursor.line.strip(), word)

    def _phi(self, cursor: Cursor, op: str, result: str | None) -> Instruction:
        type_ = cursor.type()
        operands, labels = [], []
        while cursor.accept("["):
            operands.append(self.operand(cursor, type_))
            cursor.expect(",")
            labels.append(unquoted(cursor.take())[1:])
            cursor.expect("]")
            if cursor.next == "," and cursor.tokens[cursor.at + 1] == "[":
                cursor.take()
        return Instruction(op, type_, result, tuple(operands), cursor.line.strip(), labels=tuple(labels))

    def _branch(self, cursor: Cursor, op: str, result: str | None) -> Instruction:
        if cursor.accept("label"):
            labels = (unquoted(cursor.take())[1:],)
            return Instruction(op, VOID, None, (), cursor.line.strip(), labels=labels)
        condition = self.typed(cursor)
        targets = []
        for _ in range(2):
            cursor.expect(",", "label")
            targets.append(unquoted(cursor.take())[1:])
        return Instruction(op, VOID, None, (condition,), cursor.line.strip(), labels=tuple(targets))

    def _return(self, cursor: Cursor, op: str, result: str | None) -> Instruction:
        cursor.expect("void")
        return Instruction(op, VOID, None, (), cursor.line.strip())


def _lanes(cursor: Cursor, count: int) -> tuple[int, ...]:
    """The lanes of a shuffle; -1 where it leaves a lane open."""
    word = cursor.take()
    if word == "zeroinitializer":
        return (0,) * count
    if word == "splat":
        cursor.expect("(")
        cursor.type()
        number = cursor.number()
        cursor.expect(")")
        return (number,) * count
    if word != "<":
        return (-1,) * count
    numbers = []
    while cursor.next != ">":
        cursor.type()
        token = cursor.take()
        numbers.append(-1 if token in ("poison", "undef") else int(token))
        cursor.accept(",")
    cursor.take()
    return tuple(numbers)


_FORMS: dict[str, Callable[[_Reader, Cursor, str, str | None], Instruction]] = {
    "icmp": _Reader._compare,
    "fcmp": _Reader._compare,
    "select": _Reader._select,
    "fneg": _Reader._one,
    "freeze": _Reader._one,
    "extractelement": _Reader._element,
    "insertelement": _Reader._element,
    "shufflevector": _Reader._shuffle,
    "extractvalue": _Reader._field,
    "getelementptr": _Reader._distance,
    "load": _Reader._load,
    "store": _Reader._store,
    "atomicrmw": _Reader._atomic,
    "alloca": _Reader._room,
    "call": _Reader._call,
    "phi": _Reader._phi,
    "br": _Reader._branch,
    "ret": _Reader._return,
}
