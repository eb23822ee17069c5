"""Python's operators on operands: ``a + b``, ``-a``, ``a @ b``, ``2 * a``, ``a < b``.

The other operand may be a number, which becomes a constant of this operand's data type, or an array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cvm.frontends.common.data_types import bounds, is_float
from cvm.frontends.webnn.errors import type_error

__all__ = ["PythonOperators"]


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

    def __add__(self, other: Any) -> Any:
        """The method ``add``."""
        return self._with("add", other)

    def __radd__(self, other: Any) -> Any:
        """The method ``add``, reflected."""
        return self._with("add", other, reflected=True)

    def __sub__(self, other: Any) -> Any:
        """The method ``sub``."""
        return self._with("sub", other)

    def __rsub__(self, other: Any) -> Any:
        """The method ``sub``, reflected."""
        return self._with("sub", other, reflected=True)

    def __mul__(self, other: Any) -> Any:
        """The method ``mul``."""
        return self._with("mul", other)

    def __rmul__(self, other: Any) -> Any:
        """The method ``mul``, reflected."""
        return self._with("mul", other, reflected=True)

    def __truediv__(self, other: Any) -> Any:
        """The method ``div``, of real operands."""
        self._require_real()
        return self._with("div", other)

    def __rtruediv__(self, other: Any) -> Any:
        """The method ``div``, reflected, of real operands."""
        self._require_real()
        return self._with("div", other, reflected=True)

    def __pow__(self, other: Any) -> Any:
        """The method ``pow``."""
        return self._with("pow", other)

    def __rpow__(self, other: Any) -> Any:
        """The method ``pow``, reflected."""
        return self._with("pow", other, reflected=True)

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

    def __lt__(self, other: Any) -> Any:
        """The method ``lesser``."""
        return self._with("lesser", other)

    def __le__(self, other: Any) -> Any:
        """The method ``lesser_or_equal``."""
        return self._with("lesserOrEqual", other)

    def __gt__(self, other: Any) -> Any:
        """The method ``greater``."""
        return self._with("greater", other)

    def __ge__(self, other: Any) -> Any:
        """The method ``greater_or_equal``."""
        return self._with("greaterOrEqual", other)

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
