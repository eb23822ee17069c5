"""The judge that stands alone: the verdicts of the product's, on proofs of every op and on changed ones."""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from cvm.audit.dispute.judge import verify_step
from cvm.audit.dispute.proof import GivenSource, StepProof, decode_proof, encode_proof
from cvm.audit.dispute.records import read_op_record
from cvm.errors import CvmError, Invalid
from cvm.ops import REGISTRY
from cvm.program.checks import attribute_values, same_attributes
from cvm.standalone import verify_step as alone
from tests.audit.dispute.games import evidence_of, op_programs, small_steps, vector_programs
from tests.audit.dispute.test_judge import mutants, one_proof_of_each_op, proofs_of
from tests.random_programs.strategies import Sample, samples
from tools.fuzz import steps
from tools.fuzz.step_mutants import Record, whole

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "cvm" / "standalone" / "verify_step.py"
STEPS = ROOT / "spec_vectors" / "steps"


def run(*arguments: object) -> tuple[int, str]:
    """The tool's exit code and what it prints. It runs isolated, so that it could not import cvm if it tried."""
    command = [sys.executable, "-I", "-S", str(TOOL), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert result.stderr == ""
    return result.returncode, result.stdout


def product_accepts(data: bytes) -> bool:
    try:
        proof = decode_proof(data)
    except CvmError:
        return False
    return verify_step(proof.claim, proof.witness).accepted


def test_it_imports_nothing_but_the_standard_library_and_is_read_in_one_sitting():
    tree = ast.parse(TOOL.read_text("utf-8"))
    modules = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    modules += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in modules} <= sys.stdlib_module_names
    assert (
        len([line for line in TOOL.read_text("utf-8").splitlines() if line.strip()]) <= 680
    )  # 80 of them for op-set 2


def test_it_judges_the_vectors_as_their_names_say():
    assert run("--vectors", ROOT / "spec_vectors") == (0, f"{len(list(STEPS.glob('*.step')))} proofs, wrong: []\n")
    for path in STEPS.glob("*.step"):
        assert product_accepts(path.read_bytes()) != path.stem.startswith("refused_"), path.stem


def test_it_says_what_a_proof_is_about(tmp_path):
    path = STEPS / "conv2d_0_between.step"
    head = decode_proof(path.read_bytes()).claim.head.hex()
    code, words = run(path, "--head", head)
    assert (code, words.splitlines()[-1]) == (0, "ACCEPTED")
    assert f"head      {head}" in words.splitlines()
    assert run(path, "--head", "00" * 32)[0] == 1
    assert run(STEPS / "refused_false_step.step")[0] == 1
    assert run(tmp_path / "nowhere.step") == (3, "UNREADABLE: No such file or directory\n")
    (tmp_path / "large.step").write_bytes(bytes(2**20 + 1))
    assert run(tmp_path / "large.step")[0] == 1


def test_a_folder_without_proofs_is_none_of_vectors(tmp_path):
    assert run("--vectors", tmp_path) == (1, f"no steps/*.step in {tmp_path}\n")


def test_true_proofs_of_every_op_are_accepted():
    random = Random(5)
    for true in (*vector_programs().values(), *op_programs().values()):
        for op, proof in proofs_of(true, random):
            assert alone.judged(encode_proof(proof))[0], (op, proof.claim, alone.judged(encode_proof(proof)))


