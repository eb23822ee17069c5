"""What holds of all declarations, and the catalogue made from them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cvm.errors import Invalid
from cvm.ops import REGISTRY, Op, get
from cvm.ops.catalogue import catalogue
from cvm.ops.extension import terms
from formal.registry import OPS
from tools.generated_pages.ops import markdown

ROOT = Path(__file__).parents[2]

FAMILIES = ["reduce", "broadcast", "nn", "elemwise", "transform", "vision", "extension", "computed"]

every_op = pytest.mark.parametrize("op", REGISTRY.values(), ids=REGISTRY)


def test_the_ops_stand_in_the_order_of_the_document() -> None:
    expected = """sum max broadcast_add broadcast_sub broadcast_mul broadcast_div broadcast_max conv2d dense relu
        max_pool2d upsampling abs cvm_precision elemwise_add elemwise_sub negative clip cvm_clip cvm_right_shift
        cvm_left_shift repeat tile flatten concatenate transpose slice slice_like take cvm_lut expand_dims reshape
        squeeze where get_valid_count non_max_suppression requantize broadcast_greater matmul
        quotient normalize update_slice"""
    assert list(REGISTRY) == expected.split()
    assert list(dict.fromkeys(op.family for op in REGISTRY.values())) == FAMILIES
    assert list(OPS) == list(REGISTRY)


@every_op
def test_labels_count_from_c1(op: Op) -> None:
    assert [rule.label for rule in op.constraints] == [f"C{k}" for k in range(1, len(op.constraints) + 1)]


@every_op
def test_rules_on_shapes_come_before_rules_on_ranges(op: Op) -> None:
    kinds = [rule.on for rule in op.constraints]
    assert kinds == sorted(kinds, key=["shapes", "ranges"].index)


@every_op
def test_a_declaration_says_what_the_op_does_and_where_it_stands(op: Op) -> None:
    assert op.__doc__
    assert op.source
    assert type(op).__module__ == f"cvm.ops.{op.family}"
    assert all(item.what for item in op.Attributes.declared.values())


@pytest.mark.parametrize(("count", "n"), [(4, 1), (6, 2), (18, 8), (0, 0), (5, 1)])
def test_requantize_takes_n_tensors_then_parameters(count: int, n: int) -> None:
    assert terms(count) == n
    kinds = get("requantize").input_kinds(count)
    assert kinds == ("tensor",) * n + ("parameter",) * (count - n)


def test_an_unknown_op_is_invalid() -> None:
    with pytest.raises(Invalid) as caught:
        get("cvm_cilp")
    assert caught.value.code == "ops.unknown"


def test_the_catalogue_is_plain_data_in_registry_order() -> None:
    entries = json.loads(json.dumps(catalogue()))
    assert [entry["name"] for entry in entries] == list(REGISTRY)
    assert [entry["name"] for entry in entries if entry["extension"]] == [
        "requantize", "broadcast_greater", "matmul", "quotient", "normalize", "update_slice",
    ]  # fmt: skip


def test_the_catalogue_gives_the_type_range_and_default_of_an_attribute() -> None:
    (conv2d,) = (entry for entry in catalogue() if entry["name"] == "conv2d")
    padding = next(item for item in conv2d["attributes"] if item["name"] == "padding")
    assert {**padding, "what": ""} == {
        "name": "padding",
        "what": "",
        "required": False,
        "default": [0, 0],
        "type": "integers",
        "minimum": 0,
        "maximum": 4096,
        "least_length": 2,
        "most_length": 2,
    }


def test_the_page_of_ops_is_fresh() -> None:
    assert (ROOT / "docs" / "ops.md").read_text(encoding="utf-8") == markdown()


def test_the_page_generator_notices_a_stale_page(tmp_path: Path) -> None:
    tool = tmp_path / "tools" / "generate_pages.py"
    shutil.copytree(ROOT / "tools" / "generated_pages", tool.parent / "generated_pages")
    shutil.copy(ROOT / "tools" / tool.name, tool)
    (tmp_path / "docs").mkdir()

    def run(*arguments: str) -> int:
        command = [sys.executable, str(tool), "ops", *arguments]
        return subprocess.run(command, capture_output=True, check=False).returncode

    assert run("--check") == 1
    assert run() == 0
    assert run("--check") == 0
    page = tmp_path / "docs" / "ops.md"
    page.write_text(page.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert run("--check") == 1


@pytest.mark.parametrize(("op", "attribute"), [("tile", "reps"), ("reshape", "target_shape")])
@pytest.mark.parametrize("length", [0, 9])
def test_a_tuple_of_factors_or_extents_has_one_to_eight_items(op: str, attribute: str, length: int) -> None:
    declaration = REGISTRY[op]
    assert declaration.parse({attribute: (1,) * 8})
    with pytest.raises(Invalid) as caught:
        declaration.parse({attribute: (1,) * length})
    assert caught.value.code == f"ops.{op}.attribute.{attribute}"
