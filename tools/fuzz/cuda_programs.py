"""Random programs as CUDA kernels against NumPy: outputs alone, and every tensor.

    python -m tools.fuzz.cuda_programs --seed 1 --begin 0 --count 100 [--device emulator] [--plain]

The programs are those of `tools.fuzz.c_programs`: packs at the edges of machine integers, and programs of any ops with
state. Each runs once for its outputs and once with every tensor captured. Prints a line for each difference, and exits
with 1 if there was one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from cvm.executors import Capture, initial_state
from cvm.executors.cuda.device.protocol import Device
from cvm.executors.cuda.emit.registry import PLAIN
from cvm.executors.cuda.executor import CudaExecutor
from cvm.program import Program, decode, verify
from tools.cuda_emulator import EmulatedDevice
from tools.fuzz.c_programs import Feeds, computed, examined
from tools.serial_device import SerialDevice

__all__ = ["DEVICES", "differences", "main"]

DEVICES: Mapping[str, Callable[[], Device]] = {"emulator": EmulatedDevice, "serial": SerialDevice}
"""What programs can run on."""


def differences(program: Program, feeds: Feeds, device: Device, plain: frozenset[type] = frozenset()) -> list[str]:
    """What kernels compute otherwise than NumPy, in words. Memory is given out in separate allocations."""
    verified = verify(decode(program.to_bytes()))
    expected = computed(verified, feeds)
    executor = CudaExecutor(verified, device=device, plain=plain, apart=True)
    found = list(executor.refusals)
    captures: tuple[Capture, ...] = (frozenset(), "all")
    for capture in captures:
        state = initial_state(verified.program)
        for number, feed in enumerate(feeds):
            result = executor.run(feed, state, capture)
            wrong = [name for name, array in result.values.items() if not np.array_equal(array, expected[number][name])]
            found += [f"run {number}, {'all captured, ' if capture else ''}{name!r}" for name in wrong]
            state = result.state
    executor.close()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--begin", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--device", choices=sorted(DEVICES), default="emulator")
    parser.add_argument("--plain", action="store_true", help="no fast forms of kernels")
    options = parser.parse_args(arguments)
    device, plain = DEVICES[options.device](), frozenset(PLAIN if options.plain or options.device == "serial" else ())
    return examined(
        options.seed,
        range(options.begin, options.begin + options.count),
        lambda program, feeds: differences(program, feeds, device, plain),
    )


if __name__ == "__main__":
    sys.exit(main())
