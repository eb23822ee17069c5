"""What a run gives: the codes of tensors by name, and the real numbers that they stand for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Location
from cvm.executors import Int32Array

if TYPE_CHECKING:
    from cvm.audit.receipt import Receipt
    from cvm.quantization import Quantizer

__all__ = ["Result"]


class Result(Mapping[str, Int32Array]):
    """The result of a run: int32 codes by the name of the output, then by the name of each captured tensor.

    Arrays are stacked as the inputs were. If an output and another captured tensor have one name, the name means the
    output.
    """

    def __init__(
        self, codes: Mapping[str, Int32Array], quantizers: Mapping[str, Quantizer], receipt: Receipt | None = None
    ) -> None:
        self._codes = dict(codes)
        self._quantizers = quantizers
        self.receipt = receipt
        """The receipt of the call, if it was asked for."""

    def __getitem__(self, name: str) -> Int32Array:
        try:
            return self._codes[name]
        except KeyError:
            raise KeyError(f"there is no tensor {name!r} in the result; there are {', '.join(self._codes)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._codes)

    def __len__(self) -> int:
        return len(self._codes)

    def __repr__(self) -> str:
        return f"Result({', '.join(f'{name}: {list(array.shape)}' for name, array in self._codes.items())})"

    def _moved(self, arrays: Mapping[str, Int32Array]) -> Result:
        """Write the codes of some names into other arrays of their shapes, and hold these instead."""
        for name, array in arrays.items():
            if not np.may_share_memory(array, self._codes[name]):
                array[...] = self._codes[name]
            self._codes[name] = array
        return self

    def has_real(self, name: str) -> bool:
        """Whether the codes of ``name`` stand for real numbers."""
        return name in self._quantizers

    def real(self, name: str) -> npt.NDArray[np.float64]:
        """The real numbers that the codes of ``name`` stand for, each the nearest float64.

        Raises KeyError for an unknown name, and `Invalid` (``result.real``) for a tensor without a quantiser.
        """
        from cvm.quantization.exact import dequantize

        codes = self[name]
        if name not in self._quantizers:
            message = "its integers stand for no real numbers: there is no quantiser"
            raise Invalid("result.real", message, Location(tensor=name))
        return dequantize(codes, self._quantizers[name])
