"""Machines: one table of the differences between instruction sets.

A dot product with ``per`` = 4 multiplies unsigned bytes of activations (signed ones on machines with ``signed_bytes``)
by signed bytes of weights. With ``per`` = 2 both are signed 16-bit integers, with 1 both are 32-bit integers. Packed
operands are vectors of 32-bit lanes in all cases. The arithmetic is modulo 2^32, in which the proven int32 result is
exact even if intermediate sums wrap. The exception is AVX2's byte product, which saturates sums of two products at 16
bits; for it, the weights must be so small that no such sum exceeds 16 bits. What larger ones have beyond that is
multiplied apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from cvm.executors.native.emit.ir import Code, V, lanes, typed, vector
from cvm.records import dataclass

__all__ = ["CUDA", "HIGHEST_BITS", "MACHINES", "WASM", "Machine", "SquareSpeeds", "multiply_add"]

Dot = Callable[[Code, V, V, V], V]
TwoDots = Callable[[Code, Sequence[V], Sequence[V], Sequence[V], V], list[V]]
HIGHEST_BITS = 0x80808080 - 2**32
"""A word with the highest bit of each of its four bytes set."""


class InOrder(NamedTuple):
    """Products that stay where they are written. ``dot2_at`` reads the weights from memory, whose address it takes.
    ``two_dots`` is as in `Machine`.
    """

    dot4: Dot
    dot2: Dot
    dot2_at: Dot
    two_dots: TwoDots


@dataclass(frozen=True, slots=True)
class SquareSpeeds:
    """How fast one core computes convolutions in squares, and directly: measured on one processor of the kind.

    ``bytes`` and ``words`` are the products of bytes and of 16-bit integers in a nanosecond, ``read`` the bytes of
    weights in a nanosecond that are not in the core's own cache, and ``transformed`` the nanoseconds for one element of
    a square in both transformations. ``together`` is the most squares that are multiplied together: their sums lie on
    the stack, 36 for each output channel of a block.
    """

    bytes: float
    words: float
    read: float
    transformed: float
    together: int


@dataclass(frozen=True, slots=True)
class Machine:
    """One instruction set: its name, the processor features that it needs, and its primitives.

    ``width`` is the number of 32-bit lanes of a vector, ``registers`` the number of vector registers that kernels use.
    ``needs`` are the features that the processor must have (LLVM's names, and ``aarch64``). ``cpu`` and ``features``
    are passed to the code generator; None stands for those of this processor. With ``saturates``, dot4 is exact only if
    every sum of two products fits in 16 bits.
    """

    name: str
    width: int
    registers: int
    dot4: Dot
    dot2: Dot
    needs: frozenset[str]
    cpu: str | None = None
    features: str | None = None
    saturates: bool = False
    narrower: tuple[int, ...] = ()
    """Further numbers of lanes for which the dot products exist, all below ``width``, in falling order."""
    pause: str | None = None
    """The intrinsic that pauses a waiting loop for a moment."""
    tiles: bool = False
    """Whether the machine has tile registers: one instruction multiplies 16 pixels by 16 channels over 64 elements."""
    signed_bytes: bool = False
    """Whether dot4 takes signed bytes of activations. The code flips their highest bits, which subtracts 128, and the
    sums start with 128 times the sum of the weights."""
    by_element: bool = False
    """Whether dot4 can broadcast one lane of an operand to all lanes; then words are loaded four at a time."""
    packs: bool = False
    """Whether the machine has x86's instructions that narrow lanes within 128 bits."""
    fuses: bool = False
    """Whether the machine has multiply-adds of 52 bits."""
    one_shift: bool = False
    """Whether one number shifts all lanes of a vector, and products widen 32-bit lanes. Then all channels of a
    requantization have one shift where 64 bits allow that."""
    words: bool = False
    """Whether bytes are multiplied as 16-bit integers; with ``saturates``, only where many pairs of products could
    exceed 16 bits. Maps that are multiplied by every channel are stored so."""
    squares: SquareSpeeds | None = None
    """Where a quarter of the products, of 16-bit integers, can be faster than all of them of bytes, how fast both are:
    then convolutions of 3x3 windows are computed in squares of results (`descriptions.winograd`)."""
    in_order: InOrder | None = None
    """dot4 and dot2 for tiles, as text for the assembler of this kind of processor. A tile has as many sums as leave
    room for the operands of one step. LLVM would load those of the next step before the last sums of this one, or move
    a sum to another register at every step, and keep sums in memory.
    """
    spare: int = 0
    """How many distances between addresses an innermost loop may have in registers, where equal kernels on other maps
    share its code."""
    unrolls: int = 8
    """The most steps of a sum of products that are written one after the other."""

    def clips(self, most: int) -> bool:
        """Whether a pair of products could exceed 16 bits and be clipped, for weights up to ``most``."""
        return self.saturates and 255 * 2 * most > 32767

    def tile_dot(self, per: int) -> Dot:
        """How a tile adds the products of ``per`` elements in each lane."""
        dots = self.in_order or self
        return {4: dots.dot4, 2: dots.dot2, 1: multiply_add}[per]

    def dot2_at(self, code: Code, total: V, a: V, pointer: V) -> V:
        """dot2 for tiles whose weights are at an address."""
        if self.in_order is not None:
            return self.in_order.dot2_at(code, total, a, pointer)
        return self.dot2(code, total, a, code.load(total.type, pointer))

    def two_dots(self, code: Code, totals: Sequence[V], words: Sequence[V], weights: Sequence[V], ones: V) -> list[V]:
        """dot4 of two words by vectors of weights, where 16 bits hold every sum of two products of both words.

        There are as many vectors of weights for the first word as there are totals, then as many for the other. Each is
        a vector, or the address of one. ``ones`` are those of `ones`. Only for machines that saturate.
        """
        dots = _two_pmaddubsw if self.in_order is None else self.in_order.two_dots
        return dots(code, totals, words, weights, ones)

    def ones(self, code: Code, count: int) -> V:
        """The 16-bit ones by which `two_dots` multiplies, for vectors of ``count`` lanes, in a register.

        LLVM does not know the value, which it would read from memory for every product.
        """
        type_ = vector(32, count)
        return code.value(type_, f'call {type_} asm "", "=x,0"({typed(type_, 0x10001)})')

    @property
    def narrows(self) -> bool:
        """Whether there are instructions that narrow lanes, with saturation, within 128 bits."""
        return self.packs or self.one_shift

    permutes: bool = False
    """Whether one instruction picks any of 128 bytes for each byte of a vector."""

    @property
    def shuffles(self) -> bool:
        """Whether one instruction picks any of 16 bytes for each byte of a vector, which has more than 16 bytes."""
        return self.packs


def _vpdpbusd(code: Code, total: V, a: V, w: V) -> V:
    return code.call(total.type, f"llvm.x86.avx512.vpdpbusd.{32 * lanes(total.type)}", total, a, w)


def _vpdpwssd(code: Code, total: V, a: V, w: V) -> V:
    return code.call(total.type, f"llvm.x86.avx512.vpdpwssd.{32 * lanes(total.type)}", total, a, w)


_PAIRS = {
    8: ("llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
    4: ("llvm.x86.ssse3.pmadd.ub.sw.128", "llvm.x86.sse2.pmadd.wd"),
}


def _pmaddubsw(code: Code, total: V, a: V, w: V) -> V:
    """Add pairs of products in 16 bits, with saturation, then pairs of these sums in 32 bits."""
    count = lanes(total.type)
    byte, short = vector(8, 4 * count), vector(16, 2 * count)
    pairs = code.call(short, _PAIRS[count][0], code.bitcast(a, byte), code.bitcast(w, byte))
    return _kept(code, code.binary("add", total, code.call(total.type, _PAIRS[count][1], pairs, typed(short, 1))))


def _pmaddwd(code: Code, total: V, a: V, w: V) -> V:
    count = lanes(total.type)
    short = vector(16, 2 * count)
    sums = code.call(total.type, _PAIRS[count][1], code.bitcast(a, short), code.bitcast(w, short))
    return _kept(code, code.binary("add", total, sums))


def _pmaddubsw_in_order(code: Code, total: V, a: V, w: V) -> V:
    """The same as three instructions of the assembler, which stay where they are.

    They read the ones that pairs of sums are multiplied by from memory: the registers hold the sums of a tile.
    """
    short = vector(16, 2 * lanes(total.type))
    ones = code.constant(f"ones{lanes(total.type)}", typed(short, 1))
    template = r"vpmaddubsw $3, $2, $1\0Avpmaddwd $5, $1, $1\0Avpaddd $1, $0, $0"
    return _in_order(code, template, total, "=x,=&x,x,x,0,*m", f"{a}, {w}, {total}, ptr elementtype({short}) {ones}")


def _pmaddwd_in_order(code: Code, total: V, a: V, w: V) -> V:
    template = r"vpmaddwd $3, $2, $1\0Avpaddd $1, $0, $0"
    return _in_order(code, template, total, "=x,=&x,x,x,0", f"{a}, {w}, {total}")


def _pmaddwd_at(code: Code, total: V, a: V, pointer: V) -> V:
    template = r"vpmaddwd $4, $2, $1\0Avpaddd $1, $0, $0"
    return _in_order(
        code, template, total, "=x,=&x,x,0,*m", f"{a}, {total}, ptr elementtype({total.type}) {pointer.text}"
    )


def _in_order(code: Code, template: str, total: V, constraints: str, operands: str) -> V:
    """The first result of instructions of the assembler; the others are registers for what they need meanwhile."""
    return _first_in_order(code, 1, template, total, constraints, operands)[0]


def _first_in_order(code: Code, count: int, template: str, total: V, constraints: str, operands: str) -> list[V]:
    """The first ``count`` results of instructions of the assembler."""
    results = f"{{{', '.join([str(total.type)] * constraints.count('='))}}}"
    called = code.value(results, f'call {results} asm sideeffect "{template}", "{constraints}"({operands})')
    return [code.value(total.type, f"extractvalue {called}, {number}") for number in range(count)]


def _two_pmaddubsw_in_order(
    code: Code, totals: Sequence[V], words: Sequence[V], weights: Sequence[V], ones: V
) -> list[V]:
    """The instructions of two totals alternate: Zen 3 needs a thirtieth less time than for one after the other."""
    found: list[V] = []
    for first in range(0, len(totals), 2):
        own = totals[first : first + 2]
        rows = (weights[at : at + len(own)] for at in (first, len(totals) + first))
        dots = _two_totals_in_order if len(own) == 2 else _one_total_in_order
        found += dots(code, own, words, [one for row in rows for one in row], ones)
    return found


def _one_total_in_order(code: Code, totals: Sequence[V], words: Sequence[V], weights: Sequence[V], ones: V) -> list[V]:
    template = (
        r"vpmaddubsw $7, $3, $1\0Avpmaddubsw $8, $4, $2\0Avpaddw $2, $1, $1\0Avpmaddwd $5, $1, $1\0Avpaddd $1, $0, $0"
    )
    kinds, given = _given(weights, totals[0])
    operands = ", ".join((*map(str, (*words, ones, *totals)), *given))
    return [_in_order(code, template, totals[0], f"=x,=&x,=&x,x,x,x,0,{kinds}", operands)]


def _two_totals_in_order(code: Code, totals: Sequence[V], words: Sequence[V], weights: Sequence[V], ones: V) -> list[V]:
    """The registers of the words take products as soon as nothing else needs the words."""
    template = (
        r"vpmaddubsw $11, $2, $4\0Avpmaddubsw $12, $2, $2\0Avpmaddubsw $14, $3, $5\0Avpmaddubsw $13, $3, $3\0A"
        r"vpaddw $3, $4, $4\0Avpaddw $5, $2, $2\0Avpmaddwd $10, $4, $4\0Avpmaddwd $10, $2, $2\0A"
        r"vpaddd $4, $0, $0\0Avpaddd $2, $1, $1"
    )
    kinds, given = _given(weights, totals[0])
    operands = ", ".join((*map(str, (*totals, *words, ones)), *given))
    constraints = f"=&x,=&x,=&x,=&x,=&x,=&x,0,1,2,3,x,{kinds}"
    return _first_in_order(code, 2, template, totals[0], constraints, operands)


def _given(weights: Sequence[V], total: V) -> tuple[str, list[str]]:
    """The constraints and operands of weights, each a vector of the type of ``total`` or the address of one."""
    kinds = ",".join("x" if one.type != "ptr" else "*m" for one in weights)
    return kinds, [str(one) if one.type != "ptr" else f"ptr elementtype({total.type}) {one.text}" for one in weights]


def _two_pmaddubsw(code: Code, totals: Sequence[V], words: Sequence[V], weights: Sequence[V], ones: V) -> list[V]:
    found = []
    for number, total in enumerate(totals):
        count = lanes(total.type)
        byte, short = vector(8, 4 * count), vector(16, 2 * count)
        own = weights[number :: len(totals)]
        loaded = [code.load(byte, one) if one.type == "ptr" else code.bitcast(one, byte) for one in own]
        one, other = (
            code.call(short, _PAIRS[count][0], code.bitcast(word, byte), w)
            for word, w in zip(words, loaded, strict=True)
        )
        sums = code.call(total.type, _PAIRS[count][1], code.binary("add", one, other), code.bitcast(ones, short))
        found.append(_kept(code, code.binary("add", total, sums)))
    return found


def _kept(code: Code, total: V) -> V:
    """The same sum, but LLVM does not know how it was made.

    It would otherwise add up the products of several steps first. The registers do not hold so many.
    """
    return code.value(total.type, f'call {total.type} asm "", "=x,0"({total})')


def _generic4(code: Code, total: V, a: V, w: V) -> V:
    """Four multiply-adds on the bytes of each lane."""
    for number in range(4):
        byte = code.binary("and", code.binary("lshr", a, 8 * number), 255)
        weight = code.binary("ashr", code.binary("shl", w, 24 - 8 * number), 24)
        total = code.binary("add", total, code.binary("mul", byte, weight))
    return total


def _generic2(code: Code, total: V, a: V, w: V) -> V:
    """Two multiply-adds on the halves of each lane."""
    for number in range(2):
        x = code.binary("ashr", code.binary("shl", a, 16 - 16 * number), 16)
        weight = code.binary("ashr", code.binary("shl", w, 16 - 16 * number), 16)
        total = code.binary("add", total, code.binary("mul", x, weight))
    return total


def _usdot(code: Code, total: V, a: V, w: V) -> V:
    return _neon(code, "usdot", total, a, w)


def _sdot(code: Code, total: V, a: V, w: V) -> V:
    return _neon(code, "sdot", total, w, a)  # a lane of the second operand can be broadcast, and words are in ``a``


def _neon(code: Code, kind: str, total: V, x: V, y: V) -> V:
    byte = vector(8, 16)
    name = f"llvm.aarch64.neon.{kind}.v4i32.v16i8"
    return code.call(total.type, name, total, code.bitcast(x, byte), code.bitcast(y, byte))


_NEON = "+neon,-sve"
"""The code generator must not use SVE: the processor may have it while the operating system does not allow it."""

_PAUSE = "llvm.x86.sse2.pause"
_AVX2 = "+avx2,+fma,+bmi,+bmi2,+sse4.2,+popcnt,+lzcnt"

_AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"})

_IFMA = _AVX512 | {"avx512ifma", "avx512vbmi"}
"""Every processor that has one of the two has the other one too."""

_ZEN3 = SquareSpeeds(bytes=92, words=66, read=12, transformed=0.07, together=24)
_ZEN5 = SquareSpeeds(bytes=545, words=260, read=45, transformed=0.045, together=36)
_ZEN5_HALVES = SquareSpeeds(bytes=272, words=135, read=45, transformed=0.045, together=36)
"""With vectors of 256 bits."""

MACHINES: tuple[Machine, ...] = (
    Machine(
        "amx", 16, 32, _vpdpbusd, _vpdpwssd, _IFMA | {"amx-tile", "amx-int8"}, narrower=(8, 4), pause=_PAUSE,
        tiles=True, packs=True, fuses=True, permutes=True,
    ),
    Machine(
        "ifma512", 16, 32, _vpdpbusd, _vpdpwssd, _IFMA, narrower=(8, 4), pause=_PAUSE, packs=True, fuses=True,
        permutes=True, squares=_ZEN5,
    ),
    Machine(
        "vnni512", 16, 32, _vpdpbusd, _vpdpwssd, _AVX512, narrower=(8, 4), pause=_PAUSE, packs=True, squares=_ZEN5,
    ),
    Machine(
        "vnni256", 8, 32, _vpdpbusd, _vpdpwssd, _AVX512, narrower=(4,), pause=_PAUSE, packs=True, squares=_ZEN5_HALVES,
    ),
    Machine(
        "avx2", 8, 16, _pmaddubsw, _pmaddwd, frozenset({"avx2"}), "haswell", _AVX2, saturates=True, narrower=(4,),
        pause=_PAUSE, packs=True, words=True, squares=_ZEN3, spare=4,
        in_order=InOrder(_pmaddubsw_in_order, _pmaddwd_in_order, _pmaddwd_at, _two_pmaddubsw_in_order),
    ),
    Machine(
        "neon_i8mm", 4, 26, _usdot, _generic2, frozenset({"aarch64", "i8mm"}), features=_NEON + ",+i8mm",
        by_element=True,
    ),
    Machine(
        "neon_dot", 4, 26, _sdot, _generic2, frozenset({"aarch64", "dotprod"}), features=_NEON + ",+dotprod",
        signed_bytes=True, by_element=True,
    ),
    Machine("generic", 4, 16, _generic4, _generic2, frozenset()),
)  # fmt: skip
"""All machines, the fastest first; the last one runs on every processor that LLVM knows."""


def _wasm4(code: Code, total: V, a: V, w: V) -> V:
    """Two dot products of 16-bit pairs: of the even bytes, and of the odd ones.

    The halves of a word are spread once for every product that uses it, so that a product takes two multiplications and
    two additions.
    """
    short = vector(16, 2 * lanes(total.type))
    bytes_, weights = code.bitcast(a, short), code.bitcast(w, short)
    even = code.binary("ashr", code.binary("shl", weights, 8), 8)
    pairs = (code.binary("and", bytes_, 255), even), (code.binary("lshr", bytes_, 8), code.binary("ashr", weights, 8))
    for x, y in pairs:
        total = code.binary("add", total, code.call(total.type, "llvm.wasm.dot", x, y))
    return total


def _wasm2(code: Code, total: V, a: V, w: V) -> V:
    short = vector(16, 2 * lanes(total.type))
    product = code.call(total.type, "llvm.wasm.dot", code.bitcast(a, short), code.bitcast(w, short))
    return code.binary("add", total, product)


WASM = Machine(
    "wasm", 4, 12, _wasm4, _wasm2, frozenset({"wasm"}), "generic",
    "+simd128,+bulk-memory,+sign-ext,+nontrapping-fptoint", one_shift=True, words=True, unrolls=1,
)  # fmt: skip
"""WebAssembly with its vectors of 128 bits, for exported programs; no processor is one."""


def _dp4a(code: Code, total: V, a: V, w: V) -> V:
    return code.call("i32", "llvm.nvvm.idp4a.u.s", a, w, total)


CUDA = Machine("cuda", 32, 16, _dp4a, _generic2, frozenset({"cuda"}), narrower=(16, 8, 4))
"""GPUs of NVIDIA from compute capability 8.0 on; no processor is one.

One thread computes one lane, so ``width`` is the number of threads of a warp, and dot products are those of a single
lane. Blocks of channels have the words of neighbouring channels side by side, for each step of a run: neighbouring
threads read neighbouring words, and eight steps of eight channels are an operand of a tensor core.
"""


def multiply_add(code: Code, total: V, a: V, w: V) -> V:
    """The dot product with ``per`` = 1: one multiply-add in each lane."""
    return code.binary("add", total, code.binary("mul", a, w))
