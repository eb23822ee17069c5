import json
import shlex
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from cvm.cli.application import COMMANDS
from cvm.cli.declaration import Group
from cvm.demo import IMAGES, MODEL
from cvm.executors import EXECUTORS, choose_executor
from cvm.vectors import Report, Tally

ROOT = Path(__file__).resolve().parents[2]

ALL_COMMANDS = [
    [name, *sub]
    for name, entry in COMMANDS.items()
    for sub in ([[sub] for sub in entry.commands] if isinstance(entry, Group) else [[]])
]


def structure(value):
    """A document with its values replaced by their types; lists by their first item."""
    if isinstance(value, dict):
        return {key: structure(item) for key, item in value.items()}
    if isinstance(value, list):
        return [structure(item) for item in value[:1]]
    return type(value).__name__


@pytest.mark.parametrize("command", ALL_COMMANDS, ids=" ".join)
def test_help_shows_examples(cvm, command):
    outcome = cvm(*command, "--help")
    assert outcome.code == 0
    assert f"Usage: cvm {' '.join(command)}" in outcome.out
    assert "Example" in outcome.out
    assert f"\n    cvm {' '.join(command)}" in outcome.out
    assert "--json" in outcome.out


def test_help_of_all_shows_examples_and_exit_codes(cvm):
    for arguments in (["--help"], []):
        outcome = cvm(*arguments)
        assert outcome.code == 0
        assert "    cvm demo\n" in outcome.out
        assert "    130  interrupted\n" in outcome.out


def test_version(cvm):
    assert cvm("--version").out == f"cvm {version('cvm')}\n"


INTERVAL = ["int"]
QUANTIZER = {"scale": ["str"], "offset": ["str"], "lo": "int", "hi": "int", "axis": "NoneType", "rounding": "str"}


def test_compile_reports_every_tensor(cvm, files):
    outcome = cvm("compile", MODEL, "-o", "digits.cvm", "--json")
    assert outcome.code == 0
    document = outcome.document
    assert structure(document) == {
        "version": "int",
        "digest": "str",
        "gas": "int",
        "nodes": "int",
        "constant_bytes": "int",
        "tensors": [
            {
                "tensor": "str",
                "value": "str",
                "exact": "bool",
                "bound": "str",
                "interval": INTERVAL,
                "headroom": "int",
                "accumulator": "NoneType",
                "accumulator_headroom": "NoneType",
                "note": "str",
            }
        ],
        "exact": "bool",
        "file": {"path": "str", "bytes": "int"},
    }
    tensors = {item["tensor"]: item for item in document["tensors"]}
    assert len(tensors) == 30
    for item in tensors.values():
        if item["accumulator"] is not None:
            lo, hi = item["accumulator"]
            assert -(2 ** (63 - item["accumulator_headroom"])) < lo <= hi < 2 ** (63 - item["accumulator_headroom"])
    text = cvm("compile", MODEL).out
    assert document["digest"] in text
    assert f"gas     {document['gas']}" in text
    for name in tensors:
        assert f"\n{name} " in text
    inspected = cvm("inspect", "digits.cvm", "--json").document
    assert inspected["digest"] == document["digest"]
    assert inspected["macs"] == 94656


def test_compile_takes_another_quantisation_file_or_none(cvm, files):
    (files / "empty.quant").write_text("")
    for options in (["--no-quant"], ["--quant", "empty.quant"]):
        outcome = cvm("compile", MODEL, *options)
        assert outcome.code == 3
        assert "image" in outcome.err
        assert "needs a quantiser" in outcome.err
    (files / "same.quant").write_bytes((MODEL / "graph.quant").read_bytes())
    same = cvm("compile", MODEL, "--quant", "same.quant", "--json").document
    assert same["digest"] == cvm("compile", MODEL, "--json").document["digest"]


