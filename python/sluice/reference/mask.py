"""Stages 3 and 5: tokens that must not be drawn become -inf, in place:

    bitmask      one bit a token, int32 words, bit i of word w is token 32 w + i; 0 masks it
    allowed ids  every other token is masked
    min-tokens   while fewer than min_tokens were generated, every stop token is masked

There is at least one allowed id; they may repeat and come in any order.
"""

import numpy as np

MASKED = np.float32(-np.inf)


def apply_bitmask(x: np.ndarray, bitmask: np.ndarray) -> None:
    words = np.ascontiguousarray(bitmask, dtype="<i4")
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    x[bits[: len(x)] == 0] = MASKED


def apply_allowed_ids(x: np.ndarray, allowed: list[int]) -> None:
    is_masked = np.ones(len(x), dtype=bool)
    is_masked[list(allowed)] = False
    x[is_masked] = MASKED


def apply_min_tokens(x: np.ndarray, stop_ids: list[int], min_tokens: int, generated: int) -> None:
    if generated < min_tokens:
        x[list(stop_ids)] = MASKED
