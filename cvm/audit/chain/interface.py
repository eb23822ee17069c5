"""The contracts as Python sees them: their artifacts, and how calls, results, events and refusals are encoded."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from cvm.errors import Invalid, Malformed, Unsupported
from cvm.records import dataclass

__all__ = ["Interface", "interface", "required"]


def required(name: str) -> Any:
    """A module of the extra `chain`. Raises `Unsupported` (``chain.extra``) if it is not installed.

    py-evm raises the limit on recursion of the whole process when it is imported. Then deep JSON from a stranger would
    overflow the stack of the parser instead of raising RecursionError, so the limit is set back.
    """
    from importlib import import_module

    limit = sys.getrecursionlimit()
    try:
        return import_module(name)
    except ImportError:
        package = name.split(".")[0]
        raise Unsupported("chain.extra", f"needs the package {package!r}: pip install 'cvm[chain]'") from None
    finally:
        sys.setrecursionlimit(limit)


def _type(item: Mapping[str, Any]) -> str:
    """The canonical type of a parameter: a struct is written as its members."""
    if not item["type"].startswith("tuple"):
        return str(item["type"])
    return f"({','.join(map(_type, item['components']))}){item['type'].removeprefix('tuple')}"


def _types(items: Sequence[Mapping[str, Any]]) -> list[str]:
    return [_type(item) for item in items]


@dataclass(frozen=True, eq=False)
class Interface:
    """One contract: its functions, events and errors by name, and its code."""

    name: str
    abi: tuple[Mapping[str, Any], ...]
    bytecode: bytes
    """The code that makes the contract, without the arguments of its constructor."""

    def _entry(self, kind: str, name: str) -> Mapping[str, Any]:
        return next(item for item in self.abi if item["type"] == kind and item.get("name") == name)

    def call(self, function: str, arguments: Sequence[Any] = ()) -> bytes:
        """The data of a call. Raises `Invalid` (``chain.argument``) for arguments that the function does not take."""
        entry = self._entry("function", function)
        return _selector(entry) + self._encoded(_types(entry["inputs"]), arguments)

    def encoded(self, function: str, argument: str, value: Any) -> bytes:
        """One argument of a function, as ``abi.encode`` of the contract gives it."""
        inputs = self._entry("function", function)["inputs"]
        return self._encoded([_type(item) for item in inputs if item["name"] == argument], [value])

    def creation(self, arguments: Sequence[Any] = ()) -> bytes:
        """The code that makes the contract."""
        entry = next((item for item in self.abi if item["type"] == "constructor"), None)
        return self.bytecode + self._encoded(_types(entry["inputs"]) if entry else [], arguments)

    def _encoded(self, types: Sequence[str], arguments: Sequence[Any]) -> bytes:
        abi = required("eth_abi")
        try:
            return bytes(abi.encode(types, arguments))
        except (abi.exceptions.EncodingError, TypeError, ValueError, OverflowError) as error:
            raise Invalid("chain.argument", f"{self.name} does not take this: {error}") from None

    def result(self, function: str, data: bytes) -> Any:
        """The result of a call: one value, or a tuple of several. Raises `Malformed` (``chain.result``)."""
        values = self._decoded(_types(self._entry("function", function)["outputs"]), data)
        return values[0] if len(values) == 1 else values

    def _decoded(self, types: Sequence[str], data: bytes) -> tuple[Any, ...]:
        abi = required("eth_abi")
        try:
            return tuple(abi.decode(types, data))
        except (abi.exceptions.DecodingError, ValueError, OverflowError) as error:
            raise Malformed("chain.result", f"this is no result of {self.name}: {error}") from None

    def returns(self, function: str) -> bool:
        """Whether a function has a result."""
        return bool(self._entry("function", function)["outputs"])

    def members(self, function: str) -> tuple[str, ...]:
        """The names of the members of the struct that a function returns."""
        return tuple(item["name"] for item in self._entry("function", function)["outputs"][0]["components"])

    def topic(self, event: str) -> bytes:
        """The first topic of an event."""
        return _hash(_signature(self._entry("event", event)))

    def event(self, event: str, topics: Sequence[bytes], data: bytes) -> dict[str, Any]:
        """The arguments of an event by name. Raises `Malformed` (``chain.result``)."""
        inputs = self._entry("event", event)["inputs"]
        indexed = [item for item in inputs if item["indexed"]]
        others = [item for item in inputs if not item["indexed"]]
        if len(topics) != len(indexed) + 1 or topics[0] != self.topic(event):
            raise Malformed("chain.result", f"this is no event {event} of {self.name}")
        found = self._decoded(_types(indexed), b"".join(topics[1:]))
        values = dict(zip((item["name"] for item in indexed), found, strict=True))
        return values | dict(zip((item["name"] for item in others), self._decoded(_types(others), data), strict=True))

    def refusal(self, data: bytes) -> str:
        """A revert in words: the name of the error and its arguments."""
        for entry in self.abi:
            if entry["type"] == "error" and _selector(entry) == data[:4]:
                values = self._decoded(_types(entry["inputs"]), data[4:])
                words = [v.rstrip(b"\0").decode("ascii", "replace") if isinstance(v, bytes) else str(v) for v in values]
                return f"{entry['name']}({', '.join(words)})" if words else str(entry["name"])
        return f"0x{data.hex()}" if data else "a revert without a reason"


def _signature(entry: Mapping[str, Any]) -> str:
    return f"{entry['name']}({','.join(_types(entry['inputs']))})"


def _selector(entry: Mapping[str, Any]) -> bytes:
    return _hash(_signature(entry))[:4]


@cache
def _hash(text: str) -> bytes:
    return bytes(required("eth_utils").keccak(text=text))


@cache
def interface(name: str) -> Interface:
    """A contract of `cvm.audit.chain.artifacts`. Raises `Unsupported` (``chain.artifact``) if it is not there."""
    try:
        text = resources.files("cvm.audit.chain").joinpath("artifacts", f"{name}.json").read_text("utf-8")
    except OSError:
        raise Unsupported("chain.artifact", f"there is no contract {name}") from None
    document = json.loads(text)
    return Interface(name, tuple(document["abi"]), bytes.fromhex(document["bytecode"].removeprefix("0x")))
