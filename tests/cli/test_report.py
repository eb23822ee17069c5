import os
import subprocess
import sys

import numpy as np
import pytest

from cvm.demo import IMAGES, MODEL
from tests.cli.test_cli_commands import structure
from tests.report.documents import CHAIN_QUANT, chain, memory

try:
    import jinja2  # noqa: F401
    import matplotlib  # noqa: F401
except ImportError:
    EXTRA = False
else:
    EXTRA = True

with_extra = pytest.mark.skipif(not EXTRA, reason="the extra `report` is not installed")

DIGITS = ["-i", f"{IMAGES}:image"]
LABELS = ["--labels", f"{IMAGES}:label"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder, made the working one, with the models of the tests of reports, programs and data."""
    monkeypatch.chdir(tmp_path)
    chain(tmp_path / "chain")
    memory(tmp_path / "memory")
    random = np.random.default_rng(1)
    np.savez("chain.npz", x=random.uniform(-1, 1, (8, 1, 4)), y=random.uniform(0, 2, (8, 1, 4)))
    np.save("steps.npy", random.uniform(0, 1, (2, 3, 1, 2)))
    np.save("labels.npy", np.arange(8) % 4)
    return tmp_path


NUMBERS = {
    "elements": "int",
    "undefined": "int",
    "differing": "int",
    "mean_error": "float",
    "max_error": "float",
    "max_error_sample": "int",
    "float_range": ["float"],
    "codes": ["int"],
    "saturation": {"least": "float", "greatest": "float"},
    "clipped": {"below": "float", "above": "float"},
    "quantizer": {
        "kind": "str",
        "lo": "int",
        "hi": "int",
        "axis": "NoneType",
        "scale": ["float"],
        "offset": ["float"],
    },
    "histogram": {
        "first": "int",
        "width": "int",
        "float": ["int"],
        "program": ["int"],
        "below": "int",
        "above": "int",
    },
}
TENSOR = {"tensor": "str", "kind": "str", "type": "str", "shape": ["int"], "number": "int"}


def test_the_document_has_one_structure(cvm):
    outcome = cvm("report", MODEL, *DIGITS, *LABELS, "--json")
    assert outcome.code == 0
    document = outcome.document
    assert document["version"] == 1
    assert structure(document) == {
        "version": "int",
        "program": {"digest": "str", "nodes": "int", "executor": "str"},
        "model": {
            "name": "str",
            "operations": "int",
            "document": "str",
            "same_document": "bool",
            "compiles_to_program": "bool",
        },
        "samples": "int",
        "cycles": "NoneType",
        "outputs": ["str"],
        "tensors": [
            {
                **TENSOR,
                "order": "int",
                "operation": "str",
                "value": "str",
                "sqnr_db": "float",
                "drop_db": "float",
                "exact": "bool",
                "bound": "str",
                "interval": ["int"],
                "headroom": "int",
                "accumulator": ["int"],
                "accumulator_headroom": "int",
                "note": "str",
                "used": "float",
                **NUMBERS,
            }
        ],
        "variables": [{**TENSOR, "sqnr_db": "float", **NUMBERS}],
        "not_materialised": [],
        "classes": {
            "output": "str",
            "classes": "int",
            "runs": "int",
            "agreeing": "int",
            "ties": "int",
            "labels": {
                "runs": "int",
                "float_right": "int",
                "program_right": "int",
                "both": "int",
                "float_only": "int",
                "program_only": "int",
                "neither": "int",
            },
            "confusion": [],
            "changed": [],
        },
    }
    assert document["classes"]["labels"]["program_right"] == 40


def test_program_and_model_may_be_two_files(cvm, here):
    assert cvm("compile", "chain", "-o", "chain.cvm").code == 0
    own = cvm("report", "chain", "-i", "chain.npz", "--json").document
    two = cvm("report", "chain.cvm", "--model", "chain", "-i", "chain.npz", "--json").document
    assert own == two
    text = cvm("report", "chain.cvm", "--model", "chain", "-i", "chain.npz").out
    rows = [line.split()[0] for line in text.splitlines()[1:] if line.split()[-1:] == ["exact"]]
    assert rows == [item["tensor"] for item in own["tensors"]]
    assert own["program"]["digest"] in text
    reasons = {item["tensor"]: item["reason"] for item in own["not_materialised"]}
    assert reasons["unused"] == "no output needs it"


def test_a_rewritten_program_can_be_compared_and_says_so(cvm, here):
    assert cvm("legalize", "chain", "-o", "strict.cvm").code == 0
    outcome = cvm("report", "strict.cvm", "--model", "chain", "-i", "chain.npz", "--json")
    assert outcome.code == 0
    assert outcome.document["model"]["compiles_to_program"] is False
    own = cvm("report", "chain", "-i", "chain.npz", "--json").document
    keys = ("tensor", "sqnr_db", "codes", "histogram", "differing")
    assert [[item[key] for key in keys] for item in outcome.document["tensors"]] == [
        [item[key] for key in keys] for item in own["tensors"]
    ]
    assert "does not compile to this program" in cvm("report", "strict.cvm", "--model", "chain", "-i", "chain.npz").out


def test_other_quantisation_information_can_be_given(cvm, here):
    (here / "other.quant").write_text(CHAIN_QUANT.replace("bits = 6", "bits = 5"))
    assert cvm("compile", "chain", "--quant", "other.quant", "-o", "other.cvm").code == 0
    refused = cvm("report", "other.cvm", "--model", "chain", "-i", "chain.npz", "--json")
    assert refused.code == 1
    assert refused.document["error"]["code"] == "report.model"
    assert "give it here as well" in refused.err
    arguments = ["report", "other.cvm", "--model", "chain", "--quant", "other.quant", "-i", "chain.npz", "--json"]
    document = cvm(*arguments).document
    assert document["model"]["compiles_to_program"] is True
    assert cvm("report", "chain", "--quant", "other.quant", "-i", "chain.npz", "--json").document == document


def test_cycles(cvm, here):
    document = cvm("report", "memory", "-i", "steps.npy", "--cycles", "--json").document
    assert (document["samples"], document["cycles"]) == (2, 3)
    assert {item["tensor"] for item in document["tensors"]} == {"step", "held", "sum", "level"}


@with_extra
def test_the_page_is_written_with_the_document_or_without(cvm, here):
    outcome = cvm("report", "chain", "-i", "chain.npz", "-o", "a.html", "--json")
    assert outcome.code == 0
    assert outcome.document["file"] == {"path": "a.html", "bytes": len((here / "a.html").read_bytes())}
    outcome = cvm("report", "chain", "-i", "chain.npz", "-o", "b.html")
    assert outcome.code == 0
    assert "wrote   b.html" in outcome.out
    assert (here / "a.html").read_bytes() == (here / "b.html").read_bytes()
    assert (here / "a.html").read_text("utf-8").startswith("<!DOCTYPE html>")


@with_extra
def test_other_processes_write_the_same_bytes(here):
    written = []
    for seed, zone in (("0", "UTC"), ("1", "Asia/Tokyo")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "SOURCE_DATE_EPOCH": seed, "MPLBACKEND": "agg"}
        arguments = ["report", str(here / "chain"), "-i", "chain.npz", "-o", f"{seed}.html", "--json"]
        command = [sys.executable, "-c", "import sys; from cvm.cli import main; sys.exit(main())", *arguments]
        subprocess.run(command, check=True, env=_importable(environment), capture_output=True, timeout=120)
        written.append((here / f"{seed}.html").read_bytes())
    assert written[0] == written[1]


def _importable(environment):
    """The environment of a process in another folder that imports this copy."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return {**environment, "PYTHONPATH": root}


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_without_the_extra_the_page_is_refused_first_and_the_document_is_not(cvm, here, monkeypatch, missing):
    for name in list(sys.modules):
        if name.split(".")[0] == missing or name in ("cvm.report.html", "cvm.report.page", "cvm.report.plots"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    outcome = cvm("report", "chain", "-i", "nothing.npy", "-o", "page.html", "--json")
    assert outcome.code == 3
    assert outcome.document["error"]["code"] == "report.extra"
    assert outcome.document["error"]["class"] == "Unsupported"
    assert "pip install 'cvm[report]'" in outcome.err
    assert missing in outcome.err or not EXTRA  # then another one may be named
    assert not (here / "page.html").exists()
    assert cvm("report", "chain", "-i", "chain.npz", "--json").code == 0
    assert cvm("report", "chain", "-i", "chain.npz").code == 0


REFUSALS = [
    (["chain.cvm", "-i", "chain.npz"], 2, "say which model the program was compiled from: --model MODEL"),
    (["chain", "-i", "chain.npz:x"], 2, "no -i option gives the input 'y'"),
    (["chain"], 2, "no -i option gives the input 'x'"),
    (["memory", "--model", "chain", "-i", "steps.npy"], 1, "those of the model 'x', 'y' [report.model]"),
    (["chain", "-i", "chain.npz", "--labels", "labels.npy"], 3, "the outputs are 'scores', 'above' [report.classes]"),
    (["chain", "-i", "chain.npz", "--scores", "above"], 3, "outputs that have: 'scores' [report.classes]"),
    (["chain", "-i", "chain.npz", "--scores", "scores", "--labels", "chain.npz:x"], 3, "labels are integers"),
    (
        ["chain", "-i", "chain.npz", "--scores", "scores", "--labels", "chain.npz"],
        2,
        "say which array: chain.npz:MEMBER",
    ),
    (["chain", "-i", "chain.npz", "--scores", "scores", "--labels", "a=labels.npy"], 2, "expected FILE[:MEMBER]"),
    (["chain", "-i", "chain.npz", "--scores", "scores", "--labels", "labels.npy:a"], 2, "has no members"),
    (["chain", "-i", "chain.npz", "--scores", "scores", "--labels", "chain/w.dat"], 2, "expected a .npy or .npz file"),
    (["chain", "-i", "chain.npz", "--scores", "scores", "--labels", "none.npy"], 3, "none.npy: cannot be read"),
    (["chain", "-i", "chain.npz", "--cycles"], 3, "keeps no state"),
    (["chain", "-i", "x=steps.npy", "-i", "y=steps.npy"], 3, "[input.shape]"),
    (["chain", "-i", "chain.npz", "--executor", "abacus"], 3, "there is no executor 'abacus'"),
    (["chain", "-i", "chain.npz", "--model", "nothing"], 3, "nothing"),
    (["chain", "-i", "chain.npz", "--quant", "nothing.quant"], 3, "nothing.quant"),
]


@pytest.mark.parametrize(("arguments", "code", "what"), REFUSALS, ids=[" ".join(item[0]) for item in REFUSALS])
def test_refusals_say_what_is_wrong(cvm, here, arguments, code, what):
    assert cvm("compile", "chain", "-o", "chain.cvm").code == 0
    outcome = cvm("report", *arguments, "--json")
    assert (outcome.code, what in outcome.err) == (code, True), outcome.err
    assert outcome.document["error"]["message"]


@with_extra
def test_a_page_that_cannot_be_written_is_said(cvm, here):
    outcome = cvm("report", "chain", "-i", "chain.npz", "-o", "nowhere/a.html")
    assert outcome.code == 3
    assert "nowhere/a.html: cannot be written" in outcome.err
