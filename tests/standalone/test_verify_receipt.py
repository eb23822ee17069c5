"""The verifier that stands alone, as a program, against receipts of the product."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from hashlib import sha512
from pathlib import Path
from struct import pack, unpack
from typing import Any

import numpy as np
import pytest

from cvm.arrays import npz_bytes
from cvm.audit import Host, encode_receipt, encode_trace, sign, write_trace
from cvm.demo import IMAGES, MODEL
from cvm.inputs import Intake, arrange
from cvm.ops import REGISTRY
from cvm.program import verify
from cvm.session import Session
from tests.audit.examples import SUBJECTS, Subject, subject
from tests.audit.test_trace_file import mutants as trace_mutants
from tests.audit.test_verify import claim_mutants

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "cvm" / "standalone" / "verify_receipt.py"


def output(*arguments: object) -> tuple[int, list[str]]:
    """The tool's exit code and lines. It runs isolated, so that it could not import cvm if it tried."""
    command = [sys.executable, "-I", "-S", str(TOOL), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert result.stderr == ""
    return result.returncode, result.stdout.splitlines()


def run(*arguments: object) -> tuple[int, str]:
    """The tool's exit code and last line."""
    code, lines = output(*arguments)
    return code, lines[-1]


def written(folder: Path, item: Subject) -> list[object]:
    """Files of a subject: the arguments that verify its receipt."""
    (folder / "r.receipt").write_bytes(encode_receipt(item.receipt()))
    item.verified.program.save(folder / "m.cvm")
    (folder / "in.npz").write_bytes(npz_bytes(dict(item.inputs)))
    result = Session(item.verified).run(item.inputs, cycles=item.cycles, codes=True)
    (folder / "out.npz").write_bytes(npz_bytes({name: result[name] for name in result}))
    return [folder / "r.receipt", "--program", folder / "m.cvm", "-i", folder / "in.npz"]


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_true_receipt_is_reproduced(tmp_path, name):
    arguments = written(tmp_path, subject(name))
    code, answer = run(*arguments, "--outputs", tmp_path / "out.npz")
    assert (code, answer.startswith("REPRODUCED at level trace: ")) == (0, True)


def test_a_network_is_re_executed(tmp_path):
    import cvm

    with np.load(IMAGES) as data:
        images = data["image"][:2]
    arguments = written(tmp_path, Subject(verify(cvm.compile(MODEL)), {"image": images}))
    assert run(*arguments, "--outputs", tmp_path / "out.npz") == (0, "REPRODUCED at level trace: 2 runs")


@pytest.mark.parametrize(
    ("host", "words"),
    [(Host(), "nothing"), (Host(executor="numpy", version="cvm 1"), "numpy, cvm 1")],
)
def test_what_the_host_says_has_no_empty_words(tmp_path, host, words):
    item = subject(SUBJECTS[0])
    arguments = written(tmp_path, item)
    arguments[0].write_bytes(encode_receipt(replace(item.receipt(), host=host)))
    _, lines = output(*arguments)
    assert f"the host said, and nobody vouches for it: {words}" in lines


@pytest.mark.parametrize("name", SUBJECTS)
def test_no_field_of_a_claim_can_be_changed(name):
    from cvm.standalone import verify_receipt as tool

    item = subject(name)
    receipt = item.receipt()
    program = tool.decoded(item.verified.program.to_bytes(), "cvm-program")
    assert tool.gas(program) == item.verified.gas
    assert tool.receipt_id(tool.receipt(encode_receipt(receipt))["claim"]) == receipt.claim.id()

    def answer(claim):
        body = tool.receipt(encode_receipt(replace(receipt, claim=claim)))["claim"]
        assert tool.receipt_id(body) == claim.id()
        ends = [{**i, "shape": i["value"]["shape"]} for i in program["inputs"]]
        try:
            given = [np.asarray(item.inputs[i["value"]["name"]]).ravel() for i in program["inputs"]]
            exact = [[x if isinstance(x, int) else tool.Fraction(x) for x in array.tolist()] for array in given]
            inputs = [tool.codes(array, end, len(claim.runs)) for array, end in zip(exact, ends, strict=True)]
            tool.verify(body, program, inputs)
        except tool.Ends as end:
            return end.args[0]
        raise AssertionError("there is always an answer")

    assert answer(receipt.claim) == "REPRODUCED"
    for what, claim in claim_mutants(receipt.claim):
        assert answer(claim) in ("DIVERGED", "CANNOT_RECOMPUTE"), what


RFC_8032 = {
    "test 1": (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        b"",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe"
            "24655141438e7a100b"
        ),
    ),
    "test 2": (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        b"\x72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302a"
            "eeb00d291612bb0c00"
        ),
    ),
    "test 3": (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        b"\xaf\x82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed2"
            "8dc027beceea1ec40a"
        ),
    ),
    "test SHA(abc)": (
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        sha512(b"abc").digest(),
        (
            "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac1"
            "7ad9bef1177331a704"
        ),
    ),
}
"""RFC 8032, section 7.1: public key, message, signature."""
ORDER = 2**252 + 27742317777372353535851937790883648493
FIELD = 2**255 - 19


