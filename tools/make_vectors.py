"""Write the test vectors, or check that those in the tree are the ones that this program writes.

    python tools/make_vectors.py [--out FOLDER] [--check]      (default: spec_vectors)

Expected values come from FORMAL only, verdicts on programs from the verifier. The bytes depend only on this
program, FORMAL and the declarations: not on the Python or NumPy version, the machine, or the order of dictionaries.
``--check`` writes nothing, prints missing, different and unexpected files, and exits 1 if there are any.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cvm.vectors import VectorFile, encode  # noqa: E402 - after the paths are set
from tools.vector_cases.answers import op_files  # noqa: E402
from tools.vector_cases.programs import program_files  # noqa: E402
from tools.vector_cases.receipts import receipt_files  # noqa: E402
from tools.vector_cases.steps import step_files  # noqa: E402
from tools.vector_cases.verdicts import verdict_files  # noqa: E402


def made() -> dict[str, VectorFile]:
    """All files by their path under the folder."""
    return {**op_files(), **program_files(), **verdict_files()}


def encoded(files: dict[str, VectorFile]) -> dict[str, bytes]:
    """The bytes of all files by their path: the vectors, and the receipts and one-step proofs that follow from them."""
    return {path: encode(file) for path, file in files.items()} | receipt_files(files) | step_files(files)


def vector_paths(folder: Path) -> list[Path]:
    """The files of a folder that are vectors."""
    return sorted(path for pattern in ("*.msgpack", "*.receipt", "*.step") for path in folder.rglob(pattern))


def differences(folder: Path, contents: dict[str, bytes]) -> list[str]:
    """The differences between the folder and the files that would be written."""
    present = {path.relative_to(folder).as_posix() for path in vector_paths(folder)}
    found = [f"missing: {path}" for path in contents if path not in present]
    found += [f"unexpected: {path}" for path in sorted(present) if path not in contents]
    return found + [
        f"different: {path}"
        for path, data in contents.items()
        if path in present and (folder / path).read_bytes() != data
    ]


def write(folder: Path, contents: dict[str, bytes]) -> None:
    """Write all files, and remove other vector files."""
    for path in vector_paths(folder):
        if path.relative_to(folder).as_posix() not in contents:
            path.unlink()
    for name, data in contents.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_file() or target.read_bytes() != data:
            target.write_bytes(data)


def summary(files: dict[str, VectorFile], contents: dict[str, bytes]) -> None:
    """Print how many cases of each class every file has."""
    verdicts: tuple[Literal["value", "invalid", "malformed", "limit"], ...] = ("value", "invalid", "malformed", "limit")
    print(f"{'file':<42}{'bytes':>9}" + "".join(f"{verdict:>11}" for verdict in verdicts))
    total: Counter[str] = Counter()
    for path, file in files.items():
        counts = Counter(case.verdict for case in file.cases)
        total += counts
        print(f"{path:<42}{len(contents[path]):>9}" + "".join(f"{counts[verdict]:>11}" for verdict in verdicts))
    for kind in ("receipts/", "steps/"):
        paths = [path for path in contents if path.startswith(kind)]
        print(f"{f'{kind} ({len(paths)} files)':<42}{sum(len(contents[path]) for path in paths):>9}")
    size = sum(map(len, contents.values()))
    print(f"{'total':<42}{size:>9}" + "".join(f"{total[verdict]:>11}" for verdict in verdicts))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "spec_vectors", help="the folder of vectors")
    parser.add_argument("--check", action="store_true", help="write nothing; compare")
    arguments = parser.parse_args()
    files = made()
    contents = encoded(files)
    if arguments.check:
        found = differences(arguments.out, contents)
        print("\n".join(found) or f"{len(contents)} files are as they would be written")
        return 1 if found else 0
    write(arguments.out, contents)
    summary(files, contents)
    return 0


if __name__ == "__main__":
    sys.exit(main())
