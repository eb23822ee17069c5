"""The engines: each opens its form of the network, gives logits for a check, and times a pass.

A pass of the task ``decode`` reads a prompt, which is not timed, and then a number of tokens, one at a time. A pass of
the task ``prefill`` reads all tokens at once into an empty memory. All give logits; of a prefill, those of the last
token at least.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cvm.errors import Unsupported
from cvm.executors.native.runtime.select import available

__all__ = ["ENGINES", "Engine", "Player"]

Tokens = npt.NDArray[np.int64]
Floats = npt.NDArray[Any]


class Player(Protocol):
    """A network that is ready."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Versions and settings, for documents."""

    def logits(self, tokens: Tokens) -> Floats:
        """The logits of the last k of the tokens, of shape (k, vocabulary); every task reads the tokens in its way."""

    def spent(self, prompt: Tokens, following: Tokens) -> int:
        """The nanoseconds that one pass took for the following tokens; a prefill has no prompt."""


@dataclass(frozen=True, slots=True)
class Engine:
    """How an engine is opened for a file, a task and a number of threads, and what its users install."""

    open: Callable[[Path, str, int], Player]
    modules: tuple[str, ...]
    install: str
    """The packages that have these modules, as pip calls them."""
    bytes_per_weight: float
    """What it reads of a matrix for each weight, scales included."""


# cvm ----------------------------------------------------------------------------------------------------------------


class _Cvm:
    """Programs of the native executor: one for single tokens, which keeps its state, one for all tokens at once."""

    def __init__(self, path: Path, task: str, threads: int) -> None:
        from cvm.program.files import load_verified
        from cvm.session import Session

        verified = load_verified(path)
        self.session = Session(verified, "native", threads)
        self.task = task
        (self.token,) = (item.value.name for item in verified.program.inputs)
        self.facts = {"digest": verified.program.digest}

    def _cycles(self, tokens: Tokens) -> list[dict[str, Any]]:
        return [{self.token: np.array([token], np.int32)} for token in tokens]

    def logits(self, tokens: Tokens) -> Floats:
        self.session.reset()
        if self.task == "decode":
            result = self.session.run({self.token: tokens[:, None]}, cycles=True, codes=True)
        else:
            result = self.session.run({self.token: tokens.astype(np.int32)}, codes=True)
        found = result.real("logits")
        return found.reshape(-1, found.shape[-1])

    def spent(self, prompt: Tokens, following: Tokens) -> int:
        self.session.reset()
        run = self.session.run
        if self.task == "prefill":
            inputs = {self.token: following.astype(np.int32)}
            start = time.perf_counter_ns()
            run(inputs, codes=True)
            return time.perf_counter_ns() - start
        for cycle in self._cycles(prompt):
            run(cycle, codes=True)
        cycles = self._cycles(following)
        start = time.perf_counter_ns()
        for cycle in cycles:
            run(cycle, codes=True)
        return time.perf_counter_ns() - start


# llama.cpp ----------------------------------------------------------------------------------------------------------