@pytest.mark.parametrize("name", RFC_8032)
def test_the_signatures_of_the_standard_are_genuine_and_no_others(name):
    from cvm.standalone import verify_receipt as tool

    key, message, signature = RFC_8032[name]
    key, signature = bytes.fromhex(key), bytes.fromhex(signature)
    assert tool.genuine(key, message, signature)
    assert not tool.genuine(key, message + b"\0", signature)
    for index in range(0, 64, 5):
        changed = bytearray(signature)
        changed[index] ^= 1 << index % 8
        assert not tool.genuine(key, message, bytes(changed))
    for index in range(0, 32, 5):
        changed = bytearray(key)
        changed[index] ^= 1 << index % 8
        assert not tool.genuine(bytes(changed), message, signature)
    # The same modulo the order of the group is another number, which the standard refuses.
    s = int.from_bytes(signature[32:], "little")
    assert not tool.genuine(key, message, signature[:32] + (s + ORDER).to_bytes(32, "little"))


def test_signatures_are_judged_as_the_product_judges_them():
    """Keys of all kinds: proper ones, points of small order, and bytes that stand for no point or in no proper form."""
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from cvm.audit import Signature, signatures
    from cvm.standalone import verify_receipt as tool

    claim = subject("negated").receipt().claim
    message = signatures.message(claim)
    proper = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(4)]
    pairs = [(key.public_key().public_bytes_raw(), key.sign(message)) for key in proper]
    pairs += [(pairs[k][0], pairs[k - 1][1]) for k in range(4)]
    identity = (1).to_bytes(32, "little")
    ys = [0, 1, 2, 3, FIELD - 1, FIELD, FIELD + 1, 2**255 - 1]
    keys = [(y | odd << 255).to_bytes(32, "little") for y in ys for odd in (0, 1)]
    # With a key of small order, R = S B is a signature of every message of which k is a multiple of that order.
    base = (tool.BASE[1] | tool.BASE[0] % 2 << 255).to_bytes(32, "little")
    pairs += [(key, r + s.to_bytes(32, "little")) for key in keys for r, s in ((identity, 0), (base, 1), (identity, 1))]
    answers = []
    for key, signature in pairs:
        mine = tool.genuine(key, message, signature)
        assert mine == signatures.is_genuine(claim, Signature(key, signature)), (key.hex(), signature.hex())
        answers.append(mine)
    assert answers[:8] == [True] * 4 + [False] * 4


def points_of_small_order(tool: Any) -> list[tuple[int, int]]:
    """The eight points with 8 A = 0: the multiples of L * A, for the first A of which these are eight."""
    for y in range(2, 100):
        point = tool.point(y.to_bytes(32, "little"))
        generator = (0, 1) if point is None else tool.times(ORDER, point)
        multiples = [tool.times(k, generator) for k in range(1, 9)]
        if len(set(multiples)) == 8:
            return multiples
    raise AssertionError("no point has a part of order 8")


def encodings(x: int, y: int) -> list[bytes]:
    """All 32 bytes that some reader takes for a point: y or y + p, and both signs where x is 0."""
    signs = (0, 1) if x == 0 else (x % 2,)
    return [(z | sign << 255).to_bytes(32, "little") for z in (y, y + FIELD) if z < 2**255 for sign in signs]