def test_run_writes_real_numbers_or_codes(cvm, files):
    outcome = cvm("run", "negated.cvm", "-i", "codes.npy", "--input-codes", "-o", "out.npz", "--json")
    assert outcome.code == 0
    assert structure(outcome.document) == {
        "version": "int",
        "digest": "str",
        "executor": "str",
        "gas": "int",
        "outputs": [{"name": "str", "shape": ["int"], "root": "str", "codes": [[["int"]]]}],
        "captured": [],
        "file": {"path": "str", "bytes": "int"},
    }
    codes = np.arange(12).reshape(2, 2, 3)
    with np.load("out.npz") as written:
        assert written["y"].dtype == np.float64
        assert np.array_equal(written["y"], (255 - codes) / 255)
        assert written["total"].dtype == np.int32
    assert cvm("run", "negated.cvm", "-i", "reals.npy", "-o", "codes.npz", "--codes", "--capture", "all").code == 0
    with np.load("codes.npz") as written:
        assert sorted(written) == ["difference", "image", "total", "y"]
        assert written["y"].dtype == np.int32
        assert np.array_equal(written["image"], codes)


@pytest.mark.parametrize("executor", sorted(EXECUTORS))
def test_run_gives_the_same_bytes_on_every_executor(cvm, files, executor):
    outcome = cvm(
        "run", "negated.cvm", "-i", "reals.npy", "-o", f"{executor}.npz", "--executor", executor, "--threads", 2
    )
    assert outcome.code == 0
    assert cvm("run", "negated.cvm", "-i", "reals.npy", "-o", "default.npz").code == 0
    assert (files / f"{executor}.npz").read_bytes() == (files / "default.npz").read_bytes()


@pytest.mark.parametrize(
    "inputs",
    [
        ["codes.npy"],
        ["image=codes.npy"],
        ["image.npz"],
        ["image.npz:image"],
        ["image=image.npz"],
        ["image=image.npz:image"],
        ["other.npz:image"],
        ["image=other.npz"],
        ["with=and:colon.npy"],
    ],
)
def test_an_input_can_be_named_in_several_ways(cvm, files, inputs):
    (files / "with=and:colon.npy").write_bytes((files / "codes.npy").read_bytes())
    arguments = [word for name in inputs for word in ("-i", name)]
    document = cvm("run", "negated.cvm", *arguments, "--codes", "--json").document
    assert document["outputs"][0]["codes"] == (255 - np.arange(12).reshape(2, 2, 3)).tolist()


def test_several_inputs_come_from_one_or_several_files(cvm, files):
    np.save("b.npy", np.arange(4))
    one = cvm("run", "pair.cvm", "-i", "inputs.npz", "--json").document
    two = cvm("run", "pair.cvm", "-i", "b=b.npy", "-i", "inputs.npz:a", "--json").document
    assert one == two
    assert one["outputs"][0]["codes"] == [[0, 1, 2, 3]]


def test_nnef_tensor_files_are_inputs(cvm, files):
    cases = {
        "real.dat": (np.array([0.0, 1.0, 0.5, 0.2, 0.4, 0.6], "<f4").tobytes(), 32, 0, b""),
        "own.dat": (bytes([0, 255, 128, 51, 102, 153]), 8, 0x10, np.array([0, 1], "<f4").tobytes()),
        "half.dat": (bytes([0, 255, 128, 51, 102, 153]), 8, 0x10, np.array([0, 2], "<f4").tobytes()),
        "codes.dat": (bytes([0, 255, 128, 51, 102, 153]), 8, 0x02, b""),
        "whole.dat": (bytes([0, 1, 0, 1, 1, 0]), 8, 0x01, b""),
    }
    expected = {
        "real.dat": [0, 255, 128, 51, 102, 153],
        "own.dat": [0, 255, 128, 51, 102, 153],
        "half.dat": [0, 255, 255, 102, 204, 255],
        "codes.dat": [0, 255, 128, 51, 102, 153],
        "whole.dat": [0, 255, 0, 255, 255, 0],
    }
    for name, (data, bits, code, parameters) in cases.items():
        header = b"N\xef\1\0" + len(data).to_bytes(4, "little") + b"\3\0\0\0"
        header += b"".join(extent.to_bytes(4, "little") for extent in (1, 2, 3, 0, 0, 0, 0, 0))
        header += bits.to_bytes(4, "little") + code.to_bytes(4, "little") + parameters.ljust(32, b"\0")
        (files / name).write_bytes(header.ljust(128, b"\0") + data)
        outcome = cvm("run", "negated.cvm", "-i", name, "--capture", "image", "-o", "o.npz", "--codes", "--json")
        assert outcome.code == 0, outcome.err
        with np.load("o.npz") as written:
            assert written["image"].ravel().tolist() == expected[name], name


