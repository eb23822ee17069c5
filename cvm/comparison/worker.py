"""The process of one engine: ``python -m cvm.comparison.worker REQUEST INPUTS OUTPUTS``.

REQUEST is a file of JSON, INPUTS and OUTPUTS are .npz files. The answer is one line of JSON on stdout: facts about the
engine, or an ``error``. What libraries print goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from cvm.arrays import npz_bytes, read_npz
from cvm.comparison.engines import Engine, Request, Setting
from cvm.errors import CvmError

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run the engine once over all samples."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        document = _served(*map(Path, arguments))
    except CvmError as error:
        document = {"error": error.message}
    except Exception as error:  # an error of another engine is its answer
        what = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        document = {"error": what}
    with answers:
        answers.write(json.dumps(document) + "\n")
    return 1 if "error" in document else 0


def _served(wish: Path, inputs: Path, outputs: Path) -> dict[str, Any]:
    asked = json.loads(wish.read_text("utf-8"))
    setting = Setting.of(asked["setting"])
    engine = setting.runner
    arrays = {name: read_npz(inputs, f"input{number}") for number, name in enumerate(asked["inputs"])}
    request = Request(Path(asked["model"]), asked["names"], asked["indices"], arrays, setting)
    plain, found = engine.run(request, False), engine.run(request, True)
    wanted = [name for name in asked["names"] if name in found]
    written = {f"tensor{number}": found[name] for number, name in enumerate(wanted)}
    written |= {f"output{number}": array for number, array in enumerate(plain.values())}
    changed = {
        name: int((array != found[name].reshape(array.shape)).sum()) for name, array in plain.items() if name in found
    }
    written |= {f"again{number}": found[name] for number, name in enumerate(plain) if name in found}
    outputs.write_bytes(npz_bytes(written))
    answer = {"names": wanted, "outputs": list(plain), "package": setting.package, "changed": changed}
    return answer | _graph(engine, request, asked)


def _graph(engine: Engine, request: Request, asked: dict[str, Any]) -> dict[str, Any]:
    """What the engine's own graph says, if it was asked for and the engine has one."""
    if not asked["keeping"] or engine.graph is None:
        return {"dropped": [], "operators": {}, "ops": []}
    plain, showing = engine.graph(request, False), engine.graph(request, True)
    return {
        "dropped": [name for name in asked["places"] if name not in plain],
        "operators": {name: op for name, op in showing.items() if name in request.names},
        "ops": sorted(set(plain.values())),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