def test_keys_of_small_order_sign_nothing():
    """R = S B - k A for every k modulo 8: the right one among them satisfies the equation of the standard."""
    pytest.importorskip("cryptography")
    from cvm.audit import Signature, signatures
    from cvm.standalone import verify_receipt as tool

    claim = subject("negated").receipt().claim
    message = signatures.message(claim)
    points = points_of_small_order(tool)
    assert sorted(sum(tool.times(n, point) == (0, 1) for point in points) for n in (1, 2, 4, 8)) == [1, 2, 4, 8]
    keys = [key for point in points for key in encodings(*point)]
    assert len(keys) == len(set(keys)) == 14
    solved = 0
    for key in keys:
        a = next(point for point in points if key in encodings(*point))
        for s in range(8):
            for k in range(8):
                x, y = tool.plus(tool.times(s, tool.BASE), tool.times(k, (FIELD - a[0], a[1])))
                r = (y | x % 2 << 255).to_bytes(32, "little")
                found = int.from_bytes(sha512(r + key + message).digest(), "little")
                if found % 8 != k:
                    continue
                solved += 1
                signature = r + s.to_bytes(32, "little")
                assert not tool.genuine(key, message, signature), key.hex()
                assert not signatures.is_genuine(claim, Signature(key, signature)), key.hex()
    assert solved > 50


