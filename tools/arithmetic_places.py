"""The places of ``cvm`` whose fixed-width arithmetic `tools/lint_arithmetic.py` lets stand, and what bounds them.

An entry names a module, a function, method or class of it (and all in it; ``*`` is the whole module), and the reason.
"""

from __future__ import annotations

Table = dict[tuple[str, str], str]

REALS: Table = {
    ("cvm/reference/operations/activations.py", "*"): "scalars of NNEF are float64",
    (
        "cvm/reference/operations/elementwise.py",
        "*",
    ): "scalars of NNEF are float64; arithmetic takes no integers",
    ("cvm/reference/operations/filters.py", "*"): "scalars of NNEF are float64",
    ("cvm/reference/operations/integers.py", "wrap"): "integers are float64",
    ("cvm/reference/operations/khronos.py", "*"): "scalars of NNEF are float64",
    ("cvm/reference/operations/linear.py", "*"): "scalars of NNEF are float64",
    ("cvm/reference/operations/miscellaneous.py", "*"): "scalars of NNEF are float64",
    ("cvm/reference/operations/normalization.py", "*"): "scalars of NNEF are float64",
    ("cvm/reference/operations/pooling.py", "*"): "scalars of NNEF are float64",
    ("cvm/reference/operations/quantization.py", "*"): "scalars of NNEF are float64",
    ("cvm/reference/operations/suppression.py", "*"): "scalars of graphs are float64",
    ("cvm/reference/operations/reduction.py", "*"): "scalars of NNEF are float64",
    ("cvm/reference/operations/roi.py", "_sampled"): "coordinates are float64",
    ("cvm/reference/operations/sampling.py", "desample"): "scalars of NNEF are float64",
    ("cvm/reference/operations/windows.py", "coverage"): "shares of windows are float64",
    (
        "cvm/reference/values.py",
        "converted",
    ): "scalars become integers as the Khronos tools cast them: modulo 2^64",
    (
        "cvm/reference/values.py",
        "decoded",
    ): "codes become float64; exponents are within +-2^15 (quantization.top)",
    ("cvm/reference/values.py", "clipped"): "scalars of NNEF are float64",
    ("cvm/reference/values.py", "_linearly_quantized"): "scalars of NNEF are float64",
    ("cvm/quantization/calibration/histogram.py", "Histogram.points"): "middles of bins are float64",
    ("cvm/quantization/calibration/levels.py", "Levels.rounded"): "points are float64; codes are within 2^16",
    ("cvm/quantization/calibration/ranges.py", "squared_errors"): "errors are float64",
    ("cvm/report/constants.py", "_codes"): "powers of two and exponents are float64",
    ("cvm/report/ruler.py", "_PerChannel.values"): "numbers of codes are float64",
    ("cvm/report/plots.py", "histogram"): "edges are float64",
}
"""Real numbers in float64, positions of pixels among them; arrays of them have no annotation of their own."""