def test_run_with_cycles(cvm, files):
    document = cvm("run", "counter.cvm", "-i", "steps.npy", "--cycles", "--json").document
    assert document["outputs"][0]["codes"] == [[[101, 202]], [[104, 206]]]
    document = cvm("run", "counter.cvm", "-i", "steps.npy", "--json").document
    assert document["outputs"][0]["codes"] == [[[101, 202]], [[103, 204]]]


def test_run_compiles_a_model_on_the_way(cvm, files):
    document = cvm("run", MODEL, "-i", f"{IMAGES}:image", "--json").document
    assert len(document["outputs"][0]["codes"]) == 40


EVERY_EXECUTOR = list(dict.fromkeys(["formal", "numpy", choose_executor()[0]]))
"""What a check compares by default."""


def test_check_compares_every_tensor(cvm, files):
    outcome = cvm("check", "negated.cvm", "-i", "codes.npy", "--codes", "--json")
    assert outcome.code == 0
    assert outcome.document == {
        "version": 1,
        "agree": True,
        "executors": EVERY_EXECUTOR,
        "sample": None,
        "salt": None,
        "runs": 2,
        "tensors": 3,
        "elements": 26,
        "judged": None,
        "difference": None,
        "digest": cvm("inspect", "negated.cvm", "--json").document["digest"],
    }
    assert cvm("check", "negated.cvm", "-i", "codes.npy", "--codes").out == (
        f"AGREE    {', '.join(EVERY_EXECUTOR)}: 2 runs, 3 tensors each, 26 elements\n"
    )


def test_check_samples_elements_of_large_programs(cvm, files):
    document = cvm("check", "negated.cvm", "-i", "codes.npy", "--codes", "--sample", 2, "--json").document
    assert document["agree"]
    assert document["sample"] == 2
    assert 0 < document["elements"] <= 2 * (2 + 1)
    assert cvm("check", "counter.cvm", "-i", "steps.npy", "--cycles", "--sample", 9).code == 0


def test_inspect_says_what_a_program_is(cvm, files):
    document = cvm("inspect", "channels.cvm", "--json").document
    quantizer = QUANTIZER | {"axis": "int"}
    assert structure(document) == {
        "version": "int",
        "digest": "str",
        "op_set": "int",
        "limits": "str",
        "inputs": [{"name": "str", "shape": ["int"], "interval": INTERVAL, "headroom": "int", "quantizer": quantizer}],
        "outputs": [{"name": "str", "value": "str", "shape": ["int"], "interval": INTERVAL, "quantizer": quantizer}],
        "state": [],
        "nodes": [
            {
                "op": "str",
                "inputs": ["str"],
                "outputs": [{"name": "str", "shape": ["int"], "interval": INTERVAL, "headroom": "int"}],
                "attributes": {"a_min": "int", "a_max": "int"},
                "gas": "int",
                "macs": "int",
            }
        ],
        "constants": {"count": "int", "bytes": "int"},
        "macs": "int",
        "gas": "int",
        "provenance": {"tool": "str", "source": "str", "source_digest": "str"},
    }
    assert document["inputs"][0]["quantizer"]["scale"] == ["1/10", "1/7", "3"]
    assert document["nodes"][0]["outputs"][0]["headroom"] == 23
    text = cvm("inspect", "counter.cvm").out
    assert "state   memory" in text
    assert document["digest"] in cvm("inspect", "channels.cvm").out


