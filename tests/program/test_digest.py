"""The digest: stable, sensitive to everything that is executed or shown, blind to provenance."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.errors import CvmError
from cvm.program import (
    Constant,
    Input,
    Node,
    Output,
    Program,
    ProgramBuilder,
    Provenance,
    State,
    Value,
    commitments,
    program_claim,
    records,
)
from cvm.program.commitments import (
    constant_claim,
    constant_tree,
    list_root,
    program_digest,
    tensor_claim,
    tensor_root,
    tensor_tree,
)
from cvm.program.leaves import fast_hasher
from cvm.program.merkle import Tree
from tests.program.examples import example, programs
from tests.program.mutations import mutations
from tests.program.proofs import list_root_of_proof, verify_proof

ATTRIBUTES = {"boolean": True, "integer": 1, "text": "half_up", "integers": (1, 2)}


def rich() -> Program:
    """The example, with attributes of every type on its first node."""
    program = example()
    first = replace(program.nodes[0], attributes=ATTRIBUTES)
    return replace(program, nodes=(first, *program.nodes[1:]))


CHANGES = [
    (path, other)
    for path, other in mutations(rich())
    # The stored width and kind only say how to read the data: changed alone they make no program.
    if not path.startswith(".provenance") and ".width" not in path and ".kind" not in path
]  # fmt: skip


def test_the_changes_reach_every_field():
    reached = " ".join(path for path, _ in CHANGES)
    for cls in (Program, Value, Input, Output, Constant, State, Node):
        for item in fields(cls):
            assert item.name in reached or item.name in ("provenance", "width", "kind"), item.name
    assert all(f"[{name}]" in reached for name in ATTRIBUTES)


def digest_or_code(program: Program) -> str:
    try:
        return program.digest
    except CvmError as error:
        return error.code


@pytest.mark.parametrize(("path", "other"), CHANGES, ids=[path for path, _ in CHANGES])
def test_changing_any_field_changes_the_digest(path, other):
    found = digest_or_code(other)
    assert found != rich().digest
    assert len(found) == 64 or found in ("program.undefined", "program.duplicate", "program.quantizer")


def test_most_changes_have_a_digest():
    assert sum(len(digest_or_code(other)) == 64 for _, other in CHANGES) > 0.7 * len(CHANGES) > 100


def test_no_two_changes_have_one_digest():
    digests = {}
    for path, other in CHANGES:
        try:
            data, digest = other.to_bytes(), other.digest
        except CvmError:
            continue
        assert digests.setdefault(digest, data) == data, path


def test_the_kind_of_a_constant_changes_the_digest():
    program = example()
    parameter = replace(program.constants[0], kind="parameter")
    assert replace(program, constants=(parameter, *program.constants[1:])).digest != program.digest


def test_attributes_of_equal_value_and_different_type_have_different_digests():
    def digest(value):
        node = replace(example().nodes[0], attributes={"a": value})
        return replace(example(), nodes=(node, *example().nodes[1:])).digest

    assert len({digest(value) for value in (True, 1, "1", (1,), (), "", 0, False)}) == 8


def test_provenance_is_not_part_of_the_digest():
    program = example()
    assert replace(program, provenance=Provenance("other", "elsewhere", "ff")).digest == program.digest
    assert replace(program, provenance=Provenance()).to_bytes() != program.to_bytes()


def test_the_width_a_constant_is_stored_with_does_not_matter():
    narrow = Constant.of("c", np.arange(-5, 5))
    wide = replace(narrow, width=4, data=np.arange(-5, 5).astype("<i4").tobytes())
    assert constant_claim(narrow) == constant_claim(wide) == tensor_claim(np.arange(-5, 5, dtype=np.int32))


@given(programs())
def test_digests_are_reproducible(program):
    assert program_digest(replace(program)) == program_digest(program) == program_claim(program).digest()


@given(st.integers(1, 3000), st.sampled_from(["int8", "int16", "int32"]))
def test_a_constant_and_the_tensor_with_its_values_have_one_root(size, dtype):
    values = np.random.default_rng(size).integers(-100, 100, size).astype(dtype)
    constant = Constant.of("c", values)
    assert constant_claim(constant).root() == tensor_root(values.astype(np.int32))
    assert constant_tree(constant) == tensor_tree(values.astype(np.int32))


def test_a_constant_larger_than_a_block_has_the_root_of_its_values():
    values = (np.arange(2**18 + 300) % 200 - 100).astype(np.int32)
    assert constant_claim(Constant.of("c", values)).root() == tensor_root(values)


def test_memory_layout_does_not_matter():
    array = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    expected = tensor_root(array)
    for other in (np.asfortranarray(array), array.astype(">i4"), array[::-1][::-1], np.repeat(array, 2, 0)[::2]):
        assert tensor_root(other) == expected
    assert tensor_root(array.reshape(4, 3, 2)) != expected
    assert tensor_root(array.astype(np.int64)) != expected
    with pytest.raises(TypeError):
        tensor_root(array.astype(np.int16))


def test_zeros_of_different_lengths_have_different_roots():
    roots = {tensor_root(np.zeros(size, np.int32)) for size in range(1, 600)}
    assert len(roots) == 599


def test_one_op_and_one_leaf_of_a_weight_open_from_the_digest():
    program = example()
    claim, parts = program_claim(program), records(program)
    for items, root in ((parts.nodes, claim.nodes), (parts.constants, claim.constants)):
        assert list_root(items) == root
        tree = Tree.of(items)
        for index, record in enumerate(items):
            assert list_root_of_proof(record, tree.prove(index)) == root
            assert list_root_of_proof(record + b"\0", tree.prove(index)) != root
            assert list_root_of_proof(record, replace(tree.prove(index), count=len(items) + 1)) != root
    weight = Constant.of("w", np.arange(1000))
    tree = constant_tree(weight)
    leaf = np.arange(256, 512, dtype="<i4").tobytes()
    assert verify_proof(constant_claim(weight).data_root, leaf, tree.prove(1))


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 512, 2**18 - 1, 2**18, 2**18 + 1, 2**19 + 300])
@pytest.mark.parametrize(("kind", "width"), [("tensor", 1), ("tensor", 4), ("parameter", 8), ("parameter", 2)])
def test_the_fast_hasher_gives_the_same_claims(size, kind, width):
    data = np.random.default_rng(size).integers(0, 256, size * width, np.uint8).tobytes()
    constant = Constant("c", kind, (size,), width, data)
    assert constant_claim(constant, fast_hasher()) == constant_claim(constant)
    assert constant_claim(constant).data_root == constant_tree(constant).root


def test_a_program_of_many_constants_has_the_digest_that_it_has_without_the_fast_hasher(monkeypatch):
    random = np.random.default_rng(0)
    builder = ProgramBuilder()
    x = builder.input("x", (1, 1600), -128, 127)
    for _ in range(2):
        (y,) = builder.add("dense", [x, builder.constant(random.integers(-128, 128, (1400, 1600)))])
    program = builder.build([Output("y", y)])
    assert sum(4 * len(constant.data) for constant in program.constants) > commitments.MUCH
    asked = []
    monkeypatch.setattr(commitments, "fast_hasher", lambda: asked.append(True))
    expected = program_digest(program)
    assert asked
    monkeypatch.undo()
    assert program_digest(program) == expected


def test_few_constants_do_not_wait_for_the_code_generator(monkeypatch):
    monkeypatch.setattr(commitments, "fast_hasher", lambda: pytest.fail("it was asked for"))
    program_digest(example())
