"""The LeNet of `cvm.demo` in Q7.8 through the OpenVX neural-network extension: ``python -m cvm.demo.openvx_digits``.

The network was trained in floats on 8 x 8 images of digits. Its batch normalisations are folded into the convolutions
before them, every weight and bias becomes the nearest multiple of 1/256, and the graph is built layer by layer with
`cvm.openvx`: convolutions, relu, pooling, fully connected layers and softmax, all in VX_TYPE_INT16 with fixed-point
position 8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cvm import openvx as vx
from cvm.demo import IMAGES, MODEL
from cvm.records import dataclass

__all__ = ["Network", "build", "main", "parameters"]

Floats = npt.NDArray[np.float64]

_FORMAT = vx.TYPE_INT16, 8
_POLICIES = vx.CONVERT_POLICY_SATURATE, vx.ROUND_POLICY_TO_NEAREST_EVEN
_EPSILON = 1e-5


def parameters() -> dict[str, Floats]:
    """Weights and biases of the four layers in floats, batch normalisations folded into the convolutions."""
    from cvm.frontends import nnef

    graph = nnef.load(MODEL, quant=False)
    stored = {
        tensor.label: tensor.data.values.astype(np.float64)
        for tensor in graph.tensors.values()
        if tensor.label is not None and tensor.data is not None
    }
    found: dict[str, Floats] = {}
    for number in (1, 2):
        mean, variance, offset, scale = (stored[f"bn{number}/{what}"] for what in ("mean", "var", "offset", "scale"))
        factor = scale / np.sqrt(variance + _EPSILON)
        filters = stored[f"conv{number}/filter"]
        found[f"conv{number}.weights"] = filters * factor.reshape(-1, 1, 1, 1)
        found[f"conv{number}.biases"] = ((stored[f"conv{number}/bias"] - mean) * factor + offset).ravel()
        found[f"fc{number}.weights"] = stored[f"fc{number}/filter"]
        found[f"fc{number}.biases"] = stored[f"fc{number}/bias"].ravel()
    return found


@dataclass(frozen=True, eq=False)
class Network:
    """A verified graph: images [8, 8, 1, batch] in, probabilities [10, batch] out."""

    graph: vx.Graph
    images: vx.Tensor
    probabilities: vx.Tensor

    def run(self, images: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Probabilities of real images (batch, 1, 8, 8), as raw integers (batch, 10): 256 stands for 1."""
        self.images.from_float(images)
        self.graph.process()
        return self.probabilities.numpy()


def build(context: vx.Context, batch: int) -> Network:
    """The network for so many images at once, built and verified."""
    graph = vx.create_graph(context)
    static = {
        name: vx.create_tensor(context, values.shape[::-1], *_FORMAT, name=name).from_float(values)
        for name, values in parameters().items()
    }

    def virtual(*dims: int) -> vx.Tensor:
        return vx.create_virtual_tensor(graph, [*dims, batch], *_FORMAT)

    images = vx.create_tensor(context, [8, 8, 1, batch], *_FORMAT, name="images")
    params = vx.NNConvolutionParams(
        padding_x=1, padding_y=1, overflow_policy=_POLICIES[0], rounding_policy=_POLICIES[1]
    )
    inputs, size = images, 8
    for number, maps in ((1, 16), (2, 32)):
        weights, biases = static[f"conv{number}.weights"], static[f"conv{number}.biases"]
        sums, rectified = virtual(size, size, maps), virtual(size, size, maps)
        vx.convolution_layer(graph, inputs, weights, biases, params, sums, name=f"conv{number}")
        vx.activation_layer(graph, sums, vx.NN_ACTIVATION_RELU, 0, 0, rectified, name=f"relu{number}")
        size //= 2
        pooled = virtual(size, size, maps)
        vx.pooling_layer(
            graph, rectified, vx.NN_POOLING_MAX, 2, 2, 0, 0, vx.NN_DS_SIZE_ROUNDING_FLOOR, pooled, name=f"pool{number}"
        )
        inputs = pooled
    hidden, rectified, logits = virtual(64), virtual(64), virtual(10)
    vx.fully_connected_layer(graph, inputs, static["fc1.weights"], static["fc1.biases"], *_POLICIES, hidden, name="fc1")
    vx.activation_layer(graph, hidden, vx.NN_ACTIVATION_RELU, 0, 0, rectified, name="relu3")
    vx.fully_connected_layer(
        graph, rectified, static["fc2.weights"], static["fc2.biases"], *_POLICIES, logits, name="fc2"
    )
    probabilities = vx.create_tensor(context, [10, batch], *_FORMAT, name="probabilities")
    vx.softmax_layer(graph, logits, probabilities, name="softmax")
    return Network(graph.verify(), images, probabilities)


def main() -> int:
    """Run the network on the test images of `cvm.demo`, and print how many labels are right."""
    with np.load(IMAGES) as data:
        images, labels = data["image"], data["label"]
    with vx.create_context() as context:
        network = build(context, len(images))
        classes = network.run(images).argmax(axis=1)
        program = network.graph.program
        print(f"{int((classes == labels).sum())} of {len(labels)} test images right")
        print(f"{len(program.nodes)} nodes, digest {program.digest}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