def test_only_the_canonical_forms_of_a_signature_count():
    """R and A written with y + p or a needless sign, and S + n L, for all n that fit 32 bytes."""
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from cvm.audit import Signature, signatures
    from cvm.standalone import verify_receipt as tool

    claim = subject("negated").receipt().claim
    message = signatures.message(claim)
    private = Ed25519PrivateKey.from_private_bytes(bytes(32))
    key, signature = private.public_key().public_bytes_raw(), private.sign(message)
    s = int.from_bytes(signature[32:], "little")
    wrong = [signature[:32] + (s + n * ORDER).to_bytes(32, "little") for n in range(1, (2**256 - s) // ORDER + 1)]
    # R = 0 needs S = k a, which whoever has the secret can choose: the same signature with R written in four ways.
    half = bytearray(sha512(bytes(32)).digest()[:32])
    half[0] &= 248
    half[31] = half[31] & 127 | 64
    secret = int.from_bytes(half, "little")
    right = []
    for r in encodings(0, 1):
        k = int.from_bytes(sha512(r + key + message).digest(), "little") % ORDER
        (right if r == encodings(0, 1)[0] else wrong).append(r + (k * secret % ORDER).to_bytes(32, "little"))
    assert len(right) == 1
    assert len(wrong) > 15 + 2
    for expected, cases in ((True, [signature, *right]), (False, wrong)):
        for case in cases:
            assert tool.genuine(key, message, case) == expected
            assert signatures.is_genuine(claim, Signature(key, case)) == expected


def test_a_signed_receipt_is_verified(tmp_path):
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    arguments = written(tmp_path, subject("batch"))
    receipt = subject("batch").receipt()
    for number in range(2):
        key = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
        receipt = sign(receipt, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (tmp_path / "r.receipt").write_bytes(encode_receipt(receipt))
    code, lines = output(*arguments)
    assert (code, lines[-1]) == (0, "REPRODUCED at level trace: 3 runs")
    assert [line for line in lines if line.startswith("signed by ")] == [
        f"signed by {item.key.hex()}" for item in receipt.signatures
    ]
    false = replace(receipt.signatures[1], signature=receipt.signatures[0].signature)
    forged = replace(receipt, signatures=(receipt.signatures[0], false))
    (tmp_path / "r.receipt").write_bytes(encode_receipt(forged))
    assert run(*arguments) == (
        1, f"DIVERGED at level structure: the signature by {false.key.hex()} is not one of this claim"
    )  # fmt: skip


@pytest.mark.parametrize("name", SUBJECTS)
def test_no_field_of_a_given_trace_can_be_changed(name, capsys):
    from cvm.standalone import verify_receipt as tool

    item = subject(name)
    program = tool.decoded(item.verified.program.to_bytes(), "cvm-program")
    claim = tool.receipt(encode_receipt(item.receipt()))["claim"]
    _, samples = arrange(item.verified.program, item.inputs, item.cycles, intake=Intake(codes=True))
    feeds = [feed for feeds in samples for feed in feeds]
    inputs = [[feed[i["value"]["name"]].ravel().tolist() for feed in feeds] for i in program["inputs"]]

    def answer(trace):
        with pytest.raises(tool.Ends) as caught:
            tool.verify(claim, program, inputs, (), [tool.log(encode_trace(trace))])
        return caught.value.args[:2]

    for trace in item.traces():
        assert answer(trace) == ("REPRODUCED", "trace")
        for what, mutant in trace_mutants(trace):
            said = ("DIVERGED", "trace") if what.startswith(("steps", "a step")) else ("CANNOT_RECOMPUTE", "roots")
            assert answer(mutant) == said, what


def test_the_first_op_of_a_given_trace_that_differs_is_named(tmp_path):
    arguments = written(tmp_path, subject("example"))
    (trace,) = subject("example").traces()
    write_trace(trace, tmp_path / "t.trace")
    assert run(*arguments, "--trace-file", tmp_path / "t.trace")[0] == 0
    write_trace(replace(trace, steps=(trace.steps[0], (bytes(32),), trace.steps[2])), tmp_path / "t.trace")
    assert run(*arguments, "--trace-file", tmp_path / "t.trace") == (
        1, "DIVERGED at level trace: run 0: op 1, the elemwise_add that gives 'raw', is the first that differs"
    )  # fmt: skip
    (tmp_path / "t.trace").write_bytes(b"\x93")
    assert run(*arguments, "--trace-file", tmp_path / "t.trace")[0] == 3


@pytest.mark.parametrize("path", sorted((ROOT / "spec_vectors" / "programs").glob("*.msgpack")), ids=lambda p: p.stem)
def test_every_program_of_the_vectors_is_executed(path):
    from cvm.standalone import verify_receipt as tool

    (_, _, _, cases), _ = tool.read(path.read_bytes())
    for case in cases:
        if case["verdict"] != "value":
            continue
        p = tool.decoded(case["program"], "cvm-program")
        first = sum(len(p[key]) for key in ("inputs", "constants", "state"))
        names = [v["name"] for n in p["nodes"] for v in n["outputs"]]
        state = [tool.elements(p["constants"][s["initial"] - len(p["inputs"])]) for s in p["state"]]
        for one in case["runs"]:
            inputs = [
                unpack(f"<{len(d) // 4}i", d) for i in p["inputs"] for d in [one["inputs"][i["value"]["name"]][2]]
            ]
            values = tool.execute(p, inputs, state)
            state = [values[s["update"]][1] for s in p["state"]]
            for name, (shape, items) in zip(names, values[first:], strict=True):
                assert [list(shape), pack(f"<{len(items)}i", *items)] == list(one["values"][name][1:]), name


@pytest.mark.parametrize("name", ["upsampling", "get_valid_count", "non_max_suppression"])
def test_the_further_ops_pass_their_vectors(name):
    from cvm.standalone import verify_receipt as tool

    (path,) = (ROOT / "spec_vectors" / "ops").rglob(f"{name}.msgpack")
    (_, _, header, cases), _ = tool.read(path.read_bytes())
    assert header["op"] == name
    count = 0
    for case in cases:
        if case["verdict"] == "value":
            inputs = [tool.tensor(shape, unpack(f"<{len(data) // 4}i", data)) for _, shape, data in case["inputs"]]
            found = tool.ALL[name](*inputs, **case["attributes"])
            made = [["int32", y.shape, pack(f"<{len(y.at)}i", *y.at.values())]
                    for y in (found if isinstance(found, tuple) else (found,))]  # fmt: skip
            assert made == [list(item) for item in case["outputs"]], case["id"]
            count += 1
    assert count > 10


def test_there_is_every_op():
    from cvm.standalone import verify_receipt as tool

    assert tool.ALL.keys() == REGISTRY.keys()


def test_the_vectors_of_receipts_are_recomputed():
    count = len(list((ROOT / "spec_vectors" / "receipts").glob("*.receipt")))
    assert count > 10
    assert run("--vectors", ROOT / "spec_vectors") == (0, f"{count} receipts, wrong: []")


def test_a_wrong_vector_is_named(tmp_path):
    for path in ("receipts/argmax.receipt", "programs/argmax.msgpack"):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_bytes((ROOT / "spec_vectors" / path).read_bytes())
    data = (tmp_path / "receipts" / "argmax.receipt").read_bytes()
    index = data.index(b"\xa7outputs\x91\xc4\x20") + 20
    (tmp_path / "receipts" / "argmax.receipt").write_bytes(data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :])
    assert run("--vectors", tmp_path) == (1, "1 receipts, wrong: ['argmax']")
    assert run("--vectors", tmp_path / "receipts") == (1, f"no receipts/*.receipt in {tmp_path / 'receipts'}")


def test_other_answers_have_their_exit_codes(tmp_path):
    arguments = written(tmp_path, subject("batch"))
    assert run(arguments[0])[0] == 5
    assert run(*arguments[:3]) == (5, "CANNOT_RECOMPUTE at level roots: no inputs are given")
    (tmp_path / "wrong.npz").write_bytes(npz_bytes({"y": np.zeros((3, 2, 3), np.int32)}))
    assert run(*arguments, "--outputs", tmp_path / "wrong.npz")[0] == 1
    (tmp_path / "in.npz").write_bytes(npz_bytes({"image": np.ones((3, 2, 3), np.int8)}))
    assert run(*arguments) == (5, "CANNOT_RECOMPUTE at level roots: run 0 had other inputs")


def test_damaged_files_are_malformed(tmp_path):
    arguments = written(tmp_path, subject("batch"))
    data = (tmp_path / "r.receipt").read_bytes()
    broken = [
        b"",
        data[:-1],
        data + b"\0",
        b"\x93" * 5000,
        data.replace(b"\x01", b"\xcc\x01", 1),
        b"\xdd\xff\xff\xff\xff",
    ]
    for content in broken:
        (tmp_path / "r.receipt").write_bytes(content)
        code, answer = run(*arguments)
        assert (code, answer.startswith("MALFORMED: ")) == (3, True)
    (tmp_path / "r.receipt").write_bytes(data)
    (tmp_path / "m.cvm").write_bytes((tmp_path / "m.cvm").read_bytes()[:-9])
    assert run(*arguments)[0] == 3


FORMS = {
    "the version": lambda tree: tree.__setitem__(1, True),
    "the op-set": lambda tree: tree[2]["claim"].update(op_set=True),
    "the signatures, bytes": lambda tree: tree[2].update(signatures=b""),
    "the signatures, a text": lambda tree: tree[2].update(signatures=""),
    "the state": lambda tree: tree[2]["claim"]["runs"][0].update(before=b""),
}


@pytest.mark.parametrize("what", FORMS)
def test_what_only_counts_as_a_number_or_a_list_is_malformed(tmp_path, what):
    """True equals 1 in Python, and nothing of a text looks like nothing of a list: the product refuses both."""
    import msgpack

    from cvm.audit import load_receipt
    from cvm.errors import Malformed
    from tools.fuzz.mutation import packed_tree

    arguments = written(tmp_path, subject("batch"))
    tree = msgpack.unpackb((tmp_path / "r.receipt").read_bytes(), strict_map_key=False)
    FORMS[what](tree)
    (tmp_path / "r.receipt").write_bytes(packed_tree(tree))
    with pytest.raises(Malformed):
        load_receipt(tmp_path / "r.receipt")
    code, answer = run(*arguments)
    assert (code, answer.startswith("MALFORMED: ")) == (3, True)


def test_it_imports_nothing_but_the_standard_library():
    import ast

    modules = set()
    for file in (TOOL, TOOL.with_name("verify_step.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules.add(node.module.split(".")[0])
    assert modules <= sys.stdlib_module_names


def test_its_ops_are_those_of_the_consumer_of_vectors_word_for_word():
    consumer = (ROOT / "tools" / "consume_vectors.py").read_text("utf-8")
    for first, last in (("LONG = {", "\n\ndef write("), ("class Tensor:", "\n\ndef answer(")):
        section = consumer[consumer.index(first) : consumer.index(last)]
        assert len(section) > 1_000
        assert section in TOOL.read_text("utf-8")
