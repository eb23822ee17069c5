"""The process of one engine: ``python -m cvm.conformance.worker FOLDER FIRST``.

FOLDER/requests.json has the setting and the cases; those from number FIRST on are run. Each answer is one line of JSON
on stdout, and the tensors of case N are FOLDER/shown-N.npz. An engine that crashes ends the process after the answers
of the cases before.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from cvm.arrays import npz_bytes, read_npz
from cvm.comparison.engines import Request, Setting
from cvm.errors import CvmError

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run the cases one after the other."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    folder, first = Path(arguments[0]), int(arguments[1])
    asked = json.loads((folder / "requests.json").read_text("utf-8"))
    setting = Setting.of(asked["setting"])
    with answers:
        for number in range(first, len(asked["cases"])):
            answer = _served(folder, number, asked["cases"][number], setting)
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    return 0


def _served(folder: Path, number: int, case: dict[str, Any], setting: Setting) -> dict[str, Any]:
    try:
        given = folder / f"inputs-{number}.npz"
        arrays = {name: read_npz(given, f"input{place}") for place, name in enumerate(case["inputs"])}
        request = Request(folder / case["model"], list(case["indices"]), case["indices"], arrays, setting)
        found = setting.runner.run(request, True)
    except CvmError as error:
        return {"case": number, "error": error.message}
    except Exception as error:  # an error of another engine is its answer
        return {"case": number, "error": " ".join(f"{type(error).__name__}: {error}".split())[:600]}
    names = [name for name in case["indices"] if name in found]
    tensors = {f"tensor{place}": found[name] for place, name in enumerate(names)}
    (folder / f"shown-{number}.npz").write_bytes(npz_bytes(tensors))
    return {"case": number, "names": names}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
