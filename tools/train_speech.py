"""Train a small convolutional network on features of speech, and write it as a float model of ONNX with its data.

    python tools/train_speech.py JapaneseVowels_TRAIN.ts JapaneseVowels_TEST.ts -o FOLDER

The data set is Japanese Vowels of the UCI archive (Kudo, Toyama and Shimbo, 1999), in the files of the time series
archive: 270 and 370 utterances of 9 speakers, 7 to 29 frames of 12 coefficients of linear prediction each. FOLDER gets
``speech.onnx``, whose input ``frames`` has the shape (1, 12, 32), with zeros after the last frame, and ``speech.npz``
with the utterances and speakers of both parts. `tools/measure_speech.py` says what 8 bits cost. Needs PyTorch and onnx.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

FRAMES, COEFFICIENTS, SPEAKERS = 32, 12, 9


def utterances(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The utterances (N, 12, 32) of a file, with zeros after the last frame, and the numbers of their speakers."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line.split(":") for line in lines[lines.index("@data") + 1 :] if line]
    found = np.zeros((len(rows), COEFFICIENTS, FRAMES), np.float32)
    for row, (*series, _) in zip(found, rows, strict=True):
        for coefficient, text in zip(row, series, strict=True):
            numbers = np.array(text.split(","), np.float32)
            coefficient[: len(numbers)] = numbers
    return found, np.array([int(row[-1]) - 1 for row in rows])


def network() -> nn.Sequential:
    """Two convolutions, the mean over time, and a linear layer."""
    return nn.Sequential(
        nn.Conv1d(COEFFICIENTS, 32, 5, padding=2),
        nn.ReLU(),
        nn.Conv1d(32, 48, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(48, SPEAKERS),
    )


def trained(frames: np.ndarray, speakers: np.ndarray, steps: int) -> nn.Sequential:
    """The network after ``steps`` steps of 32 utterances, with noise of 0.02 against overfitting."""
    torch.manual_seed(7)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    x, y = torch.from_numpy(frames), torch.from_numpy(speakers)
    for _ in range(steps):
        chosen = torch.randint(len(x), (32,))
        loss = nn.functional.cross_entropy(model(x[chosen] + 0.02 * torch.randn_like(x[chosen])), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def onnx_of(model: nn.Sequential) -> onnx.ModelProto:
    """The network in operators of ONNX, one utterance at a time."""
    first, second, last = (model[index] for index in (0, 2, 6))
    weights = {
        f"{name}.{kind}": getattr(layer, kind).detach().numpy()
        for name, layer in (("first", first), ("second", second), ("last", last))
        for kind in ("weight", "bias")
    }
    nodes = [
        helper.make_node("Conv", ["frames", "first.weight", "first.bias"], ["c1"], pads=[2, 2]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "second.weight", "second.bias"], ["c2"], pads=[2, 2], strides=[2]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("GlobalAveragePool", ["r2"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Gemm", ["flat", "last.weight", "last.bias"], ["logits"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "speech",
        [helper.make_tensor_value_info("frames", TensorProto.FLOAT, [1, COEFFICIENTS, FRAMES])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, SPEAKERS])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1500)
    given = parser.parse_args()
    torch.set_num_threads(1)
    (frames, speakers), (others, answers) = utterances(given.train), utterances(given.test)
    model = trained(frames, speakers, given.steps)
    with torch.no_grad():
        right = (model(torch.from_numpy(others)).argmax(1).numpy() == answers).mean()
    print(f"{len(frames)} utterances, {len(others)} others: {100 * right:.2f} % right")
    given.output.mkdir(exist_ok=True)
    onnx.save(onnx_of(model), given.output / "speech.onnx")
    parts = {"train": frames, "train_speakers": speakers, "test": others, "test_speakers": answers}
    np.savez_compressed(given.output / "speech.npz", **parts)


if __name__ == "__main__":
    main()
