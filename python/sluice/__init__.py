"""Sluice: the last mile of language-model decoding, from logits to tokens.

Exact top-k / top-p / min-p selection, draws that can be replayed, log-probabilities, penalties,
draft verification. Arrays of numpy and tensors of anything with ``__dlpack__`` go in without a copy;
numpy arrays come out. The same logits, parameters, seed and position give the same token, bit for
bit, on every backend and in any batch.

    >>> logits = np.array([[1.5, 0.25, 3.0, 2.75]], np.float32)
    >>> sluice.sample(logits, temperature=0.8, top_k=2, seed=42).ids
    array([2], dtype=int32)
"""

from sluice import _sluice
from sluice._sluice import (
    Candidates,
    Cuts,
    SamplingParams,
    Status,
    Threads,
    TokenResults,
    TopkResults,
    algorithms,
    backends,
    candidates,
    dense_head,
    kept_bitmask,
    logprobs,
    mask_,
    parameters,
    sample,
    select,
    topk,
    verify,
)
from sluice.errors import ArgumentTypeError, Error, ExhaustedError, UnavailableError

__version__: str = _sluice.build["version"]
