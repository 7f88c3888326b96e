"""Reads and writes .safetensors files (https://github.com/huggingface/safetensors): 8 bytes with
the length of a JSON header, the header, then the tensors' bytes without gaps. Needs only NumPy.
"""

import json
from pathlib import Path

import numpy as np

DTYPES = {"I8": np.dtype("int8"), "F32": np.dtype("<f4")}  # all that this model uses
NAMES = {dtype: name for name, dtype in DTYPES.items()}

ALIGNMENT = 64  # where the data begins; with whole rows in it, a mapped matrix starts a cache line


def write_tensors(path: Path, tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """The tensors lie in the file in the order they have in the dictionary."""
    header, offset = {"__metadata__": metadata}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + tensor.nbytes]}
        offset += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor).tobytes())


def read_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Tensors and metadata."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        flat = np.frombuffer(content[start + begin:start + end], dtype=DTYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors, metadata