def test_legalize_writes_a_program_in_the_documents_ops(cvm, files):
    outcome = cvm("legalize", MODEL, "-o", "strict.cvm", "--json")
    assert outcome.code == 0
    document = outcome.document
    totals = {"digest": "str", "nodes": "int", "gas": "int", "constant_bytes": "int"}
    assert structure(document) == {
        "version": "int",
        "expansions": [
            {
                "op": "str",
                "value": "str",
                "terms": "int",
                "rounding": "str",
                "nodes": "int",
                "gas_before": "int",
                "gas_after": "int",
            }
        ],
        "before": totals,
        "after": totals,
        "file": {"path": "str", "bytes": "int"},
    }
    before, after, found = document["before"], document["after"], document["expansions"]
    assert after["nodes"] - before["nodes"] == sum(item["nodes"] - 1 for item in found)
    assert after["gas"] - before["gas"] == sum(item["gas_after"] - item["gas_before"] for item in found)
    inspected = cvm("inspect", "strict.cvm", "--json").document
    assert inspected["digest"] == after["digest"]
    assert {"requantize", "broadcast_greater"}.isdisjoint(node["op"] for node in inspected["nodes"])
    codes = [
        cvm("run", program, "-i", f"{IMAGES}:image", "--json").document["outputs"][0]["codes"]
        for program in (MODEL, "strict.cvm")
    ]
    assert codes[0] == codes[1]
    text = cvm("legalize", MODEL).out
    assert f"{before['nodes']} nodes, now {after['nodes']}" in text
    assert after["digest"] in text
    again = cvm("legalize", "strict.cvm", "--json").document
    assert again["expansions"] == []
    assert again["before"] == again["after"] == after


def test_ops_lists_the_catalogue_and_shows_one(cvm):
    from cvm.ops import REGISTRY

    document = cvm("ops", "--json").document
    assert [entry["name"] for entry in document["ops"]] == list(REGISTRY)
    assert [entry["name"] for entry in cvm("ops", "conv2d", "--json").document["ops"]] == ["conv2d"]
    text = cvm("ops", "conv2d").out
    for word in ("dilation", "groups", "C1"):
        assert word in text


def test_ops_lists_what_is_claimed_of_the_operations_of_nnef(cvm):
    from cvm.lowering import CLAIMS, REFUSALS

    document = cvm("ops", "--nnef", "--json").document
    found = {entry["name"]: entry for entry in document["operations"]}
    assert set(found) <= set(CLAIMS)
    further = {"bitwise", "wrap", "truncated_div", "integer_pow", "erf", "softsign", "layer_normalization", "l2_reduce"}
    further |= {"hard_swish", "l2_pool", "log_sum_reduce", "log_sum_exp_reduce", "wrapping_quantize", "lookup"}
    further |= {
        "hard_swish",
        "masked_softmax",
        "rms_normalization",
        "update_slice",
        "non_max_suppression",
        "region_maximum",
        "softmax(accuracy = 'fine')",
        "local_response_normalization(accuracy = 'fine')",
    }
    assert set(CLAIMS) - set(found) == further  # of which NNEF has none
    assert document["refusals"] == dict(REFUSALS)
    assert structure(found["softmax"]) == dict.fromkeys(
        ("name", "section", "dialect", "claim", "how", "reason"), "str"
    ) | {"refused_if": ["str"]}
    assert (found["softmax"]["claim"], found["conv"]["claim"]) == ("bounded", "exact")
    assert (found["conv"]["section"], found["gelu"]["section"], found["gelu"]["dialect"]) == (
        "4.3.1",
        "4.9.1",
        "khronos",
    )
    (one,) = cvm("ops", "--nnef", "softmax", "--json").document["operations"]
    assert one == found["softmax"]
    assert "why not exact" in cvm("ops", "--nnef", "softmax").out
    listed = cvm("ops", "--nnef").out
    assert all(f"\n{name} " in listed for name in found if name != "external")


def test_nnef_check_gives_a_verdict_for_every_path(cvm, files):
    (files / "bad.nnef").write_text(
        "version 1.0;\ngraph g( x ) -> ( y )\n{\n  x = external(shape = [1]);\n  y = relo(x);\n}\n"
    )
    outcome = cvm("nnef", "check", MODEL, "bad.nnef", "--json")
    assert outcome.code == 3
    good, bad = outcome.document["results"]
    keys = ["path", "valid", "class", "section", "line", "column", "message", "shapes", "errors", "edition", "dialect"]
    assert list(good) == keys
    assert (good["valid"], good["edition"], good["dialect"]) == (True, "1.0.1", "1.0.1")
    assert good["path"] == str(MODEL)
    assert good["shapes"]["probs"] == [1, 10]
    assert not bad["valid"]
    assert bad["line"] == 5
    assert "relo" in bad["message"]
    assert cvm("nnef", "check", MODEL).out == f"valid    {MODEL}: NNEF 1.0.1, {len(good['shapes'])} tensors\n"
    text = cvm("nnef", "check", MODEL, "bad.nnef").out
    assert "invalid  bad.nnef:5:" in text
    assert "5 |   y = relo(x);" in text


