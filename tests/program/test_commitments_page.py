"""docs/commitments.md, checked by an implementation that follows the page and shares nothing with cvm."""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from struct import pack

import numpy as np
import pytest

from cvm.audit import Claim, Recorder, Signature, Trace, encode_trace, signatures
from cvm.audit.dispute import StepProof, computed, decode_proof, encode_proof, verify_step
from cvm.audit.dispute.proof import partial_record
from cvm.executors import create, initial_state
from cvm.program import Input, Program, Value, commitments, verify
from cvm.program.merkle import Proof, Tree
from cvm.quantization import LogarithmicQuantizer
from tests.program.examples import example
from tests.program.proofs import list_root_of_proof, observed_trace

PAGE = Path(__file__).parents[2] / "docs" / "commitments.md"


def page() -> dict[str, str]:
    blocks = re.findall(r"```hex\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return dict(re.findall(r"^([\w.]+) *= ([0-9a-f]+)$", "\n".join(blocks), re.MULTILINE))


# Sections 1 to 5 of the page.


def H(x=b""):  # noqa: N802 - the page calls it H
    return sha256(x).digest()


def text(s):
    return pack("<I", len(s.encode())) + s.encode()


def shape(*extents):
    return pack("<B", len(extents)) + b"".join(pack("<Q", e) for e in extents)


def listed(*items):
    return pack("<I", len(items)) + b"".join(items)


def merkle(leaves):
    """RFC 6962, section 2.1, as the RFC writes it: by recursion on the largest power of two below n."""
    if not leaves:
        return H()
    if len(leaves) == 1:
        return H(b"\0" + leaves[0])
    k = 1
    while 2 * k < len(leaves):
        k *= 2
    return H(b"\1" + merkle(leaves[:k]) + merkle(leaves[k:]))


def tensor_preimage(dtype, extents, data):
    leaves = [data[i : i + 1024] for i in range(0, len(data), 1024)]
    return b"cvm1:tensor\0" + pack("<B", dtype) + shape(*extents) + pack("<Q", len(data)) + merkle(leaves)


def value(name, lo, hi):
    return text(name) + shape(1, 2, 3) + pack("<qq", lo, hi)


def op(name, attributes, inputs, first, *outputs):
    numbers = [pack("<I", number) for number in inputs]
    return b"cvm1:op\0" + text(name) + listed(*attributes) + listed(*numbers) + pack("<I", first) + listed(*outputs)


def list_root(*records):
    return H(b"cvm1:list\0" + pack("<Q", len(records)) + merkle(records))


def follow_section_8(program: bytes, memory: bytes) -> dict[str, bytes]:
    x, shifted = pack("<6i", 1, 2, 3, 4, 5, 6), pack("<6i", -2, 0, 2, 4, 6, 8)
    x_root, shifted_root = (H(tensor_preimage(1, (1, 2, 3), data)) for data in (x, shifted))
    steps = [b"cvm1:step\0" + pack("<I", number) + listed(shifted_root) for number in range(3)]
    began = b"cvm1:trace\0" + program + listed(x_root) + listed(memory)
    trace = H(began + list_root(*steps))
    run = b"cvm1:run\0" + listed(x_root) + listed(memory) + 2 * listed(shifted_root) + b"\1" + trace
    gas = (1 + 3 * 6) + (1 + 3 * 6) + (1 + 2 * 6)  # of three ops: 1, and the elements that each reads and writes
    receipt = b"cvm1:receipt\0" + program + pack("<I", 1) + text("default") + pack("<Q", gas) + list_root(run)
    return {
        "x.root": x_root,
        "memory.root": memory,
        "shifted.root": shifted_root,
        "raw.root": shifted_root,
        "sum.root": shifted_root,
        **{f"step.{number}": step for number, step in enumerate(steps)},
        "trace.head.0": H(began + list_root()),
        "trace.head.2": H(began + list_root(*steps[:2])),
        "trace.root": trace,
        "run.0": run,
        "receipt.preimage": receipt,
        "receipt.id": H(receipt),
        "signature.message": b"cvm1:signature\0" + H(receipt),
        "trace.file": trace_file(program, x_root, memory, shifted_root),
    }


def follow_section_9(lists: list[tuple[int, bytes]], ops: list[bytes], bias: bytes, nothing: bytes) -> dict[str, bytes]:
    """The step of element 3 of `raw`, from the Merkle roots of the program's lists and what these hold."""
    x, shifted, memory = pack("<6i", 1, 2, 3, 4, 5, 6), pack("<6i", -2, 0, 2, 4, 6, 8), pack("<6i", *(0,) * 6)
    x_root, shifted_root = (H(tensor_preimage(1, (1, 2, 3), data)) for data in (x, shifted))
    program = H(b"cvm1:program\0" + pack("<I", 1) + text("default") + b"".join(
        H(b"cvm1:list\0" + pack("<Q", count) + root) for count, root in lists))  # fmt: skip
    step = b"cvm1:step\0" + pack("<I", 0) + listed(shifted_root)
    head = H(b"cvm1:trace\0" + program + listed(x_root) + listed(nothing) + list_root(step))
    partial = b"cvm1:partial\0" + pack("<qq", 4, 0)
    place = head + pack("<II", 1, 0) + listed() + pack("<Q", 3)
    partials = H(b"cvm1:partials\0" + place + pack("<Q", 1) + merkle([partial]))
    claim = b"cvm1:step-claim\0" + place + pack("<I", 0) + partials

    def opened(data):
        return b"\x01" + shape(1, 2, 3) + merkle([data])

    def leaf(data):
        return pack("<IQI", 1, 0, len(data)) + data + listed()

    def record(number, *path):
        return pack("<I", len(ops[number])) + ops[number] + listed(*path)

    beside = [H(b"\0" + ops[1]), H(b"\0" + ops[2])]
    source = b"\x02" + pack("<I", 0) + record(0, *beside) + listed(shifted_root) + listed()
    operands = [
        pack("<I", 0) + opened(shifted) + source + leaf(shifted),
        pack("<I", 1) + opened(memory) + b"\x00" + leaf(memory),
    ]
    witness = pack("<I", 1) + text("default") + b"".join(pack("<Q", count) + root for count, root in lists)
    witness += listed(x_root) + listed(nothing) + merkle([step]) + record(1, H(b"\0" + ops[0]), H(b"\0" + ops[2]))
    witness += b"\x00" + pack("<qq", 4, 0) + listed() + listed(*operands)
    values = pack("<6i", -3, -2, -1, 0, 1, 2)
    constant = b"\x01" + text("bias") + listed(H(b"\0cvm1:constant\0" + text("nothing") + nothing))
    assert H(tensor_preimage(1, (1, 2, 3), values)) == bias
    return {
        "partial.0": partial,
        "step.place": place,
        "step.partials": partials,
        "step.claim": claim,
        "operand.shifted": operands[0],
        "operand.memory": operands[1],
        "step.proof": b"cvm1:step-proof\0" + claim + witness,
        "operand.bias": pack("<I", 1) + opened(values) + constant + leaf(values),
    }


def trace_file(program: bytes, x: bytes, memory: bytes, shifted: bytes) -> bytes:
    def roots(*items):
        return bytes([0x90 + len(items)]) + b"".join(b"\xc4\x20" + item for item in items)

    parts = {
        "before": roots(memory),
        "inputs": roots(x),
        "program": b"\xc4\x20" + program,
        "steps": b"\x93" + 3 * roots(shifted),
    }
    body = b"".join(bytes([0xA0 + len(key)]) + key.encode() + part for key, part in parts.items())
    return b"\x93\xa9cvm-trace\x01\x84" + body


def follow_the_page() -> dict[str, bytes]:
    count = pack("<300i", *range(300))
    bias = tensor_preimage(1, (1, 2, 3), pack("<6i", -3, -2, -1, 0, 1, 2))
    nothing = tensor_preimage(1, (1, 2, 3), pack("<6i", 0, 0, 0, 0, 0, 0))
    one = text("1/10") + text("0/1")
    x = b"cvm1:input\0" + value("x", 0, 15) + b"\x01" + b"\x00" + pack("<qq", 0, 15) + listed(one)
    constants = [b"cvm1:constant\0" + text("bias") + H(bias), b"cvm1:constant\0" + text("nothing") + H(nothing)]
    memory = b"cvm1:state\0" + value("memory", -100, 100) + pack("<II", 2, 6)
    ends = [text("a_max") + b"\x01" + pack("<q", 100), text("a_min") + b"\x01" + pack("<q", -100)]
    ops = [
        op("elemwise_add", [], [0, 1], 4, value("shifted", -3, 17)),
        op("elemwise_add", [], [4, 3], 5, value("raw", -103, 117)),
        op("clip", ends, [5], 6, value("sum", -100, 100)),
    ]
    channels = listed(one, text("1/5") + text("-1/2"))
    y = b"cvm1:output\0" + text("y") + pack("<I", 6) + b"\x02\x01" + b"\x01" + pack("<qq", -128, 127) + channels
    roots = {
        "ops": list_root(*ops),
        "constants": list_root(*constants),
        "inputs": list_root(x),
        "outputs": list_root(y),
        "state": list_root(memory),
    }
    run = follow_section_8(
        H(b"cvm1:program\0" + pack("<I", 1) + text("default") + b"".join(roots.values())), H(nothing)
    )
    leaves = (ops, constants, [x], [y], [memory])
    steps = follow_section_9([(len(items), merkle(items)) for items in leaves], ops, H(bias), H(nothing))
    return run | {
        **steps,
        "count.leaf.0": H(b"\0" + count[:1024]),
        "count.leaf.1": H(b"\0" + count[1024:]),
        "count.data_root": merkle([count[:1024], count[1024:]]),
        "count.root": H(tensor_preimage(1, (300,), count)),
        "multiplier.root": H(tensor_preimage(2, (1,), pack("<q", -(2**40)))),
        "bias.preimage": bias,
        "bias.root": H(bias),
        "nothing.root": H(nothing),
        "input.0": x,
        "constant.0": constants[0],
        "constant.1": constants[1],
        "state.0": memory,
        **{f"op.{index}": record for index, record in enumerate(ops)},
        "output.0": y,
        **{f"{name}.list_root": root for name, root in roots.items()},
        "program.digest": H(b"cvm1:program\0" + pack("<I", 1) + text("default") + b"".join(roots.values())),
        "proof.op.2.0": merkle(ops[:2]),
        "logarithmic.input": b"cvm1:input\0" + value("p", -8, 8) + b"\x03" + pack("<q", -1) + b"\x03",
    }


def claimed() -> tuple[Claim, Trace]:
    """The run of section 8, with FORMAL."""
    verified = verify(example())
    state = initial_state(verified.program)
    feed = {"x": np.arange(1, 7, dtype=np.int32).reshape(1, 2, 3)}
    recorder = Recorder(verified, trace=True)
    observer = recorder.begin(feed, state)
    result = create("formal", verified).run(feed, state, "all", observer.watch)
    recorder.keep([observer.end(result)])
    return recorder.claim(), observed_trace(verified.program, result)


def compute_section_8() -> dict[str, bytes]:
    claim, trace = claimed()
    (run,) = claim.runs
    made = dict(zip(("shifted.root", "raw.root", "sum.root"), (root for (root,) in trace.steps), strict=True))
    return {
        "x.root": run.inputs[0],
        "memory.root": run.before[0],
        **made,
        **{f"step.{number}": trace.record(number) for number in range(3)},
        "trace.head.0": trace.head(0),
        "trace.head.2": trace.head(2),
        "trace.root": trace.root,
        "run.0": run.preimage(),
        "receipt.preimage": claim.preimage(),
        "receipt.id": claim.id(),
        "signature.message": signatures.message(claim),
        "trace.file": encode_trace(trace),
    }


def compute_section_9() -> dict[str, bytes]:
    true = computed(verify(example()), {"x": np.arange(1, 7).reshape(1, 2, 3)}, executor="formal", codes=True)
    first, second = true.prove(0, 0, 3, 0), true.prove(1, 0, 3, 0)
    claim = second.claim

    def operand(step: StepProof, place: int) -> bytes:
        """The bytes of an operand: those that the proof has more with it than without."""
        data = encode_proof(step)
        given = step.witness.operands
        shorter = replace(step.witness, operands=given[: -1 if place else 0])
        end = len(data) if place else len(encode_proof(step)) - len(operand(step, 1))
        return data[len(encode_proof(replace(step, witness=shorter))) : end]

    return {
        "partial.0": partial_record(4),
        "step.place": claim.preimage()[len(b"cvm1:step-claim\0") : -36],
        "step.partials": claim.partials,
        "step.claim": claim.preimage(),
        "operand.shifted": operand(second, 0),
        "operand.memory": operand(second, 1),
        "step.proof": encode_proof(second),
        "operand.bias": operand(first, 1),
    }


def compute() -> dict[str, bytes]:
    """The same with cvm."""
    program = example()
    count = np.arange(300, dtype=np.int32)
    tree = commitments.tensor_tree(count)
    claims = {constant.name: commitments.constant_claim(constant) for constant in program.constants}
    records = commitments.records(program)
    claim = commitments.program_claim(program)
    powers = Input(Value("p", (1, 2, 3), -8, 8), LogarithmicQuantizer(-1, 3))
    named = {"input": records.inputs, "constant": records.constants, "state": records.state, "op": records.nodes,
             "output": records.outputs}  # fmt: skip
    return compute_section_8() | {
        **compute_section_9(),
        "count.leaf.0": tree.levels[0][:32],
        "count.leaf.1": tree.levels[0][32:],
        "count.data_root": tree.root,
        "count.root": commitments.tensor_root(count),
        "multiplier.root": commitments.tensor_root(np.array([-(2**40)], np.int64)),
        "bias.preimage": claims["bias"].preimage(),
        "bias.root": claims["bias"].root(),
        "nothing.root": claims["nothing"].root(),
        **{f"{name}.{index}": record for name, items in named.items() for index, record in enumerate(items)},
        "ops.list_root": claim.nodes,
        "constants.list_root": claim.constants,
        "inputs.list_root": claim.inputs,
        "outputs.list_root": claim.outputs,
        "state.list_root": claim.state,
        "program.digest": claim.digest(),
        "proof.op.2.0": Tree.of(records.nodes).prove(2).path[0],
        "logarithmic.input": commitments.records(Program((powers,), ())).inputs[0],
    }


@pytest.mark.parametrize("name", page())
def test_the_page_follows_from_its_own_description(name):
    assert page()[name] == follow_the_page()[name].hex()


@pytest.mark.parametrize("name", page())
def test_the_page_says_what_cvm_computes(name):
    assert page()[name] == compute()[name].hex()


def test_the_page_shows_every_step():
    assert page().keys() == follow_the_page().keys() == compute().keys()


def test_the_proof_on_the_page_opens_an_op_of_the_digest():
    shown = {name: bytes.fromhex(digits) for name, digits in page().items()}
    root = list_root_of_proof(shown["op.2"], Proof(2, 3, (shown["proof.op.2.0"],)))
    assert root == shown["ops.list_root"]


def test_the_step_on_the_page_is_accepted():
    data = bytes.fromhex(page()["step.proof"])
    proof = decode_proof(data)
    assert verify_step(proof.claim, proof.witness).accepted
    from cvm.standalone.verify_step import judged

    assert judged(data, bytes.fromhex(page()["step.place"][:64]))[0]


def test_the_signature_on_the_page_is_one_of_its_message():
    pytest.importorskip("cryptography")
    words = re.search(r"key +([0-9a-f]{64})\nsignature +([0-9a-f]{64})\n +([0-9a-f]{64})", PAGE.read_text("utf-8"))
    key, *halves = (bytes.fromhex(word) for word in words.groups())
    assert signatures.is_genuine(claimed()[0], Signature(key, b"".join(halves)))


def test_the_page_names_the_first_bytes_of_a_file():
    assert example().to_bytes().startswith(bytes.fromhex("93ab") + b"cvm-program")