def compare_about_random_programs(programs: int) -> int:
    random, count = Random(6), 0

    @settings(
        max_examples=programs,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(samples())
    def check(sample: Sample) -> None:
        nonlocal count
        for _, proof in proofs_of(evidence_of(sample.program, 0, sample.runs[0]), random, 1):
            data = encode_proof(proof)
            accepted, words = alone.judged(data)
            assert accepted, words
            index = random.randrange(len(data))
            changed = data[:index] + random.randbytes(1) + data[index + 1 :]
            assert alone.judged(changed)[0] == product_accepts(changed) == (changed == data)
            count += 1

    check()
    return count


def test_both_judges_agree_about_random_programs():
    assert compare_about_random_programs(25) >= 100


@pytest.mark.long
def test_both_judges_agree_about_many_random_programs():
    """`python -m pytest -m long tests/tools/test_verify_step.py`"""
    assert compare_about_random_programs(1_000) >= 5_000


def test_no_part_of_a_proof_can_be_changed():
    sampled = cycle(range(7))
    for op, proof in one_proof_of_each_op().items():
        for mutant in mutants(proof):
            if next(sampled):
                continue
            try:
                data = encode_proof(mutant)
            except (ValueError, AttributeError, TypeError):
                continue  # it has no encoding
            assert not alone.judged(data)[0], (op, mutant)


def test_elements_take_as_many_steps_as_in_the_product(monkeypatch):
    """Chunks of another size are refused: the steps are part of the rules."""
    true = vector_programs()["tiny_cnn"]
    small_steps(monkeypatch, 2)
    accepted = [alone.judged(encode_proof(proof))[0] for op, proof in proofs_of(true, Random(7), 1) if op == "conv2d"]
    assert accepted
    assert not any(accepted)


ENDS = (
    -(2**63),
    -(2**31) - 1,
    -(2**31),
    -(2**31) + 1,
    -1,
    0,
    1,
    2,
    32,
    33,
    100,
    4096,
    4097,
    2**31 - 1,
    2**31,
    2**63 - 1,
)
VALUES = [
    True,
    False,
    "half_up",
    "half_even",
    "toward_zero",
    "HALF_UP",
    "",
    "variance",
    "mean_square",
    "square_sum",
    "VARIANCE",
    *(6, 7, 62, 63),
    *ENDS,
    (),
    *((end,) for end in ENDS),
]
VALUES += [*product(ENDS, repeat=2), *((end,) * count for end in (0, 1) for count in (3, 7, 8, 9, 5_000))]
"""Values of attributes on both sides of every limit, of all kinds."""


def test_attributes_have_the_limits_of_the_declarations():
    assert {*alone.ONE_STEP, *alone.SEVERAL_STEPS} == set(REGISTRY)
    assert {name for name, op in REGISTRY.items() if op.Attributes.declared} == set(alone.ATTRIBUTES)
    refused = Counter()
    for name, attributes in alone.ATTRIBUTES.items():
        op, right = REGISTRY[name], {}
        assert attributes.keys() == op.Attributes.declared.keys()
        for key, allowed in attributes.items():
            right[key] = next(value for value in VALUES if allowed(value))
        for key, value in ((key, value) for key in attributes for value in VALUES):
            changed = {**right, key: value}
            try:
                mine = same_attributes(changed, attribute_values(op.parse(changed)))
            except Invalid:
                mine = False
            assert attributes[key](value) == mine, (name, key, value)
            refused[mine] += 1
    assert min(refused.values()) > 1_000


def test_ops_have_as_many_inputs_as_in_the_declarations():
    for name, op in REGISTRY.items():
        least, most = op.arity()
        assert alone.ARITY.get(name, (1, 1)) == (least, 2**32 if most is None else most)


def test_both_judges_find_the_same_fault_in_proofs_of_changed_ops():
    """Names, attributes, lengths, shapes and numbers are changed, and every hash is made right again."""
    words = Counter()
    for number in range(3_000):
        try:
            words[steps.FUZZER.examine(steps.FUZZER.case(9, number))] += 1
        except CvmError as error:
            words[f"malformed: {error.code}"] += 1
    assert words["refused: op"] > 300
    assert words["refused: shape"] > 30
    assert words["valid, accepted"] > 150


def true_proof(name: str) -> StepProof:
    return decode_proof((STEPS / f"{name}.step").read_bytes())


def about(proof: StepProof, **changes: object) -> StepProof:
    """A proof of which the op is another one and the hashes are right."""
    known = read_op_record(proof.witness.record)
    record = Record(known.op, list(known.attributes.items()), list(known.inputs), known.first, [])
    record.outputs = [value.shape for value in known.outputs]
    for field, value in changes.items():
        setattr(record, field, value)
    return whole(replace(proof, witness=replace(proof.witness, record=record.data())))


def hostile_proofs() -> dict[str, StepProof]:
    """Proofs of about 2^20 bytes that would take long to judge if a length were believed."""
    reshape, large = true_proof("reshape_0_last"), tuple(2**62 - 1 - 2 * i for i in range(120_000))
    found = {"a target shape": about(reshape, attributes=[("target_shape", large)])}
    for op, key in (("tile", "reps"), ("transpose", "axes"), ("squeeze", "axes"), ("sum", "axes"), ("slice", "begin")):
        record = read_op_record(true_proof(f"{op}_0_last").witness.record)
        attributes = [(name, large if name == key else value) for name, value in record.attributes.items()]
        found[f"{op}.{key}"] = about(true_proof(f"{op}_0_last"), attributes=attributes)
        large = large[:20_000]
    found["attributes"] = about(reshape, attributes=[(f"{i:05}", i) for i in range(55_000)])
    found["a shift"] = about(true_proof("cvm_left_shift_0_last"), attributes=[("precision", 32), ("shift_bit", 2**62)])
    found["a precision"] = about(true_proof("cvm_clip_0_last"), attributes=[("precision", 2**40)])
    found["new axes"] = about(true_proof("expand_dims_0_last"), attributes=[("axis", 0), ("num_newaxis", 2**40)])
    found["outputs"] = about(reshape, outputs=[(1,) * 8] * 10_000)
    found["a name"] = about(reshape, op="x" * 1_000_000)
    found["inputs"] = about(true_proof("concatenate_0_last"), inputs=[0] * 250_000)
    claim, witness = reshape.claim, reshape.witness
    operand = witness.operands[0]
    leaves = tuple((2**53 + number, b"\0" * 4) for number in range(60_000))
    wide = replace(operand, shape=(2**61,), leaves=leaves, source=GivenSource())
    path = (bytes(32),) * 32_000
    for name, changed in (
        ("leaves", {"operands": (wide,)}),
        ("operands", {"operands": tuple(replace(operand, position=k, leaves=(), path=()) for k in range(9_000))}),
        ("a path", {"record_path": path}),
        ("a path of leaves", {"operands": (replace(operand, path=path),)}),
        ("a path of partials", {"partials_path": path}),
        ("inputs of the run", {"inputs": path}),
    ):
        found[name] = StepProof(claim, replace(witness, **changed))
    return found


@pytest.mark.parametrize("part", [slice(0, None, 3), pytest.param(slice(None), marks=pytest.mark.long)])
def test_hostile_proofs_are_judged_in_little_time_and_memory(tmp_path, part):
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28))

    for name, proof in list(hostile_proofs().items())[part]:
        path = tmp_path / "hostile.step"
        path.write_bytes(encode_proof(proof))
        command = [sys.executable, "-I", "-S", str(TOOL), str(path)]
        begin = time.monotonic()
        result = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limited, timeout=60)
        assert time.monotonic() - begin < 10, name
        assert (result.returncode, result.stderr) == (1 - product_accepts(path.read_bytes()), ""), (name, result)
        assert (result.returncode == 0) == (name == "inputs")  # it is true of a concatenate of so many


def test_a_length_beyond_the_bytes_is_refused_before_anything_is_made_of_it():
    data = (STEPS / "concatenate_0_last.step").read_bytes()
    for index in range(len(data) - 3):
        changed = data[:index] + b"\xff\xff\xff\xff" + data[index + 4 :]
        accepted, words = alone.judged(changed)
        assert accepted == (changed == data), (index, words)
