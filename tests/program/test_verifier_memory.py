"""Loading a program takes little memory beyond its file, whatever it is: 64 MiB and four times the file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cvm.errors import Invalid
from cvm.program import Output, Program, ProgramBuilder, decode, verify
from cvm.program.scope import KEPT
from tests.program.adversaries import ADVERSARIES, WIDE, many_nodes, on_large_constants

ROOT = Path(__file__).parents[2]
LARGE = on_large_constants(2**21)
FEW = ("a chain that changes bounds", "values that are all read at the end", "many operands", "wide parameters")
"""Of the programs of many bounds, those that are tried always."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="peaks of memory are Linux's")


def peaks(folder: Path, programs: dict[str, Program]) -> dict[str, tuple[int, int, float]]:
    """The bytes of the file, the bytes beyond the imports, and the seconds of loading each program."""
    paths = []
    for number, program in enumerate(programs.values()):
        paths.append(folder / f"{number}.cvm")
        paths[-1].write_bytes(program.to_bytes())
    command = [sys.executable, "-m", "tests.program.peak_of_loading", *map(str, paths)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found = ([int(item) for item in line.split()] for line in result.stdout.splitlines())
    return {name: (size, used, ms / 1000) for name, (size, used, ms) in zip(programs, found, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("names", [FEW, pytest.param(tuple(ADVERSARIES), marks=pytest.mark.long)], ids=len)
def test_programs_of_many_bounds_are_loaded_in_little_memory_and_time(tmp_path: Path, names: tuple[str, ...]) -> None:
    found = peaks(tmp_path, {name: ADVERSARIES[name]() for name in names})
    for name, (size, used, seconds) in found.items():
        assert used <= 2**26 + 4 * size, (name, size, used)
        assert seconds < 30, name
    assert max(used for _, used, _ in found.values()) > 2**24  # memory is what is measured


@pytest.mark.slow
def test_large_constants_are_not_expanded(tmp_path: Path) -> None:
    found = peaks(tmp_path, {name: make() for name, make in LARGE.items()})
    for name, (size, used, seconds) in found.items():
        assert used <= 2**26 + 4 * size, (name, size, used)
        assert seconds < 10, name


@pytest.mark.long
def test_larger_constants_are_not_expanded(tmp_path: Path) -> None:
    for name, make in on_large_constants(2**22).items():
        ((size, used, _),) = peaks(tmp_path, {name: make()}).values()
        assert used <= 2**26 + 4 * size, (name, size, used)


@pytest.mark.slow
def test_what_a_node_takes_does_not_grow_with_their_number(tmp_path: Path) -> None:
    """The objects of a node take more than its some 65 bytes in the file, and this is how much more."""
    counts = 3_000, 15_000
    few, many = peaks(tmp_path, {str(count): many_nodes(count) for count in counts}).values()
    assert (many[1] - few[1]) / (counts[1] - counts[0]) < 1_000


# The rule by which bounds are kept


def kept(values: int) -> list[tuple[int, ...]]:
    """The shapes of the bounds of so many values with as many channels as any may have."""
    builder = ProgramBuilder()
    base = builder.constant(np.arange(WIDE).reshape(1, WIDE) % 100)
    names = [builder.add("clip", [base], {"a_min": k, "a_max": 99})[0] for k in range(values)]
    assert all(builder.range(name).hull() == (min(k, 99), 99) for k, name in enumerate(names))
    verified = verify(builder.build([Output(name, name) for name in names]))
    assert [verified.ranges[name].shape for name in names] == [builder.range(name).shape for name in names]
    return [verified.ranges[name].shape for name in names]


def test_bounds_are_kept_apart_up_to_a_number_that_all_results_share() -> None:
    whole = KEPT // WIDE
    assert kept(whole + 2) == [(1, WIDE)] * whole + [(1, 1)] * 2


def test_a_value_that_fits_into_what_is_left_is_kept_per_channel() -> None:
    builder = ProgramBuilder()
    rows = [np.arange(count).reshape(1, count) for count in (WIDE - 1, WIDE, 1, 1)]
    bases = [builder.constant(row) for row in rows]
    for _ in range(KEPT // WIDE):
        (name,) = builder.add("negative", [bases[0]])
    assert builder.range(name).shape == (1, WIDE - 1)
    (too_many,) = builder.add("negative", [bases[1]])
    small = builder.constant(np.arange(KEPT // WIDE).reshape(1, -1))
    (fitting,) = builder.add("negative", [small])
    (none_left,) = builder.add("negative", [builder.constant(np.arange(2).reshape(1, 2))])
    assert [builder.range(n).shape for n in (too_many, fitting, none_left)] == [(1, 1), (1, KEPT // WIDE), (1, 1)]


def test_what_is_proven_of_bounds_that_are_not_kept_is_that_of_their_interval() -> None:
    """An element-wise difference of a value and itself is 0 by no proof; of bounds per channel it is narrower."""

    def widest(values: int) -> tuple[int, int]:
        builder = ProgramBuilder()
        base = builder.constant(np.arange(WIDE).reshape(1, WIDE) % 100)
        for _ in range(values):
            (name,) = builder.add("abs", [base])
        return builder.range(builder.add("elemwise_sub", [name, base])[0]).hull()

    assert widest(KEPT // WIDE) == (0, 0)
    assert widest(KEPT // WIDE + 1) == (-99, 99)


def test_a_declared_interval_that_needs_more_bounds_than_are_kept_is_not_proven() -> None:
    builder = ProgramBuilder()
    base = builder.constant(np.arange(WIDE).reshape(1, WIDE) % 100)
    for _ in range(KEPT // WIDE + 1):
        (name,) = builder.add("abs", [base])
    (zero,) = builder.add("elemwise_sub", [name, base], name="zero")
    program = builder.build([Output("y", zero)])
    data = program.to_bytes()
    assert verify(decode(data)).ranges["zero"].hull() == (-99, 99)
    narrow = data.replace(b"\xa2hi\x63\xa2lo\xd0\x9d\xa4name\xa4zero", b"\xa2hi\x00\xa2lo\x00\xa4name\xa4zero")
    assert narrow != data
    with pytest.raises(Invalid, match="not within the declared") as caught:
        verify(decode(narrow))
    assert caught.value.code == "program.interval"