def test_nnef_check_reports_all_independent_errors_and_takes_any_file_of_the_format(cvm, files):
    (files / "bad.nnef").write_text(
        "version 1.0;\ngraph g( x ) -> ( y )\n{\n  x = external(shape = [1]);\n"
        "  z = relo(x);\n  y = tanh(x, k = 1);\n}\n"
    )
    outcome = cvm("nnef", "check", MODEL / "fc1" / "bias.dat", "bad.nnef", "--json")
    data, bad = outcome.document["results"]
    assert data["valid"]
    assert [error["line"] for error in bad["errors"]] == [5, 6]


def test_nnef_dialects(cvm, files):
    (files / "gelu.nnef").write_text(
        "version 1.0;\ngraph g( x ) -> ( y )\n{\n  x = external(shape = [1]);\n  y = gelu(x);\n}\n"
    )
    assert cvm("nnef", "check", "gelu.nnef").code == 0
    assert cvm("nnef", "check", "gelu.nnef", "--dialect", "1.0.1").code == 3
    assert cvm("nnef", "check", "gelu.nnef", "--dialect", "2.0").code == 2
    assert "sigmoid" in cvm("nnef", "flatten", "gelu.nnef", "--lower", "gelu").out


def test_nnef_upgrade_gives_a_document_of_1_0_1(cvm, files):
    (files / "old.nnef").write_text(
        "version 1.0\ngraph g( x ) -> ( y )\n{\n  x = external(shape = [1,2])\n  y = relu(x)\n}\n"
    )
    (files / "new.nnef").write_text(cvm("nnef", "upgrade", "old.nnef").out)
    assert cvm("nnef", "check", "new.nnef", "--dialect", "1.0.1").code == 0


def test_nnef_run_evaluates_in_float(cvm, files):
    images = f"{MODEL.parent / 'digits.npz'}:image"
    outcome = cvm("nnef", "run", MODEL, "-i", images, "--pseudo-quantize", "-o", "real.npz", "--json")
    assert outcome.document["outputs"] == {"probs": [40, 10]}
    cvm("run", MODEL, "-i", images, "-o", "codes.npz")
    with np.load(files / "real.npz") as real, np.load(files / "codes.npz") as codes:
        assert abs(real["probs"] - codes["probs"]).max() < 1e-9
    rows = cvm("nnef", "run", MODEL, "-i", images, "--statistics", "--json").document["statistics"]
    assert rows["image"]["min"] == 0.0
    assert set(rows["act1"]) == {"min", "max", "mean", "std"}


def test_nnef_flatten_prints_a_document_that_is_valid(cvm, files):
    flat = cvm("nnef", "flatten", MODEL).out
    (files / "flat.nnef").write_text(flat)
    assert cvm("nnef", "flatten", "flat.nnef").out == flat
    assert cvm("nnef", "flatten", MODEL, "--json").document == {"version": 1, "text": flat}


def test_demo_tells_the_whole_story(cvm):
    outcome = cvm("demo", "--json")
    assert outcome.code == 0
    document = outcome.document
    assert structure(document) == {
        "version": "int",
        "model": "str",
        "executor": "str",
        "images": "int",
        "correct": "int",
        "predictions": ["int"],
        "labels": ["int"],
        "tensors": {
            "exact": "int",
            "bounded": structure(cvm("compile", MODEL, "--json").document["tensors"][-1:]),
        },
        "nodes": "int",
        "constant_bytes": "int",
        "agreement": {
            "agree": "bool",
            "executors": ["str"],
            "sample": "NoneType",
            "salt": "NoneType",
            "runs": "int",
            "tensors": "int",
            "elements": "int",
            "judged": "NoneType",
            "difference": "NoneType",
        },
        "receipt": {
            "id": "str",
            "answer": "str",
            "level": "str",
            "runs": "int",
            "executor": "str",
            "judged": {"elements": "int", "tensors": "int", "of": "int", "runs": "int", "salt": "str"},
        },
        "gas": "int",
        "digest": "str",
        "seconds": {"compile": "float", "run": "float", "check": "float"},
    }
    assert document["images"] == document["correct"] == document["receipt"]["runs"] == 40
    assert (document["receipt"]["answer"], document["receipt"]["level"]) == ("REPRODUCED", "trace")
    assert document["receipt"]["executor"] != document["executor"]
    text = cvm("demo").out
    assert "predicted 7, is 7" in text
    assert document["digest"] in text
    assert document["receipt"]["id"] in text
    assert "AGREE" in text
    assert "##@@" in text


