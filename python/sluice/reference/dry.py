"""Stage 8, DRY ("don't repeat yourself"): a token that would extend a repeat of length len >=
allowed_length gets x - mult * base^(len - allowed_length).

A repeat is a run of last tokens that also stands earlier; it does not reach across a breaker, nor
beyond the `range` tokens that are looked at. A token that would extend several counts the longest.
The power is a repeated fp64 product, capped at 1e30; the penalty is rounded once to fp32.
"""

import numpy as np

from .arithmetic import F32
from .params import Params


def dry_penalty(params: Params, length: int) -> np.float32:
    power = 1.0
    for _ in range(length - params.dry_allowed_length):
        power *= params.dry_base
        if power >= 1e30 or power == 1:  # it stays there
            break
    return F32(params.dry_multiplier * min(power, 1e30))


def repeats(tokens: list[int], breakers: set[int]) -> dict[int, int]:
    """For each token that would extend a repeat, the length of the longest one."""
    n = len(tokens)
    longest = 0  # a repeat ends where the last tokens have a breaker
    while longest < n and tokens[n - 1 - longest] not in breakers:
        longest += 1

    found: dict[int, int] = {}
    for end in range(1, n):  # the run that ends before `end` against the last tokens
        length = 0
        while length < min(end, longest) and tokens[end - 1 - length] == tokens[n - 1 - length]:
            length += 1
        follower = tokens[end]
        found[follower] = max(found.get(follower, 0), length)
    return found


@np.errstate(over="ignore", invalid="ignore")
def apply_dry(x: np.ndarray, params: Params, tokens: list[int]) -> None:
    """tokens: prompt and output."""
    if params.dry_multiplier == 0:
        return
    if params.dry_range >= 0:
        tokens = tokens[max(0, len(tokens) - params.dry_range) :]
    for token, length in repeats(tokens, set(params.dry_sequence_breakers)).items():
        if length >= params.dry_allowed_length:
            x[token] = x[token] - dry_penalty(params, length)
