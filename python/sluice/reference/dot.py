"""The dense head: logit[v] = <weight[v], hidden> + bias[v].

Products of the widened values in fp32: of 128 lanes, lane j takes elements j, j + 128, ... by fma
in order; then a halving tree 64, 32, ... 1; then the bias. The same bits on every backend, for any
batch and any subset of rows.
"""

import numpy as np

from .arithmetic import F32, fma32

LANES = 128


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def dot(weight: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """weight: [vocab, dim]; hidden: [dim]. Both widened."""
    vocab, dim = weight.shape
    lanes = np.zeros((vocab, LANES), dtype=F32)
    for start in range(0, dim, LANES):
        end = min(start + LANES, dim)
        own = lanes[:, : end - start]  # the last lanes may have no element left
        own[:] = fma32(weight[:, start:end], hidden[start:end], own)
    half = LANES // 2
    while half > 0:
        lanes = lanes[:, :half] + lanes[:, half : 2 * half]
        half //= 2
    return lanes[:, 0]
