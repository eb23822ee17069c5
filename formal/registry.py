"""All ops of FORMAL by name, in the order of the document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from formal import broadcast, computed, elemwise, extension, nn, reduce, transform, vision
from formal.tensor import Tensor

__all__ = ["OPS", "Op"]

Op: TypeAlias = "Callable[..., Tensor | tuple[Tensor, ...]]"
"""A function of tensors and keyword attributes; the result is lazy."""

OPS: Mapping[str, Op] = MappingProxyType(
    {
        "sum": reduce.sum_,
        "max": reduce.max_,
        "broadcast_add": broadcast.broadcast_add,
        "broadcast_sub": broadcast.broadcast_sub,
        "broadcast_mul": broadcast.broadcast_mul,
        "broadcast_div": broadcast.broadcast_div,
        "broadcast_max": broadcast.broadcast_max,
        "conv2d": nn.conv2d,
        "dense": nn.dense,
        "relu": nn.relu,
        "max_pool2d": nn.max_pool2d,
        "upsampling": nn.upsampling,
        "abs": elemwise.abs_,
        "cvm_precision": elemwise.cvm_precision,
        "elemwise_add": elemwise.elemwise_add,
        "elemwise_sub": elemwise.elemwise_sub,
        "negative": elemwise.negative,
        "clip": elemwise.clip,
        "cvm_clip": elemwise.cvm_clip,
        "cvm_right_shift": elemwise.cvm_right_shift,
        "cvm_left_shift": elemwise.cvm_left_shift,
        "repeat": transform.repeat,
        "tile": transform.tile,
        "flatten": transform.flatten,
        "concatenate": transform.concatenate,
        "transpose": transform.transpose,
        "slice": transform.slice_,
        "slice_like": transform.slice_like,
        "take": transform.take,
        "cvm_lut": transform.cvm_lut,
        "expand_dims": transform.expand_dims,
        "reshape": transform.reshape,
        "squeeze": transform.squeeze,
        "where": transform.where,
        "get_valid_count": vision.get_valid_count,
        "non_max_suppression": vision.non_max_suppression,
        "requantize": extension.requantize,
        "broadcast_greater": extension.broadcast_greater,
        "matmul": computed.matmul,
        "quotient": computed.quotient,
        "normalize": computed.normalize,
        "update_slice": computed.update_slice,
    }
)
"""Op name -> its function."""
