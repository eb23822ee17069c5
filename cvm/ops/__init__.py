"""The ops: what each one is. Importing this package fills the registry, in the order of the document."""

# The order of the document, not of the alphabet:
# isort: off
from cvm.ops import reduce
from cvm.ops import broadcast
from cvm.ops import nn
from cvm.ops import elemwise
from cvm.ops import transform
from cvm.ops import vision
from cvm.ops import extension
from cvm.ops import computed
from cvm.ops.attributes import TypedAttributes
from cvm.ops.declaration import REGISTRY, Call, Op, get, op_set
from cvm.ops.ranges import Range, Shape, precision

# isort: on

__all__ = ["REGISTRY", "Call", "Op", "Range", "Shape", "TypedAttributes", "broadcast", "computed", "elemwise",
           "extension", "get", "nn", "op_set", "precision", "reduce", "transform", "vision"]  # fmt: skip
