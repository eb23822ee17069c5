"""Calling conventions of the builder's operators: options by keyword or in one dictionary, arrays as constants.

builder.conv2d(x, w, padding=[1, 1, 1, 1], input_layout="nhwc")
builder.conv2d(x, w, {"padding": [1, 1, 1, 1], "inputLayout": "nhwc"})
builder.add(x, np.ones(3, np.float32))
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cvm.frontends.webnn.declarations import OPERATORS
from cvm.frontends.webnn.errors import type_error

__all__ = ["callable_as_specified", "documented", "in_snake_case", "snake_case"]

_NAMES = {"gatherND": "gather_nd", "scatterND": "scatter_nd", "isNaN": "is_nan"}
_POOLING = ("window_dimensions", "padding", "strides", "dilations", "layout", "output_shape_rounding", "rounding_type",
            "output_sizes")  # fmt: skip
"""The options of the operators whose methods pass their keywords on (``**options``)."""


def snake_case(name: str) -> str:
    """The Python name of a member of the specification: ``averagePool2d`` is ``average_pool2d``."""
    return _NAMES.get(name) or re.sub("([A-Z])", r"_\1", name).lower()


def documented(method: Callable[..., Any], owner: str, op: str, text: str) -> Callable[..., Any]:
    """A method that was made for an operator, with its name and its docstring in the class ``owner``."""
    method.__name__, method.__doc__ = snake_case(op), text
    method.__qualname__ = f"{owner}.{method.__name__}"
    return method


def in_snake_case(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that takes its keywords under the names of the specification as well."""

    def with_options(*arguments: Any, **options: Any) -> Any:
        return method(*arguments, **{snake_case(key): value for key, value in options.items()})

    return with_options


def callable_as_specified(op: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the method of an operator so that it also takes its options as one dictionary, and arrays for operands.

    Options have the specification's names or the Python names. Raises `MLTypeError` for an option that the operator
    does not have, and for an option that is given twice.
    """
    parameters = list(inspect.signature(method).parameters.values())[1:]
    positional = [item.name for item in parameters if item.kind is item.POSITIONAL_OR_KEYWORD]
    options = [item.name for item in parameters if item.kind is item.KEYWORD_ONLY]
    if any(item.kind is item.VAR_KEYWORD for item in parameters):
        options += _POOLING
    operands = {snake_case(name) for name in OPERATORS[op].operands}

    @functools.wraps(method)
    def called(self: Any, /, *arguments: Any, **keywords: Any) -> Any:
        given = {snake_case(name): value for name, value in keywords.items()}
        if arguments and isinstance(arguments[-1], Mapping):
            *rest, dictionary = arguments
            arguments = tuple(rest)
            for name, value in dictionary.items():
                if snake_case(str(name)) in given:
                    raise type_error(op, "options", f"the option {name!r} is given twice", str(given.get("label", "")))
                given[snake_case(str(name))] = value
        unknown = [name for name in given if name not in options and name not in positional]
        if unknown:
            known = ", ".join(options)
            message = f"there is no option {unknown[0]!r}; the options are {known}"
            raise type_error(op, "options", message, str(given.get("label", "")))
        named = zip(positional, arguments, strict=False)
        found = [_constants(self, value) if name in operands else value for name, value in named]
        given = {name: _constants(self, value) if name in operands else value for name, value in given.items()}
        return method(self, *found, *arguments[len(found) :], **given)

    return called


def _constants(builder: Any, value: Any) -> Any:
    """An operand as it is, and an array as a constant operand; truth values become uint8."""
    if isinstance(value, list | tuple):
        return [_constants(builder, item) for item in value]
    if not isinstance(value, np.ndarray | np.generic):
        return value
    return builder.constant(np.asarray(value, np.uint8) if value.dtype == np.bool_ else value)
