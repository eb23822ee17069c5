"""Every command that takes a file, given a file of every other format, says what it is and what to do with it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cvm.cli.application import COMMANDS
from cvm.cli.declaration import Group
from cvm.formats import recognised
from tests.api.beginnings import STARTS
from tests.cli.conftest import Outcome

Cvm = Callable[..., Outcome]

MODELS = {"onnx", "tflite", "tensor", "archive"}
TAKES: dict[str, tuple[str, set[str]]] = {
    "compile FILE": ("a model", MODELS),
    "run FILE": ("a model", MODELS | {"program"}),
    "check FILE": ("a model", MODELS | {"program"}),
    "inspect FILE": ("a model", MODELS | {"program"}),
    "quantize FILE -i reals.npy": ("a model", MODELS),
    "report FILE -i reals.npy": ("a model", MODELS | {"program"}),
    "digest FILE": ("a program, a receipt, a trace", {"program", "receipt", "trace", "npy", "npz"}),
    "legalize FILE": ("a model", MODELS | {"program"}),
    "export FILE --format cvm-runtime -o out": ("a model", MODELS | {"program"}),
    "bench FILE": ("a model", MODELS | {"program"}),
    "map FILE reals.npy -o out.npz": ("a model", MODELS | {"program"}),
    "generate FILE --prompt a --tokens 1": ("a model", MODELS | {"program"}),
    "nnef check FILE": ("a model of NNEF", {"tensor", "archive"}),
    "nnef flatten FILE": ("a model of NNEF", {"tensor", "archive"}),
    "nnef upgrade FILE": ("a model of NNEF", {"tensor", "archive"}),
    "nnef run FILE": ("a model of NNEF", {"tensor", "archive"}),
    "receipt show FILE": ("a receipt", {"receipt"}),
    "receipt verify FILE --program negated.cvm": ("a receipt", {"receipt"}),
    "receipt diff FILE FILE": ("a receipt", {"receipt"}),
    "receipt sign FILE --key text.txt": ("a receipt", {"receipt"}),
    "dispute locate FILE FILE --program negated.cvm": ("a trace", {"trace", "npz", "torch", "keras", "zip"}),
    "dispute play FILE FILE --program negated.cvm -i reals.npy": ("a trace", {"trace", "npz", "torch", "keras", "zip"}),
    "dispute step --program FILE -i reals.npy -o x.step --op 0": ("a model", MODELS | {"program"}),
    "dispute verify-step FILE": ("a proof of one step", {"step"}),
    "vectors check FILE --executor numpy": ("vectors", {"vectors"}),
    "compare FILE -e command:engine --random 1": ("a model", MODELS),
    "reduce FILE -o small.cvm --random 1": ("a model", MODELS | {"program"}),
    "explain FILE -e command:engine --random 1": ("a model", MODELS),
    "receipt page FILE --program negated.cvm -i reals.npy -o page.html": ("a receipt", {"receipt"}),
    "chain deploy FILE -o book.json --bond 2 --window 10 --move-time 5": ("a model", MODELS | {"program"}),
    "chain claim FILE -d book.json": ("a receipt", {"receipt"}),
    "chain challenge 0 --program FILE -i reals.npy -d book.json": ("a model", MODELS | {"program"}),
    "chain play 0 --program FILE -i reals.npy -d book.json": ("a model", MODELS | {"program"}),
}
"""Commands, what they expect, and the formats for which they have words of their own."""

NO_FILE = {
    "ops",
    "demo",
    "doctor",
    "completion",
    "cache show",
    "cache clear",
    "vectors where",
    "chain demo",
    "conformance",
}
OWN = {"chain status"}
"""A deployment is a file of JSON; tests/audit/chain/test_node.py has wrong ones."""


@pytest.fixture(autouse=True)
def _account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVM_CHAIN_NODE", "http://127.0.0.1:9")
    monkeypatch.setenv("CVM_CHAIN_KEY", "0x" + "11" * 32)


def test_every_command_that_takes_a_file_is_tried() -> None:
    commands = set()
    for name, entry in COMMANDS.items():
        commands |= {f"{name} {sub}" for sub in entry.commands} if isinstance(entry, Group) else {name}
    assert {re.split(" FILE| -| 0", command)[0] for command in TAKES} == commands - NO_FILE - OWN


@pytest.mark.parametrize("command", TAKES)
def test_a_command_says_what_a_wrong_file_is(cvm: Cvm, files: Path, command: str) -> None:
    expected, own = TAKES[command]
    for key in sorted(set(STARTS) - own):
        file = files / "given.bin"
        file.write_bytes(STARTS[key])
        found = recognised(file)
        assert found is not None
        if found.key == "cvm_runtime" and expected == "a model":
            continue  # `--params` makes a model of it, which the message says
        outcome = cvm(*(str(file) if word == "FILE" else word for word in command.split()))
        message = " ".join((outcome.err + outcome.out).split())
        assert outcome.code == 3, message
        assert f"{file}: expected {expected}" in message
        assert f"found {found.words}; {' '.join(found.next_step.split())}" in message
        assert "byte 0" not in message


def test_the_document_of_nnef_check_says_it_too(cvm: Cvm, files: Path) -> None:
    (files / "model.bin").write_bytes(STARTS["tflite"])
    (result,) = json.loads(cvm("nnef", "check", "model.bin", "--json").out)["results"]
    assert (result["valid"], result["class"], result["section"], result["line"]) == (False, "lexical", "3.1", None)
    assert result["message"].startswith("expected a model of NNEF, found a model of TFLite; ")
    assert [error["message"] for error in result["errors"]] == [result["message"]]
