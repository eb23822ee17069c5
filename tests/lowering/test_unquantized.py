"""A tensor without the quantiser that lowering needs is named, and calibration is offered; nothing is guessed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cvm
from cvm.errors import Unsupported
from cvm.frontends import nnef

CASES = {
    "input": ("x = external(shape = [1, 2]); y = neg(x)", 'x"', "x"),
    "output": ("x = external(shape = [1, 2]); y = neg(x)", 'y"', "y"),
    "state": ("x = external(shape = [1, 2]); h = variable(shape = [1, 2], label = 'h'); y = update(h, x)", 'h"', "h"),
    "operand": (
        "x = external(shape = [1, 1, 4]); s = sigmoid(x); y = box(s, size = [1, 1, 2], padding = [])",
        's"',
        "s",
    ),
    "constant": (
        "x = external(shape = [1, 2]); v = variable(shape = [1, 2], label = 'h'); e = exp(v); y = add(x, e)",
        'e"',
        "e",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_tensor_is_named_and_calibration_mends_it(tmp_path: Path, case: str) -> None:
    body, without, tensor = CASES[case]
    lines = "\n".join(f"{line.strip()};" for line in body.split(";"))
    (tmp_path / "graph.nnef").write_text(f"version 1.0;\ngraph net(x) -> (y)\n{{\n{lines}\n}}\n")
    if "label" in body:
        (tmp_path / "h.dat").write_bytes(nnef.write_tensor(np.ones((1, 2), np.float32)))
    shape = nnef.load(tmp_path).tensors["x"].shape
    found = cvm.quantize(tmp_path, {"x": np.linspace(-1, 1, 4 * int(np.prod(shape))).reshape(-1, *shape)})
    entries = [line for line in found.text.splitlines() if not line.startswith(f'"{without}:')]
    assert len(entries) == len(found.tensors) - 1
    (tmp_path / "graph.quant").write_text("\n".join(entries))
    with pytest.raises(Unsupported) as caught:
        cvm.compile(tmp_path)
    assert caught.value.code == "lowering.unquantized"
    assert repr(tensor) in str(caught.value)
    assert caught.value.message.endswith(
        "; `cvm quantize MODEL -i data.npz -o graph.quant` chooses quantisers from data"
    )
    (tmp_path / "graph.quant").write_text(found.text)
    assert cvm.compile(tmp_path).outputs
