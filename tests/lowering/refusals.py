"""Documents that do not compile: at least one for each condition that a claim names, and for each error code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from cvm.frontends import nnef
from cvm.graph import QuantizedGraph
from cvm.lowering import claims
from cvm.quantization.quantizer import LinearQuantizer, Rounding

__all__ = ["CASES", "Case"]

Q = "linear_quantize(min = -1.0, max = 1.0, bits = 8)"
Q16 = "linear_quantize(min = -1.0, max = 1.1, bits = 16)"
ZERO = "linear_quantize(min = -1.0, max = 1.55, bits = 8)"
"""Code 100 is zero."""


@dataclass(frozen=True)
class Case:
    """A document that is refused."""

    operation: str
    why: str
    """A condition of the operation's claim, or the error code of a general one."""
    body: str
    quantisers: Mapping[str, str] = field(default_factory=dict)
    stored: Mapping[str, Any] = field(default_factory=dict)
    output: str = "y"
    code: str = "lowering.operation"
    rounding: Rounding = "half_up"
    data: bool = True
    becomes: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Operations that NNEF has not, and further attributes, by the operation that stands for them in ``body``."""
    operands: Mapping[str, str] = field(default_factory=dict)
    """The names of the operands of operations that NNEF has not, by those of the operation that stands for them."""

    def graph(self, folder: Path) -> QuantizedGraph:
        """The document as the front end reads it; inputs are those that ``body`` introduces."""
        statements = [line.strip() for line in self.body.split(";") if line.strip()]
        inputs = [line.split("=")[0].strip() for line in statements if "external" in line]
        lines = "".join(f"    {line};\n" for line in statements)
        text = f"version 1.0;\n\ngraph net( {', '.join(inputs)} ) -> ( {self.output} )\n{{\n{lines}}}\n"
        (folder / "graph.nnef").write_text(text, encoding="ascii")
        quant = "".join(f'"{name}": {text};\n' for name, text in self.quantisers.items())
        (folder / "graph.quant").write_text(quant, encoding="ascii")
        for label, items in self.stored.items() if self.data else ():
            (folder / f"{label}.dat").write_bytes(nnef.write_tensor(np.array(items, np.float32)))
        graph = nnef.load(folder)
        if self.becomes:
            operations = [
                replace(
                    item,
                    name=self.becomes[item.name][0],
                    inputs={self.operands.get(name, name): operand for name, operand in item.inputs.items()},
                    attributes={**item.attributes, **self.becomes[item.name][1]},
                )
                if item.name in self.becomes
                else item
                for item in graph.operations
            ]
            graph = replace(graph, operations=tuple(operations))
        if self.rounding == "half_up":
            return graph
        tensors = {
            name: replace(tensor, quantizer=replace(tensor.quantizer, rounding=self.rounding))
            if isinstance(tensor.quantizer, LinearQuantizer)
            else tensor
            for name, tensor in graph.tensors.items()
        }
        return replace(graph, tensors=MappingProxyType(tensors))


def general(operation: str, code: str, body: str, quantisers: Mapping[str, str], **more: Any) -> Case:
    """A case of a condition that any operation may meet."""
    return Case(operation, code, body, quantisers, code=code, **more)


def bit(low: int, high: int) -> str:
    """Two codes."""
    return f"linear_quantize(min = {low}.0, max = {high}.0, bits = 1)"


def quantised(names: str, text: str = Q) -> dict[str, str]:
    """The same quantiser for several tensors."""
    return dict.fromkeys(names.split(), text)


WRAPPED = {"scale": Fraction(1), "lo": -(2**15), "hi": 2**15 - 1, "rounding": "half_even"}
"""Attributes of a quantiser that wraps."""

INTEGERS = (
    " ".join(
        f"i{k} = external<integer>(shape = [4]); c{k} = cast<scalar>(i{k}); p{k} = mul(c{k}, 0.{k}141592653589793);"
        for k in range(1, 6)
    )
    + " q = add(p1, p2); r = add(q, p3); s = add(r, p4); t = add(s, p5);"
)
"""A sum of five numbers of more than 32 bits."""
TWO = "a = external(shape = [4]); b = external(shape = [4]);"
SUM = f"{TWO} t = add(a, b);"
WIDE, ALL = (quantised(names, Q16) for names in ("a b", "a b c d"))

ROOT = "x = external(shape = [4]); y = rms_pool(x, size = [3], padding = [(0, 0)]);"

CHANNELS = "min_max_linear_quantize(min = -1.0, max = {highs}, bits = 8, signed = false, symmetric = false)"

GENERAL = [
    general("external", "lowering.unquantized", "x = external(shape = [2]); y = copy(x);", quantised("y")),
    general("copy", "lowering.unquantized", "x = external(shape = [2]); y = neg(x);", quantised("x")),
    general("exp", "lowering.unquantized", f"{SUM} e = exp(t); y = mul(a, e);", {**WIDE, "y": Q}),
    general("exp", "lowering.unquantized", f"{SUM} y = exp(t);",
            {**WIDE, "y": "linear_quantize(min = 0.0, max = 2.0, bits = 20)"}),
    general("log", "lowering.undefined", f"{SUM} y = log(t);", {**WIDE, "y": Q}),
    general("exp", "lowering.unquantized", "x = external(shape = [1]); v = variable(shape = [1], label = 'v'); "
            "e = exp(v); y = mul(x, e);", quantised("x y"), stored={"v": [0.5]}),
    general("sum_reduce", "lowering.unquantized", f"{INTEGERS} u = relu(t); y = sum_reduce(u, axes = [0]);",
            quantised("y")),
    general("abs", "lowering.unquantized", f"{INTEGERS} u = abs(t); y = sum_reduce(u, axes = [0]);", quantised("y")),
    general("max", "lowering.unquantized", f"{INTEGERS} u = max(t, 0.5); y = sum_reduce(u, axes = [0]);",
            quantised("y")),
    general("sign", "lowering.unquantized", f"{INTEGERS} y = sign(t);", quantised("y")),
    general("sum_reduce", "lowering.unquantized", "x = external(shape = [4]); r = sigmoid(x); "
            "y = sum_reduce(r, axes = [0]);", quantised("x y")),
    general("argmax_reduce", "lowering.unquantized", "x = external(shape = [4]); r = exp(x); "
            "y = argmax_reduce(r, axes = [0]);", {"x": Q16}),
    general("softmax", "lowering.unquantized", "x = external<integer>(shape = [4]); s = cast<scalar>(x); "
            "y = softmax(s, axes = [0]);", quantised("y")),
    general("max_pool", "lowering.unquantized", f"{SUM} m = max_pool(t, size = [2], padding = [(0, 0)]); y = copy(m);",
            {**WIDE, "y": Q}),
    general("argmax_pool", "lowering.unquantized", f"{SUM} y = argmax_pool(t, size = [2], padding = [(0, 0)]);", WIDE),
    general("batch_normalization", "lowering.unquantized",
            "x = external(shape = [1, 2]); y = batch_normalization(x, 0.0, 1.0, 0.0, 1.0, epsilon = 0.5);",
            quantised("x")),
    general("logarithmic_quantize", "lowering.unprovable", f"{INTEGERS} y = logarithmic_quantize(t, max = 1.0, "
            "bits = 3); z = copy(y);", quantised("z"), output="z"),
    general("sigmoid", "lowering.unprovable", "a = external(shape = [1, 40]); b = external(shape = [1, 40]); "
            "w = variable(shape = [1, 40], label = 'w'); m = mul(a, w); t = add(m, b); y = sigmoid(t);",
            {**quantised("a b", Q16), "y": "linear_quantize(min = 0.0, max = 1.0, bits = 16)"},
            stored={"w": [[1 + n / 64 for n in range(40)]]}),
    general("update", "lowering.unquantized", "x = external(shape = [1]); v = variable(shape = [1], label = 'v'); "
            "y = update(v, x);", quantised("x y"), stored={"v": [0.5]}),
    general("rcp", "lowering.undefined", "x = external(shape = [1]); y = rcp(x);", {"x": ZERO, "y": Q}),
    general("pow", "lowering.undefined", "x = external(shape = [1]); y = pow(x, 0.5);", quantised("x y")),
    general("mul", "lowering.undecided", "x = external(shape = [1]); r = sqrt(x); y = mul(r, r);",
            {"x": bit(2, 3), "y": bit(0, 4)}),
    general("max_reduce", "lowering.undecided", "x = external(shape = [2]); c = cosh(x); "
            "m = max_reduce(c, axes = [0]); y = copy(m);", quantised("x y", bit(-1, 1))),
    general("linear_quantize", "quantization.range", "x = external(shape = [2]); "
            "q = linear_quantize(x, min = 0.5, max = 0.5, bits = 4); y = copy(q);", quantised("x y")),
    general("batch_normalization", "lowering.rounding", "x = external(shape = [1, 2]); "
            "y = batch_normalization(x, 0.0, 1.0, 0.0, 1.0, epsilon = 0.5);", {"x": Q, "y": Q}, rounding="toward_zero"),
    general("copy", "lowering.rounding", f"{INTEGERS} y = copy(t);", {"y": Q}, rounding="toward_zero"),
    general("wrapping_quantize", "lowering.rounding", "x = external<integer>(shape = [2]); s = cast<scalar>(x); "
            "y = neg(s);", {"y": Q}, becomes={"neg": ("wrapping_quantize", WRAPPED | {"scale": Fraction(3)})}),
    general("wrapping_quantize", "lowering.range", "x = external<integer>(shape = [2]); s = cast<scalar>(x); "
            "t = mul(s, 1024.0000000009094947017729282379150390625); y = neg(t);", {"y": Q},
            becomes={"neg": ("wrapping_quantize", WRAPPED)}),
    general("rms_pool", "lowering.rounding", ROOT,
            {"x": Q, "y": Q}, rounding="toward_zero"),
    general("l1_normalization", "lowering.rounding", "x = external(shape = [4]); "
            "y = l1_normalization(x, axes = [0], bias = 1.0);", {"x": Q, "y": Q}, rounding="half_even"),
    general("wrap", "lowering.overflow", "x = external<integer>(shape = [2]); s = cast<scalar>(x); y = neg(s);",
            {"y": Q}, becomes={"neg": ("wrap", {"lo": 0, "hi": 2**20, "overflow": "wrap"})}),
    general("rms_pool", "lowering.bits", ROOT,
            {"x": Q, "y": "linear_quantize(min = 0.0, max = 1.0, bits = 20)"}),
    general("multilinear_upsample", "lowering.range", "i = external<integer>(shape = [1, 2, 4]); x = cast<scalar>(i); "
            "y = multilinear_upsample(x, factor = [3]);", quantised("y")),
    general("external", "lowering.logarithmic", "x = external(shape = [1]); y = copy(x);",
            {"x": "logarithmic_quantize(max = 1.0, bits = 13)", "y": Q}),
    general("sum_reduce", "lowering.logarithmic", "x = external(shape = [4]); y = sum_reduce(x, axes = [0]);",
            {"x": "logarithmic_quantize(max = 1.0, bits = 9)", "y": Q}),
    general("softmax", "lowering.logarithmic", "x = external(shape = [40]); y = softmax(x, axes = [0]);",
            {"x": Q, "y": "logarithmic_quantize(max = 1.0, bits = 4)"}),
    general("logarithmic_quantize", "lowering.logarithmic", "x = external(shape = [4]); "
            "q = logarithmic_quantize(x, max = 1.0, bits = 13); y = copy(q);", quantised("x y")),
    general("softmax", "lowering.unquantized", f"{SUM} y = softmax(t, axes = [0]);", {"a": Q, "b": Q16, "y": Q}),
    general("softmax", "lowering.unquantized", "x = external(shape = [2]); y = softmax(x, axes = [0]);",
            {"x": CHANNELS.format(highs=[1.1, 1.3]), "y": Q}),
    general("batch_normalization", "lowering.variance",
            "x = external(shape = [1, 2]); y = batch_normalization(x, 0.0, -1.0, 0.0, 1.0, epsilon = 0.5);",
            quantised("x y")),
    general("variable", "lowering.contents", "x = external(shape = [1]); v = variable(shape = [1], label = 'v'); "
            "y = add(x, v);", quantised("x y"), stored={"v": [0.5]}, data=False),
]  # fmt: skip

HIGHS = [1.0123457, 1.1357913, 1.2718281, 1.3141593, 1.4142135, 1.6180339]
HIGHS += [round(1.7 + k * 0.0314159, 7) for k in range(12)]
PER_CHANNEL = CHANNELS.format(highs=HIGHS[:6])
"""Six channels whose scales have no simple ratio."""


def per(count: int) -> str:
    return CHANNELS.format(highs=HIGHS[:count])


IMAGE = "x = external(shape = [1, 6, 4, 5]);"
ROIS = "r = external(shape = [1, 4]); i = external<integer>(shape = [1, 1]);"
W = "w = variable(shape = [2, 6, 3, 3], label = 'w');"
WEIGHTS = {"w": np.linspace(-1, 1, 108).reshape(2, 6, 3, 3)}


def windows() -> Iterator[Case]:
    """Borders, scales and filters of sliding windows."""
    calls = {
        "debox": "y = debox(x, size = [1, 1, 3, 3], border = 'reflect', stride = [1, 1, 1, 1], "
        "padding = [(0, 0), (0, 0), (-9, -9), (0, 0)]);",
        "deconv": "w = variable(shape = [6, 2, 3, 3], label = 'w'); "
        "y = deconv(x, w, 0.0, border = 'reflect', padding = [(-9, -9), (0, 0)]);",
        "separable_deconv": "w = variable(shape = [2, 1, 3, 3], label = 'w'); v = variable(shape = [6, 2, 1, 1], "
        "label = 'v'); y = separable_deconv(x, w, v, 0.0, border = 'reflect', padding = [(-9, -9), (0, 0)]);",
        "multilinear_upsample": "z = external(shape = [1, 1, 1]); "
        "y = multilinear_upsample(z, factor = [3], border = 'reflect');",
    }
    shapes = {
        "conv": {"w": (2, 6, 3, 3)},
        "deconv": {"w": (6, 2, 3, 3)},
        "separable_conv": {"w": (6, 1, 3, 3), "v": (1, 6, 1, 1)},
        "separable_deconv": {"w": (2, 1, 3, 3), "v": (6, 2, 1, 1)},
    }
    for operation, call in calls.items():
        names = "x y" + (" z" if "z =" in call else "")
        stored = {name: np.ones(shape) for name, shape in shapes.get(operation, {}).items()}
        yield Case(operation, claims.BEYOND_REFLECTION, f"{IMAGE} {call}", quantised(names), stored)

    filtered = {
        "conv": f"{W} y = conv(x, w, 0.0);",
        "deconv": "w = variable(shape = [6, 2, 3, 3], label = 'w'); y = deconv(x, w, 0.0);",
        "separable_conv": "w = variable(shape = [6, 1, 3, 3], label = 'w'); v = variable(shape = [1, 6, 1, 1], "
        "label = 'v'); y = separable_conv(x, w, v, 0.0);",
        "separable_deconv": "w = variable(shape = [2, 1, 3, 3], label = 'w'); v = variable(shape = [6, 2, 1, 1], "
        "label = 'v'); y = separable_deconv(x, w, v, 0.0);",
    }

    # Sums over 18 channels whose scales have no simple ratio.
    two = "size = [1, 2, 1, 1], stride = [1, 1, 1, 1], padding = [(0, 0), (0, 1), (0, 0), (0, 0)]"
    over = "size = [1, 18, 1, 1], padding = [(0, 0), (0, 0), (0, 0), (0, 0)]"
    wide = {"x": per(18).replace("bits = 8", "bits = 16"), "y": Q}
    for operation, call in {
        "box": f"y = box(x, {over});",
        "debox": f"y = debox(x, {over}, stride = [1, 1, 1, 1]);",
        "avg_pool": f"y = avg_pool(x, {over});",
        "rms_pool": f"y = rms_pool(x, {over});",
        "sample": f"z = external(shape = [1, 18, 4, 5]); k = argmax_pool(z, {over}); y = sample(x, k, {over});",
        "desample": f"z = external(shape = [1, 18, 4, 5]); k = argmax_pool(z, {two}); y = desample(x, k, {two});",
        "area_downsample": "t = transpose(x, axes = [0, 2, 1]); y = area_downsample(t, factor = [3, 1]);",
        "multilinear_upsample": "t = transpose(x, axes = [0, 2, 1]); y = multilinear_upsample(t, factor = [2, 1]);",
        **{operation: call.replace("6", "18") for operation, call in filtered.items()},
        "local_mean_normalization": "y = local_mean_normalization(x, size = [1, 35, 1, 1]);",
        "moments": "y, v = moments(x, axes = [1]);",
    }.items():
        stored = {
            name: np.ones([18 if extent == 6 else extent for extent in shape])
            for name, shape in shapes.get(operation, {}).items()
        }
        why = claims.APART if operation in ("sample", "desample", "moments") else claims.NO_RATIO
        body = f"{IMAGE.replace('6', '18')} {call}"
        yield Case(operation, why, body, {**wide, "z": Q} if "z =" in call else wide, stored)

    computed = {"w": PER_CHANNEL, "x": Q, "y": Q}
    for operation, call in {
        "conv": "w = external(shape = [6, 6, 1, 2]); y = conv(x, w, 0.0);",
        "deconv": "w = external(shape = [6, 3, 1, 2]); y = deconv(x, w, 0.0);",
        "separable_conv": "w = external(shape = [6, 1, 1, 2]); v = variable(shape = [1, 6, 1, 1], label = 'v'); "
        "y = separable_conv(x, w, v, 0.0);",
        "separable_deconv": "w = external(shape = [6, 1, 1, 2]); v = variable(shape = [6, 6, 1, 1], label = 'v'); "
        "y = separable_deconv(x, w, v, 0.0);",
    }.items():
        stored = {"v": np.ones((6 if "de" in operation else 1, 6, 1, 1))} if "separable" in operation else {}
        yield Case(operation, claims.COMPUTED_FILTER, f"{IMAGE} {call}", computed, stored)

    for seed, code in ((0, "lowering.range"), (2, "lowering.operation")):
        items = np.random.default_rng(seed)
        yield Case("separable_deconv", claims.WIDE_BETWEEN, "x = external(shape = [1, 2, 4]); "
                   "w = variable(shape = [2, 1, 3], label = 'w'); v = variable(shape = [2, 2, 1], label = 'v'); "
                   "y = separable_deconv(x, w, v, 0.0);", {"x": per(2).replace("bits = 8", "bits = 16"), "y": Q},
                   {"w": items.random((2, 1, 3)), "v": items.random((2, 2, 1))}, code=code)  # fmt: skip

    nothing = "size = [1, 1, 1, 1], border = 'ignore', padding = [(0, 0), (0, 0), (1, 0), (0, 0)]"
    for operation, call in {
        "box": f"y = box(x, {nothing}, normalize = true);",
        "debox": "y = debox(x, size = [1, 1, 1, 1], border = 'ignore', normalize = true, stride = [1, 1, 2, 1], "
        "padding = [(0, 0), (0, 0), (0, 0), (0, 0)]);",
        "avg_pool": f"y = avg_pool(x, {nothing});",
        "rms_pool": f"y = rms_pool(x, {nothing});",
        "max_pool": f"y = max_pool(x, {nothing});",
        "max_pool_with_index": f"y, k = max_pool_with_index(x, {nothing});",
        "argmax_pool": f"k = argmax_pool(x, {nothing}); y = copy(x);",
    }.items():
        yield Case(operation, claims.NOTHING_INSIDE, f"{IMAGE} {call}", quantised("x y"),
                   output="k" if operation == "argmax_pool" else "y")  # fmt: skip

    for operation, call in {"sample": "y = sample(x, k, ", "desample": "y = desample(x, k, "}.items():
        body = f"{IMAGE} k = external<integer>(shape = [1, 6, 4, 5]); {call}size = [1, 1, 1, 1], padding = []);"
        yield Case(operation, claims.INDICES, body, quantised("x y"))


def others() -> Iterator[Case]:
    """Conditions of the other operations."""
    yield Case(
        "div", "a constant divisor holds a zero", "x = external(shape = [1]); y = div(x, 0.0);", quantised("x y")
    )
    four = f"{TWO} c = external(shape = [4]); d = external(shape = [4]); s = add(a, b); t = add(c, d);"
    yield Case("div", claims.CLAIMS["div"].refuses[1], f"{four} y = div(s, t);", {**ALL, "y": Q})  # fmt: skip
    for operation in ("sum_reduce", "mean_reduce"):
        body = "a = external(shape = [2, 1]); b = external(shape = [2, 3]); t = concat([a, b], axis = 1);"
        body += f" y = {operation}(t, axes = [1]);"
        yield Case(operation, claims.SCATTERED, body, {"a": per(2), "b": Q, "y": Q}, code="lowering.unquantized")
    yield Case("div", claims.TOO_WIDE, f"{INTEGERS} d = external(shape = [4]); y = div(t, d);",
               {"d": "linear_quantize(min = 0.1, max = 1.1, bits = 16)", "y": Q})  # fmt: skip
    yield Case("linear_quantize", claims.TOO_WIDE, f"{INTEGERS} m = max_reduce(c1, axes = [0]); "
               "u = linear_quantize(t, min = 0.0, max = m, bits = 1); y = copy(u);", quantised("y"))  # fmt: skip
    for operation in ("concat", "stack"):
        yield Case(operation, claims.PARTS, f"{SUM} r = relu(t); p = {operation}([r, a], axis = 0); y = copy(p);",
                   {**WIDE, "y": Q})  # fmt: skip
    many = " ".join(f"r{i} = relu(a{i});" for i in range(5))
    inputs = " ".join(f"a{i} = external(shape = [1]);" for i in range(5))
    yield Case("concat", claims.PARTS, f"{inputs} {many} p = concat([r0, r1, r2, r3, r4], axis = 0); y = copy(p);",
               {**quantised("a0 a1 a2 a3 a4", Q16), "y": Q})  # fmt: skip
    yield Case("slice", "a stride is below 1", "x = external(shape = [4]); y = slice(x, axes = [0], begin = [3], "
               "end = [1], stride = [-1]);", quantised("x y"))  # fmt: skip
    for index in ("[2]", "[-1]"):
        yield Case("gather", claims.CLAIMS["gather"].refuses[0], "x = external(shape = [2]); "
                   f"k = constant<integer>(shape = [1], value = {index}); y = gather(x, k, axis = 0);",
                   quantised("x y"))  # fmt: skip
    for operation, rois in (("roi_resample", "r"), ("avg_roi_align", "r"), ("max_roi_align", "r")):
        rate = ", sampling_rate = [1, 1]" if "align" in operation else ""
        call = f"{ROIS} y = {operation}(x, {rois}, i, output_size = [2, 2]{rate});"
        fine = "linear_quantize(min = 0.0, max = {}, bits = 8)"
        yield Case(operation, claims.TOO_FINE, f"{IMAGE} {call}", {**quantised("x y"), "r": fine.format("3.123456789")})
        yield Case(operation, claims.TOO_FINE, f"{IMAGE} {call}",
                   {"x": Q16, "y": Q, "r": fine.format("3.1234")})  # fmt: skip
    for operation in ("max_roi_pool", "avg_roi_pool"):
        call = f"{ROIS} y = {operation}(x, r, i, output_size = [2, 2]);"
        yield Case(operation, "lowering.unquantized", f"{IMAGE} {call}", {**quantised("r y"), "x": PER_CHANNEL},
                   code="lowering.unquantized")  # fmt: skip
    body = f"{IMAGE} {ROIS} z = avg_roi_pool(x, r, i, output_size = [2, 2]); y = copy(z);"
    yield Case("avg_roi_pool", "lowering.unquantized", body, {**quantised("x y"), "r": fine.format("63.75")},
               code="lowering.unquantized")  # fmt: skip
    for operation, call in {"matmul": "y = matmul(a, b);", "linear": "y = linear(a, b, 0.0);"}.items():
        extents = "18, 3" if operation == "matmul" else "3, 18"
        body = f"a = external(shape = [2, 18]); b = external(shape = [{extents}]); {call}"
        yield Case(operation, claims.ALONG_THE_SUM, body, {"a": per(18), "b": Q, "y": Q})
    yield Case("update", claims.SHARED_LABEL, "x = external(shape = [1]); v = variable(shape = [1], label = 'v'); "
               "w = variable(shape = [1], label = 'v'); u = update(v, x); y = add(w, u);", quantised("x v w y"),
               {"v": [0.5]})  # fmt: skip
    line = "x = external(shape = [1, 6]);"
    yield Case("softmax", claims.CLAIMS["softmax"].refuses[0], f"{line} y = softmax(x, axes = [1]);",
               {"x": Q, "y": PER_CHANNEL})  # fmt: skip
    yield Case("softmax", claims.CLAIMS["softmax"].refuses[-1], f"{line} y = softmax(x, axes = [1]);",
               {"x": Q, "y": "linear_quantize(min = 0.0, max = 0.000001, bits = 16)"})  # fmt: skip
    yield from normalisations(line)
    yield from elsewhere(line)
    body = f"{line} m = external(shape = [1, 6]); y = batch_normalization(x, m, 1.0, 0.0, 1.0, epsilon = 0.5);"
    yield Case("batch_normalization", claims.CLAIMS["batch_normalization"].refuses[0], body, quantised("x m y"))
    grid = "x = external(shape = [2, 3]);"
    grid += " ".join(f"{name} = variable(shape = [2, 3], label = '{name}');" for name in "ab")
    bounds = {"a": np.arange(-6, 0).reshape(2, 3), "b": np.arange(1, 7).reshape(2, 3)}
    flags = "bits = 8, signed = true, symmetric = true"
    for operation, parameters in {
        "linear_quantize": "min = a, max = b, bits = 8",
        "min_max_linear_quantize": f"min = a, max = b, {flags}",
        "zero_point_linear_quantize": f"zero_point = 3, scale = b, {flags}",
    }.items():
        body = f"{grid} q = {operation}(x, {parameters}); y = copy(q);"
        yield Case(operation, claims.SEVERAL_AXES, body, quantised("x y"), bounds)
        if operation != "linear_quantize":
            computed = f"x = external(shape = [2]); b = max_reduce(x, axes = [0]); q = {operation}(x, {parameters});"
            body = computed.replace("= a", "= 0.0") + " y = copy(q);"
            yield Case(operation, "a parameter is computed", body, quantised("x y"))
    bounds_of = ("m = max_reduce(x, axes = [0]);", "m = variable(shape = [2], label = 'm');")
    for condition, bound in zip(claims.CLAIMS["logarithmic_quantize"].refuses, bounds_of, strict=True):
        body = f"x = external(shape = [2]); {bound} q = logarithmic_quantize(x, max = m, bits = 8); y = copy(q);"
        yield Case("logarithmic_quantize", condition, body, quantised("x y"), {"m": [1, 3]} if "label" in bound else {})


def elsewhere(line: str) -> Iterator[Case]:
    """Operations that NNEF has not."""
    wide = "zero_point_linear_quantize(zero_point = 0, scale = 0.1, bits = 20, signed = true, symmetric = true)"
    fine = {"accuracy": "fine"}
    softmax, normalization = "softmax(accuracy = 'fine')", "local_response_normalization(accuracy = 'fine')"
    apart, beta = "size = [1, 3]", "size = [1, 3], beta = 0.05"
    for name, call in {
        softmax: "softmax(x, axes = [1])",
        normalization: "local_response_normalization(x, size = [1, 3], beta = 1.0)",
    }.items():
        becomes = {call.split("(")[0]: (call.split("(")[0], fine)}
        yield Case(name, claims.WHOLE_TENSOR, f"{line} t = {call}; y = copy(t);", quantised("x y"), becomes=becomes)
        needs = "lowering.unquantized"
        yield Case(name, needs, f"{line} y = {call};", quantised("x y", wide), code=needs, becomes=becomes)
    for condition, arguments in zip(claims.CLAIMS[normalization].refuses[1:], (beta, apart), strict=True):
        body = f"{line} y = local_response_normalization(x, {arguments});"
        becomes = {"local_response_normalization": ("local_response_normalization", fine)}
        yield Case(normalization, condition, body, quantised("x y"), becomes=becomes)


def normalisations(line: str) -> Iterator[Case]:
    """Division by a norm."""
    zero_by_zero = {
        "x": "linear_quantize(min = 0.0, max = 1.0, bits = 3)",
        "y": "linear_quantize(min = -1.0, max = 1.0, bits = 4)",
    }
    many = {
        "x": "zero_point_linear_quantize(zero_point = 9, scale = 0.1, bits = 12, signed = true, symmetric = false)",
        "y": Q,
    }
    for operation, arguments in {
        "l1_normalization": "axes = [1], bias = 0.0, epsilon = 0.0",
        "l2_normalization": "axes = [1], bias = 0.0, epsilon = 0.0",
        "local_variance_normalization": "size = [1, 3], bias = 0.0, epsilon = 0.0",
        "local_contrast_normalization": "size = [1, 3], bias = 0.0, epsilon = 0.0",
        "local_response_normalization": "size = [1, 3], bias = 0.0",
    }.items():
        call = f"{line} y = {operation}(x, {arguments});"
        biased = call.replace("bias = 0.0", "bias = 0.5")
        yield Case(operation, claims.WHOLE_TENSOR, biased, {"x": Q, "y": PER_CHANNEL})
        yield Case(operation, claims.ZERO_BY_ZERO, call, zero_by_zero)
        if operation not in ("l1_normalization", "local_response_normalization"):
            yield Case(operation, claims.CLAIMS[operation].refuses[-1], biased, many)
    power, many_codes = claims.CLAIMS["local_response_normalization"].refuses[-2:]
    for beta, condition, quantisers in (("0.51", power, quantised("x y")), ("0.75", many_codes, many)):
        body = f"{line} y = local_response_normalization(x, size = [1, 3], bias = 0.5, beta = {beta});"
        yield Case("local_response_normalization", condition, body, quantisers)


CASES: list[Case] = [*GENERAL, *windows(), *others()]
