"""Matrix products (NNEF 1.0.1 sections 4.7 and 4.9.2) of constants and computed tensors give exactly the codes."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pytest

import cvm
from cvm import Session
from cvm.errors import Invalid
from cvm.executors import create
from cvm.frontends import nnef
from cvm.frontends.nnef.tensor_file import ItemType, write_tensor
from cvm.lowering import lower
from cvm.passes.legalize import legalize
from cvm.program import verify
from tests.lowering.documents import Document
from tests.lowering.properties import Cases, check, drawn, exhaustively


def side(document: Document, shape: tuple[int, ...], constant: bool) -> str:
    if constant:
        name = document.variable(shape, quantised=document.random.random() < 0.7)
        # Floats of 20 binary places: a float near 0 has so many that no sum of 64 bits holds it, and is refused.
        document.stored[name] = (np.round(document.stored[name] * 2.0**20) / 2.0**20).astype(np.float32)
        return name
    return document.external(shape)


def product(random: Random, constants: tuple[bool, bool], rank: int, op_set: int = 1) -> None:
    document = Document(random)
    document.op_set = op_set
    rows, count, columns = (random.randint(1, 4) for _ in range(3))
    batches: list[tuple[int, ...]] = [(), ()]
    for _ in range(rank - 2):
        extent = random.randint(1, 3)
        pair = random.choice([(extent, extent), (extent, 1), (1, extent)])
        batches = [(*batch, n) for batch, n in zip(batches, pair, strict=True)]
    turned = random.random() < 0.5, random.random() < 0.5
    a = (*batches[0], count, rows) if turned[0] else (*batches[0], rows, count)
    b = (*batches[1], columns, count) if turned[1] else (*batches[1], count, columns)
    x, y = side(document, a, constants[0]), side(document, b, constants[1])
    if constants != (True, True) and random.random() < 0.2:
        name = y if constants[0] else x
        other = document.apply(f"neg({name})", quantised=False)
        x, y = (x, other) if constants[0] else (other, y)
    flags = ", ".join(f"transpose{s} = {str(t).lower()}" for s, t in zip("AB", turned, strict=True))
    check(document, document.apply(f"matmul({x}, {y}, {flags})"))


def linear(random: Random) -> None:
    document = Document(random)
    rows, count, columns = (random.randint(1, 4) for _ in range(3))
    x = document.external((rows, count))
    w = side(document, (columns, count), random.random() < 0.5)
    bias = side(document, (random.choice([1, rows]), columns), random.random() < 0.5)
    check(document, document.apply(f"linear({x}, {w}, {bias})"))


def sum_times_constant(random: Random) -> None:
    document = Document(random)
    rows, count, columns = (random.randint(1, 4) for _ in range(3))
    x = document.apply(f"add({document.external((rows, count))}, {document.external((rows, count))})", quantised=False)
    check(document, document.apply(f"matmul({x}, {document.variable((count, columns))})"))


def residual(random: Random, op_set: int) -> None:
    """A stream of 16 bits to which a product is added: its sums have too many values for one multiplication to fit."""
    document = Document(random)
    document.op_set = op_set
    rows, count, columns = (random.randint(1, 4) for _ in range(3))
    stream = document.external((rows, columns))
    document.quantise(stream, bits=16)
    w = document.variable((count, columns))
    made = document.apply(f"matmul({document.external((rows, count))}, {w})", quantised=False)
    y = document.apply(f"add({made}, {stream})", quantised=False)
    document.quantise(y, -3.0, 3.0, bits=16)
    check(document, y)


CASES: Cases = {
    "constant right": lambda random: product(random, (False, True), random.randint(2, 4)),
    "constant left": lambda random: product(random, (True, False), random.randint(2, 4)),
    "both computed": lambda random: product(random, (False, False), random.randint(2, 4)),
    "constant right, op-set 2": lambda random: product(random, (False, True), random.randint(3, 4), 2),
    "constant left, op-set 2": lambda random: product(random, (True, False), random.randint(3, 4), 2),
    "both computed, op-set 2": lambda random: product(random, (False, False), random.randint(2, 4), 2),
    "residual": lambda random: residual(random, 1),
    "residual, op-set 2": lambda random: residual(random, 2),
    "linear": linear,
    "sum of two tensors": sum_times_constant,
}

test_a_few_documents = drawn(CASES)
test_many_documents = exhaustively(CASES)


def attention(folder: Path) -> None:
    """A document: products of queries and keys, of two batches."""
    (folder / "graph.nnef").write_text(
        "version 1.0;\n"
        "graph net( q, k ) -> ( y )\n{\n"
        "  q = external<scalar>(shape = [2, 3, 4]);\n"
        "  k = external<scalar>(shape = [2, 5, 4]);\n"
        "  y = matmul(q, k, transposeB = true);\n"
        "}\n"
    )
    ranges = {"q": (-1.0, 1.0), "k": (-2.0, 2.0), "y": (-4.0, 4.0)}
    lines = [f'"{name}": linear_quantize(min = {lo}, max = {hi}, bits = 8);' for name, (lo, hi) in ranges.items()]
    (folder / "graph.quant").write_text("\n".join(lines))


def test_op_set_2_gives_the_codes_of_op_set_1_in_fewer_ops(tmp_path: Path) -> None:
    attention(tmp_path)
    first, second = cvm.compile(tmp_path), cvm.compile(tmp_path, op_set=2)
    assert first.digest == cvm.compile(tmp_path, op_set=1).digest
    assert (first.op_set, second.op_set) == (1, 2)
    ops = Counter(node.op for node in second.nodes)
    assert (ops["matmul"], ops["conv2d"]) == (1, 0)
    assert len(second.nodes) < len(first.nodes)
    strict = legalize(second)
    assert strict.op_set == 1
    generator = np.random.default_rng(5)
    feed = {item.value.name: generator.integers(0, 256, item.value.shape) for item in first.inputs}
    expected = Session(first, executor="numpy").run(feed, codes=True)["y"]
    for program in (second, strict):
        assert np.array_equal(Session(program, executor="numpy").run(feed, codes=True)["y"], expected)


def residual_sum(folder: Path) -> None:
    """A document: a product with scales of many digits, added to a stream of 16 bits."""
    (folder / "graph.nnef").write_text(
        "version 1.0;\n"
        "graph net( x, s ) -> ( y )\n{\n"
        "  x = external<scalar>(shape = [3, 768]);\n"
        "  s = external<scalar>(shape = [3, 5]);\n"
        "  w = variable<scalar>(shape = [768, 5], label = 'w');\n"
        "  product = matmul(x, w);\n"
        "  y = add(product, s);\n"
        "}\n"
    )
    items = np.random.default_rng(3).integers(-128, 128, (768, 5)) / 1024
    (folder / "w.dat").write_bytes(write_tensor(items.astype(np.float32)))
    ranges = {"x": (-1.0123, 1.3217, 8), "s": (-2.0177, 1.9203, 16), "y": (-3.0137, 4.1773, 16)}
    (folder / "graph.quant").write_text(
        "\n".join(
            f'"{name}": linear_quantize(min = {lo}, max = {hi}, bits = {bits});'
            for name, (lo, hi, bits) in ranges.items()
        )
    )


def test_op_set_2_divides_a_sum_that_no_multiplier_fits(tmp_path: Path) -> None:
    """One `quotient` instead of an estimate, a comparison and their sum; the codes are the same ones."""
    residual_sum(tmp_path)
    first, second = cvm.compile(tmp_path), cvm.compile(tmp_path, op_set=2)
    assert [node.op for node in second.nodes] == ["broadcast_sub", "dense", "quotient"][-len(second.nodes) :]
    assert len(first.nodes) > len(second.nodes)
    assert first.provenance.exactness[-1].note == "2 accumulators, estimated and corrected"
    assert second.provenance.exactness[-1].note == "2 accumulators, a quotient"
    assert second.provenance.exactness[-1].bound == 0
    generator = np.random.default_rng(8)
    for _ in range(20):
        feed = {"x": generator.integers(0, 256, (3, 768)), "s": generator.integers(0, 65536, (3, 5))}
        expected = Session(first, executor="numpy").run(feed, codes=True)["y"]
        assert np.array_equal(Session(second, executor="numpy").run(feed, codes=True)["y"], expected)


def test_there_are_two_op_sets(tmp_path: Path) -> None:
    attention(tmp_path)
    with pytest.raises(Invalid) as caught:
        cvm.compile(tmp_path, op_set=3)  # type: ignore[arg-type]
    assert caught.value.code == "lowering.op_set"


def test_products_of_wide_constants_do_not_wrap(tmp_path: Path) -> None:
    """Four products of codes of 32 bits add up to 2^64 - 2^34 + 4, which 64 bits hold as a small negative number."""
    (tmp_path / "graph.nnef").write_text(
        "version 1.0;\n"
        "graph net( x ) -> ( y )\n{\n"
        "  x = external<scalar>(shape = [1, 1]);\n"
        "  a = variable<scalar>(shape = [1, 4], label = 'a');\n"
        "  b = variable<scalar>(shape = [4, 1], label = 'b');\n"
        "  p = matmul(a, b);\n"
        "  y = add(p, x);\n"
        "}\n"
    )
    flags = "bits = 32, signed = true, symmetric = false"
    wide = f"zero_point_linear_quantize(zero_point = 0, scale = 0.00048828125, {flags})"
    (tmp_path / "graph.quant").write_text(
        '"x": linear_quantize(min = 0.0, max = 255.0, bits = 8);\n'
        f'"a": {wide};\n'
        f'"b": {wide};\n'
        f'"y": linear_quantize(min = 0.0, max = {255 * 2**40}.0, bits = 8);\n'
    )
    for name, shape in (("a", (1, 4)), ("b", (4, 1))):
        codes = np.full(shape, 2**31 - 1, np.int32)
        (tmp_path / f"{name}.dat").write_bytes(write_tensor(codes, item=ItemType.SIGNED_CODE))
    executor = create("numpy", verify(lower(nnef.load(tmp_path))))
    found = executor.run({"x": np.zeros((1, 1), np.int32)}, {}).values["y"]
    assert found.tolist() == [[round(4 * Fraction(2**31 - 1, 2**11) ** 2 / 2**40)]]