class _LlamaCpp:
    """The functions of llama.h, through ctypes; greater layers of Python are left out."""

    def __init__(self, path: Path, task: str, threads: int) -> None:
        import llama_cpp as library

        self.library, self.task = library, task
        self.silent = library.llama_log_callback(lambda level, text, data: None)
        library.llama_log_set(self.silent, None)
        library.llama_backend_init()
        model = library.llama_model_load_from_file(str(path).encode(), library.llama_model_default_params())
        if not model:
            raise Unsupported("bench.failed", f"llama.cpp does not load {path.name}")
        context = library.llama_context_default_params()
        self.size = library.llama_model_n_ctx_train(model)
        context.n_ctx = context.n_batch = context.n_ubatch = self.size
        context.n_threads = context.n_threads_batch = threads
        self.context = library.llama_init_from_model(model, context)
        self.vocabulary = library.llama_vocab_n_tokens(library.llama_model_get_vocab(model))
        self.batch = library.llama_batch_init(self.size, 0, 1)
        system = library.llama_print_system_info().decode()
        self.facts = {"package": f"llama-cpp-python {library.__version__}", "system": system}

    def _clear(self) -> None:
        self.library.llama_memory_clear(self.library.llama_get_memory(self.context), True)

    def _read(self, tokens: Tokens, first: int) -> None:
        """Read the tokens at once, from the given position on; logits of every one of them."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for index, token in enumerate(tokens.tolist()):
            batch.token[index], batch.pos[index] = token, first + index
            batch.n_seq_id[index], batch.seq_id[index][0], batch.logits[index] = 1, 0, True
        self._decode()

    def _decode(self) -> None:
        if self.library.llama_decode(self.context, self.batch) != 0:
            raise Unsupported("bench.failed", "llama_decode failed")

    def _rows(self, count: int) -> Floats:
        pointer = self.library.llama_get_logits(self.context)
        return np.ctypeslib.as_array(pointer, (count, self.vocabulary)).copy()

    def logits(self, tokens: Tokens) -> Floats:
        self._clear()
        if self.task == "prefill":
            self._read(tokens, 0)
            return self._rows(len(tokens))
        found = []
        for index in range(len(tokens)):
            self._read(tokens[index : index + 1], index)
            found.append(self._rows(1))
        return np.concatenate(found)

    def spent(self, prompt: Tokens, following: Tokens) -> int:
        self._clear()
        if self.task == "prefill":
            start = time.perf_counter_ns()
            self._read(following, 0)
            self.library.llama_get_logits(self.context)
            return time.perf_counter_ns() - start
        self._read(prompt, 0)
        self.library.llama_get_logits(self.context)
        batch, tokens = self.batch, following.tolist()
        batch.n_tokens = 1
        start = time.perf_counter_ns()
        for index, token in enumerate(tokens, len(prompt)):
            batch.token[0], batch.pos[0] = token, index
            self._decode()
            self.library.llama_get_logits(self.context)
        return time.perf_counter_ns() - start


_BEGINNINGS = 3
"""How often CTranslate2 writes the first token in a pass; the least time of these is subtracted."""


# CTranslate2 --------------------------------------------------------------------------------------------------------


class _CTranslate2:
    """A decoder. It chooses its tokens itself, the likeliest ones, so a pass is a long text less its beginning.

    On processors of AMD it leaves AVX-512 unused unless it is told to use it, which makes it faster.
    """

    def __init__(self, path: Path, task: str, threads: int) -> None:
        if any("avx512" in feature for machine in available() for feature in machine.needs):
            os.environ.setdefault("CT2_FORCE_CPU_ISA", "AVX512")
        import ctranslate2

        self.library, self.task = ctranslate2, task
        self.generator = ctranslate2.Generator(
            str(path), device="cpu", compute_type="int8", inter_threads=1, intra_threads=threads
        )
        self.facts = {"package": f"ctranslate2 {ctranslate2.__version__}", "type": self.generator.compute_type}

    def logits(self, tokens: Tokens) -> Floats:
        return np.asarray(np.array(self.generator.forward_batch([tokens.tolist()]))[0])

    def _written(self, prompt: list[str], count: int) -> int:
        start = time.perf_counter_ns()
        (result,) = self.generator.generate_batch(
            [prompt], beam_size=1, min_length=count, max_length=count, include_prompt_in_result=False
        )
        spent = time.perf_counter_ns() - start
        if len(result.sequences_ids[0]) != count:
            raise Unsupported("bench.failed", f"{len(result.sequences_ids[0])} tokens instead of {count}")
        return spent

    def spent(self, prompt: Tokens, following: Tokens) -> int:
        if self.task == "prefill":
            numbers = [following.tolist()]
            start = time.perf_counter_ns()
            self.generator.forward_batch(numbers)
            return time.perf_counter_ns() - start
        words = [str(token) for token in prompt.tolist()]
        beginning = min(self._written(words, 1) for _ in range(_BEGINNINGS))
        return max(1, self._written(words, len(following) + 1) - beginning)


# ONNX Runtime -------------------------------------------------------------------------------------------------------


class _OnnxRuntime:
    """The int8 form of `tools.bench.language.onnx_form`; keys and values go from output to input without copies."""

    def __init__(self, path: Path, task: str, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4
        self.task, self.value = task, onnxruntime.OrtValue.ortvalue_from_numpy
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.outputs = [item.name for item in self.session.get_outputs()]
        pasts = [item for item in self.session.get_inputs() if item.name.startswith("past_")]
        self.past = {item.name: self._empty(item.shape) for item in pasts}
        self.facts = {"package": f"onnxruntime {onnxruntime.__version__}"}

    def _empty(self, shape: list[Any]) -> Any:
        return self.value(np.zeros([0 if isinstance(extent, str) else extent for extent in shape], np.float32))

    def _read(self, tokens: Tokens, first: int, past: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The logits, and keys and values afterwards."""
        positions = np.arange(first, first + len(tokens), dtype=np.int64)
        given = {"token": self.value(tokens[None]), "position": self.value(positions[None])}
        logits, *present = self.session.run_with_ort_values(self.outputs, given | past)
        return logits, dict(zip(past, present, strict=True))

    def logits(self, tokens: Tokens) -> Floats:
        if self.task == "prefill":
            logits, _ = self._read(tokens, 0, {})
            return np.array(logits.numpy()[0])
        past, found = self.past, []
        for index in range(len(tokens)):
            logits, past = self._read(tokens[index : index + 1], index, past)
            found.append(np.array(logits.numpy()[0]))
        return np.concatenate(found)

    def spent(self, prompt: Tokens, following: Tokens) -> int:
        if self.task == "prefill":
            start = time.perf_counter_ns()
            self._read(following, 0, {})
            return time.perf_counter_ns() - start
        _, past = self._read(prompt, 0, self.past)
        start = time.perf_counter_ns()
        for index in range(len(following)):
            _, past = self._read(following[index : index + 1], len(prompt) + index, past)
        return time.perf_counter_ns() - start


ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        "cvm": Engine(_Cvm, ("cvm",), "cvm", 1.0),
        "llama.cpp Q8_0": Engine(_LlamaCpp, ("llama_cpp", "gguf"), "llama-cpp-python gguf", 34 / 32),
        "CTranslate2 int8": Engine(_CTranslate2, ("ctranslate2",), "ctranslate2", 1.0),
        "ONNX Runtime int8": Engine(_OnnxRuntime, ("onnxruntime", "onnx"), "onnxruntime onnx", 1.0),
    }
)
"""All engines by the name that tables show, cvm first."""
