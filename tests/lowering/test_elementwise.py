"""Element-wise operations lower exactly: every code equals the oracle's, on extreme and random inputs."""

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.errors import Unsupported
from cvm.frontends import nnef
from cvm.lowering import lower
from tests.lowering.documents import Document, assert_exact

RANDOMS = st.randoms(use_true_random=False)

EVERYWHERE = ["neg", "abs", "sign", "floor", "ceil", "round", "exp", "sqr"]
ACTIVATIONS = ["sigmoid", "tanh", "softplus", "elu", "relu"]
STEPS = ["tanh({})", "clamp({}, -0.75, 0.5)", "mul({}, 1.5)", "abs({})", "add({}, 0.25)", "relu({})"]
POSITIVE = ["rcp", "log", "log2", "sqrt", "rsqr", "rsqrt"]


def check(document: Document, output: str) -> None:
    with TemporaryDirectory() as folder:
        assert_exact(document, output, Path(folder))


def positive(document: Document, shape: tuple[int, ...]) -> str:
    """An input whose codes all stand for positive numbers."""
    name = document.external(shape)
    low = round(document.random.uniform(0.01, 1.0), 3)
    document.quantisers[name] = f"linear_quantize(min = {low}, max = {low + 3.5}, bits = 8)"
    return name


@settings(max_examples=4)
@given(RANDOMS)
@pytest.mark.parametrize("operation", EVERYWHERE + ACTIVATIONS)
def test_functions_of_all_numbers(operation: str, random: Random) -> None:
    document = Document(random)
    check(document, document.apply(f"{operation}({document.external((2, 3, 2), -4.0, 4.0)})"))


@settings(max_examples=4)
@given(RANDOMS)
@pytest.mark.parametrize("operation", POSITIVE)
def test_functions_of_positive_numbers(operation: str, random: Random) -> None:
    document = Document(random)
    check(document, document.apply(f"{operation}({positive(document, (2, 3, 2))})"))


@settings(max_examples=20)
@given(RANDOMS, st.sampled_from(["add", "sub", "mul", "min", "max"]))
def test_two_computed_operands(random: Random, operation: str) -> None:
    document = Document(random)
    x, y = document.external((2, 3, 2)), document.external((2, 1, 2) if random.random() < 0.5 else (2, 3))
    check(document, document.apply(f"{operation}({x}, {y})"))


@settings(max_examples=6)
@given(RANDOMS)
def test_quotients_and_powers(random: Random) -> None:
    document = Document(random)
    x, y = document.external((2, 3)), positive(document, (2, 3))
    document.quantisers[x] = document.quantisers[x].replace("bits = 8", "bits = 5")
    document.quantisers[y] = document.quantisers[y].replace("bits = 8", "bits = 5")
    call = f"div({x}, {y})" if random.random() < 0.5 else f"pow({y}, {x})"
    with TemporaryDirectory() as folder:
        document.write(Path(folder), document.apply(call))
    feeds = document.feeds
    document.feeds = lambda count=3: [  # type: ignore[method-assign]
        {name: codes % 32 for name, codes in feed.items()} for feed in feeds(count)
    ]
    check(document, list(document.quantisers)[-1])


@settings(max_examples=20)
@given(RANDOMS, st.sampled_from(["lt", "gt", "le", "ge", "eq", "ne"]))
def test_comparison_and_selection(random: Random, comparison: str) -> None:
    document = Document(random)
    x, y = document.external((2, 3, 2)), document.external((2, 3, 1))
    if random.random() < 0.4:
        document.quantisers[y] = document.quantisers[x]  # equal codes are equal numbers
    condition = document.apply(f"{comparison}({x}, {random.choice([y, '0.25', x])})", quantised=False)
    if random.random() < 0.5:
        other = document.apply(f"lt({y}, 0.125)", quantised=False)
        condition = document.apply(f"{random.choice(['and', 'or'])}({condition}, {other})", quantised=False)
    if random.random() < 0.3:
        condition = document.apply(f"not({condition})", quantised=False)
    check(document, document.apply(f"select({condition}, {x}, {random.choice([y, '0.5'])})"))


@settings(max_examples=15)
@given(RANDOMS)
def test_clamps_and_chains_of_functions_are_rounded_once(random: Random) -> None:
    document = Document(random)
    x = document.external((2, 3), -3.0, 3.0)
    chain = x
    for _ in range(random.randint(1, 3)):
        step = random.choice(
            ["tanh({})", "clamp({}, -0.75, 0.5)", "mul({}, 1.5)", "abs({})", "add({}, 0.25)", "relu({})"]
        )
        chain = document.apply(step.format(chain), quantised=False)
    check(document, document.apply(f"sigmoid({chain})"))


@settings(max_examples=10)
@given(RANDOMS)
def test_prelu_with_a_slope_per_channel(random: Random) -> None:
    document = Document(random)
    x, alpha = document.external((2, 4, 3), -2.0, 2.0), document.variable((1, 4))
    kind = random.choice([f"prelu({x}, {alpha})", f"leaky_relu({x}, alpha = 0.3)"])
    check(document, document.apply(kind))


@pytest.mark.parametrize(
    ("call", "code"),
    [("log({x})", "lowering.undefined"), ("sqrt({x})", "lowering.undefined"), ("rcp({x})", "lowering.undefined")],
)
def test_what_has_no_value_for_a_code_is_refused(call: str, code: str, tmp_path: Path) -> None:
    document = Document(Random(0))
    x = document.external((1, 3))
    document.quantisers[x] = "linear_quantize(min = -1.0, max = 1.55, bits = 8)"  # code 100 is zero
    document.write(tmp_path, document.apply(call.format(x=x)))
    with pytest.raises(Unsupported) as error:
        lower(nnef.load(tmp_path))
    assert error.value.code == code
    assert error.value.location.line is not None


def test_the_logarithm_of_zero_has_the_code_of_the_lower_end(tmp_path: Path) -> None:
    document = Document(Random(1))
    x = document.external((1, 3))
    document.quantisers[x] = "linear_quantize(min = 0.0, max = 2.0, bits = 8)"
    y = document.apply(f"log({x})")
    document.quantisers[y] = "linear_quantize(min = -5.0, max = 1.0, bits = 8)"
    document.write(tmp_path, y)
    program = lower(nnef.load(tmp_path))
    (table,) = (item for item in program.constants if item.shape == (256,))
    assert table.array()[0] == 0
    assert table.array()[1] == 6  # (ln(2/255) + 5) / 6 * 255 = 6.54 .. rounds to 7 or 6
