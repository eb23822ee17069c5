"""Depthwise convolutions of few channels, whose vectors hold the channels of several neighbouring pixels."""

from __future__ import annotations

import numpy as np
import pytest

from cvm.executors.base import returned
from cvm.executors.native.descriptions.sums import Depthwise
from cvm.executors.native.emit.machine import MACHINES
from cvm.executors.native.kernels.depthwise import segments
from cvm.executors.native.kernels.registry import plan
from cvm.executors.native.runtime.select import available
from cvm.program import Output, Program, ProgramBuilder, verify
from tests.executors.native.comparison import compare

pytestmark = pytest.mark.usefixtures("ways")


def depthwise(channels: int, size: tuple[int, int], kernel: int, stride: int, images: int = 1) -> Program:
    """The codes of a depthwise convolution."""
    random = np.random.default_rng(channels)
    builder = ProgramBuilder()
    x = builder.input("x", (images, channels, *size), -128, 127)
    weights = builder.constant(random.integers(-128, 128, (channels, 1, kernel, kernel)))
    attributes = {"groups": channels, "stride": (stride, stride), "padding": (kernel // 2, kernel // 2)}
    (sums,) = builder.add("conv2d", [x, weights], attributes)
    m, c = random.integers(2**20, 2**22, (1, channels, 1, 1)), random.integers(-(2**33), 2**33, (1, channels, 1, 1))
    parameters = [builder.parameter(np.asarray(value)) for value in (m, c, [30])]
    (codes,) = builder.add("requantize", [sums, *parameters], {"rounding": "half_up", "lo": -100, "hi": 101})
    return builder.build([Output("codes", codes)])


@pytest.mark.sweep
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize(("channels", "size"), [(8, (9, 25)), (5, (3, 30)), (24, (5, 24)), (32, (4, 9)), (80, (3, 17))])
def test_the_codes_of_few_channels_are_those_of_numpy(
    channels: int, size: tuple[int, int], kernel: int, stride: int
) -> None:
    compare(depthwise(channels, size, kernel, stride, images=2))


@pytest.mark.parametrize(("channels", "size", "kernel"), [(40, (11, 12), 11), (8, (9, 20), 9)])
def test_large_windows(channels: int, size: tuple[int, int], kernel: int) -> None:
    """Their code has a loop over columns; the second kernel computes several pixels at the same time."""
    program = depthwise(channels, size, kernel, 1)
    made = plan(verify(program), available()[0], frozenset({"codes"}))
    assert [one.loops for one in made.functions.values() if isinstance(one, Depthwise)] == [True]
    compare(program)


@pytest.mark.sweep
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("window", [(3, 3), (1, 1), (1, 5), (5, 1), (2, 4), (4, 2)])
@pytest.mark.parametrize("biased", [True, False])
def test_strips_of_every_length_and_dilations(stride: int, window: tuple[int, int], biased: bool) -> None:
    """Sums of maps with few and with many columns, of whole vectors of channels and of less, without an epilogue."""
    random = np.random.default_rng([stride, *window])
    builder = ProgramBuilder()
    outputs = []
    for channels, columns, dilation in [(32, 1, 1), (36, 2, 1), (32, 7, 2), (70, 16, 1), (32, 17, 3), (20, 33, 1)]:
        height, width = ((n - 1) * dilation + 1 for n in window)
        shape = (1, channels, height + stride, width + (columns - 1) * stride)
        x = builder.input(f"x{columns}", shape, 0, 255)
        weights = builder.constant(random.integers(-128, 128, (channels, 1, *window)))
        bias = [builder.constant(random.integers(-(2**20), 2**20, channels))] if biased else []
        attributes = {"groups": channels, "stride": (stride, stride), "dilation": (dilation, dilation)}
        outputs.append(Output(f"y{columns}", builder.add("conv2d", [x, weights, *bias], attributes)[0]))
    compare(builder.build(outputs))


def test_maps_narrower_than_the_pixels_of_a_vector() -> None:
    compare(depthwise(20, (6, 3), 3, 1))


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@pytest.mark.parametrize("columns", [1, 2, 4, 7, 8, 40])
def test_blocks_have_every_channel_once_and_no_more_pixels_than_a_row(machine: object, columns: int) -> None:
    for channels in range(1, 140):
        found = segments(channels, machine, columns)  # type: ignore[arg-type]
        done = 0
        for one in found:
            assert one.start == done
            assert 1 <= one.tile <= columns
            assert one.tile == 1 or one.tile * one.channels == 4 * machine.width  # type: ignore[attr-defined]
            done += one.count * one.channels
        assert done >= channels
        last = found[-1]
        assert last.start + (last.count - 1) * last.channels + last.block.valid == channels


def test_eight_channels_fill_the_vectors() -> None:
    verified = verify(depthwise(8, (9, 24), 3, 1))
    machine = available()[0]
    if not machine.packs or machine.width < 8:
        pytest.skip(f"{machine.name} does not pack the codes of several pixels")
    made = plan(verified, machine, returned(verified.program, frozenset()))
    (kernel,) = [one for one in made.functions.values() if isinstance(one, Depthwise)]
    assert [one.tile * 8 for one in kernel.segments] == [4 * machine.width]
