"""Stages 3 to 9 for one row, in their order, on a copy of its values in fp32.

    3 grammar bitmask, allowed ids    4 bad words    5 min-tokens    6 bias
    7 repetition, frequency, presence    8 DRY, then user processors    9 forced token

A processor is a function (tokens, prompt_length, values) that changes the values in place. One that
says of itself `argmax_invariant = True` cannot move the argmax, so greedy rows skip it.
"""

from collections.abc import Callable, Sequence

import numpy as np

from .bad_words import apply_bad_words
from .bias import apply_bias
from .dry import apply_dry
from .forced import apply_forced
from .mask import apply_allowed_ids, apply_bitmask, apply_min_tokens
from .params import Params
from .penalties import apply_penalties
from .temperature import is_greedy

Processor = Callable[[list[int], int, np.ndarray], None]


def adjust_row(
    x: np.ndarray,
    params: Params,
    tokens: Sequence[int],
    prompt_length: int,
    bitmask: np.ndarray | None = None,
    processors: Sequence[Processor] = (),
    forced: int = -1,
) -> np.ndarray:
    """tokens: prompt and output."""
    x = x.copy()
    tokens = list(tokens)
    prompt, output = tokens[:prompt_length], tokens[prompt_length:]
    if bitmask is not None:
        apply_bitmask(x, bitmask)
    if params.allowed_token_ids is not None:
        apply_allowed_ids(x, params.allowed_token_ids)
    apply_bad_words(x, params.bad_words, output)
    apply_min_tokens(x, params.stop_token_ids, params.min_tokens, len(output))
    apply_bias(x, params.logit_bias)
    apply_penalties(x, params, prompt, output)
    apply_dry(x, params, tokens)
    for processor in processors:
        if getattr(processor, "argmax_invariant", False) and is_greedy(params):
            continue
        processor(tokens, prompt_length, x)
    if forced >= 0:
        apply_forced(x, forced)
    return x
