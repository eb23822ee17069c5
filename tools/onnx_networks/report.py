"""The measured section of docs/onnx.md: node tests of the package onnx, and ONNX Runtime's distance from exact codes.

``python tools/generate_pages.py onnx --measure`` writes it into the page.

Needs onnxruntime. Networks are those of `tools.onnx_networks.lenet` on the images of ``cvm/demo`` and those of
`tools.bench` on random inputs from fixed seeds; the tests compare the compiled programs with exact arithmetic.
"""

from __future__ import annotations

import platform
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from cvm.frontends import onnx as front
from cvm.lowering import lower
from cvm.quantization import LinearQuantizer
from cvm.session import Session
from tools.bench.networks import NETWORKS
from tools.bench.onnx_models import onnx_model
from tools.onnx_networks.family import table
from tools.onnx_networks.lenet import images
from tools.onnx_networks.node_cases import cases, examine

MODELS = Path(__file__).parents[2] / "tests" / "frontends" / "onnx" / "models"
_INPUTS = 2
"""How many random inputs each large network gets."""


def networks() -> Iterator[tuple[str, onnx.ModelProto, dict[str, Any]]]:
    """Name, model and inputs of each network; the first axis counts the inputs."""
    for path in sorted(MODELS.glob("*.onnx")):
        yield path.stem, onnx.load(path), {"image": images()[0]}
    for name in ("lenet", "resnet18", "mobilenet_v2"):
        network = NETWORKS[name]()
        data = np.random.default_rng(0).integers(0, 256, (_INPUTS, *network.input)).astype(np.uint8)
        for form in ("qdq", "qlinear"):
            yield f"bench {name} {form}", onnx_model(network, form), {"x": data}


def distance(model: onnx.ModelProto, data: dict[str, Any]) -> tuple[int, int, int]:
    """The number of output codes, how many of them differ in ONNX Runtime, and by how much at most."""
    import onnxruntime

    program = lower(front.loads(model.SerializeToString()).graph)
    (output,) = program.outputs
    exact = Session(program).run(data, codes=True)[output.name]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    count = len(next(iter(data.values())))
    found = np.concatenate([session.run(None, {k: v[i : i + 1] for k, v in data.items()})[0] for i in range(count)])
    if found.dtype.kind == "f":
        quantizer = output.quantizer
        assert isinstance(quantizer, LinearQuantizer)
        found = np.rint((found.astype(np.float64) - float(quantizer.offset[0])) / float(quantizer.scale[0]))
    difference = np.abs(found.ravel().astype(np.int64) - exact.ravel())
    return difference.size, int((difference > 0).sum()), int(difference.max())


def distances() -> str:
    """The table of networks."""
    import onnxruntime

    lines = [
        f"ONNX Runtime {onnxruntime.__version__}, CPU, {platform.machine()}: codes of the outputs that differ from the",
        "exact ones, which are those of the compiled programs (`python tools/generate_pages.py onnx --measure`).",
        "",
        "| network | codes | differ | by at most |",
        "|---|---|---|---|",
    ]
    for name, model, data in networks():
        total, differ, most = distance(model, data)
        lines.append(f"| {name} | {total} | {100 * differ / total:.1f} % | {most} |")
    return "\n".join(lines) + "\n"


def node_tests() -> str:
    """The table of node tests."""
    lines = [
        f"Node tests of onnx {onnx.__version__}: all whose inputs and outputs are integers or truth values, and all of",
        "the quantised operators. Operands that must be constant are made so, and inputs with scales by blocks.",
        "",
        "| operator | equal | refused | different | refused for |",
        "|---|---|---|---|---|",
    ]
    counts: dict[str, Counter[str]] = {}
    reasons: dict[str, set[str]] = {}
    for case in [*cases()[0], *cases()[1]]:
        outcome = examine(case)
        verdict = outcome.verdict if outcome.verdict in ("equal", "different") else "refused"
        counts.setdefault(outcome.op, Counter())[verdict] += 1
        if verdict == "refused":
            reasons.setdefault(outcome.op, set()).add(outcome.verdict)
    for op, found in sorted(counts.items()):
        numbers = " | ".join(str(found[key]) for key in ("equal", "refused", "different"))
        lines.append(f"| `{op}` | {numbers} | {', '.join(f'`{code}`' for code in sorted(reasons.get(op, ())))} |")
    total = sum(counts.values(), Counter())
    lines.append(f"| all | {' | '.join(str(total[key]) for key in ('equal', 'refused', 'different'))} | |")
    return "\n".join(lines) + "\n"


def section() -> str:
    """The section, without its heading."""
    warnings.simplefilter("ignore")
    return f"\n{node_tests()}\n{distances()}\n{table()}"