SIZES: Table = {
    ("cvm/executors/native/checker/__init__.py", "_Checker._require_table"): "offsets in a table of constants",
    (
        "cvm/executors/native/checker/__init__.py",
        "_Checker._offsets",
    ): "places in the arena; attributes are at most 4096",
    ("cvm/executors/native/checker/__init__.py", "_Checker._coefficients"): "offsets in the arena",
    ("cvm/executors/native/checker/packed.py", "_lanes"): "lanes and channels",
    ("cvm/executors/native/checker/addresses.py", "decoded"): "offsets in the arena",
    ("cvm/executors/native/plan/view.py", "View.positions"): "offsets in a buffer",
    ("cvm/executors/numpy/vision.py", "plan_get_valid_count.run"): "a count of rows, at most an extent",
    (
        "cvm/reference/operations/resampling.py",
        "*",
    ): "positions in an output, times a factor that makes its extent; weights are float64",
    (
        "cvm/reference/operations/sampling.py",
        "_positions",
    ): "positions within padded extents, all of which are arrays",
    (
        "cvm/reference/operations/windows.py",
        "Window.positions",
    ): "positions within padded extents, all of which are arrays",
    (
        "cvm/reference/operations/windows.py",
        "sources",
    ): "positions within padded extents, all of which are arrays",
    ("cvm/frontends/common/decompositions/movement.py", "clipped_indices"): "indices that are clipped to an extent",
    ("cvm/frontends/onnx/rules/movement.py", "_around"): "positions within padded extents, all of which are arrays",
    ("cvm/frontends/onnx/rules/ordering.py", "top_k"): "places in a tensor",
    (
        "cvm/frontends/tflite/rules/movement.py",
        "gather_nd",
    ): "indices within extents, times elements of the others",
    ("cvm/frontends/tflite/rules/movement.py", "_mirrored"): "positions within padded extents, all of which are arrays",
    (
        "cvm/frontends/openvx/rules/sample.py",
        "convolution",
    ): "places in an image; paddings and steps are a size_t of its extents",
    ("cvm/frontends/openvx/rules/sample.py", "deconvolution"): "places in an image",
    ("cvm/frontends/openvx/rules/sample.py", "pooling"): "places in an image",
    ("cvm/frontends/webnn/rules/movement.py", "_last_written"): "numbers of updates, fewer than 2^22",
    ("cvm/lowering/parts/axis_sums.py", "AxisSum.totals"): "weights of resampling are factors of extents",
    (
        "cvm/lowering/parts/axis_sums.py",
        "AxisSum.of_items",
    ): "weights of resampling, 0 where nothing is read; products are Python integers",
    ("cvm/lowering/parts/axis_sums.py", "_value_sum"): "weights of resampling, 0 where nothing is read",
    ("cvm/lowering/parts/correlation.py", "_folded"): "places on a line (limit.elements)",
    ("cvm/lowering/rules/exact_softmax.py", "_proven_bits"): "places in a list of numbers",
    ("cvm/lowering/rules/functions_of_sums.py", "_proven_bits"): "places in a list of numbers",
    ("cvm/lowering/forms/gather.py", "_selected"): "indices along an axis",
    ("cvm/lowering/rules/maxima.py", "_winners"): "places on a line (limit.elements)",
    ("cvm/lowering/rules/pooling.py", "_counts"): "taps of a window",
    ("cvm/lowering/rules/region_maximum.py", "_cells"): "numbers of cells",
    ("cvm/lowering/rules/region_maximum.py", "_greatest"): "places in a tensor",
    (
        "cvm/lowering/rules/resampling.py",
        "_interpolation",
    ): "places and weights of at most extent * factor, the extent of the result",
    ("cvm/lowering/rules/shape.py", "_reflected"): "positions within padded extents, all of which are arrays",
    ("cvm/lowering/proofs/staircase.py", "_looked_up"): "places in a table of at most _MOST_ENTRIES entries",
    ("cvm/lowering/proofs/staircase.py", "_searched"): "places in a table of at most _MOST_THRESHOLDS entries",
    ("cvm/lowering/proofs/table.py", "_Table._enclosed"): "places in a table, and codes of 32 bits in 64",
    ("cvm/lowering/proofs/table.py", "_index"): "places in a table whose entries are a list",
    ("cvm/lowering/proofs/table.py", "quantize_table"): "places in a table whose entries are a list",
    ("cvm/lowering/forms/windows.py", "Axis.line"): "places on a line (limit.elements)",
    ("cvm/lowering/forms/windows.py", "Axis.bordered"): "places on a line (limit.elements)",
    ("cvm/lowering/forms/windows.py", "Axis.sources"): "places on a line (limit.elements)",
    ("cvm/ops/movement.py", "_hulls"): "positions along an axis",
    ("cvm/ops/nn.py", "_window_sums"): "numbers of channels and groups",
    ("cvm/ops/nn.py", "Dense.range.sums"): "numbers of channels",
    ("cvm/ops/windows.py", "valid_taps"): "positions and taps: extents below 2^31, attributes at most 4096",
    ("cvm/quantization/calibration/histogram.py", "Histogram.of"): "places of bins and counts of items",
    ("cvm/quantization/calibration/histogram.py", "Histogram.__add__"): "counts of items",
    ("cvm/quantization/calibration/histogram.py", "Histogram.count"): "counts of items",
    ("cvm/quantization/calibration/histogram.py", "Histogram.share_outside"): "counts of items",
    ("cvm/quantization/calibration/histogram.py", "Histogram._at"): "places of bins and counts of items",
    ("cvm/quantization/calibration/ranges.py", "_percentile"): "counts of items",
    ("cvm/quantization/calibration/ranges.py", "divergence"): "counts of items",
    ("cvm/report/measures.py", "Meter._add"): "counts of items; codes of 32 bits less the least of them, in 64",
    ("cvm/report/measures.py", "Meter._bins"): "places of bins, which are cut to those that there are",
    ("cvm/report/ruler.py", "_Tabulated.values"): "places in the table of all codes, of which these are some",
    ("cvm/report/ruler.py", "_PerChannel._channels"): "places in a tensor",
}
"""Sizes, indices, addresses and counts: bounded by the limits profile (2^31 elements), far below 63 bits."""

