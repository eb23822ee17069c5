"""Programs as WebAssembly: every output and every tensor equal, in every engine that is here, for every op."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cvm
from cvm.demo import IMAGES, LANGUAGE_MODEL, MODEL
from cvm.errors import Invalid
from cvm.executors.native.emit.machine import WASM
from cvm.executors.native.runtime.foreign import compiled_for
from cvm.export.wasm import exported, module
from cvm.export.wasm.binary import Cursor, signed, unsigned
from cvm.export.wasm.linked import Unlinkable, linked
from cvm.ops import REGISTRY
from cvm.program import Output, Program, ProgramBuilder, load, verify
from cvm.vectors import CommandRunner, check
from tests.api import small
from tools import chromium
from tools.fuzz.c_programs import case, covering
from tools.fuzz.wasm_programs import differences
from tools.wasm_driver import MAKERS, Chromium, Engine, Node, description, engines

ROOT = Path(__file__).parents[3]
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
needs_engine = pytest.mark.skipif(not engines(), reason="neither Node nor wasmtime is installed")


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, Engine]]:
    found = {name: MAKERS[name]() for name in engines()}
    yield found
    if isinstance(node := found.get("node"), Node):
        node.close()


def in_node(folder: Path, script: str) -> str:
    """What a script prints that uses the package in a folder."""
    (folder / "use.mjs").write_text(f'import * as wasm from "./index.js";\n{script}\n')
    done = subprocess.run(["node", "use.mjs"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def package(folder: Path, verified, name: str = "model", traced: bool = False) -> Path:
    for file, data in exported(verified, name, traced).files.items():
        (folder / file).write_bytes(data)
    return folder


@needs_engine
def test_the_demo_gives_its_probabilities(running):
    with np.load(IMAGES) as data:
        images = data["image"][:3]
    codes = [{"image": np.rint(image * 255).astype(np.int32)[None]} for image in images]
    assert differences(cvm.compile(MODEL), codes, running) == []


@needs_engine
@pytest.mark.parametrize("number", [1, 2, 3])
def test_random_programs_agree(running, number):
    program, feeds, _ = case(9, number)
    assert differences(program, feeds, running) == []


@needs_engine
def test_every_op_is_exported(running):
    """Random programs of all ops, each op at least once; those of op-set 2 too."""
    uses: set[str] = set()
    for op, program, feeds in covering():
        uses.update(node.op for node in program.nodes)
        assert differences(program, feeds, running) == [], op
    assert uses == set(REGISTRY)


@pytest.mark.long
@needs_engine
@pytest.mark.parametrize("part", range(12))
def test_many_random_programs_agree(running, part):
    for number in range(6 * part, 6 * part + 6):
        program, feeds, _ = case(25, number)
        assert differences(program, feeds, running) == [], number


@pytest.mark.long
@pytest.mark.skipif(chromium.found() is None, reason="Chromium is not installed")
def test_random_programs_agree_in_chromium():
    engine = Chromium()
    try:
        for number in range(4):
            program, feeds, _ = case(26, number)
            assert differences(program, feeds, {"chromium": engine}) == [], number
    finally:
        engine.close()


@pytest.mark.long
@needs_engine
def test_the_language_model_gives_its_tokens(running):
    program = load(LANGUAGE_MODEL)
    values = [item.value for item in program.inputs]
    feeds = [{one.name: np.full(one.shape, k % (one.hi + 1), np.int32) for one in values} for k in range(4)]
    assert differences(program, feeds, running) == []


@needs_node
@pytest.mark.parametrize("family", ["ops/transform", "ops/nn", "programs"])
@pytest.mark.long
def test_the_vectors_hold_in_node(family, monkeypatch):
    monkeypatch.setenv("PYTHON", sys.executable)
    with CommandRunner(f"node {ROOT / 'tools' / 'wasm_vectors.mjs'}") as runner:
        report = check(ROOT / "spec_vectors" / family, runner, ("value",))
    assert report.ok, report.first


@needs_node
def test_the_package_is_one_that_node_loads(tmp_path):
    package(tmp_path, verify(small.negated()), "tiny")
    written = json.loads((tmp_path / "package.json").read_text())
    assert written["type"] == "module"
    assert {*written["files"], "package.json"} == {path.name for path in tmp_path.iterdir()}
    printed = in_node(tmp_path, "const model = await wasm.load(); console.log(model.digest);")
    assert printed.strip() == small.negated().digest


REFUSED = {
    "{}": "wasm.inputs",
    "{image: new Int32Array(64), other: new Int32Array(1)}": "wasm.inputs",
    "{image: new Int32Array(63)}": "wasm.shape",
    "{image: new Float32Array(64)}": "wasm.type",
    "{image: new BigInt64Array(64)}": "wasm.type",
    "{image: 'codes'}": "wasm.type",
    "{image: Array(64).fill(0.5)}": "wasm.range",
    "{image: Array(64).fill(2 ** 32)}": "wasm.range",
    "{image: new Int32Array(64).fill(256, 63)}": "wasm.range",
    "{image: new Int32Array(64).fill(-1, 0, 1)}": "wasm.range",
}
"""Inputs that the program of the demo does not take, as JavaScript, and the code of the error."""


@needs_node
def test_inputs_that_the_program_does_not_take_are_refused(tmp_path):
    package(tmp_path, verify(cvm.compile(MODEL)))
    tries = "".join(f"try {{ model.run({one}); }} catch (e) {{ console.log(e.code); }}\n" for one in REFUSED)
    assert in_node(tmp_path, f"const model = await wasm.load();\n{tries}").split() == [*REFUSED.values()]


@needs_node
def test_other_bytes_are_no_module_of_cvm(tmp_path):
    package(tmp_path, verify(small.negated()))
    empty = "new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])"
    script = f"try {{ await wasm.load({empty}); }} catch (e) {{ console.log(e.code); }}"
    assert in_node(tmp_path, script).strip() == "wasm.module"


def counter() -> Program:
    builder = ProgramBuilder()
    x = builder.input("x", (3,), 0, 10)
    kept = builder.state("kept", builder.constant([1, 2, 3]), 0, 100)
    (total,) = builder.add("elemwise_add", [kept, x])
    (clipped,) = builder.add("clip", [total], {"a_min": 0, "a_max": 100})
    builder.update(kept, clipped)
    return builder.build([Output("y", clipped)])


@needs_node
def test_state_is_kept_restored_and_reset(tmp_path):
    package(tmp_path, verify(counter()))
    printed = in_node(
        tmp_path,
        "const model = await wasm.load(); const x = [1, 1, 1]; const y = () => model.run({x}).y.join();\n"
        "console.log(y(), y()); const state = model.state(); y(); model.restore(state);\n"
        "console.log(y()); model.reset(); console.log(y());\n"
        "model.restore({kept: [101, 0, 0]}); try { y(); } catch (e) { console.log(e.message); }",
    )
    expected = "2,3,4 3,4,5\n4,5,6\n2,3,4\nstate kept: element 0 is 101, expected integers from 0 to 100\n"
    assert printed == expected


def test_the_bytes_are_the_same_every_time_and_name_the_program():
    first, again = (module(verify(small.negated())).code for _ in range(2))
    assert first == again
    assert description(first)["digest"] == small.negated().digest


def test_a_module_imports_nothing():
    cursor = Cursor(module(verify(cvm.compile(MODEL))).code, 8)
    kinds = []
    while not cursor.done():
        kinds.append(cursor.byte())
        cursor.take(cursor.unsigned())
    assert kinds == [1, 3, 5, 6, 7, 10, 11, 0]


def test_code_that_calls_a_library_is_not_linked():
    text = "declare void @elsewhere()\ndefine void @run() {\n  call void @elsewhere()\n  ret void\n}"
    with pytest.raises(Unlinkable, match="elsewhere"):
        linked(compiled_for("wasm32-unknown-unknown", WASM, text, "static"), 0)


@pytest.mark.parametrize("name", ["", "Model", "1st", "a-b", "a" * 32])
def test_names_that_are_no_identifiers_are_refused(name):
    with pytest.raises(Invalid, match=r"export\.name"):
        exported(verify(small.negated()), name)


@pytest.mark.parametrize("value", [0, 1, 63, 64, 127, 128, 2**14, 2**31 - 1, 2**31, 2**32 - 1])
def test_numbers_come_back(value):
    assert Cursor(unsigned(value)).unsigned() == value
    assert Cursor(signed(value)).signed() % 2**32 == value
