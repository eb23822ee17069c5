"""Write the trained GPT as a float model of ONNX that reads some tokens and keeps what it has read.

    python -m tools.tiny_gpt.onnx_model weights.npz -o tiny_gpt.onnx [--heads N] [--whole TOKENS]

Its inputs are ``token``, of as many tokens as the caller chooses (``n``), and what the model keeps: ``position``, the
number of tokens that it has read, and for each block its keys and values, of shape (1, heads, context, head width). Its
outputs are ``logits``, of shape (n, vocabulary), and what it keeps afterwards: ``position_next``, ``key_0_next``, ...
A new row of keys is written at the position by TensorScatter (opset 24). A token attends to the positions up to its
own: scores of later ones, and of those that are not written, are replaced by the least float before the softmax.

With ``--whole`` the model reads that many tokens at once and keeps nothing: its input is ``token``, its output
``logits``, of shape (tokens, vocabulary), and the keys and values are those of these tokens.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["CONTEXT", "Weights", "model_of"]

CONTEXT, HEADS = 256, 4
_OPSET = 24

Array = npt.NDArray[Any]
Weights = dict[str, Array]


class _Writer:
    """The nodes and constants of the model, with the weights that they are made from."""

    def __init__(self, weights: Weights, heads: int, whole: int | None) -> None:
        self.weights = weights
        self.whole = whole
        self.width = weights["embedding.weight"].shape[1]
        self.heads, self.head = heads, self.width // heads
        self.context = len(weights["position.weight"])
        self.blocks = len({name.split(".")[1] for name in weights if name.startswith("blocks.")})
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, values: Array) -> str:
        """A constant; asked for again, the same one."""
        self.constants.setdefault(name, numpy_helper.from_array(values, name))
        return name

    def add(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """A node with one output, whose name is returned."""
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def integers(self, name: str, *items: int) -> str:
        """A constant of one axis."""
        return self.constant(name, np.array(items, np.int64))

    def normalised(self, x: str, name: str) -> str:
        """A layer normalisation of the last axis."""
        scale, offset = (self.constant(f"{name}.{part}", self.weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return self.add("LayerNormalization", [x, scale, offset], name, axis=-1, epsilon=1e-5)

    def dense(self, x: str, weight: Array, bias: Array, name: str) -> str:
        """X times the transposed weight, plus the bias."""
        product = self.add("MatMul", [x, self.constant(f"{name}.weight", weight.T.copy())], f"{name}.product")
        return self.add("Add", [product, self.constant(f"{name}.bias", bias)], name)

    def layer(self, x: str, name: str) -> str:
        """The dense layer of this name."""
        return self.dense(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], name)


def _heads(w: _Writer, x: str, name: str, part: int, factor: float = 1.0) -> str:
    """Queries (part 0), keys (1) or values (2), times a factor: (1, heads, n, head width)."""
    rows = slice(part * w.width, (part + 1) * w.width)
    which = ("query", "key", "value")[part]
    weight, bias = (
        w.weights[f"{name}.query_key_value.{item}"][rows] * np.float32(factor) for item in ("weight", "bias")
    )
    made = w.dense(x, weight, bias, f"{name}.{which}")
    split = w.add("Reshape", [made, w.integers("heads", 1, -1, w.heads, w.head)], f"{name}.{which}.heads")
    return w.add("Transpose", [split], f"{name}.{which}.rows", perm=[0, 2, 1, 3])


def _attention(w: _Writer, x: str, block: int) -> str:
    """What the tokens take from the positions that they may see: (n, width)."""
    name = f"blocks.{block}"
    query = _heads(w, x, name, 0, 1 / math.sqrt(w.head))
    kept = []
    for part, which in ((1, "key"), (2, "value")):
        rows = _heads(w, x, name, part)
        if w.whole is None:
            rows = w.add("TensorScatter", [f"{which}_{block}", rows, "position"], f"{which}_{block}_next", axis=2)
        kept.append(rows)
    keys = w.add("Transpose", [kept[0]], f"{name}.keys", perm=[0, 1, 3, 2])
    scores = w.add("MatMul", [query, keys], f"{name}.scores")
    hidden = w.constant("hidden", np.array(np.finfo(np.float32).min, np.float32))
    masked = w.add("Where", ["seen", scores, hidden], f"{name}.masked")
    shares = w.add("Softmax", [masked], f"{name}.shares", axis=-1)
    mixed = w.add("MatMul", [shares, kept[1]], f"{name}.mixed")
    beside = w.add("Transpose", [mixed], f"{name}.beside", perm=[0, 2, 1, 3])
    return w.add("Reshape", [beside, w.integers("joined", -1, w.width)], f"{name}.joined")


def _block(w: _Writer, x: str, block: int) -> str:
    """The residual stream after a block."""
    name = f"blocks.{block}"
    attended = _attention(w, w.normalised(x, f"{name}.first_norm"), block)
    x = w.add("Add", [x, w.layer(attended, f"{name}.projection")], f"{name}.middle")
    wide = w.add("Gelu", [w.layer(w.normalised(x, f"{name}.second_norm"), f"{name}.widen")], f"{name}.gelu")
    return w.add("Add", [x, w.layer(wide, f"{name}.narrow")], f"{name}.end")


def _positions(w: _Writer) -> None:
    """The position of each token, what it may see, and the position after all of them."""
    count = w.add("Shape", ["token"], "count")
    zero, one = (w.constant(str(item), np.array(item, np.int64)) for item in (0, 1))
    number = w.add("Squeeze", [count], "number")
    places = w.add("Add", [w.add("Range", [zero, number, one], "order"), "position"], "places")
    column = w.add("Unsqueeze", [places, w.integers("last", 1)], "places.column")
    w.add("LessOrEqual", [w.constant("every", np.arange(w.context)[None]), column], "seen")
    after = w.add("Add", ["position", count], "position.after")
    w.add("Min", [after, w.integers("context", w.context)], "position_next")


def _start(w: _Writer) -> str:
    """The residual stream before the first block: what each token means, and what its position means."""
    tables = [w.constant(f"{name}.weight", w.weights[f"{name}.weight"]) for name in ("embedding", "position")]
    token = w.add("Gather", [tables[0], "token"], "embedding")
    if w.whole is None:
        _positions(w)
        return w.add("Add", [token, w.add("Gather", [tables[1], "places"], "position.embedding")], "start")
    w.constant("seen", np.tri(w.whole, dtype=np.bool_))
    first = w.constant("position.first", w.weights["position.weight"][: w.whole])
    return w.add("Add", [token, first], "start")


def model_of(weights: Weights, heads: int = HEADS, whole: int | None = None) -> onnx.ModelProto:
    """The float model of ONNX, checked. Width, context, vocabulary and number of blocks are those of the weights.

    With ``whole`` the model reads that many tokens, at most the context, and keeps nothing.
    """
    w = _Writer(weights, heads, whole)
    x = _start(w)
    for block in range(w.blocks):
        x = _block(w, x, block)
    w.add("MatMul", [w.normalised(x, "norm"), w.constant("head", weights["head.weight"].T.copy())], "logits")
    cache = [1, heads, w.context, w.head]
    kinds = [(f"{which}_{block}", TensorProto.FLOAT, cache) for block in range(w.blocks) for which in ("key", "value")]
    kept = [("position", TensorProto.INT64, [1]), *kinds] if whole is None else []
    count = "n" if whole is None else whole
    inputs = [helper.make_tensor_value_info("token", TensorProto.INT64, [count])]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [count, len(weights["head.weight"])])]
    inputs += [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in kept]
    outputs += [helper.make_tensor_value_info(f"{name}_next", kind, shape) for name, kind, shape in kept]
    graph = helper.make_graph(w.nodes, "tiny_gpt", inputs, outputs, list(w.constants.values()))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=11)
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--heads", type=int, default=HEADS)
    parser.add_argument("--whole", type=int, metavar="TOKENS")
    given = parser.parse_args()
    with np.load(given.weights) as stored:
        weights = {name: stored[name] for name in stored.files if name not in ("vocabulary", "losses")}
    model = model_of(weights, given.heads, given.whole)
    onnx.save(model, given.output)


if __name__ == "__main__":
    main()