SAME: Table = {
    ("cvm/arrays.py", "_array"): "another byte order",
    ("cvm/arrays.py", "npz_bytes"): "another byte order",
    ("cvm/audit/dispute/evidence.py", "leaf_of"): "another byte order",
    ("cvm/audit/dispute/sides.py", "_tensor"): "dispute.tensor: 32 bits hold them",
    ("cvm/audit/hashing.py", "_pieces"): "tensors of int32",
    ("cvm/audit/verify.py", "_codes_of_state"): "state.type: 32 bits hold them",
    ("cvm/audit/verify.py", "_split"): "refused before: 32 bits hold them",
    ("cvm/bench/engines.py", "_bound_native"): "codes that the benchmark made as int32",
    (
        "cvm/executors/native/descriptions/formats.py",
        "Format.stored",
    ): "checked against the hull of the format, in exact integers",
    (
        "cvm/frontends/cvm_runtime/importer.py",
        "_Making.variables",
    ): "parameters of 8 or 32 bits (cvm_runtime.params.dtype)",
    ("cvm/frontends/cvm_runtime/interface.py", "Interface.decode"): "elements of 8 or 32 bits",
    ("cvm/frontends/cvm_runtime/interface.py", "Interface.encode"): "the lowest byte, as the library gives it",
    (
        "cvm/frontends/cvm_runtime/compat.py",
        "narrowed_to_bytes",
    ): "the lowest byte, as the library takes it: a table of what wraps",
    ("cvm/frontends/cvm_runtime/parameters.py", "write_parameters"): "the width that they have",
    ("cvm/calibration/codes.py", "_codes"): "the width is chosen by the least and the greatest code",
    ("cvm/frontends/nnef/tensor_file.py", "write_tensor"): "truth values",
    ("cvm/frontends/nnef/tensor_file.py", "_pack"): "tensor-file.items: the width holds them",
    (
        "cvm/frontends/onnx/tensors.py",
        "*",
    ): "bytes as the type says; onnx.tensor: fields hold integers of their type only",
    ("cvm/frontends/tflite/tensors.py", "contents_of"): "halves of bytes, and the width that items have",
    ("cvm/frontends/webnn/builder.py", "_contents"): "another byte order",
    ("cvm/inputs.py", "_codes"): "input.code: within the declared interval",
    ("cvm/openvx/graph.py", "Graph._process"): "elements of an OpenVX tensor, of at most 16 bits",
    ("cvm/ops/ranges.py", "Range.exactly"): "the width that they have, or 64 bits",
    ("cvm/program/commitments.py", "tensor_tree"): "another byte order",
    ("cvm/program/commitments.py", "_expanded"): "program.constant.value: the kind's width holds them",
    ("cvm/program/model.py", "Constant.of"): "the width is chosen by the least and the greatest element",
    ("cvm/program/model.py", "Constant.array"): "program.constant.value: the kind's width holds them",
    ("cvm/selftest.py", "run_selftest"): "vectors of the self-test, which are int32",
    ("cvm/vectors/format.py", "VectorTensor.of"): "another byte order",
    ("cvm/vectors/format.py", "VectorTensor.array"): "another byte order",
    ("cvm/webnn/tensor.py", "MLTensor._of_bytes"): "another byte order",
    ("cvm/webnn/tensor.py", "fill"): "another byte order",
    ("cvm/export/onnx.py", "_Writer._store"): "codes are clipped to the type's own range",
    ("cvm/webnn/boundaries.py", "Border._given"): "codes within the interval of their data type",
}
"""The same integers in another width or byte order: what is not held by it was refused, or is the type's own."""

