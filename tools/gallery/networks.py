"""The networks of the gallery: the checked content of networks.toml."""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["FILE", "Network", "found_files", "networks", "read"]

FILE = Path(__file__).with_name("networks.toml")

_DIGEST = re.compile(r"[0-9a-f]{64}")
_KEYS = {"name", "what", "source", "path", "licence", "sha256", "way", "weights", "options"}


@dataclass(frozen=True, slots=True)
class Network:
    """A file made by others.

    ``source`` and ``path`` say where it is published, ``sha256`` which bytes are meant. ``way`` is the command that
    makes a program from it: "compile" for a quantised file, "quantize" with random data for a float file;
    ``options`` are further arguments of that command. ``weights`` is "drawn" for a file without weights of its own
    (`tools.gallery.weights`).
    """

    name: str
    what: str
    source: str
    path: str
    licence: str
    sha256: str
    way: Literal["compile", "quantize"]
    weights: Literal["own", "drawn"] = "own"
    options: tuple[str, ...] = ()

    @property
    def format(self) -> str:
        """The format by its usual name."""
        return {".tflite": "TFLite", ".onnx": "ONNX"}[Path(self.path).suffix]


def networks() -> list[Network]:
    """The list. Raises `ValueError` for an entry that is not well formed, or that repeats a name or a file."""
    return read(FILE.read_text(encoding="utf-8"))


def read(text: str) -> list[Network]:
    """As `networks`, but from a TOML text: groups of networks, each with its source and licence."""
    found = []
    for group in tomllib.loads(text)["group"]:
        shared = {key: value for key, value in group.items() if key != "network"}
        found += [_network({**shared, **entry}) for entry in group["network"]]
    for what in ("name", "sha256"):
        values = [getattr(network, what) for network in found]
        repeated = sorted({value for value in values if values.count(value) > 1})
        if repeated:
            raise ValueError(f"the {what} {repeated[0]} is there twice")
    return found


def _network(entry: Mapping[str, Any]) -> Network:
    unknown = sorted(set(entry) - _KEYS)
    missing = sorted(_KEYS - {"options", "weights"} - set(entry))
    if unknown or missing:
        raise ValueError(f"{entry.get('name', 'a network')}: unknown keys {unknown}, missing keys {missing}")
    if not _DIGEST.fullmatch(entry["sha256"]):
        raise ValueError(f"{entry['name']}: {entry['sha256']!r} is not a SHA-256")
    if entry["way"] not in ("compile", "quantize"):
        raise ValueError(f"{entry['name']}: the way is compile or quantize, not {entry['way']!r}")
    return Network(**{**entry, "options": tuple(entry.get("options", ()))})


def found_files(wanted: Iterable[Network], folders: Sequence[Path]) -> dict[str, Path]:
    """The files below the folders that have the digests of networks, by the names of the networks."""
    suffixes = {Path(network.path).suffix for network in wanted}
    by_digest: dict[str, Path] = {}
    for folder in folders:
        for where, _, files in os.walk(folder):
            for file in (Path(where, name) for name in files if Path(name).suffix in suffixes):
                with file.open("rb") as stream:
                    by_digest.setdefault(hashlib.file_digest(stream, "sha256").hexdigest(), file)
    return {network.name: by_digest[network.sha256] for network in wanted if network.sha256 in by_digest}
