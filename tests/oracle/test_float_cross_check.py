"""Sanity checks of values against floating point, with tolerances: float64 formulas, and recordings of Khronos' tests.

Nothing here says that a result is exact; it says that formulas were read as others read them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from .exact import model
from .files import read_tensor
from .harness import floats, run, shared, value

Floats = npt.NDArray[np.float64]
RANDOM = np.random.default_rng(20)
X = RANDOM.integers(-64, 64, (2, 3, 4)) / 16.0
POSITIVE = np.abs(X) + 0.125
INNER = X / 5


def logistic(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def softmax(x: Floats, axes: tuple[int, ...]) -> Floats:
    e = np.exp(x - x.max(axis=axes, keepdims=True))
    return np.asarray(e / e.sum(axis=axes, keepdims=True))


def box3(x: Floats) -> Floats:
    """The mean over windows of 3 along the last dimension, zeros beyond."""
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1)])
    return (padded[..., :-2] + padded[..., 1:-1] + padded[..., 2:]) / 3


def rms(x: Floats, axis: int) -> Floats:
    return np.asarray(np.sqrt((x * x).sum(axis=axis, keepdims=True)))


FORMULAS: list[tuple[str, Floats, Floats]] = [
    ("exp(x)", X, np.exp(X)),
    ("log(x)", POSITIVE, np.log(POSITIVE)),
    ("log2(x)", POSITIVE, np.log2(POSITIVE)),
    ("sin(x)", X * 20, np.sin(X * 20)),
    ("cos(x)", X * 20, np.cos(X * 20)),
    ("tan(x)", X, np.tan(X)),
    ("asin(x)", INNER, np.arcsin(INNER)),
    ("acos(x)", INNER, np.arccos(INNER)),
    ("atan(x)", X * 20, np.arctan(X * 20)),
    ("sinh(x)", X, np.sinh(X)),
    ("cosh(x)", X, np.cosh(X)),
    ("asinh(x)", X * 20, np.arcsinh(X * 20)),
    ("acosh(x)", 1 + POSITIVE, np.arccosh(1 + POSITIVE)),
    ("atanh(x)", INNER, np.arctanh(INNER)),
    ("sqrt(x)", POSITIVE, np.sqrt(POSITIVE)),
    ("rsqrt(x)", POSITIVE, 1 / np.sqrt(POSITIVE)),
    ("pow(x, 0.3)", POSITIVE, POSITIVE**0.3),
    ("pow(x, -1.7)", POSITIVE, POSITIVE**-1.7),
    ("pow(1.7, x)", X, 1.7**X),
    ("sigmoid(x)", X, logistic(X)),
    ("tanh(x)", X, np.tanh(X)),
    ("softplus(x)", X, np.log1p(np.exp(X))),
    ("elu(x)", X, np.where(X < 0, np.expm1(X), X)),
    ("gelu(x)", X, X * logistic(1.702 * X)),
    ("silu(x)", X, X * logistic(X)),
    ("selu(x)", X, 1.05070102 * np.where(X < 0, 1.67326319 * np.expm1(X), X)),
    ("softabs(x, epsilon = 0.1)", X, np.sqrt(X * X + 0.1)),
    ("softmax(x)", X, softmax(X, (1,))),
    ("softmax(x, axes = [1, 2])", X, softmax(X, (1, 2))),
    ("l1_normalization(x, axes = [2], bias = 0.5)", X, X / (np.abs(X).sum(axis=2, keepdims=True) + 0.5)),
    ("l2_normalization(x, axes = [1], bias = 0.5)", X, X / (rms(X, 1) + 0.5)),
    (
        "local_response_normalization(x, size = [1, 1, 3], alpha = 0.5, beta = 0.75, bias = 2.0)",
        X,
        X / (2 + 0.5 * box3(X * X)) ** 0.75,
    ),
    ("local_variance_normalization(x, size = [1, 1, 3], epsilon = 0.5)", X, X / np.maximum(np.sqrt(box3(X * X)), 0.5)),
    (
        "local_contrast_normalization(x, size = [1, 1, 3], bias = 0.25)",
        X,
        (X - box3(X)) / (np.sqrt(box3((X - box3(X)) ** 2)) + 0.25),
    ),
    ("rms_pool(x, size = [1, 1, 3])", X, np.sqrt(box3(X * X))),
    ("batch_normalization(x, 0.5, 2.0, -1.0, 3.0, epsilon = 0.1)", X, -1 + 3 * (X - 0.5) / np.sqrt(2.1)),
]


@pytest.mark.parametrize(("call", "x", "expected"), FORMULAS, ids=[case[0] for case in FORMULAS])
def test_irrational_results_are_near_their_float64_formulas(call: str, x: Floats, expected: Floats) -> None:
    np.testing.assert_allclose(floats(value(call, x)), expected, rtol=1e-12, atol=1e-12)


def test_a_network_without_any_quantiser_is_near_its_float64_evaluation() -> None:
    x, w, v = (RANDOM.integers(-32, 32, shape) / 16.0 for shape in ((2, 4), (5, 4), (3, 5)))
    body = (
        "a = linear(x, w); b = sigmoid(a); c = linear(b, v); d = tanh(c); e = softmax(d); y = l2_normalization(e, [1]);"
    )
    shares = softmax(np.tanh(logistic(x @ w.T) @ v.T), (1,))
    found = run(body, "", x, w=w, v=v).values["y"]
    np.testing.assert_allclose(floats(found), shares / rms(shares, 1), rtol=1e-12)


def test_moments_of_irrational_numbers_are_near_their_float64_evaluation() -> None:
    body = "e = exp(x); (m, v) = moments(e, axes = [1, 2]); s = add(v, 0.001); r = rsqrt(s); y = mul(m, r);"
    e = np.exp(X)
    mean, variance = e.mean(axis=(1, 2), keepdims=True), e.var(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(floats(run(body, "", X).values["y"]), mean / np.sqrt(variance + 0.001), rtol=1e-12)


# --- Khronos' conformance tests of OpenVX -----------------------------------------------------------------------------

SMALL = {
    "add_2d",
    "mul_2d",
    "argmax_reduce_channel",
    "conv1x1",
    "deconv1x1",
    "linear",
    "linear_nobias",
    "linear_reshape",
}
SMALL |= {"linear_squeeze", "max_reduce_spatial", "mean_reduce_spatial", "mnist", "squeeze_spatial", "max_pool1x1"}
UNLIKE_THE_TEXT = {"avg_pool1x1", "max_pool1x1"}
"""Automatic padding of size 1 with stride 2 is (floor(-1/2), ceil(-1/2)) = (-1, 0) by the text, (0, -1) as recorded."""


def every_case() -> list[Any]:
    """All cases of the suite; those that take long are marked."""
    folder = Path(__file__).resolve().parents[3] / "shared" / "nnef" / "khronos_cts"
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else sorted(SMALL)
    return [pytest.param(name, marks=() if name in SMALL else pytest.mark.long) for name in names]


def stored(folder: Path, tensor: str) -> Floats:
    return floats(read_tensor(folder / f"{tensor}.dat").values)


@pytest.mark.sweep
@pytest.mark.parametrize("name", every_case())
def test_khronos_recordings_are_near(name: str) -> None:
    folder = shared("nnef", "khronos_cts", name)
    text = (folder / "graph.nnef").read_text()
    if name in UNLIKE_THE_TEXT:
        text = text.replace("stride = ", "padding = [(0, 0), (0, 0), (0, -1), (0, -1)], stride = ")
    network = model(text, "", lambda label: read_tensor(folder / f"{label}.dat"))
    values = network.run({tensor: stored(folder, tensor) for tensor in network.document.inputs}).values
    for tensor in network.document.outputs:
        np.testing.assert_allclose(floats(values[tensor]), stored(folder, tensor), rtol=1e-4, atol=1e-4)