PROVEN: Table = {
    (
        "cvm/executors/numpy/broadcast.py",
        "plan_broadcast_div.run",
    ): "program.range: operands and quotient within +-(2^31 - 1), so magnitudes fit as well",
    (
        "cvm/executors/numpy/contraction.py",
        "Contraction.split",
    ): "floats exact by `choose`: S <= 2^24 or 2^53; weights of int32 fit any integer type",
    (
        "cvm/executors/numpy/contraction.py",
        "Contraction.contract",
    ): "`choose`: S < 2^31 in int32; else sums modulo 2^64, and program.range for the sum",
    ("cvm/executors/numpy/contraction.py", "magnitudes"): "program.range: bounds within +-(2^31 - 1), in 64 bits",
    ("cvm/executors/numpy/contraction.py", "_runs"): "differences of cumulative sums, which `_cumulative` holds",
    ("cvm/executors/numpy/elemwise.py", "plan_cvm_precision"): "powers up to 2^30",
    (
        "cvm/executors/numpy/elemwise.py",
        "plan_cvm_precision.run",
    ): "program.range: -2^31 is no element; counts are at most 31",
    (
        "cvm/executors/numpy/elemwise.py",
        "plan_cvm_right_shift.run",
    ): "floor(t / 2) + t mod 2 <= 2^30 for any t of int32",
    (
        "cvm/executors/numpy/elemwise.py",
        "plan_cvm_left_shift.run",
    ): "program.range and shift_bit <= 32: below 2^63; then cut to a precision of at most 32",
    (
        "cvm/executors/numpy/extension.py",
        "plan_requantize.run",
    ): "requantize C7: products and all partial sums within 64 bits",
    ("cvm/executors/numpy/extension.py", "_scaled"): "requantize C7: each product within 64 bits",
    ("cvm/executors/numpy/extension.py", "HalfUp"): "requantize C7: c and the sum, with 2^(s-1), within 64 bits",
    (
        "cvm/executors/numpy/extension.py",
        "HalfEven",
    ): "requantize C7: the sum with 2^(s-1) within 64 bits, which no step exceeds",
    (
        "cvm/executors/numpy/extension.py",
        "TowardZero",
    ): "requantize C5, C7: 2^s - 1 is added to negative sums only, s <= 62",
    ("cvm/executors/numpy/extension.py", "_half"): "requantize C5: s <= 62",
    (
        "cvm/executors/numpy/nn.py",
        "_store",
    ): "program.range: sum and bias are an int32; sums in int32 are true ones, by `choose`",
    (
        "cvm/executors/numpy/reduce.py",
        "plan_sum.run",
    ): "int32 where count * magnitude fits, by the plan; else int64, and program.range for the sum",
    ("cvm/executors/numpy/vision.py", "plan_non_max_suppression.run"): "program.range: -2^31 is no score",
    (
        "cvm/executors/numpy/vision.py",
        "Suppression",
    ): "`Suppression.of`: 303 * D^2 < 2^63 in int64, else Python integers",
    (
        "cvm/executors/native/checker/__init__.py",
        "_Checker._added",
    ): "sums of weights of 32 bits over a window: below 2^63",
    ("cvm/executors/native/checker/groups.py", "Group._requantize"): "bounds of what is added to sums of 32 bits",
    ("cvm/executors/native/checker/packed.py", "per_channel"): "stored integers of 32 bits and a bias of 8, in 64 bits",
    ("cvm/executors/native/checker/packed.py", "weights_of"): "modulo 2^32, from below 2^41",
    ("cvm/executors/native/checker/addresses.py", "_values"): "stored integers of 32 bits and a bias of 8, in 64 bits",
    (
        "cvm/executors/native/runtime/rehearsal.py",
        "_elements",
    ): "stored integers of 32 bits and a bias of 8, in 64 bits",
    ("cvm/ops/broadcast.py", "_quotient"): "program.range: operands within +-(2^31 - 1), in 64 bits",
    ("cvm/ops/elemwise.py", "_magnitude"): "program.range: bounds within +-(2^31 - 1), in 64 bits",
    ("cvm/ops/elemwise.py", "CvmPrecision.range"): "powers up to 2^31, in 64 bits",
    ("cvm/ops/extension.py", "_fits"): "`_summands`: Python integers where all parts and 2^61 exceed 64 bits",
    ("cvm/ops/extension.py", "_halves"): "requantize C5, which is checked before C7: s <= 62",
    ("cvm/ops/extension.py", "_rounded"): "`_summands`: Python integers where all parts and 2^61 exceed 64 bits",
    ("cvm/ops/nn.py", "_biased"): "`for_terms(2)`, and a bias within +-(2^31 - 1)",
    ("cvm/ops/ranges.py", "Range.kept"): "program.range: `check_int32` is passed before bounds are kept",
    ("cvm/ops/ranges.py", "Stored.total"): "Python integers where count * magnitude exceeds 64 bits",
    ("cvm/ops/ranges.py", "Range.__add__"): "operands within +-(2^31 - 1), or made wide by `for_terms` and `_summands`",
    ("cvm/ops/ranges.py", "Range.__sub__"): "program.range: operands within +-(2^31 - 1)",
    ("cvm/ops/ranges.py", "Range.__neg__"): "program.range: operands within +-(2^31 - 1)",
    ("cvm/ops/ranges.py", "Range.__mul__"): "`widened`: Python integers where a product exceeds 64 bits",
    ("cvm/ops/ranges.py", "Range.total"): "Python integers where count * magnitude exceeds 64 bits",
    ("cvm/ops/ranges.py", "products"): "None where twice the sum of all magnitudes exceeds 64 bits",
    ("cvm/ops/ranges.py", "_sum"): "`Range.total`: in halves where 64 bits may not hold the sum",
    ("cvm/quantization/rationals.py", "Rationals.of_floats"): "mantissas of 53 bits, exponents within +-1100",
    ("cvm/ops/windows.py", "_sums"): "`for_terms`: Python integers where all taps exceed 64 bits",
}
"""Values that the verifier has bounded: the label of the constraint, or the code of the check."""

