"""Other engines on a GPU, each optional: TensorRT, ONNX Runtime with CUDA, and torch.

Each function opens a network, or the encoder of a transformer, for a batch and returns a call that takes arrays of the
host in and gives arrays of the host back. It raises ImportError if the engine is not installed or does not run such a
network here, and RuntimeError with the engine's words otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from cvm.executors.cuda.device.driver import Driver
from tools.bench.networks import Network
from tools.bench.transformer import Sizes

__all__ = ["PEERS", "Peer", "half_encoder", "product_pairs", "products"]

Peer = Callable[[Network | Sizes, int, Driver], Callable[[], object]]


def tensorrt(network: Network | Sizes, batch: int, device: Driver) -> Callable[[], object]:
    """TensorRT on signed codes without zero points. Its inputs and outputs are float32, in pinned memory."""
    network = _layered(network)
    import tensorrt as trt

    from tools.bench.onnx_models import symmetric_model

    logger = trt.Logger(trt.Logger.ERROR)
    with device.current():
        builder = trt.Builder(logger)
        strongly = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
        made = builder.create_network(0 if strongly is None else 1 << int(strongly))
        parser = trt.OnnxParser(made, logger)
        if not parser.parse(symmetric_model(network, batch).SerializeToString()):
            raise RuntimeError(str(parser.get_error(0)))
        plan = builder.build_serialized_network(made, builder.create_builder_config())
        if plan is None:
            raise RuntimeError("TensorRT made no engine of the network")
        engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
        context = engine.create_execution_context()
    arrays, addresses = {}, {}
    for number in range(engine.num_io_tensors):
        name = engine.get_tensor_name(number)
        shape = tuple(engine.get_tensor_shape(name))
        pinned = device.host(4 * math.prod(shape))
        pinned[:] = 0
        arrays[name] = pinned.view(np.float32).reshape(shape)
        addresses[name] = device.allocate(pinned.size)
        context.set_tensor_address(name, addresses[name])

    def run(_: object = (engine, plan)) -> object:
        device.upload(addresses["given"], arrays["given"])
        with device.current():
            if not context.execute_async_v3(device.stream):
                raise RuntimeError("TensorRT could not start a run")
        device.download(addresses["y"], arrays["y"])  # on the same stream, so behind the run
        return arrays["y"]

    return run


def onnxruntime(network: Network | Sizes, batch: int, device: Driver) -> Callable[[], object]:
    """ONNX Runtime with its CUDA provider, on the form with quantisers between operators of real numbers."""
    network = _layered(network)
    import onnxruntime as runtime

    from tools.bench.onnx_models import onnx_model

    if "CUDAExecutionProvider" not in runtime.get_available_providers():
        raise ImportError("this package of ONNX Runtime has no CUDA provider (onnxruntime-gpu has)")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    providers = [("CUDAExecutionProvider", {"device_id": device.found.index})]
    model = onnx_model(network, "qdq", batch).SerializeToString()
    session = runtime.InferenceSession(model, options, providers=providers)
    if session.get_providers()[0] != "CUDAExecutionProvider":
        raise RuntimeError("ONNX Runtime does not use the GPU")
    inputs = {"x": network.image().repeat(batch, axis=0)}
    return lambda: session.run(None, inputs)


def _layered(network: Network | Sizes) -> Network:
    """A network of layers. Raises ImportError for the encoder of a transformer."""
    if isinstance(network, Sizes):
        raise ImportError("there is no form of this network for this engine")
    return network


def torch(network: Network | Sizes, batch: int, device: Driver) -> Callable[[], object]:
    """The products of all layers alone, as products of matrices of bytes: a bound that no network of torch reaches.

    Depthwise layers, which are no such products, are left out, and windows are not gathered. The products of heads are
    in half precision, since torch has none of bytes in batches. Nothing is copied from or to the host.
    """
    import torch as library

    place = _cuda(library, device)
    pairs = product_pairs(library, network, batch, place)

    def run() -> object:
        results = [multiply(a, b) for multiply, a, b in pairs]
        library.cuda.synchronize(place)
        return results

    return run


def torch_half(network: Network | Sizes, batch: int, device: Driver) -> Callable[[], object]:
    """The encoder of a transformer in half precision, in torch's own layers."""
    if isinstance(network, Network):
        raise ImportError("this engine serves transformers alone")
    import torch as library

    return half_encoder(library, network, batch, _cuda(library, device), library.half)


def _cuda(library: Any, device: Driver) -> Any:
    if not library.cuda.is_available():
        raise ImportError("this package of torch has no CUDA")
    return library.device("cuda", device.found.index)


def product_pairs(
    library: Any, network: Network | Sizes, batch: int, place: Any
) -> list[tuple[Callable[[Any, Any], Any], Any, Any]]:
    """The function and the operands of each product of a network in torch, on a device of torch."""

    def zeros(*shape: int, kind: Any) -> Any:
        return library.zeros(*shape, dtype=kind, device=place)

    if isinstance(network, Network):
        return [
            (library._int_mm, zeros(rows, depth, kind=library.int8), zeros(columns, depth, kind=library.int8).t())
            for rows, depth, columns in products(network, batch)
        ]
    made = []
    for _ in range(network.blocks):
        for count, rows, depth, columns in network.products(batch):
            if rows == batch * network.tokens and count < batch * network.heads:
                a = zeros(rows, depth, kind=library.int8)
                made += [(library._int_mm, a, zeros(columns, depth, kind=library.int8).t()) for _ in range(count)]
            else:
                a, b = (zeros(count, *one, kind=library.half) for one in ((rows, depth), (depth, columns)))
                made.append((library.bmm, a, b))
    return made


def half_encoder(library: Any, sizes: Sizes, batch: int, place: Any, kind: Any) -> Callable[[], object]:
    """A call of torch's encoder of these sizes, in numbers of some kind, on a device of torch."""
    layer = library.nn.TransformerEncoderLayer(
        sizes.width, sizes.heads, 4 * sizes.width, dropout=0.0, activation="gelu", batch_first=True
    )
    made = library.nn.TransformerEncoder(layer, sizes.blocks, enable_nested_tensor=False).to(place, kind).eval()
    given = library.randn(batch, sizes.tokens, sizes.width).to(kind)

    def run() -> object:
        with library.inference_mode():
            return made(given.to(place)).cpu().numpy()

    return run


def products(network: Network, batch: int) -> Iterator[tuple[int, int, int]]:
    """(rows, depth, columns) of the product of matrices that each layer is, rounded up to what `_int_mm` takes."""
    for layer in network.layers:
        if layer.kind in ("conv", "dense") and layer.groups == 1:
            rows = batch * math.prod(layer.shape[1:])
            yield max(32, rows), -(-network.terms(layer) // 8) * 8, -(-layer.shape[0] // 8) * 8


PEERS: Mapping[str, Peer] = MappingProxyType(
    {"tensorrt": tensorrt, "onnxruntime": onnxruntime, "torch": torch, "torch_half": torch_half}
)
"""The other engines by name."""
