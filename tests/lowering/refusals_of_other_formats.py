"""Operations that NNEF has not and that do not compile: an operation of NNEF with the same operands stands for each."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from cvm.lowering import claims
from tests.lowering.refusals import IMAGE, PER_CHANNEL, ZERO, Case, Q, per, quantised

__all__ = ["CASES"]


def normalised(operation: str, why: str, body: str, quantisers: dict[str, str], **attributes: Any) -> Case:
    """A normalisation of rows, for which ``y = batch_normalization(x, ..)`` stands."""
    settings = {"axes": (1,), "epsilon": Fraction(1), **attributes}
    return Case(operation, why, body, quantisers, becomes={"batch_normalization": (operation, settings)})


def normalisations(operation: str) -> Iterator[Case]:
    """Each condition of the claim."""
    conditions = {condition.split()[0]: condition for condition in claims.CLAIMS[operation].refuses}
    line = "x = external(shape = [1, 4]);"
    plain = "y = batch_normalization(x, 0.0, 1.0, 0.0, 1.0, epsilon = 0.5);"
    yield normalised(operation, conditions["epsilon"], f"{line} {plain}", quantised("x y"), epsilon=Fraction(0))
    yield normalised(operation, conditions["the"], f"{line} {plain} z = copy(y);", quantised("x z"))
    channels = per(18).replace("bits = 8", "bits = 16")
    if claims.APART in conditions.values():
        body = f"x = external(shape = [1, 18]); {plain}"
        yield normalised(operation, claims.APART, body, {"x": channels, "y": Q})
    computed = f"{line} s = external(shape = [1, 4]); {plain.replace('0.0, 1.0, eps', '0.0, s, eps')}"
    yield normalised(operation, conditions["scale"], computed, quantised("x s y"))


def sums() -> Iterator[Case]:
    """Functions of sums, for which a sum or a root of a mean stands."""

    def reduced(operation: str, why: str, body: str, quantisers: dict[str, str], **more: Any) -> Case:
        return Case(operation, why, body, quantisers, becomes={"sum_reduce": (operation, {})}, **more)

    scattered = "a = external(shape = [2, 1]); b = external(shape = [2, 3]); t = concat([a, b], axis = 1); "
    for operation in ("l2_reduce", "log_sum_reduce"):
        quantisers = {"a": per(2), "b": Q, "y": Q}
        body = f"{scattered} y = sum_reduce(t, axes = [1]);"
        yield reduced(operation, claims.SCATTERED, body, quantisers, code="lowering.unquantized")
    over = "size = [1, 18, 1, 1], padding = [(0, 0), (0, 0), (0, 0), (0, 0)]"
    body, channels = f"{IMAGE.replace('6', '18')} y = rms_pool(x, {over});", per(18).replace("bits = 8", "bits = 16")
    yield Case("l2_pool", claims.NO_RATIO, body, {"x": channels, "y": Q}, becomes={"rms_pool": ("l2_pool", {})})
    line = "x = external(shape = [4]); y = sum_reduce(x, axes = [0]);"
    negative = claims.CLAIMS["log_sum_reduce"].refuses[-1]
    yield reduced("log_sum_reduce", negative, line, quantised("x y"))
    unquantised, wide = claims.CLAIMS["log_sum_exp_reduce"].refuses
    yield reduced("log_sum_exp_reduce", unquantised, f"{line} z = copy(y);", quantised("x z"))
    large = "linear_quantize(min = -9999.0, max = 9999.0, bits = 8)"
    yield reduced("log_sum_exp_reduce", wide, line, {"x": large, "y": large})


def decoding() -> Iterator[Case]:
    """A masked softmax and an updated slice, for which ``select`` stands."""
    given = "c = external<logical>(shape = [1, 6]); x = external(shape = [1, 6]); "
    fine = "linear_quantize(min = 0.0, max = 0.000001, bits = 16)"
    wide = "zero_point_linear_quantize(zero_point = 0, scale = 0.1, bits = 20, signed = true, symmetric = true)"
    whole, bits, near = claims.CLAIMS["masked_softmax"].refuses
    needs, far, close = "lowering.unquantized", Fraction(-(2**200)), Fraction(-50)
    for why, source, result, below in (
        (whole, Q, PER_CHANNEL, far), (bits, Q, fine, far), (near, Q, Q, close), (needs, wide, Q, far)
    ):  # fmt: skip
        settings = {"axes": (1,), "below": below, "added": True}
        yield Case("masked_softmax", why, f"{given} y = select(c, x, x);", {"x": source, "y": result},
                   code=needs if why == needs else "lowering.operation",
                   becomes={"select": ("masked_softmax", settings)},
                   operands={"condition": "seen", "true_value": "x", "false_value": "unused"})  # fmt: skip
    alike, along = claims.CLAIMS["update_slice"].refuses
    given += "u = external(shape = [1, 6]); "
    becomes = {"select": ("update_slice", {"axis": 1})}
    operands = {"condition": "start", "true_value": "input", "false_value": "update"}
    yield Case("update_slice", along, f"{given} y = select(c, x, u);", {**quantised("x u"), "y": PER_CHANNEL},
               becomes=becomes, operands=operands)  # fmt: skip
    yield Case("update_slice", alike, f"{given} t = select(c, x, u); y = copy(t);", {**quantised("x y"), "u": ZERO},
               code="lowering.unquantized", becomes=becomes, operands=operands)  # fmt: skip


CASES: list[Case] = [
    *(case for operation in ("layer_normalization", "rms_normalization") for case in normalisations(operation)),
    *sums(),
    *decoding(),
]
