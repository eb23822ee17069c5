"""Run a model in an engine, in a process of its own, and take its tensors as codes."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.arrays import npz_bytes, npz_members, read_npz
from cvm.comparison.engines import EXTRA, Setting
from cvm.comparison.model import Model
from cvm.errors import Unsupported
from cvm.frontends.common.places import Place
from cvm.records import dataclass

__all__ = ["Shown", "checked", "shown", "taken"]

Array = npt.NDArray[Any]
_HOURS = 6


@dataclass(frozen=True, eq=False, slots=True)
class Shown:
    """What an engine showed."""

    setting: Setting
    package: str
    """The package and its version; "" for a command."""
    codes: Mapping[str, npt.NDArray[np.int64]]
    """The codes of the places that it showed, by the name of the place, samples along the first axis."""
    hidden: Mapping[str, str]
    """The places that it did not show as codes, each with the reason."""
    changed: Mapping[str, int]
    """For each output of the file, how many items are not those that the engine gives if it need not show tensors."""
    outputs: Mapping[str, Array] = field(default_factory=dict)
    """The outputs of the file, as the engine gives them if it need not show tensors."""
    outputs_while_showing: Mapping[str, Array] = field(default_factory=dict)
    """The same outputs, as the engine gives them while it shows tensors."""
    dropped: tuple[str, ...] = ()
    """The places that the graph which the engine makes of the file has no longer, where this was asked for."""
    operators: Mapping[str, str] = field(default_factory=dict)
    """For places: the kind of operator that this graph has before their quantiser."""
    ops: tuple[str, ...] = ()
    """All kinds of operators of this graph."""


def shown(
    model: Model,
    setting: Setting,
    inputs: Mapping[str, Array],
    names: Sequence[str] | None = None,
    keeping: bool = False,
) -> Shown:
    """Run the model's file. ``inputs`` has samples along a further first axis, in the data types of the file.

    ``names`` are the places that the engine shall show, by default all. ``keeping``: say which places it drops.
    Raises `Unsupported`: ``compare.extra`` if the engine is not installed, ``compare.format`` if it does not read the
    format, ``compare.failed`` if it fails.
    """
    checked(setting, model.kind)
    with tempfile.TemporaryDirectory() as folder:
        wanted = [place.name for place in model.places if names is None or place.name in names]
        document, arrays, outputs, again = _process(model, setting, inputs, Path(folder), wanted, keeping)
    codes, hidden = taken(model, arrays, wanted)
    return Shown(
        setting,
        document["package"],
        codes,
        hidden,
        document["changed"],
        outputs,
        again,
        tuple(document["dropped"]),
        document["operators"],
        tuple(document["ops"]),
    )


def checked(setting: Setting, kind: str) -> None:
    """Check that an engine reads a format and is installed. Raises as `shown` does."""
    engine = setting.runner
    if kind not in engine.formats:
        message = f"{setting.engine} reads models of {' and '.join(engine.formats)}, and this is a model of {kind}"
        raise Unsupported("compare.format", message)
    if find_spec(engine.module) is None:
        message = f"the engine {setting.engine} needs a package that is not installed: pip install 'cvm[{EXTRA}]'"
        raise Unsupported("compare.extra", message)


def taken(
    model: Model, arrays: Mapping[str, Array], names: Sequence[str] | None = None
) -> tuple[dict[str, npt.NDArray[np.int64]], dict[str, str]]:
    """The codes of the places in the tensors that an engine showed, and the other places, each with the reason.

    With ``names``, only of the places with these names.
    """
    codes, hidden = {}, {}
    for place in model.places:
        if names is not None and place.name not in names:
            continue
        if place.name not in arrays:
            hidden[place.name] = "the engine has no tensor of this name"
            continue
        found = _codes(arrays[place.name], place, model)
        if isinstance(found, str):
            hidden[place.name] = found
        else:
            codes[place.name] = found
    return codes, hidden


def _process(
    model: Model, setting: Setting, inputs: Mapping[str, Array], folder: Path, names: Sequence[str], keeping: bool
) -> tuple[dict[str, Any], dict[str, Array], dict[str, Array], dict[str, Array]]:
    """The answer of the worker, the tensors that it shows, and the outputs, without and with showing."""
    asked = {
        "model": str(model.path.resolve()),
        "names": list(names),
        "keeping": keeping,
        "places": [place.name for place in model.places],
        "indices": {place.name: place.index for place in model.places if place.name in names},
        "inputs": list(inputs),
        "setting": setting.document(),
    }
    wish, given, made = folder / "request.json", folder / "inputs.npz", folder / "outputs.npz"
    wish.write_text(json.dumps(asked), "utf-8")
    given.write_bytes(npz_bytes({f"input{number}": array for number, array in enumerate(inputs.values())}))
    words, environment = setting.process("cvm.comparison.worker", str(wish), str(given), str(made))
    done = subprocess.run(
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_HOURS * 3600,
        check=False,
    )
    try:
        document = json.loads(done.stdout)
    except ValueError:
        last = " ".join(done.stderr.split())[-300:]
        message = f"{setting.label} ended with {done.returncode} and without an answer: {last}"
        raise Unsupported("compare.failed", message) from None
    if "error" in document:
        raise Unsupported("compare.failed", f"{setting.label}: {document['error']}")
    arrays = {name: read_npz(made, f"tensor{number}") for number, name in enumerate(document["names"])}
    outputs = {name: read_npz(made, f"output{number}") for number, name in enumerate(document["outputs"])}
    members = set(npz_members(made))
    again = {name: read_npz(made, f"again{n}") for n, name in enumerate(document["outputs"]) if f"again{n}" in members}
    return document, arrays, outputs, again


def _codes(array: Array, place: Place, model: Model) -> npt.NDArray[np.int64] | str:
    """The codes that an engine's tensor holds; the reason if it holds none."""
    shape = model.graph.tensors[place.tensor].shape or (1,)
    size = int(np.prod(shape))
    if array[0].size != size:
        return f"the engine's tensor has {array[0].size} elements, not {size}"
    if array.dtype.kind not in "iu":
        return f"the engine's tensor is of {array.dtype}, not of codes"
    codes = array.astype(np.int64)
    lo, hi = place.quantizer.lo, place.quantizer.hi
    if codes.min() < lo or codes.max() > hi:
        return f"the engine's integers are outside of the tensor's codes, {lo} .. {hi}"
    return codes
