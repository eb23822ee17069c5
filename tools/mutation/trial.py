"""Loading a mutated FORMAL beside the real one, and judging it with the vectors of an op."""

from __future__ import annotations

import ast
import importlib
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from math import prod
from types import CodeType, FrameType, ModuleType
from typing import Any

from cvm.vectors import OpCase

__all__ = ["SECONDS", "compiled", "killer", "loaded"]

SECONDS = 20
"""A mutant that takes longer than this counts as killed."""


class _Finder(MetaPathFinder, Loader):
    """Loads the modules of FORMAL from code objects."""

    def __init__(self, codes: Mapping[str, CodeType]) -> None:
        self._codes = codes

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in self._codes:
            return None
        return spec_from_loader(name, self, is_package=name == "formal")

    def exec_module(self, module: ModuleType) -> None:
        exec(self._codes[module.__name__], module.__dict__)


def compiled(modules: Mapping[str, ast.Module]) -> dict[str, CodeType]:
    """The code of modules."""
    return {name: compile(tree, f"<{name}>", "exec") for name, tree in modules.items()}


def loaded(codes: Mapping[str, CodeType]) -> ModuleType:
    """``formal.registry`` from these codes, with ``formal.tensor`` as its attribute; the real modules stay in place."""
    real = {name: module for name, module in sys.modules.items() if name == "formal" or name.startswith("formal.")}
    finder = _Finder(codes)
    for name in real:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        registry = importlib.import_module("formal.registry")
        registry.__dict__["tensor"] = importlib.import_module("formal.tensor")
        return registry
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name == "formal" or name.startswith("formal.")]:
            del sys.modules[name]
        sys.modules.update(real)


def killer(codes: Mapping[str, CodeType], cases: Sequence[OpCase]) -> str | None:
    """The first case whose outputs a FORMAL made of these codes does not give; None if it gives all."""
    before = signal.signal(signal.SIGALRM, _late)
    signal.alarm(SECONDS)
    try:
        registry = loaded(codes)
        return next((case.id for case in cases if not _gives(registry, case)), None)
    except TimeoutError:
        return "(took too long)"
    except Exception as error:  # a mutant may raise anything; one that cannot be loaded is killed
        return f"({type(error).__name__} while loading)"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _late(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


def _gives(registry: Any, case: OpCase) -> bool:
    """Whether the op gives the outputs of a case; an exception counts as no."""
    stored: Callable[..., Any] = registry.tensor.stored
    try:
        result = registry.OPS[case.op](
            *(stored(x.shape, x.array().ravel().tolist()) for x in case.inputs), **case.attributes
        )
        outputs = result if isinstance(result, tuple) else (result,)
        if [output.shape for output in outputs] != [expected.shape for expected in case.outputs]:
            return False
        return all(
            prod(output.shape) < 2**24 and registry.tensor.elements(output) == expected.array().ravel().tolist()
            for output, expected in zip(outputs, case.outputs, strict=True)
        )
    except TimeoutError:
        raise
    except Exception:
        return False
