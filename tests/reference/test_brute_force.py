"""The evaluator agrees with the document's formulas written out on `Fraction`, on random tiny networks."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from . import brute_force as brute
from .exact import model

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Grid:
    """A quantiser with the decimal text of its range in units of 1/1000."""

    low: int
    high: int
    bits: int

    def text(self, name: str) -> str:
        return f'"{name}": linear_quantize(min = {self.low}e-3, max = {self.high}e-3, bits = {self.bits});\n'

    def range(self) -> brute.Range:
        return Fraction(self.low, 1000), Fraction(self.high, 1000), self.bits


def grids(low: int = -3000, high: int = 3000) -> st.SearchStrategy[Grid]:
    bounds = st.tuples(st.integers(low, high), st.integers(low, high)).filter(lambda pair: pair[0] != pair[1])
    return st.builds(lambda pair, bits: Grid(min(pair), max(pair), bits), bounds, st.integers(1, 4))


def tensors(*shape: int) -> st.SearchStrategy[Floats]:
    """Multiples of 1/8 from -4 to 4: dyadic, and ties are frequent."""
    items = st.lists(st.integers(-32, 32), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))
    return items.map(lambda drawn: np.array(drawn, dtype=np.float64).reshape(shape) / 8)


def reals(array: Floats) -> brute.Reals:
    return np.array([Fraction(item) for item in array.ravel().tolist()], dtype=object).reshape(array.shape)


@dataclass(frozen=True)
class Window:
    """Kernel, stride, dilation and padding of two spatial dimensions; no padding means automatic."""

    extents: tuple[int, int]
    size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[tuple[int, int], ...]

    def pads(self) -> brute.Pads:
        spatial = zip(self.extents, self.size, self.stride, self.dilation, strict=True)
        return self.padding or [brute.pads(*dimension) for dimension in spatial]

    def fits(self) -> bool:
        spatial = zip(self.extents, self.size, self.dilation, self.pads(), strict=True)
        return all(p + extent + q >= (f - 1) * d + 1 for extent, f, d, (p, q) in spatial)

    def text(self, leading: bool) -> str:
        """The attributes, for pooling with the leading batch and channel dimensions."""
        ones, pads = ([1, 1], [(0, 0), (0, 0)]) if leading else ([], [])
        padding = [*pads, *self.padding] if self.padding else []
        return f"padding = {padding}, stride = {[*ones, *self.stride]}, dilation = {[*ones, *self.dilation]}"


def windows() -> st.SearchStrategy[Window]:
    def pair(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
        return st.tuples(st.integers(low, high), st.integers(low, high))

    padding = st.one_of(st.just(()), st.tuples(pair(-1, 2), pair(-1, 2)))
    drawn = st.builds(Window, pair(1, 5), pair(1, 3), pair(1, 3), pair(1, 2), padding)
    return drawn.filter(Window.fits)


def evaluate(body: str, quant: str, x: Floats, variables: dict[str, Floats]) -> npt.NDArray[np.int64]:
    """The codes of tensor y of a graph whose input is x."""
    lines = [f"x = external(shape = {list(x.shape)});"]
    lines += [f"{name} = variable(shape = {list(w.shape)}, label = '{name}');" for name, w in variables.items()]
    text = "version 1.0; graph g( x ) -> ( y ) {" + " ".join([*lines, body]) + "}"
    return model(text, quant, variables.__getitem__).run(x).codes["y"]


@given(st.data(), windows(), st.sampled_from([(1, 2, 3), (2, 1, 2), (2, 2, 1), (0, 1, 2), (0, 1, 1)]), grids(), grids())
@settings(deadline=None, max_examples=150)
def test_conv(data: st.DataObject, w: Window, plan: tuple[int, int, int], input_grid: Grid, output_grid: Grid) -> None:
    groups, per_group, filters_per_group = plan
    count = groups or 2
    x = data.draw(tensors(2, per_group * count, *w.extents))
    filters = data.draw(tensors(filters_per_group * count, per_group, *w.size))
    bias = data.draw(tensors(1, filters_per_group * count))
    weight_grid = data.draw(grids())
    quant = input_grid.text("x") + weight_grid.text("w") + output_grid.text("y")
    body = f"y = conv(x, w, b, {w.text(leading=False)}, groups = {groups});"
    seen, used = (
        brute.decoded(brute.codes(reals(array), grid.range()), grid.range())
        for array, grid in ((x, input_grid), (filters, weight_grid))
    )
    by_hand = brute.conv2d(seen, used, reals(bias), w.pads(), w.stride, w.dilation, groups)
    found = evaluate(body, quant, x, {"w": filters, "b": bias})
    np.testing.assert_array_equal(found, brute.codes(by_hand, output_grid.range()), strict=True)


@given(
    st.data(), windows(), st.sampled_from(["avg_pool", "max_pool"]), st.sampled_from(["constant", "ignore"]), grids()
)
@settings(deadline=None, max_examples=150)
def test_pooling(data: st.DataObject, w: Window, operation: str, border: str, output_grid: Grid) -> None:
    x = data.draw(tensors(1, 2, *w.extents))
    reduce = brute.mean if operation == "avg_pool" else brute.largest
    try:
        by_hand = brute.pool2d(reals(x), w.size, border, w.pads(), w.stride, w.dilation, reduce)
    except (ZeroDivisionError, ValueError):  # a window without any item
        assume(False)
    body = f"y = {operation}(x, size = {[1, 1, *w.size]}, border = '{border}', {w.text(leading=True)});"
    found = evaluate(body, output_grid.text("y"), x, {})
    np.testing.assert_array_equal(found, brute.codes(by_hand, output_grid.range()), strict=True)


@given(st.data(), grids(0, 3000), grids(), st.sampled_from(["0.0", "1.0e-05", "0.0625"]))
@settings(deadline=None, max_examples=150)
def test_batch_normalization(data: st.DataObject, variance_grid: Grid, output_grid: Grid, epsilon: str) -> None:
    x = data.draw(tensors(1, 3, 2))
    mean, variance, offset, scale = (data.draw(tensors(1, 3)) for _ in range(4))
    seen = brute.decoded(brute.codes(reals(variance), variance_grid.range()), variance_grid.range()) + Fraction(epsilon)
    assume(min(seen.flat) > 0)
    parameters = [reals(mean), seen, reals(offset), reals(scale)]

    def code(channel: int, item: Fraction) -> int:
        m, v, o, s = (part[0, channel] for part in parameters)
        return brute.batch_normalization_code(item, m, v, o, s, output_grid.range())

    expected = [code(channel, item) for (_, channel, _), item in np.ndenumerate(reals(x))]
    body = f"y = batch_normalization(x, m, v, o, s, epsilon = {epsilon});"
    parts = {"m": mean, "v": variance, "o": offset, "s": scale}
    found = evaluate(body, variance_grid.text("v") + output_grid.text("y"), x, parts)
    assert found.ravel().tolist() == expected


@given(tensors(2, 4), tensors(3, 4), tensors(1, 3), grids(), grids(), grids())
@settings(deadline=None, max_examples=100)
def test_linear_relu_network(x: Floats, w: Floats, b: Floats, first: Grid, second: Grid, third: Grid) -> None:
    quant = first.text("x") + second.text("d") + third.text("y")
    found = evaluate("d = linear(x, w, b); y = relu(d);", quant, x, {"w": w, "b": b})
    seen = brute.decoded(brute.codes(reals(x), first.range()), first.range())
    dense = np.array([[sum(i * j for i, j in zip(row, column, strict=True)) for column in reals(w)] for row in seen])
    hidden = brute.decoded(brute.codes(dense + reals(b), second.range()), second.range())
    expected = brute.codes(np.array([[max(item, Fraction(0)) for item in row] for row in hidden]), third.range())
    np.testing.assert_array_equal(found, expected, strict=True)
