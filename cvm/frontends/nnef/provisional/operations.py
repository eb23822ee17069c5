"""The operations of the provisional specification, and how 1.0.1 says them.

Chapter 4 of that specification is not among our sources; the declarations and definitions here say what the validator
of the Khronos branch provisional_v1.0 knew, in our words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from types import MappingProxyType

from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.parser import parse_library

__all__ = ["LAYERS", "OPERATIONS", "Form", "definitions", "form_of", "library"]

LAYERS = ("linear_layer", "conv_layer", "deconv_layer", "max_pool_layer", "avg_pool_layer", "batch_normalization_layer")
"""Fragments that come with the operations; a document may have its own under these names."""


def _read(name: str) -> Mapping[str, syntax.Fragment]:
    text = resources.files("cvm.frontends.nnef.provisional").joinpath(name).read_text("utf-8")
    return MappingProxyType({fragment.name: fragment for fragment in parse_library(text)})


@lru_cache(maxsize=1)
def library() -> Mapping[str, syntax.Fragment]:
    """The declarations of all operations, by name; none has a body."""
    return _read("library.nnef")


@lru_cache(maxsize=1)
def definitions() -> Mapping[str, syntax.Fragment]:
    """Definitions by operations of 1.0.1 of those that 1.0.1 does not have, or has with another meaning."""
    return _read("definitions.nnef")


@dataclass(frozen=True, slots=True)
class Form:
    """How 1.0.1 says an operation: its name, renamed attributes, and attributes that are always given."""

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
"""Operations whose name or attributes are others in 1.0.1."""

_SAME_WITHOUT = MappingProxyType(
    {
        "local_variance_normalization": "bias",
        "local_contrast_normalization": "bias",
        "l1_normalization": "bias",
        "l2_normalization": "bias",
    }
)
"""Operations whose definition is needed only where an attribute is given; without it 1.0.1 means the same."""


def form_of(invocation: syntax.Invocation) -> Form | None:
    """How 1.0.1 says an invocation of an operation of the library; None where a definition replaces it."""
    name = invocation.name
    if name in definitions():
        attribute = _SAME_WITHOUT.get(name)
        if attribute is None or any(argument.name == attribute for argument in invocation.arguments):
            return None
    return OPERATIONS.get(name, Form(name))
