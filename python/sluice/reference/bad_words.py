"""Stage 4: a word of n tokens is blocked by masking its last token whenever the last n - 1 output
tokens equal its first n - 1. The prompt is never matched.
"""

import numpy as np


def apply_bad_words(x: np.ndarray, words: list[list[int]], output: list[int]) -> None:
    for word in words:
        prefix = list(word[:-1])
        if len(prefix) <= len(output) and output[len(output) - len(prefix) :] == prefix:
            x[word[-1]] = np.float32(-np.inf)