def test_doctor_says_what_there_is_and_tests_it(cvm):
    outcome = cvm("doctor", "--json")
    assert outcome.code == 0
    document = outcome.document
    assert document["ok"]
    assert {item["name"] for item in document["executors"]} == set(EXECUTORS)
    assert sum(item["default"] for item in document["executors"]) == 1
    assert {item["executor"] for item in document["self_test"]} == set(EXECUTORS) - {"formal"}
    assert all(item["agrees"] for item in document["self_test"])
    assert document["versions"]["numpy"] == np.__version__
    assert np.__version__ in cvm("doctor").out


def test_doctor_says_where_compiled_code_is_kept_or_why_it_is_not(cvm, tmp_path, monkeypatch):
    monkeypatch.setenv("CVM_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "native"
    assert cvm("doctor", "--json").document["machine"]["code cache"] == str(folder)
    folder.chmod(0o777)
    outcome = cvm("doctor")
    assert outcome.code == 0
    assert f"not used: {folder} can be written by other users; chmod go-w mends it" in outcome.out
    monkeypatch.setenv("CVM_CACHE", "")
    assert cvm("doctor", "--json").document["machine"]["code cache"] == "not used: CVM_CACHE is empty"


def test_documents_have_no_floats_but_seconds(cvm, files):
    def floats(value):
        if isinstance(value, dict):
            return [item for key, entry in value.items() if key != "seconds" for item in floats(entry)]
        if isinstance(value, list):
            return [item for entry in value for item in floats(entry)]
        return [value] if isinstance(value, float) else []

    for arguments in (["compile", MODEL], ["inspect", MODEL], ["demo"], ["check", "negated.cvm", "-i", "codes.npy"]):
        assert floats(json.loads(cvm(*arguments, "--json").out)) == []


def test_vectors_check_runs_vectors_on_executors_and_programs(cvm, files):
    (files / "vectors").mkdir()
    shutil.copy(ROOT / "spec_vectors" / "ops" / "elemwise" / "abs.msgpack", "vectors")
    consumer = shlex.join([sys.executable, str(ROOT / "tools" / "consume_vectors.py"), "--serve"])
    for source in (["--executor", "numpy"], ["--command", consumer]):
        outcome = cvm("vectors", "check", "vectors", *source, "--json")
        assert outcome.code == 0
        (tally,) = outcome.document["ops"]
        assert tally["op"] == "abs"
        assert tally["failed"] == 0
        assert tally["passed"] + tally["skipped"] == tally["cases"] > 0
    assert "PASSED: " in cvm("vectors", "check", "vectors", "--executor", "formal").out
    failed = cvm("vectors", "check", "vectors", "--command", "false")
    assert failed.code == 1
    assert "FAILED: " in failed.out
    assert "first difference: abs, case " in failed.out


@pytest.mark.parametrize(
    ("tallies", "line"),
    [
        ([("abs", 50, 50, 0, 0)], "PASSED: 50 of 50 cases"),
        (
            [("abs", 693, 693, 0, 0), ("max", 2016, 0, 0, 2016)],
            "PASSED: 693 of 693 of these ops; 2,016 cases of other ops not run",
        ),
        ([("abs", 50, 38, 2, 10)], "FAILED: 38 of 40 cases; 10 not run"),
        ([("abs", 50, 0, 0, 50)], "FAILED: 0 of 0 of these ops; 50 cases of other ops not run"),
    ],
)
def test_vectors_check_counts_what_ran_and_what_did_not(cvm, files, monkeypatch, tallies, line):
    report = Report("a program", tuple(Tally(*counts, None) for counts in tallies))
    monkeypatch.setattr("cvm.vectors.check", lambda *_: report)
    outcome = cvm("vectors", "check", "vectors", "--executor", "numpy")
    assert outcome.out.splitlines()[-1] == line
    shown = {words[0] for words in map(str.split, outcome.out.splitlines()[1:-1]) if words}
    assert shown == {op for op, _, passed, failed, _ in tallies if passed or failed}


def test_vectors_check_prints_the_error_of_a_dead_program_once(cvm, files):
    (files / "vectors").mkdir()
    shutil.copy(ROOT / "spec_vectors" / "ops" / "elemwise" / "abs.msgpack", "vectors")
    Path("dead.py").write_text("raise SystemExit('there is no model')\n", "utf-8")
    outcome = cvm("vectors", "check", "vectors", "--command", shlex.join([sys.executable, "dead.py"]))
    assert outcome.code == 1
    assert outcome.err.count("there is no model") == 1
    assert outcome.out.count("the program ended without an answer") == 2
    assert "given up after three failures" in outcome.out
    assert "abs  " not in outcome.out


def test_bench_times_executors_by_threads_and_batch(cvm, files):
    arguments = ("--threads", "1,2", "--batch", "1,3", "--seconds", "0", "--rounds", "1", "--json")
    results = cvm("bench", "pair.cvm", "--executor", "numpy,formal", *arguments).document["results"]
    keys = [(item["batch"], item["threads"], item["engine"]) for item in results]
    assert keys == [(n, t, name) for n in (1, 3) for t in (1, 2) for name in ("numpy", "formal")]


def test_bench_says_what_it_measured(cvm, files):
    arguments = ("--executor", "native", "--seconds", "0", "--rounds", "1", "--json")
    document = cvm("bench", "pair.cvm", *arguments).document
    timing = dict.fromkeys(("least", "quartile", "median", "upper_quartile", "cpu", "gmacs"), "float") | {
        "calls": "int"
    }
    start = dict.fromkeys(("first_result", "cpu", "open"), "float")
    assert structure(document) == {
        "version": "int",
        "program": "str",
        "digest": "str",
        "macs": "int",
        "rounds": "int",
        "seconds": "float",
        "results": [
            {
                "engine": "str",
                "model": "str",
                "threads": "int",
                "batch": "int",
                "failure": "NoneType",
                "run": timing,
                "bound": timing,
                "cold": start,
                "cached": start,
                "memory": {"now": "int", "peak": "int"},
                "facts": {"digest": "str"},
            }
        ],
    }
    assert document["results"][0]["run"]["calls"] == 5


def test_bench_compiles_a_model_and_prints_a_table(cvm):
    outcome = cvm("bench", MODEL, "--executor", "numpy", "--seconds", "0", "--rounds", "1")
    assert outcome.code == 0
    heading, row, *_ = outcome.out.splitlines()
    assert heading.split()[:3] == ["engine", "model", "threads"]
    assert row.split()[:4] == ["numpy", "program.cvm", "1", "1"]
    assert "GMAC per sample" in outcome.out


def test_vectors_of_values_are_enough_for_who_verifies_nothing(cvm):
    consumer = shlex.join([sys.executable, str(ROOT / "tools" / "consume_vectors.py"), "--serve"])
    folder = str(ROOT / "spec_vectors" / "ops" / "elemwise")
    assert "FAILED: " in cvm("vectors", "check", folder, "--command", consumer).out
    outcome = cvm("vectors", "check", folder, "--command", consumer, "--values", "--json")
    assert outcome.code == 0
    assert {tally["failed"] for tally in outcome.document["ops"]} == {0}
    assert all(tally["passed"] == tally["cases"] > 0 for tally in outcome.document["ops"])


def test_vectors_where_says_which_folder_comes_with_cvm(cvm):
    assert cvm("vectors", "where").out == f"{ROOT / 'spec_vectors'}\n"
    assert cvm("vectors", "where", "--json").document == {"version": 1, "folder": str(ROOT / "spec_vectors")}
