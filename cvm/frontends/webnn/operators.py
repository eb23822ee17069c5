"""Python's operators on operands: ``a + b``, ``-a``, ``a @ b``, ``2 * a``, ``a < b``.

The other operand may be a number, which becomes a constant of this operand's data type, or an array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cvm.frontends.common.data_types import bounds, is_float
from cvm.frontends.webnn.errors import type_error

__all__ = ["PythonOperators"]


def _of_two(op: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """The operator of Python that calls the builder's method ``op``."""

    def operator(self: PythonOperators, other: Any) -> Any:
        return self._with(op, other, reflected)

    return operator


class PythonOperators:
    """Python's operators on an MLOperand; each calls the builder's method that computes it."""

    _builder: Any
    data_type: Any
    __array_ufunc__ = None  # makes an array on the left-hand side defer to the operand

    def _with(self, op: str, other: Any, reflected: bool = False) -> Any:
        method = getattr(self._builder, op)
        if isinstance(other, int | float | np.number) and not isinstance(other, bool):
            other = self._builder.constant(self.data_type, _number(other, self.data_type, op))
        elif not isinstance(other, np.ndarray | PythonOperators):
            return NotImplemented
        return method(other, self) if reflected else method(self, other)

    __add__, __radd__ = _of_two("add"), _of_two("add", reflected=True)
    __sub__, __rsub__ = _of_two("sub"), _of_two("sub", reflected=True)
    __mul__, __rmul__ = _of_two("mul"), _of_two("mul", reflected=True)
    __pow__, __rpow__ = _of_two("pow"), _of_two("pow", reflected=True)
    __lt__, __le__ = _of_two("lesser"), _of_two("lesserOrEqual")
    __gt__, __ge__ = _of_two("greater"), _of_two("greaterOrEqual")

    def __truediv__(self, other: Any) -> Any:
        """The method ``div``, of real operands."""
        self._require_real()
        return self._with("div", other)

    def __rtruediv__(self, other: Any) -> Any:
        """The method ``div``, reflected, of real operands."""
        self._require_real()
        return self._with("div", other, reflected=True)

    def __matmul__(self, other: Any) -> Any:
        """The method ``matmul``."""
        return NotImplemented if np.isscalar(other) else self._with("matmul", other)

    def __rmatmul__(self, other: Any) -> Any:
        """The method ``matmul``, reflected."""
        return NotImplemented if np.isscalar(other) else self._with("matmul", other, reflected=True)

    def __neg__(self) -> Any:
        """The method ``neg``."""
        return self._builder.neg(self)

    def __abs__(self) -> Any:
        """The method ``abs``."""
        return self._builder.abs(self)

    def __bool__(self) -> bool:
        """Raise `MLTypeError`: an operand is a tensor, which has no truth value while the graph is built."""
        raise type_error(
            "MLOperand", "truth", "an operand has no truth value; use where(), logicalAnd() or logicalOr()"
        )

    def _require_real(self) -> None:
        if not is_float(self.data_type):
            message = f"a quotient of {self.data_type} need not be whole; div() truncates it"
            raise type_error("div", "data-type", message)


def _number(number: Any, data_type: str, op: str) -> Any:
    """The number, if it is a number of the data type. Raises `MLTypeError` if not."""
    if is_float(data_type):
        return float(number)
    lo, hi = bounds(data_type)
    if isinstance(number, float | np.floating) and not float(number).is_integer():
        raise type_error(op, "number", f"{number!r} is no {data_type}")
    if not lo <= int(number) <= hi:
        raise type_error(op, "number", f"{number!r} is not in {lo}..{hi} of {data_type}")
    return int(number)
