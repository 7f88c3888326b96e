"""Stage 7, in this order, each with its own rounding:

    repetition r, tokens of prompt or output:  x > 0 ? x / r : x * r
    frequency f, output tokens:                x - fl(f * count)
    presence q, output tokens:                 x - q if count > 0

Profiles that count the prompt use its counts for the last two as well.
"""

import numpy as np

from .arithmetic import F32
from .params import Params


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def apply_penalties(x: np.ndarray, params: Params, prompt: list[int], output: list[int]) -> None:
    seen = np.unique(np.array(prompt + output, dtype=np.int64))
    r = F32(params.repetition_penalty)
    if r != 1:
        old = x[seen]
        x[seen] = np.where(old > 0, old / r, old * r)

    counts_prompt = params.profile.penalty_scope == "prompt_and_output"
    counted = np.array(prompt + output if counts_prompt else output, dtype=np.int64)
    ids, counts = np.unique(counted, return_counts=True)
    by_frequency = F32(params.frequency_penalty) * counts.astype(F32)
    x[ids] = x[ids] - by_frequency
    x[ids] = x[ids] - F32(params.presence_penalty)
