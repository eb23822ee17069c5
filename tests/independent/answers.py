"""The independent verifier as a program: it answers questions, or judges a folder of vectors (spec_vectors/README.md).

python tests/independent/answers.py --serve          answers the questions of kind "verdict"
python tests/independent/answers.py spec_vectors     judges every program and prints what differs
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO

sys.path.insert(0, str(Path(__file__).resolve().parent))

from verifier import Reader, verdict  # type: ignore[import-not-found]


def item_of(reader: Any) -> Any:
    """An item of any kind."""
    kind = reader.kind()
    if kind == "array":
        return list(reader.array(lambda: item_of(reader)))
    if kind == "map":
        return reader.table(lambda _: item_of(reader))
    return {"integer": reader.integer, "string": reader.text, "binary": reader.binary, "boolean": reader.boolean}[
        kind
    ]()


def packed(item: Any) -> bytes:
    """An answer as msgpack; answers need not be canonical."""
    if type(item) is int:
        return b"\xd3" + struct.pack(">q", item)
    if type(item) is str:
        return b"\xdb" + struct.pack(">I", len(item.encode())) + item.encode()
    if type(item) is dict:
        pairs = b"".join(packed(key) + packed(value) for key, value in item.items())
        return b"\xdf" + struct.pack(">I", len(item)) + pairs
    return b"\xdd" + struct.pack(">I", len(item)) + b"".join(map(packed, item))


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer questions until there are no more."""
    while header := source.read(4):
        question = item_of(Reader(source.read(*struct.unpack("<I", header))))
        answer = verdict(question["program"]) if question["kind"] == "verdict" else {"verdict": "unsupported"}
        frame = packed({"id": question["id"], **answer})
        sink.write(struct.pack("<I", len(frame)) + frame)
        sink.flush()


def judged(folder: str) -> tuple[int, list[str]]:
    """How many programs of a folder of vectors were judged, and where the verdict is another one."""
    count, wrong = 0, []
    for path in sorted(Path(folder).rglob("*.msgpack")):
        _, _, header, cases = item_of(Reader(path.read_bytes()))
        for case in cases if header["kind"] != "op" else ():
            said = {key: case[key] for key in ("verdict", "code", "gas", "ranges") if key in case}
            found = verdict(case["program"])
            if header["kind"] == "program":
                found = {key: found[key] for key in said if key in found}
            count += 1
            if found != said:
                wrong.append(f"{path.stem}, {case['id']}: {found}")
    return count, wrong


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve(sys.stdin.buffer, sys.stdout.buffer)
    else:
        number, differences = judged(*sys.argv[1:])
        print(
            "\n".join([*differences, f"{number} programs judged, {len(differences)} otherwise than their vectors say"])
        )
        sys.exit(bool(differences))
