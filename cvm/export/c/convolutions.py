"""conv2d as loops of C: whole rows of sums, to which several products are added in one pass."""

from __future__ import annotations

from dataclasses import replace

from cvm.export.c.elements import Source
from cvm.export.c.indices import Nest
from cvm.export.c.storage import Place, integer
from cvm.export.c.sums import Ending, Sum, bias, bytes_kind, nest_of, product_bound
from cvm.export.c.text import Text
from cvm.program.model import Node, Shape
from cvm.records import dataclass

__all__ = ["conv2d"]

ROW = 1024
"""The most sums of a row that are formed at the same time; they take 4 bytes each on the stack."""
SHORT = 4
"""Rows of fewer sums are formed one by one."""
PRODUCTS = 4
"""So many channels are multiplied in one pass over a row of sums, which is loaded and stored that much less often."""
TAPS = 8
"""The most columns of a kernel that are multiplied in one pass, where there are few channels."""


@dataclass(frozen=True, slots=True)
class _Convolution:
    """The numbers of a conv2d, under the document's names."""

    H: int
    WD: int
    IC: int
    KH: int
    KW: int
    channels: int
    per_group: int
    padding: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    shape: Shape
    x: Place
    subtracted: int
    dot: str = ""
    """The end of the name of the function that multiplies rows of bytes, if there is one."""

    @staticmethod
    def of(source: Source, node: Node) -> _Convolution:
        around = source.plan.borders.get(node.outputs[0].name)
        x = around.inside if around is not None else node.inputs[0]
        _, channels, height, width = source.shape(x)
        _, inner, kernel_height, kernel_width = source.shape(node.inputs[1])
        shape = source.shape(node.outputs[0].name)
        a = source.attributes(node)
        return _Convolution(
            height, width, inner, kernel_height, kernel_width, channels, shape[1] // a.groups,
            around.before if around is not None else a.padding, a.stride, a.dilation, shape,
            source.place(x), around.subtracted if around is not None else 0,
        )  # fmt: skip

    def is_pointwise(self) -> bool:
        """Whether each element reads X only at its own row and column."""
        return (
            (self.KH, self.KW) == self.stride == (1, 1)
            and self.padding == (0, 0)
            and self.shape[2:] == (self.H, self.WD)
        )

    def interior(self) -> tuple[int, int]:
        """The first sum of a row whose columns of the kernel are all inside X, and the one after the last such sum."""
        first = -(-self.padding[1] // self.stride[1])
        last = (self.WD - 1 - (self.KW - 1) * self.dilation[1] + self.padding[1]) // self.stride[1] + 1
        return first, min(last, self.shape[3])

    def row(self, k: str) -> str:
        """The position in X of the first element of the row ``row`` of channel ``k`` of the group."""
        return f"((n * {self.channels} + {self.column('c')} + {k}) * {self.H} + row) * {self.WD}"

    def weight(self, k: str, j: str) -> str:
        """The position of the weight for output channel ``c``, channel ``k``, row ``i`` and column ``j``."""
        return f"((c * {self.IC} + {k}) * {self.KH} + i) * {self.KW} + {j}"

    def factor(self, at: str) -> str:
        """The element of X that a weight is multiplied with, less what is subtracted from it."""
        if not self.subtracted:
            return self.x.load(at)
        sign = "-" if self.subtracted > 0 else "+"
        return f"({self.x.load(at)} {sign} {integer(abs(self.subtracted))})"

    def column(self, counter: str) -> str:
        """The first channel of X that the output channel ``counter`` reads."""
        return f"{counter} / {self.per_group} * {self.IC}" if self.shape[1] != self.per_group else "0"


def conv2d(source: Source, text: Text, node: Node, ending: Ending) -> None:
    """Write the loops of a conv2d."""
    c = _Convolution.of(source, node)
    kind = Sum.of(product_bound(source, node, c.IC * c.KH * c.KW))
    nest = nest_of(_NAMES, c.shape)
    plane = c.H * c.WD
    if c.is_pointwise() and 1 not in c.shape[2:] and plane <= ROW and ending.goes_on(c.WD):
        nest = Nest((*nest.names[:-2], "q"), (*nest.extents[:-2], plane), (*nest.axes[:-2], (2, 3)))
        c = replace(c, H=1, WD=plane, shape=(*c.shape[:2], 1, plane))
    w = source.place(node.inputs[1])
    if not SHORT <= c.shape[3] <= ROW or c.x.only is not None or w.only is not None:
        _elements(source, text, node, ending, kind)
        return
    with text.loops(_NAMES[:3], c.shape[:3]):
        text.line(f"{kind.type} sums[{c.shape[3]}];")
        with text.loop("q", c.shape[3]):
            text.line(f"sums[q] = {bias(source, node, 'c', kind)};")
        dot = bytes_kind(source, c.x, w, kind) if c.stride[1] == 1 and not c.subtracted else ""
        _rows(text, replace(c, dot=dot), w, kind)
        with text.loop("q", c.shape[3]):
            text.all(ending(nest, kind.whole(source, "sums[q]")))


_NAMES = ("n", "c", "p", "q")


def _rows(text: Text, c: _Convolution, w: Place, kind: Sum) -> None:
    """Add the products of one row of sums: every weight is multiplied with a whole row of X.

    The element of X stands before the weight: gcc 12 warns of a sign that changes (-Wconversion) if an element of 8 or
    16 bits, cast to uint32_t, is the right operand of a product with a variable.
    """
    with text.loop("i", c.KH):
        text.line(f"const int32_t row = p * {c.stride[0]} - {c.padding[0]} + i * {c.dilation[0]};")
        with text.block(f"if (row >= 0 && row < {c.H})"):
            first, last = c.interior()
            if c.IC < PRODUCTS and c.KW <= TAPS and first < last:
                with text.loop("k", c.IC):
                    _taps(text, c, w, kind)
            else:
                with text.loop("j", c.KW):
                    _channels(text, c, w, kind)


def _taps(text: Text, c: _Convolution, w: Place, kind: Sum) -> None:
    """All columns of the kernel for one channel; sums at the border, which have fewer products, one by one."""
    first, last = c.interior()
    text.line(f"const int32_t from = {c.row('k')} - {c.padding[1]};")
    text.line(f"const int32_t at = {c.weight('k', '0')};")
    weights = [f"weight{j}" for j in range(c.KW)]
    for j, name in enumerate(weights):
        text.line(f"const {kind.type} {name} = {kind.part(w.load(f'at + {j}'))};")
    at = _times("q", c.stride[1])
    products = [
        f"{kind.part(c.factor(f'from + {at} + {j * c.dilation[1]}'))} * {name}" for j, name in enumerate(weights)
    ]
    with text.loop("q", last, first):
        text.line(f"sums[q] += {' + '.join(products)};")
    for begin, end in ((0, first), (last, c.shape[3])):
        if begin < end:
            with text.loop("q", end, begin), text.loop("j", c.KW):
                text.line(f"const int32_t column = {at} - {c.padding[1]} + {_times('j', c.dilation[1])};")
                with text.block(f"if (column >= 0 && column < {c.WD})"):
                    x = c.factor(f"from + {c.padding[1]} + column")
                    text.line(f"sums[q] += {kind.part(w.load('at + j'))} * {kind.part(x)};")


def _channels(text: Text, c: _Convolution, w: Place, kind: Sum) -> None:
    """All channels for one column of the kernel, several in one pass."""
    begin, end = _columns_inside(text, c)
    whole = c.IC // PRODUCTS * PRODUCTS
    if whole:
        with text.loop("block", c.IC // PRODUCTS):
            text.line(f"const int32_t k = block * {PRODUCTS};")
            _pass(text, c, w, kind, PRODUCTS, (begin, end))
    if whole < c.IC:
        with text.loop("k", c.IC, whole):
            _pass(text, c, w, kind, 1, (begin, end))


def _pass(text: Text, c: _Convolution, w: Place, kind: Sum, count: int, columns: tuple[int | str, int | str]) -> None:
    """Add the products of ``count`` channels to the sums of these columns."""
    text.line(f"const int32_t from = {c.row('k')} + left;")
    text.line(f"const int32_t at = {c.weight('k', 'j')};")
    begin, end = columns
    if c.dot and count == PRODUCTS:
        x = c.x.element(f"from + {begin}" if begin else "from")
        with text.block("" if isinstance(begin, int) and isinstance(end, int) else f"if ({begin} < {end})"):
            to, size = (f"&sums[{begin}]", f"{end} - {begin}") if begin else ("sums", str(end))
            text.line(f"dot4_{c.dot}({to}, &{x}, {c.H * c.WD}, &{w.element('at')}, {c.KH * c.KW}, {size});")
        return
    products = []
    for number in range(count):
        weight = w.load(f"at + {number * c.KH * c.KW}" if number else "at")
        text.line(f"const {kind.type} weight{number} = {kind.part(weight)};")
        x = f"from + {number * c.H * c.WD} + " if number else "from + "
        products.append(f"{kind.part(c.factor(x + _times('q', c.stride[1])))} * weight{number}")
    with text.loop("q", end, begin):
        text.line(f"sums[q] += {' + '.join(products)};")


def _times(counter: str, factor: int) -> str:
    return counter if factor == 1 else f"{counter} * {factor}"


def _columns_inside(text: Text, c: _Convolution) -> tuple[int | str, int | str]:
    """Write which columns of the row have their column of X inside X, for column j of the kernel."""
    columns, stride = c.shape[3], c.stride[1]
    text.line(f"const int32_t left = j * {c.dilation[1]} - {c.padding[1]};")
    rightmost = (c.KW - 1) * c.dilation[1] - c.padding[1] + (columns - 1) * stride
    begin: int | str = 0
    end: int | str = columns
    if c.padding[1] > 0:
        text.line(f"const int32_t begin = left >= 0 ? 0 : ({stride - 1} - left) / {stride};")
        begin = "begin"
    if rightmost >= c.WD:
        text.line(f"const int32_t inside = left < {c.WD} ? ({c.WD - 1} - left) / {stride} + 1 : 0;")
        text.line(f"const int32_t end = inside < {columns} ? inside : {columns};")
        end = "end"
    return begin, end


def _elements(source: Source, text: Text, node: Node, ending: Ending, kind: Sum) -> None:
    """One element at a time."""
    c = _Convolution.of(source, node)
    w = source.place(node.inputs[1])
    names = ("n", "c", "p", "q")
    with text.loops(names, c.shape):
        text.line(f"{kind.type} sum = {bias(source, node, 'c', kind)};")
        with text.loop("k", c.IC), text.loop("i", c.KH), text.loop("j", c.KW):
            text.line(f"const int32_t row = p * {c.stride[0]} - {c.padding[0]} + i * {c.dilation[0]};")
            text.line(f"const int32_t column = q * {c.stride[1]} - {c.padding[1]} + j * {c.dilation[1]};")
            with text.block(f"if (row >= 0 && row < {c.H} && column >= 0 && column < {c.WD})"):
                at = f"((n * {c.channels} + {c.column('c')} + k) * {c.H} + row) * {c.WD} + column"
                weight = w.load(f"((c * {c.IC} + k) * {c.KH} + i) * {c.KW} + j")
                text.line(f"sum += {kind.part(weight)} * {kind.part(c.factor(at))};")
        text.all(ending(nest_of(names, c.shape), kind.whole(source, "sum")))
