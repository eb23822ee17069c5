"""Mutants that no valid program can tell from FORMAL, with the reason.

Keys are the op ("*": every op whose meaning the function belongs to) and the mutant's name; see `mutation.mutants`.
"""

from __future__ import annotations

__all__ = ["EQUIVALENT"]

_CLAMPED_BELOW = "min(indices[d[real_axis:real_axis + M]], n[real_axis] - 1)"
_REACHED = "square(left) > right or (square(left) == right and (rounding == 'half_up' or q % 2 == 0))"
_ELEMENT = "X[*d[:real_axis], xidx, *d[real_axis + M:]]"

_REASONS: dict[tuple[str, str], tuple[str, ...]] = {
    ("*", "a missing leading extent of 0 is as good as 1: the larger of it and the other's is that of the other"): (
        "broadcast.broadcast: 1 -> 0",
        "broadcast.broadcast: 1 -> 0 (2)",
    ),
    ("broadcast_div", "only 0 is judged differently, and 0 has no sign"): (
        "broadcast.broadcast_div: a < 0 -> a <= 0",
        "broadcast.broadcast_div: 0 -> 1 (3)",
    ),
    ("broadcast_div", "the divisor is not 0 here"): (
        "broadcast.broadcast_div: b < 0 -> b <= 0",
        "broadcast.broadcast_div: 0 -> 1 (4)",
    ),
    ("conv2d", "OC mod groups = 0: the quotient is exact (C4)"): ("nn.conv2d: OC // groups -> -(-OC // groups)",),
    ("matmul", "q_i divides p_i: the quotient is exact (C2)"): ("computed.matmul: p[i] // q[i] -> -(-p[i] // q[i])",),
    ("quotient", "the number of inputs is even (C1)"): (
        "computed.quotient: (len(tensors) - 2) // 2 -> -(-(len(tensors) - 2) // 2)",
        "computed.quotient: 2 -> 1",
    ),
    ("quotient", "there are as many factors as tensors: the check of zip says nothing"): (
        "computed.quotient: True -> False",
    ),
    ("quotient", "only 0 is judged differently, and it is rounded to 0 either way"): (
        "extension.rounded_quotient: N >= 0 -> N > 0",
        "extension.rounded_quotient: 0 -> 1",
    ),
    ("normalize", "only 0 is judged differently, and its square has no sign"): (
        "computed.normalized: x >= 0 -> x > 0",
        "computed.normalized: 0 -> 1",
    ),
    ("normalize", "an interval may be halved at either integer next to its middle"): (
        "computed.normalized: (below + above) // 2 -> -(-(below + above) // 2)",
    ),
    ("normalize", "minus one is as true as one"): (
        f"computed.normalized: {_REACHED} -> -({_REACHED})",
    ),
    ("abs", "only 0 is judged differently, and -0 = 0"): ("elemwise.abs_: x >= 0 -> x > 0", "elemwise.abs_: 0 -> 1"),
    ("cvm_precision", "the number of binary digits does not depend on the sign"): (
        "elemwise.cvm_precision: abs(x) -> x",
    ),
    ("*", "x equals the bound there, so that both branches give it"): (
        "elemwise.clip: x >= a_max -> x > a_max",
        "elemwise.clip: x <= a_min -> x < a_min",
    ),
    ("*", "an index of one dimension: its first entry is its last"): ("transform.flatten: 0 -> -1",),
    ("get_valid_count", "an index of one dimension: its first entry is its last"): (
        "vision.get_valid_count: 0 -> -1",
    ),
    ("concatenate", "the last input differs from the first along axis only (C3), where it is not read"): (
        "transform.concatenate: 0 -> -1",
    ),
    ("slice", "no stride is 0 (C2)"): (
        "transform.slice_: s_arr[i] < 0 -> s_arr[i] <= 0",
        "transform.slice_: 0 -> 1 (4)",
        "transform.slice_: s_arr[i] < 0 -> s_arr[i] <= 0 (2)",
        "transform.slice_: 0 -> 1 (6)",
    ),
    ("cvm_lut", "cvm_lut has no axis: this case of take is not reached"): (
        "transform.take: axis if axis >= 0 else axis + N -> axis + N if axis >= 0 else axis",
        "transform.take: axis >= 0 -> axis > 0",
        "transform.take: axis >= 0 -> axis < 0",
        "transform.take: 0 -> 1 (2)",
        "transform.take: 0 -> -1 (2)",
        "transform.take: axis + N -> axis - N",
        f"transform.take: max(0, {_CLAMPED_BELOW}) -> min(0, {_CLAMPED_BELOW})",
        "transform.take: 0 -> 1 (3)",
        "transform.take: 0 -> -1 (3)",
        f"transform.take: {_CLAMPED_BELOW} -> {_CLAMPED_BELOW.replace('min', 'max')}",
        "transform.take: d[real_axis:real_axis + M] -> d[real_axis + 1:real_axis + M]",
        "transform.take: d[real_axis:real_axis + M] -> d[real_axis:real_axis + M + 1]",
        "transform.take: real_axis + M -> real_axis - M",
        "transform.take: n[real_axis] - 1 -> n[real_axis] + 1",
        "transform.take: 1 -> 2 (2)",
        "transform.take: 1 -> 0 (2)",
        "transform.take: d[:real_axis] -> d[:real_axis + 1]",
        "transform.take: d[real_axis + M:] -> d[real_axis + M + 1:]",
        "transform.take: real_axis + M -> real_axis - M (2)",
        "transform.take: n[:real_axis] -> n[:real_axis + 1]",
        "transform.take: n[real_axis + 1:] -> n[real_axis + 1 + 1:]",
        "transform.take: real_axis + 1 -> real_axis - 1",
        f"transform.take: {_ELEMENT} -> {_ELEMENT} + 1",
        f"transform.take: {_ELEMENT} -> {_ELEMENT} - 1",
        f"transform.take: {_ELEMENT} -> -{_ELEMENT}",
        "transform.take: 1 -> 2 (3)",
        "transform.take: 1 -> 0 (3)",
    ),
    ("non_max_suppression", "a range of -1 elements is as empty as one of 0"): (
        "vision.non_max_suppression: 0 -> -1 (3)",
    ),
    (
        "non_max_suppression",
        "boxes that intersect have a sum of areas of 2 or more; for others the comparison with the union decides alike",
    ): (
        "vision.overlaps: areas <= 0 -> areas < 0",
        "vision.overlaps: 0 -> 1",
        "vision.overlaps: 0 -> -1",
    ),
    (
        "non_max_suppression",
        "an extent of -1 makes the intersection 0 or negative: no overlap either way",
    ): (
        "vision.overlaps: 0 -> -1 (2)",
        "vision.overlaps: 0 -> -1 (3)",
    ),
    (
        "non_max_suppression",
        "the union is 1 or more: that of boxes that intersect, or else the sum of the areas, which is not 0",
    ): (
        "vision.overlaps: union <= 0 -> union < 0",
        "vision.overlaps: 0 -> -1 (4)",
        "vision.overlaps: False -> True (2)",
    ),
    ("requantize", "the number of inputs is even (C1)"): (
        "extension.requantize: (len(tensors) - 2) // 2 -> -(-(len(tensors) - 2) // 2)",
        "extension.requantize: 2 -> 1",
    ),
    ("requantize", "further entries of the list are never read"): (
        "extension.requantize: tensors[:n] -> tensors[:n + 1]",
        "extension.requantize: tensors[n:2 * n] -> tensors[n:2 * n + 1]",
        "extension.requantize: 2 -> 3 (3)",
    ),
    ("requantize", "only 0 is judged differently, and it is rounded to 0 either way"): (
        "extension.rounded_quotient: N >= 0 -> N > 0",
        "extension.rounded_quotient: 0 -> 1",
    ),
}  # fmt: skip

EQUIVALENT: dict[tuple[str, str], str] = {
    (op, name): reason for (op, reason), names in _REASONS.items() for name in names
}
"""The reason why a mutant is the same function, by (op, mutant)."""
