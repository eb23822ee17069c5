"""The network as other engines read it: a GGUF file in Q8_0 for llama.cpp, a folder in int8 for CTranslate2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.bench.language.network import EPSILON, Network

__all__ = ["write_ctranslate2", "write_gguf"]

_GGUF_NAMES = {
    "first_norm": "attn_norm",
    "query_key_value": "attn_qkv",
    "projection": "attn_output",
    "second_norm": "ffn_norm",
    "widen": "ffn_up",
    "narrow": "ffn_down",
}
_GGUF_OTHERS = {"embedding": "token_embd", "position": "position_embd", "norm": "output_norm", "head": "output"}


def write_gguf(network: Network, path: Path) -> None:
    """A file of the architecture gpt2: matrices in Q8_0, position embeddings, norms and biases in float32.

    llama.cpp computes GELU by its approximation with tanh, as GPT-2 does.
    """
    import gguf

    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(network.context)
    writer.add_embedding_length(network.width)
    writer.add_block_count(network.blocks)
    writer.add_feed_forward_length(4 * network.width)
    writer.add_head_count(network.heads)
    writer.add_layer_norm_eps(EPSILON)
    writer.add_vocab_size(network.vocabulary)
    writer.add_tokenizer_model("none")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    q8 = gguf.GGMLQuantizationType.Q8_0
    for name, array in network.weights.items():
        target = _gguf_name(name)
        if array.ndim == 2 and name != "position.weight":
            writer.add_tensor(target, gguf.quants.quantize(array, q8), raw_dtype=q8)
        else:
            writer.add_tensor(target, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_name(name: str) -> str:
    """The name of a tensor in a file of the architecture gpt2."""
    words = name.split(".")
    if words[0] == "blocks":
        return f"blk.{words[1]}.{_GGUF_NAMES[words[2]]}.{words[3]}"
    return f"{_GGUF_OTHERS[words[0]]}.{words[1]}"


def write_ctranslate2(network: Network, folder: Path) -> None:
    """A folder of a decoder with int8 weights. Its tokens are called by their numbers.

    The library rounds the arrays that it is given in place, so that it gets copies.
    """
    from ctranslate2.specs import Activation, TransformerDecoderModelSpec

    spec = TransformerDecoderModelSpec.from_config(network.blocks, network.heads, True, Activation.GELU)
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = network.weights["embedding.weight"].copy()
    decoder.position_encodings.encodings = network.weights["position.weight"].copy()
    _norm(decoder.layer_norm, network, "norm")
    decoder.projection.weight = network.weights["head.weight"].copy()
    for block, layer in enumerate(decoder.layer):
        name = f"blocks.{block}"
        _norm(layer.self_attention.layer_norm, network, f"{name}.first_norm")
        _linear(layer.self_attention.linear[0], network, f"{name}.query_key_value")
        _linear(layer.self_attention.linear[1], network, f"{name}.projection")
        _norm(layer.ffn.layer_norm, network, f"{name}.second_norm")
        _linear(layer.ffn.linear_0, network, f"{name}.widen")
        _linear(layer.ffn.linear_1, network, f"{name}.narrow")
    spec.register_vocabulary([str(token) for token in range(network.vocabulary)])
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = "0"
    spec.config.layer_norm_epsilon = EPSILON
    spec.validate()
    spec.optimize(quantization="int8")
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def _linear(target: Any, network: Network, name: str) -> None:
    target.weight, target.bias = (network.weights[f"{name}.{part}"].copy() for part in ("weight", "bias"))


def _norm(target: Any, network: Network, name: str) -> None:
    target.gamma, target.beta = (network.weights[f"{name}.{part}"].copy() for part in ("weight", "bias"))
