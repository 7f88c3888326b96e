"""Logits arrive as fp32, fp16 or bf16 and are widened to fp32 first. Widening is exact.

numpy has no bf16: an array of uint16 holds the bit patterns of bf16 values, and so does an array
with a dtype that some package calls "bfloat16".
"""

import numpy as np


def widen(logits: np.ndarray) -> np.ndarray:
    logits = np.asarray(logits)
    if logits.dtype == np.float32:
        return logits
    if logits.dtype == np.float16:
        return logits.astype(np.float32)
    if logits.dtype == np.uint16 or logits.dtype.name == "bfloat16":
        return (logits.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    raise TypeError(f"logits are {logits.dtype}: float32, float16 or uint16 (bf16 bits) is allowed")


def masked_value(dtype: np.dtype) -> np.generic:
    """-inf as an element of an array of logits."""
    if dtype == np.uint16:
        return np.uint16(0xFF80)
    return dtype.type(-np.inf)
