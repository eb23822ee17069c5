"""The numbers of docs/lowering.md are those of the compiled demo network and of the document's arithmetic."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import cvm
from cvm.program import Program, verify

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "lowering.md").read_text("utf-8")
LEAST, MOST = Fraction("-5.459373"), Fraction("4.500391")
NORM, ACT = (MOST - LEAST) / 255, MOST / 255
P, R = NORM / ACT, LEAST / ACT + Fraction(1, 2)
STEPS = {k: math.ceil((k - R) / P) for k in range(1, 256)}


def program() -> Program:
    return cvm.compile(ROOT / "cvm" / "demo" / "lenet_digits", optimize=False)


def parameters(found: Program) -> tuple[int, int, int]:
    """m, c and s of a channel in which the codes of norm1 reach both ends."""
    (node,) = (node for node in found.nodes if node.outputs[0].name == "act1")
    constants = {constant.name: constant.array() for constant in found.constants}
    m, c, s = (constants[name] for name in node.inputs[1:])
    bounds = verify(found).ranges["norm1"].wide()
    channel = next(k for k in range(16) if (bounds.lo[0, k, 0, 0], bounds.hi[0, k, 0, 0]) == (0, 255))
    return int(m.item()), int(c[0, channel, 0, 0]), int(s.item())


def test_scales_and_line_are_those_of_the_document() -> None:
    assert f"-5.459373 + q * {NORM}" in PAGE
    assert f"q * {ACT} |" in PAGE
    assert f"P = {P}        R = {R}" in PAGE
    quantisers = (ROOT / "cvm" / "demo" / "lenet_digits" / "graph.quant").read_text("utf-8")
    assert '"norm1": linear_quantize(min = -5.459373, max = 4.500391, bits = 8);' in quantisers
    assert '"act1": linear_quantize(min = 0.0, max = 4.500391, bits = 8);' in quantisers


def test_the_parameters_are_those_of_the_program() -> None:
    m, c, s = parameters(program())
    assert f"m = {m}        c = {c}        s = {s}" in PAGE
    assert round(P * 2**s) == m
    assert m.bit_length() == 31


def test_the_proof_is_the_one_on_the_page() -> None:
    m, c, s = parameters(program())
    assert f"T_1 = {STEPS[1]}, T_100 = {STEPS[100]}, T_255 = {STEPS[255]}" in PAGE
    least = max((k << s) - m * at for k, at in STEPS.items() if 0 <= at <= 255)
    most = min((k << s) - 1 - m * (at - 1) for k, at in STEPS.items() if 0 < at <= 256)
    middle = c + 2 ** (s - 1)
    assert f"{least} .. {most}" in PAGE
    assert f"C = {middle}" in PAGE
    assert least <= middle <= most
    assert f"{middle} .. {m * 255 + middle}" in PAGE


def test_the_table_shows_both_lines() -> None:
    m, c, s = parameters(program())
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) \| (\d+) \| ([\d.]+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 4
    for row in rows:
        q = int(row[0])
        real, integer = P * q + R, Fraction(m * q + c + 2 ** (s - 1), 2**s)
        assert (row[1], row[3]) == (f"{float(real):.3f}", f"{float(integer):.3f}")
        assert {min(math.floor(real), 255), min(math.floor(integer), 255)} == {int(row[2])} == {int(row[4])}


def test_what_is_claimed_is_what_the_page_says() -> None:
    claims = {item.tensor: item for item in program().provenance.exactness}
    assert claims["act1"].note in PAGE
    assert claims["probs"].note in PAGE
    assert claims["probs"].bound == 1
