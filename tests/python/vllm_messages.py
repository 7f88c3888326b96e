"""vLLM's own classes and encoder of messages, from its wheel or where it is installed.

Needs msgspec, pyzmq, numpy, pydantic and cloudpickle, as these files do; torch where it is there,
else a stand-in with the four properties of a tensor that the encoder looks at.
"""

import logging
import sys
import types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import numpy as np  # noqa: E402
import peers  # noqa: E402

VERSION = "0.33.0"
ENGINE, PARAMS, SERIAL = "vllm.v1.engine", "vllm.sampling_params", "vllm.v1.serial_utils"
ADDRESSES, CORE = "vllm.v1.engine.utils", "vllm.v1.engine.core"
REAL = (ENGINE, PARAMS, SERIAL, ADDRESSES, CORE, "vllm.v1.outputs", "vllm.outputs",
        "vllm.v1.metrics.stats")
ENVIRONMENT = types.SimpleNamespace(
    VLLM_MSGPACK_ZERO_COPY_THRESHOLD=256, VLLM_ALLOW_INSECURE_SERIALIZATION=False,
    VLLM_MAX_N_SEQUENCES=16384, VLLM_BATCH_INVARIANT=False, VLLM_ELASTIC_EP_SCALE_UP_LAUNCH=False)


class TensorLike:
    """Of torch.Tensor what the encoder asks for."""

    is_cpu = True

    def __init__(self, array):
        self.array = np.ascontiguousarray(array)
        self.dtype, self.shape, self.nbytes = f"torch.{array.dtype}", array.shape, array.nbytes


try:
    import torch
except ImportError:
    torch = types.ModuleType("torch")
    torch.Tensor, torch.dtype = TensorLike, type(None)
    torch.from_numpy = TensorLike
    for name in ("float32", "int32", "device", "Size", "Stream", "cuda", "inference_mode"):
        setattr(torch, name, type(name, (), {}))
    sys.modules["torch"] = torch


def tensor_data(tensor):
    array = tensor.array if isinstance(tensor, TensorLike) else tensor.numpy()
    return memoryview(array.reshape(-1).view(np.uint8))


def sources(version=VERSION):
    """Those of the version that the frontend speaks; none: it is not there."""
    return next((its for its in peers.sources_of("vllm") if its.version == version), None)


class Messages:
    """`with Messages(sources) as vllm`: its classes as attributes."""

    def __init__(self, files):
        given = {"vllm": {"__version__": files.version, "envs": ENVIRONMENT},
                 "vllm.envs": vars(ENVIRONMENT),
                 "vllm.exceptions": {"VLLMValidationError": ValueError},
                 "vllm.logger": {"init_logger": logging.getLogger},
                 "vllm.utils.torch_utils": {"PIN_MEMORY": False},
                 "vllm.v1.utils": {"tensor_data": tensor_data}}
        self.engine = peers.Engine(files, REAL, given)
        self.version = files.version

    def __enter__(self):
        self.engine.__enter__()
        for name in REAL:
            module = __import__(name, fromlist=["_"])
            for key, value in vars(module).items():
                if getattr(value, "__module__", None) == name:
                    setattr(self, key, value)
        return self

    def __exit__(self, *error):
        self.engine.__exit__(*error)
