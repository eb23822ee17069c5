"""The tools of the language model, on a small GPT with random weights: one token or several at a time, same codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cvm.agreement import compare
from cvm.executors import create
from cvm.frontends import onnx
from cvm.program import Program
from cvm.program.verifier import verify
from cvm.reference import Reference
from cvm.session import Session
from tools.tiny_gpt.drawn_weights import drawn
from tools.tiny_gpt.onnx_model import HEADS, Weights, model_of
from tools.tiny_gpt.perplexity import losses
from tools.tiny_gpt.prefill import programs_of

WIDTH, CONTEXT, VOCABULARY, BLOCKS = 16, 24, 11, 2


def weights() -> Weights:
    """Random weights, under the names of `tools/train_tiny_gpt.py`."""
    random = np.random.default_rng(11)

    def drawn(*shape: int, scale: float = 0.4, about: float = 0.0) -> Any:
        return (about + scale * random.normal(size=shape)).astype(np.float32)

    found = {"embedding.weight": drawn(VOCABULARY, WIDTH), "position.weight": drawn(CONTEXT, WIDTH)}
    for name in ["norm", *(f"blocks.{block}.{half}_norm" for block in range(BLOCKS) for half in ("first", "second"))]:
        found |= {f"{name}.weight": drawn(WIDTH, about=1.0), f"{name}.bias": drawn(WIDTH)}
    layers = {"query_key_value": (3, 1), "projection": (1, 1), "widen": (4, 1), "narrow": (1, 4)}
    for block in range(BLOCKS):
        for name, (outputs, inputs) in layers.items():
            found[f"blocks.{block}.{name}.weight"] = drawn(outputs * WIDTH, inputs * WIDTH)
            found[f"blocks.{block}.{name}.bias"] = drawn(outputs * WIDTH)
    return found | {"head.weight": drawn(VOCABULARY, WIDTH)}


TOKENS = np.random.default_rng(12).integers(0, VOCABULARY, (3, CONTEXT))


@pytest.fixture(scope="module")
def programs() -> tuple[Program, ...]:
    return programs_of(model_of(weights()), {"token": TOKENS[:, :, None]}, (7, CONTEXT))


def normalised(x: Any, given: Weights, name: str) -> Any:
    deviation = np.sqrt(x.var(axis=-1, keepdims=True) + np.float32(1e-5))
    return (x - x.mean(axis=-1, keepdims=True)) / deviation * given[f"{name}.weight"] + given[f"{name}.bias"]


def logits_of(given: Weights, tokens: Any) -> Any:
    """The GPT written down once more, for a whole window in float64."""
    from math import erf

    count = len(tokens)
    x = given["embedding.weight"][tokens].astype(float) + given["position.weight"][:count]
    for block in range(BLOCKS):
        name = f"blocks.{block}"

        def layer(x: Any, which: str, name: str = name) -> Any:
            return x @ given[f"{name}.{which}.weight"].T + given[f"{name}.{which}.bias"]

        parts = np.split(layer(normalised(x, given, f"{name}.first_norm"), "query_key_value"), 3, axis=-1)
        q, k, v = (part.reshape(count, HEADS, -1).swapaxes(0, 1) for part in parts)
        scores = q @ k.swapaxes(1, 2) / np.sqrt(WIDTH / HEADS)
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True)) * np.tri(count)
        mixed = powers / powers.sum(axis=-1, keepdims=True) @ v
        x = x + layer(mixed.swapaxes(0, 1).reshape(count, WIDTH), "projection")
        wide = layer(normalised(x, given, f"{name}.second_norm"), "widen")
        x = x + layer(wide * (1 + np.vectorize(erf)(wide / np.sqrt(2))) / 2, "narrow")
    return normalised(x, given, "norm") @ given["head.weight"].T


def test_the_model_of_onnx_is_the_network_a_token_at_a_time() -> None:
    model = model_of(weights())
    names = [item.name for item in model.graph.input if item.name != "token"]
    settings = onnx.Settings({"token": (1,)}, floats=True, outputs=("logits",), states={n: f"{n}_next" for n in names})
    graph = onnx.loads(model.SerializeToString(), settings).graph
    found = Reference(graph).run_cycles({"token": TOKENS[:1, :, None]})["logits"][0, :, 0]
    np.testing.assert_allclose(found, logits_of(weights(), TOKENS[0]), rtol=0, atol=1e-6)


def test_the_model_of_a_whole_window_is_the_network() -> None:
    settings = onnx.Settings(floats=True)
    graph = onnx.loads(model_of(weights(), whole=20).SerializeToString(), settings).graph
    found = Reference(graph).run({"token": TOKENS[0, :20]})["logits"]
    np.testing.assert_allclose(found, logits_of(weights(), TOKENS[0, :20]), rtol=0, atol=1e-6)


def test_drawn_weights_have_the_names_and_shapes_of_trained_ones() -> None:
    found = drawn(BLOCKS, WIDTH, CONTEXT, VOCABULARY)
    assert {name: array.shape for name, array in found.items()} == {
        name: array.shape for name, array in weights().items()
    }
    assert all(array.dtype == np.float32 for array in found.values())
    assert all(np.array_equal(array, found[name]) for name, array in drawn(BLOCKS, WIDTH, CONTEXT, VOCABULARY).items())
    assert found["blocks.0.widen.weight"].std() == pytest.approx(0.02, rel=0.1)


def test_chunks_of_tokens_give_the_codes_of_single_tokens(programs: tuple[Program, ...]) -> None:
    one, seven, every = programs
    single = Session(one, "numpy")
    for window in TOKENS:
        single.reset()
        codes = single.run({"token": window[:, None]}, cycles=True, codes=True)["logits"].reshape(CONTEXT, -1)
        whole = Session(every, "numpy")
        np.testing.assert_array_equal(whole.run({"token": window}, codes=True)["logits"], codes)
        chunks = Session(seven, "numpy")
        found = chunks.run({"token": window[:21].reshape(3, 7)}, cycles=True, codes=True)["logits"]
        np.testing.assert_array_equal(found.reshape(21, -1), codes[:21])
        # The state is the same one: the program for single tokens goes on where chunks have stopped.
        for name, array in single.state.items():
            np.testing.assert_array_equal(whole.state[name], array)
        assert chunks.state["position"].tolist() == [21]


def test_the_program_follows_the_network(programs: tuple[Program, ...]) -> None:
    result = Session(programs[0], "numpy").run({"token": TOKENS[:1, :, None]}, cycles=True, codes=True)
    wanted = logits_of(weights(), TOKENS[0])
    noise = np.square(result.real("logits").reshape(wanted.shape) - wanted).sum()
    assert 10 * np.log10(np.square(wanted).sum() / noise) > 25


def test_a_block_has_few_nodes(programs: tuple[Program, ...]) -> None:
    """Nothing is computed bit by bit: one op for a layer normalisation, a softmax quotient, a residual sum, a written
    row.
    """
    ops = [node.op for node in programs[0].nodes]
    assert ops.count("normalize") == 2 * BLOCKS + 1
    assert ops.count("update_slice") == ops.count("matmul") == 2 * BLOCKS
    assert ops.count("quotient") == 3 * BLOCKS
    assert len(ops) < 60 * BLOCKS


def test_every_executor_gives_the_same_tensors(programs: tuple[Program, ...]) -> None:
    verified = verify(programs[0])
    executors = [create(name, verified) for name in ("formal", "numpy", "native")]
    cycles = [{"token": np.array([token], np.int32)} for token in TOKENS[0, :4]]
    assert compare(programs[0], executors, [cycles]).difference is None


def test_losses_are_those_of_the_softmax() -> None:
    logits = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])) + 3
    np.testing.assert_allclose(losses(logits, np.array([1, 2])), -np.log([0.25, 0.7]))