CHOSEN: Table = {
    ("cvm/executors/native/runtime/trial.py", "*"): "constants of the programs that try the compiler, all written here",
    ("cvm/selftest.py", "_pattern"): "constants of the self-test, all written here",
    ("cvm/frontends/nnef/tensor_data.py", "_logarithmic"): "codes of at most 17 bits (quantization.bits)",
    (
        "cvm/frontends/nnef/tensor_file.py",
        "_powers",
    ): "unsigned differences from the greatest; codes of at most 16 bits",
    (
        "cvm/frontends/common/decompositions/sums.py",
        "_weighted",
    ): "Python integers; 64 bits where their magnitudes are below 2^62",
    ("cvm/frontends/webnn/scales.py", "Grid"): "codes within 2^40, zero points of 32 bits",
    ("cvm/lowering/rules/convolution.py", "_masked"): "integers times 0 or 1",
    ("cvm/lowering/parts/correlation.py", "correlated_constants"): "Python integers",
    ("cvm/lowering/proofs/decide.py", "at_least_zero"): "Python integers",
    ("cvm/lowering/proofs/decide.py", "_fits"): "Python integers",
    (
        "cvm/lowering/forms/form.py",
        "Known.centred",
    ): "64 bits where codes are below 2^31, else Python integers",
    ("cvm/lowering/rules/integers.py", "combined"): "Python integers",
    ("cvm/lowering/rules/layer_normalization.py", "_magnitude"): "Python integers",
    ("cvm/lowering/rules/linear.py", "_apart"): "Python integers",
    ("cvm/lowering/rules/reduce.py", "total"): "Python integers",
    ("cvm/lowering/rules/sampling.py", "_positions"): "Python integers",
    ("cvm/lowering/rules/sampling.py", "desample"): "values of the program, no arrays: the operator emits an op",
    ("cvm/lowering/rules/sampling.py", "_named"): "Python integers",
    ("cvm/lowering/proofs/table.py", "_digits"): "Python integers",
    ("cvm/lowering/proofs/ties.py", "even_of"): "Python integers",
    ("cvm/lowering/rules/wrapping.py", "_wrapped"): "Python integers",
    ("cvm/passes/legalize/columns.py", "Columns._column"): "`roomy`: at most 61 bits, and a balanced digit",
    (
        "cvm/passes/legalize/columns.py",
        "Columns._with",
    ): "a digit, or what `roomy` holds in 61 bits, and the difference of two constants",
    ("cvm/passes/legalize/columns.py", "Columns._above"): "`roomy`: at most 61 bits, and a balanced digit",
    ("cvm/passes/legalize/integers.py", "digits"): "`balanced` requires that the number and half of the base fit",
    (
        "cvm/passes/legalize/requantize.py",
        "weighted_sum",
    ): "requantize C5: shifts are at most 62; all else is Python integers",
    ("cvm/passes/legalize/requantize.py", "_rounded"): "minus one",
    ("cvm/passes/legalize/tensors.py", "Tensors.within"): "bounds of int32, in 64 bits",
    ("cvm/quantization/exact.py", "_quantize_powers"): "exponents of float64, and of a quantiser within +-2^14",
    ("cvm/quantization/fixed_point.py", "_Double"): "Python integers",
    ("cvm/quantization/rationals.py", "Rationals.equals"): "Python integers: Rationals refuse others",
    ("cvm/quantization/thresholds.py", "Steps.offsets"): "None where LARGEST does not bound the sums",
    ("cvm/quantization/thresholds.py", "_steps"): "None where LARGEST does not bound the sums",
}
"""Values whose width the function or its caller chooses by a bound of its own; and arrays of Python integers."""

PLACES: Table = {**REALS, **SIZES, **SAME, **PROVEN, **CHOSEN}
