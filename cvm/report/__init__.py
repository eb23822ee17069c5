"""Reports: how far a program is from the float model that it was compiled from, tensor by tensor.

* `check_source` says whether a program was compiled from a model, `compare` runs both and measures every tensor.
* `document` gives the result as plain data, `page` as one HTML page (needs the extra ``report``).

Everything here is float64 and for people: nothing that an executor computes depends on it.
"""

from cvm.report.comparison import Comparison, compare
from cvm.report.document import document
from cvm.report.pairing import Source, check_source

__all__ = ["Comparison", "Source", "check_source", "compare", "document"]
