"""The ops: what each one is. Importing this package fills the registry, in the order of the document."""

# isort: off  (the order of the document, not of the alphabet)
from cvm.ops import elemwise
from cvm.ops.declaration import REGISTRY, AttributeModel, Call, Op, get
from cvm.ops.ranges import Range, Shape, precision

# isort: on

__all__ = ["REGISTRY", "AttributeModel", "Call", "Op", "Range", "Shape", "elemwise", "get", "precision"]
