"""The operations of the provisional specification, and their equivalents in 1.0.1.

Chapter 4 of that specification is not available; the declarations and definitions here follow what the validator of the
Khronos branch provisional_v1.0 accepted, in our own words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from importlib import resources
from types import MappingProxyType

from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.parser import parse_library
from cvm.records import dataclass

__all__ = ["LAYERS", "OPERATIONS", "Form", "definitions", "form_of", "library"]

LAYERS = ("linear_layer", "conv_layer", "deconv_layer", "max_pool_layer", "avg_pool_layer", "batch_normalization_layer")
"""Fragments that come with the operations; a document may define its own under these names."""


def _read(name: str) -> Mapping[str, syntax.Fragment]:
    text = resources.files("cvm.frontends.nnef.provisional").joinpath(name).read_text("utf-8")
    return MappingProxyType({fragment.name: fragment for fragment in parse_library(text)})


@lru_cache(maxsize=1)
def library() -> Mapping[str, syntax.Fragment]:
    """The declarations of all operations, by name; none has a body."""
    return _read("library.nnef")


@lru_cache(maxsize=1)
def definitions() -> Mapping[str, syntax.Fragment]:
    """Definitions, in terms of 1.0.1, of operations that 1.0.1 does not have or to which it gives another meaning."""
    return _read("definitions.nnef")


@dataclass(frozen=True, slots=True)
class Form:
    """The 1.0.1 form of an operation: its name, renamed attributes, and attributes that are always given."""

    name: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    added: Mapping[str, int] = field(default_factory=dict)


OPERATIONS: Mapping[str, Form] = MappingProxyType(
    {
        "matmul": Form("matmul", renamed={"trA": "transposeA", "trB": "transposeB"}),
        "transpose": Form("transpose", renamed={"perm": "axes"}),
        "planewise_conv": Form("conv", added={"groups": 0}),
        "planewise_deconv": Form("deconv", added={"groups": 0}),
    }
)
"""The operations whose name or attributes differ in 1.0.1."""

_SAME_WITHOUT = MappingProxyType(
    {
        "local_variance_normalization": "bias",
        "local_contrast_normalization": "bias",
        "l1_normalization": "bias",
        "l2_normalization": "bias",
    }
)
"""The operations whose definition is needed only where an attribute is given; without it 1.0.1 means the same."""


def form_of(invocation: syntax.Invocation) -> Form | None:
    """The 1.0.1 form of an invocation of a library operation; None where a definition replaces the operation."""
    name = invocation.name
    if name in definitions():
        attribute = _SAME_WITHOUT.get(name)
        if attribute is None or any(argument.name == attribute for argument in invocation.arguments):
            return None
    return OPERATIONS.get(name, Form(name))
