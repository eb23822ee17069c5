"""A copy of a model of ONNX with further outputs, so that an engine shows tensors that it would not keep."""

from __future__ import annotations

import os
from collections.abc import Sequence

__all__ = ["with_outputs"]


def with_outputs(path: str | os.PathLike[str], names: Sequence[str]) -> tuple[bytes, list[str]]:
    """The model with those of ``names`` that its nodes compute as further outputs, and the names of all outputs.

    ``path`` is a file that the reader accepted.
    """
    import onnx

    model = onnx.load(os.fspath(path))
    outputs = [value.name for value in model.graph.output]
    made = {name for node in model.graph.node for name in node.output}
    added = [name for name in names if name in made and name not in outputs]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in added)
    return model.SerializeToString(), outputs + added
