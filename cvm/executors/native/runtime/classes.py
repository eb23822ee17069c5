"""The classes of kernels: which programs of the trial a network needs before its code is used.

A kind names what a kernel does in the words of the trial: how it multiplies, and how it makes codes of its sums. The
programs of the trial (`cvm.executors.native.runtime.trial_programs`) state the kinds that they try.
"""

from __future__ import annotations

from cvm.executors.native.descriptions import computed, matrices
from cvm.executors.native.descriptions.expressions import Formula, Requantization
from cvm.executors.native.descriptions.formats import INT32
from cvm.executors.native.descriptions.loops import Exchange, Nest, Reduction
from cvm.executors.native.descriptions.sums import Contraction, Depthwise, WindowSums
from cvm.executors.native.descriptions.winograd import Winograd, WinogradInput
from cvm.executors.native.emit.narrow import lane_bits
from cvm.executors.native.emit.tiles import Tiled
from cvm.executors.native.emit.transposition import Blocks
from cvm.executors.native.kernels import vision, windows
from cvm.executors.native.plan.steps import Plan

__all__ = ["EPILOGUES", "kinds", "kinds_of"]

EPILOGUES = ("codes", "wide codes", "other roundings", "sums")
"""How a kernel ends that sums products: in codes, in codes by 64-bit lanes, in codes of another rounding than half up
(also by 64-bit lanes), or in the sums."""
_PRODUCTS = {4: "bytes", 2: "words", 1: "integers"}
_OTHERS: dict[type, str] = {
    computed.Normalization: "computed", computed.Quotient: "computed", computed.Update: "computed",
    windows.Products: "computed", matrices.Matrices: "matrices", matrices.RowProducts: "matrices",
    windows.Pool: "pools",
    vision.Suppression: "detections", vision.ValidCount: "detections", Exchange: "copies",
}  # fmt: skip
_PLAIN = frozenset({"requantize", "clip", "immediate"})
"""The steps of a formula that every kernel of sums has."""


def kinds_of(plan: Plan) -> frozenset[str]:
    """The kinds of all kernels of a plan."""
    return frozenset().union(*map(kinds, plan.functions.values()))


def kinds(kernel: object) -> frozenset[str]:
    """The kinds of a kernel. Raises KeyError for a kernel of an unknown type."""
    match kernel:
        case Tiled():
            return kinds(kernel.kernel)
        case Contraction():
            joint = frozenset({"residual"}) if kernel.joint else frozenset()
            return joint.union(*(_of_sums(products, kernel.formula) for products in _products(kernel)))
        case Depthwise():
            largest = max(kernel.window)
            how = "depthwise pairs" if kernel.per == 2 else "depthwise"
            found = [f"{how} {1 if largest == 1 else 3 if largest <= 3 else 5}"]
            found += ["depthwise digits"] if kernel.parts > 1 or kernel.repeats else []
            pixels = {"depthwise pixels"} if any(one.tile > 1 for one in kernel.segments) else set()
            pixels |= {"depthwise loops"} if kernel.loops else set()
            return frozenset(pixels).union(*(_of_sums(products, kernel.formula) for products in found))
        case Reduction():
            return frozenset({f"{kernel.kind} {kernel.source.bits}"})
        case Winograd():
            joint = frozenset({"residual"}) if kernel.products.joint else frozenset()
            return joint | _of_sums("squares", kernel.products.formula)
        case WindowSums() | WinogradInput():  # the contraction that reads what they compute has their kind
            return frozenset()
        case Nest():
            steps = {step.op for step in kernel.formula.steps}
            copies = {"copies"} if steps <= {"immediate"} else {"narrow"} if lane_bits(kernel) is not None else set()
            if Blocks.of(kernel) is not None:
                copies = {"blocks"}
            words = {"bytes in words"} if any(rule.arithmetic == "words" for rule in _rules(kernel.formula)) else ()
            return frozenset({*copies, *_roundings(kernel.formula), *words, *({"elements"} if steps - _PLAIN else ())})
        case _:
            return frozenset({_OTHERS[type(kernel)]})


def _products(kernel: Contraction) -> list[str]:
    one = kernel.images * kernel.rows * kernel.columns == 1 and kernel.per == 4
    listed = kernel.listed and not one  # a row has more vectors of channels, so its pairs of steps are a kind by itself
    more = {"digits": len(kernel.shifts) > 1, "window sums": _adds_windows(kernel), "listed": listed}
    first = _PRODUCTS[kernel.per] if not one else "listed row" if kernel.listed else "row"
    return [first, *(kind for kind, has in more.items() if has)]


def _adds_windows(kernel: Contraction) -> bool:
    """Whether a kernel adds a number per pixel to its sums before anything else, as sums of windows are."""
    first = kernel.formula.steps[:1]
    if not first or first[0].op != "add" or first[0].arguments[0] != 0 or first[0].arguments[1] == 0:
        return False
    read = kernel.reads[first[0].arguments[1] - 1]
    return read.format == INT32 and read.pixels is not None and read.pixels.channel == 0


def _of_sums(products: str, formula: Formula) -> frozenset[str]:
    rules = _rules(formula)
    wide = {
        "wide codes" if rule.rounding == "half_up" else "other roundings" for rule in rules if rule.arithmetic == "wide"
    }
    found = {f"{products}, {epilogue}" for epilogue in wide or {"codes" if rules else "sums"}}
    found |= {f"requantize {rule.rounding}" for rule in rules if rule.rounding != "half_up"}
    if any(rule.terms > 1 for rule in rules):
        found.add("residual")
    if {step.op for step in formula.steps} - _PLAIN:
        found.add("elements")
    return frozenset(found)


def _roundings(formula: Formula) -> frozenset[str]:
    return frozenset(f"requantize {rule.rounding}" for rule in _rules(formula))


def _rules(formula: Formula) -> list[Requantization]:
    return [part for step in formula.steps for part in step.static if isinstance(part, Requantization)]
