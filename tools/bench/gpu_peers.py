"""Other engines on a GPU, each optional: TensorRT, ONNX Runtime with CUDA, and products of bytes by torch.

Each function opens a network for a batch and returns a call that takes arrays of the host in and gives arrays of the
host back. It raises ImportError if the engine is not installed, and RuntimeError with the engine's words otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import numpy as np

from cvm.executors.cuda.device.driver import Driver
from tools.bench.networks import Network

__all__ = ["PEERS", "Peer", "products"]

Peer = Callable[[Network, int, Driver], Callable[[], object]]


def tensorrt(network: Network, batch: int, device: Driver) -> Callable[[], object]:
    """TensorRT on signed codes without zero points. Its inputs and outputs are float32."""
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
        arrays[name] = np.zeros(tuple(engine.get_tensor_shape(name)), np.float32)
        addresses[name] = device.allocate(arrays[name].nbytes)
        context.set_tensor_address(name, addresses[name])

    def run(_: object = (engine, plan)) -> object:
        device.upload(addresses["given"], arrays["given"])
        with device.current():
            if not context.execute_async_v3(device.stream):
                raise RuntimeError("TensorRT could not start a run")
        device.download(addresses["y"], arrays["y"])  # on the same stream, so behind the run
        return arrays["y"]

    return run


def onnxruntime(network: Network, batch: int, device: Driver) -> Callable[[], object]:
    """ONNX Runtime with its CUDA provider, on the form with quantisers between operators of real numbers."""
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


def torch(network: Network, batch: int, device: Driver) -> Callable[[], object]:
    """The products of all layers alone, as products of matrices of bytes: a bound that no network of torch reaches.

    Depthwise layers, which are no such products, are left out, and windows are not gathered.
    """
    import torch as library

    if not library.cuda.is_available():
        raise ImportError("this package of torch has no CUDA")
    place = library.device("cuda", device.found.index)
    pairs = [
        (library.zeros(rows, depth, dtype=library.int8, device=place),
         library.zeros(columns, depth, dtype=library.int8, device=place).t())
        for rows, depth, columns in products(network, batch)
    ]  # fmt: skip

    def run() -> object:
        results = [library._int_mm(a, b) for a, b in pairs]
        library.cuda.synchronize(place)
        return results

    return run


def products(network: Network, batch: int) -> Iterator[tuple[int, int, int]]:
    """(rows, depth, columns) of the product of matrices that each layer is, rounded up to what `_int_mm` takes."""
    for layer in network.layers:
        if layer.kind in ("conv", "dense") and layer.groups == 1:
            rows = batch * math.prod(layer.shape[1:])
            yield max(32, rows), -(-network.terms(layer) // 8) * 8, -(-layer.shape[0] // 8) * 8


PEERS: Mapping[str, Peer] = MappingProxyType({"tensorrt": tensorrt, "onnxruntime": onnxruntime, "torch": torch})
"""The other engines by name."""
