"""Maps whose channels lie side by side, made from a caller's arrays of planes: `emit.exchange`."""

from __future__ import annotations

import numpy as np
import pytest

from cvm.executors.native.descriptions.loops import Exchange
from cvm.executors.native.kernels.registry import plan
from cvm.program import Output, Program, ProgramBuilder, verify
from tests.executors.native.comparison import MACHINES, compare

pytestmark = pytest.mark.usefixtures("ways")


def of_planes(channels: int, width: int, images: int = 1) -> Program:
    """A convolution of (images, channels, 3, width), not as wide as a row, by as many channels."""
    build = ProgramBuilder()
    x = build.input("x", (images, channels, 3, width), -128, 127)
    weights = np.random.default_rng(channels).integers(-20, 21, (5, channels, 2, 2))
    (y,) = build.add("conv2d", [x, build.constant(weights)], {"padding": (1, 1)})
    return build.build([Output("y", y)])


@pytest.mark.parametrize("channels", range(2, 10))
@pytest.mark.parametrize("width", [8, 15, 16, 31, 50])
def test_planes_of_every_number_become_channels(channels: int, width: int) -> None:
    program = of_planes(channels, width, 1 + width % 2)
    for machine in MACHINES:
        made = plan(verify(program), machine, frozenset({"y"}))
        (kernel,) = (one for one in made.functions.values() if isinstance(one, Exchange))
        assert (kernel.packs, kernel.across.extent, kernel.along.extent) == (True, channels, width)
    compare(program)
