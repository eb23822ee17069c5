"""The evaluator agrees with the document's formulas written out on `Fraction`, on random tiny networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.selection import examples

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


BORDERS = ["constant", "replicate", "reflect", "reflect-even"]


def windows(
    rank: int, *, automatic: bool = True, reverse: bool = False
) -> st.SearchStrategy[tuple[tuple[int, ...], brute.Window, str]]:
    """Extents, a window that fits, and its text; every reflection stays within the input."""

    @st.composite
    def drawn(draw: st.DrawFn) -> tuple[tuple[int, ...], brute.Window, str]:
        def items(low: int, high: int) -> tuple[int, ...]:
            return tuple(draw(st.integers(low, high)) for _ in range(rank))

        extents, size, stride, dilation = items(1, 5 - rank // 2), items(1, 3), items(1, 3), items(1, 2)
        if automatic and draw(st.booleans()):
            text, padding = "[]", tuple(map(brute.pads, extents, size, stride, dilation))
            if not reverse:  # forward operations take no padding where the text's is negative
                padding = tuple((max(before, 0), max(after, 0)) for before, after in padding)
        else:
            padding = tuple((draw(st.integers(-1, 2)), draw(st.integers(-1, 2))) for _ in range(rank))
            text = str(list(padding))
        border = draw(st.sampled_from(BORDERS))
        window = brute.Window(size, stride, dilation, padding, border)
        assume(min(window.outputs(extents)) > 0)
        spans = [(f - 1) * d + 1 for f, d in zip(size, dilation, strict=True)]
        assume(all(p + n + q >= s for n, (p, q), s in zip(extents, padding, spans, strict=True)))
        return extents, window, text

    return drawn()


def attributes(window: brute.Window, padding: str) -> str:
    return (
        f"border = '{window.border}', padding = {padding}, stride = {list(window.stride)}, "
        f"dilation = {list(window.dilation)}"
    )


def compare(body: str, expected: Callable[[], brute.Reals], **operands: Floats) -> None:
    """Tensor y of the body has the values of the formula; where that reads beyond a reflection, it is refused."""
    try:
        values = expected()
    except ValueError:
        with pytest.raises(ValueError, match="not satisfied"):
            computed(body, **operands)
        return
    np.testing.assert_array_equal(computed(body, **operands), values, strict=True)


def computed(body: str, **operands: Floats) -> brute.Reals:
    """The exact value of tensor y; operands are variables."""
    lines = ["unused = external(shape = [1]);"]
    lines += [f"{name} = variable(shape = {list(w.shape)}, label = '{name}');" for name, w in operands.items()]
    text = "version 1.0; graph g( unused ) -> ( y ) {" + " ".join([*lines, body]) + "}"
    return model(text, "", operands.__getitem__).run(np.zeros(1)).values["y"].numbers()


def evaluate(body: str, quant: str, x: Floats, variables: dict[str, Floats]) -> npt.NDArray[np.int64]:
    """The codes of tensor y of a graph whose input is x."""
    lines = [f"x = external(shape = {list(x.shape)});"]
    lines += [f"{name} = variable(shape = {list(w.shape)}, label = '{name}');" for name, w in variables.items()]
    text = "version 1.0; graph g( x ) -> ( y ) {" + " ".join([*lines, body]) + "}"
    return model(text, quant, variables.__getitem__).run(x).codes["y"]


def indices(window: brute.Window, shape: tuple[int, ...]) -> st.SearchStrategy[npt.NDArray[np.int64]]:
    """Positions in the window."""
    count = int(np.prod(shape))
    items = st.lists(st.integers(0, window.volume - 1), min_size=count, max_size=count)
    return items.map(lambda drawn: np.array(drawn, dtype=np.int64).reshape(shape))


ranks = st.sampled_from([1, 1, 2, 2, 3])
plans = st.sampled_from([(1, 2, 3), (2, 1, 2), (2, 2, 1), (0, 1, 2), (0, 1, 1)])


@given(st.data(), ranks, plans)
@settings(deadline=None, max_examples=examples(120))
def test_conv(data: st.DataObject, rank: int, plan: tuple[int, int, int]) -> None:
    groups, per_group, filters_per_group = plan
    extents, window, padding = data.draw(windows(rank))
    x = data.draw(tensors(2, per_group * (groups or 2), *extents))
    w = data.draw(tensors(filters_per_group * (groups or 2), per_group, *window.size))
    compare(
        f"y = conv(x, w, 0.0, {attributes(window, padding)}, groups = {groups});",
        lambda: brute.conv(reals(x), reals(w), window, groups),
        x=x,
        w=w,
    )


@given(st.data(), ranks, st.sampled_from([(1, 2, 3), (2, 1, 2), (2, 2, 1), (0, 1, 1), (0, 2, 1)]), st.booleans())
@settings(deadline=None, max_examples=examples(120))
def test_deconv(data: st.DataObject, rank: int, plan: tuple[int, int, int], shaped: bool) -> None:
    groups, inputs_per_group, outputs_per_group = plan
    upscaled, window, padding = data.draw(windows(rank, reverse=True))
    count = groups or 2
    x = data.draw(tensors(2, inputs_per_group * count, *window.outputs(upscaled)))
    w = data.draw(tensors(inputs_per_group * count, outputs_per_group, *window.size))
    assume(shaped or groups or inputs_per_group == 1)  # without output_shape depth-wise means one group per channel
    parts = zip(x.shape[2:], window.size, window.stride, window.dilation, window.padding, strict=True)
    extents = upscaled if shaped else tuple((n - 1) * s + (f - 1) * d + 1 - p - q for n, f, s, d, (p, q) in parts)
    if not shaped and padding == "[]":
        extents = tuple(n * s for n, s in zip(x.shape[2:], window.stride, strict=True))
        window = replace(window, padding=tuple(map(brute.pads, extents, window.size, window.stride, window.dilation)))
    assume(min(extents) > 0)
    shape = f", output_shape = {[2, outputs_per_group * count, *extents]}" if shaped else ""
    if window.border == "constant" and groups == 1:
        scattered = brute.scattered(reals(x), reals(w), window, extents)
        np.testing.assert_array_equal(brute.deconv(reals(x), reals(w), window, 1, extents), scattered)
    compare(
        f"y = deconv(x, w, 0.0, {attributes(window, padding)}, groups = {groups}{shape});",
        lambda: brute.deconv(reals(x), reals(w), window, count, extents),
        x=x,
        w=w,
    )


@given(st.data(), ranks, st.sampled_from(["box", "avg_pool", "max_pool", "argmax_pool"]), st.booleans())
@settings(deadline=None, max_examples=examples(200))
def test_pooling_over_any_axes(data: st.DataObject, rank: int, operation: str, ignore: bool) -> None:
    extents, window, padding = data.draw(windows(rank))
    window = replace(window, border="ignore") if ignore else window
    x = data.draw(tensors(*extents))

    def expected() -> brute.Reals:
        if operation == "argmax_pool":
            return brute.argmax_pool(reals(x), window)
        reductions: dict[str, Callable[[list[Fraction]], Fraction]] = {
            "box": lambda items: sum(items, Fraction(0)),
            "avg_pool": brute.mean,
            "max_pool": max,
        }
        return brute.pool(reals(x), window, reductions[operation])

    compare(f"y = {operation}(x, size = {list(window.size)}, {attributes(window, padding)});", expected, x=x)


@given(st.data(), ranks)
@settings(deadline=None, max_examples=examples(100))
def test_sample(data: st.DataObject, rank: int) -> None:
    extents, window, padding = data.draw(windows(rank))
    x = data.draw(tensors(*extents))
    volume = int(np.prod(window.size))
    chosen = np.array(
        data.draw(
            st.lists(st.integers(0, volume - 1), min_size=(n := int(np.prod(window.outputs(extents)))), max_size=n)
        )
    ).reshape(window.outputs(extents))
    body = f"y = sample(x, i, size = {list(window.size)}, {attributes(window, padding)});"
    try:
        values = brute.sample(reals(x), chosen, window)
    except ValueError:
        return  # whether an unused reflection is refused does not matter
    try:
        found = computed(body, x=x, i=chosen.astype(np.float64))
    except ValueError as error:
        assert "reflection" in str(error)  # noqa: PT017 - both outcomes are right where an unchosen item is undefined
        return
    np.testing.assert_array_equal(found, values, strict=True)


@given(st.data(), ranks)
@settings(deadline=None, max_examples=examples(100))
def test_desample(data: st.DataObject, rank: int) -> None:
    upscaled, window, padding = data.draw(windows(rank, reverse=True))
    window = replace(window, border="constant")
    x = data.draw(tensors(*window.outputs(upscaled)))
    chosen = data.draw(indices(window, x.shape))
    np.testing.assert_array_equal(
        computed(
            f"y = desample(x, i, size = {list(window.size)}, {attributes(window, padding)}, "
            f"output_shape = {list(upscaled)});",
            x=x,
            i=chosen.astype(np.float64),
        ),
        brute.desample(reals(x), chosen, window, upscaled),
        strict=True,
    )


@given(st.data(), ranks, st.booleans(), st.booleans())
@settings(deadline=None, max_examples=examples(120))
def test_debox(data: st.DataObject, rank: int, ignore: bool, normalize: bool) -> None:
    upscaled, window, padding = data.draw(windows(rank, reverse=True))
    window = replace(window, border="ignore") if ignore else window
    x = data.draw(tensors(*window.outputs(upscaled)))

    def expected() -> brute.Reals:
        def reduce(items: list[Fraction]) -> Fraction:
            if normalize and ignore:
                return brute.mean(items)
            return sum(items, Fraction(0)) / (window.volume if normalize else 1)

        return brute.debox(reals(x), window, upscaled, reduce)

    compare(
        f"y = debox(x, size = {list(window.size)}, {attributes(window, padding)}, output_shape = {list(upscaled)}, "
        f"normalize = {str(normalize).lower()});",
        expected,
        x=x,
    )


@given(
    st.data(),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from(["symmetric", "asymmetric", "aligned"]),
    st.sampled_from(BORDERS),
)
@settings(deadline=None, max_examples=examples(150))
def test_multilinear_upsample(data: st.DataObject, extent: int, f: int, method: str, border: str) -> None:
    x = data.draw(tensors(1, 1, extent))
    body = f"y = multilinear_upsample(x, factor = [{f}], method = '{method}', border = '{border}');"
    compare(body, lambda: brute.linear_upsample(reals(x)[0, 0], f, method, border)[None, None], x=x)


@given(st.data(), grids(), grids(), grids(), windows(2))
@settings(deadline=None, max_examples=examples(60))
def test_quantised_conv(
    data: st.DataObject,
    input_grid: Grid,
    weight_grid: Grid,
    output_grid: Grid,
    drawn: tuple[tuple[int, ...], brute.Window, str],
) -> None:
    extents, window, padding = drawn
    window = replace(window, border="constant")
    x, w, bias = (data.draw(tensors(*shape)) for shape in ((1, 2, *extents), (2, 2, *window.size), (1, 2)))
    quant = input_grid.text("x") + weight_grid.text("w") + output_grid.text("y")
    seen, used = (
        brute.decoded(brute.codes(reals(array), grid.range()), grid.range())
        for array, grid in ((x, input_grid), (w, weight_grid))
    )
    by_hand = brute.conv(seen, used, window, 1) + reals(bias).reshape(1, 2, 1, 1)
    found = evaluate(f"y = conv(x, w, b, {attributes(window, padding)});", quant, x, {"w": w, "b": bias})
    np.testing.assert_array_equal(found, brute.codes(by_hand, output_grid.range()), strict=True)


@given(st.data(), grids(0, 3000), grids(), st.sampled_from(["0.0", "1.0e-05", "0.0625"]))
@settings(deadline=None, max_examples=examples(150))
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
@settings(deadline=None, max_examples=examples(100))
def test_linear_relu_network(x: Floats, w: Floats, b: Floats, first: Grid, second: Grid, third: Grid) -> None:
    quant = first.text("x") + second.text("d") + third.text("y")
    found = evaluate("d = linear(x, w, b); y = relu(d);", quant, x, {"w": w, "b": b})
    seen = brute.decoded(brute.codes(reals(x), first.range()), first.range())
    dense = np.array([[sum(i * j for i, j in zip(row, column, strict=True)) for column in reals(w)] for row in seen])
    hidden = brute.decoded(brute.codes(dense + reals(b), second.range()), second.range())
    expected = brute.codes(np.array([[max(item, Fraction(0)) for item in row] for row in hidden]), third.range())
    np.testing.assert_array_equal(found, expected, strict=True)
