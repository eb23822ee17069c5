"""Files of a language model: constants once, every program as it was, and nothing else is taken."""

from __future__ import annotations

import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed
from cvm.generation import Generator, LanguageModel, load_model
from cvm.generation.archive import MOST_PREFILL, read_model
from cvm.program import Program
from cvm.program.verifier import verify
from tests.generation.test_prefill import PROMPT, TOKENS, made
from tests.selection import examples
from tools.cached_model import cached


def model() -> LanguageModel:
    """A decode step and two prefill programs."""
    return LanguageModel(verify(cached(1)), (verify(cached(7)), verify(cached(64))))


DATA = b"".join(model().pieces())


def test_programs_keep_their_bytes_and_constants_are_stored_once(tmp_path: Path) -> None:
    model().save(tmp_path / "m.model")
    assert (tmp_path / "m.model").read_bytes() == DATA
    found = load_model(tmp_path / "m.model")
    programs = [found.decode.program, *(item.program for item in found.prefill)]
    assert [item.to_bytes() for item in programs] == [cached(count).to_bytes() for count in (1, 7, 64)]
    for name in ("embedding", "head", "empty"):
        (data,) = {id(item.data) for program in programs for item in program.constants if item.name == name}
        assert data
    head = next(item for item in programs[0].constants if item.name == "head")
    assert DATA.count(head.data) == 1
    assert b"".join(found.pieces()) == DATA


def test_a_generator_takes_the_file(tmp_path: Path) -> None:
    model().save(tmp_path / "m.model")
    generator = Generator(tmp_path / "m.model", temperature="0.9", executor="numpy")
    weights = [
        {id(item.data) for item in made.constants} for made in (generator.program, generator.model.prefill[0].program)
    ]
    assert len(weights[0] & weights[1]) >= 3  # the program that generates holds the same bytes, too
    found = generator.run(generator.request(PROMPT, TOKENS, seed=5), True)
    expected, _ = made((), "numpy")
    assert found.receipt.claim == expected.receipt.claim


def changed(change: Callable[[Any], None], data: bytes = DATA) -> bytes:
    """The bytes with a change of what they mean."""
    tree = msgpack.unpackb(data)
    change(tree)
    return msgpack.packb(tree)


def outline(program: Program) -> Any:
    """The outline of a program as the file has it."""
    data = b"".join(LanguageModel(verify(program)).pieces())
    return msgpack.unpackb(msgpack.unpackb(data)[2]["decode"])


def _other_data(tree: Any) -> None:
    tree[2]["constants"][0] = bytes(len(tree[2]["constants"][0]))


def _swapped(tree: Any) -> None:
    constants = tree[2]["constants"]
    constants[0], constants[1] = constants[1], constants[0]


def _unused(tree: Any) -> None:
    tree[2]["constants"] = sorted([*tree[2]["constants"], bytes(100)], key=lambda item: sha256(item).digest())


def _twice(tree: Any) -> None:
    tree[2]["constants"].insert(0, tree[2]["constants"][0])


def _inline(tree: Any) -> None:
    tree[2]["decode"] = cached(1).to_bytes()


def _short(tree: Any) -> None:
    program = msgpack.unpackb(tree[2]["decode"])
    large = next(item for item in program[2]["constants"] if item["name"] == "head")
    large["shape"] = [large["shape"][0] - 1, large["shape"][1]]
    tree[2]["decode"] = msgpack.packb(program)


def _ranks(tree: Any) -> None:
    program = msgpack.unpackb(tree[2]["decode"])
    program[2]["constants"][0]["shape"] = [2**62] * 60_000
    tree[2]["decode"] = msgpack.packb(program)


def _large(tree: Any) -> None:
    program = msgpack.unpackb(tree[2]["decode"])
    program[2]["constants"][0]["shape"] = [2**20, 2**20, 2**20]
    tree[2]["decode"] = msgpack.packb(program)


def _many(tree: Any) -> None:
    tree[2]["prefill"] = [tree[2]["prefill"][0]] * (MOST_PREFILL + 1)


def _version(tree: Any) -> None:
    tree[1] = 2


def _broken_program(tree: Any) -> None:
    program = msgpack.unpackb(tree[2]["prefill"][1])
    program[2]["inputs"][0]["value"]["hi"] += 1000
    program[2]["nodes"].pop()
    tree[2]["prefill"][1] = msgpack.packb(program)


@pytest.mark.parametrize(
    ("change", "error", "code"),
    [
        (_other_data, Invalid, "generation.constant"),
        (_swapped, Malformed, "generation.canonical"),
        (_unused, Malformed, "generation.canonical"),
        (_twice, Malformed, "generation.canonical"),
        (_inline, Invalid, "generation.constant"),
        (_short, Invalid, "generation.constant"),
        (_ranks, CvmError, ""),
        (_large, LimitExceeded, "limit.model_bytes"),
        (_many, LimitExceeded, "limit.prefill"),
        (_version, Malformed, "generation.version"),
        (_broken_program, CvmError, "program."),
    ],
)
def test_other_files_are_refused(change: Callable[[Any], None], error: type[CvmError], code: str) -> None:
    with pytest.raises(error) as caught:
        read_model(changed(change))
    assert caught.value.code.startswith(code)


def test_constants_that_many_uses_would_expand_are_refused_before_that() -> None:
    def repeat(tree: Any) -> None:
        program = msgpack.unpackb(tree[2]["decode"])
        large = next(item for item in program[2]["constants"] if item["name"] == "empty")
        program[2]["constants"] += [{**large, "name": f"more{number}"} for number in range(500)]
        tree[2]["decode"] = msgpack.packb(program)

    with pytest.raises(LimitExceeded, match="bytes of the constants of all programs"):
        read_model(changed(repeat, b"".join(LanguageModel(verify(cached(1, context=2000))).pieces())))


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    drawn = random.Random(4)
    small = b"".join(LanguageModel(verify(cached(1))).pieces())
    for _ in range(examples(200)):
        data = bytearray(small)
        kind = drawn.randrange(3)
        at = drawn.randrange(len(data))
        if kind == 0:
            data[at] ^= 1 << drawn.randrange(8)
        elif kind == 1:
            del data[at:]
        else:
            data[at:at] = bytes(drawn.randrange(256) for _ in range(drawn.randrange(1, 5)))
        try:
            found = read_model(bytes(data))
        except CvmError:
            continue
        assert b"".join(found.pieces()) == bytes(data)  # the change made another valid program
    path = tmp_path / "m.model"
    path.write_bytes(small[:-1])
    with pytest.raises(CvmError) as caught:
        load_model(path)
    assert caught.value.location.file == str(path)


def test_equal_programs_give_equal_bytes() -> None:
    other = b"".join(model().pieces())
    assert other == DATA
    assert np.frombuffer(DATA, np.uint8)[:11].tobytes() == b"\x93\xa9cvm-model"
