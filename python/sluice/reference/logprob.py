"""Stages 2 and 17: log-probabilities and ranks, of the raw or of the processed values.

    logprob = fl32(((double)x - m) / T - ln2 * LOG2_64(Z * 2^-40)), in fp64

    raw_logprobs        the raw x, their maximum and mass, T = 1
    raw_logits          x itself
    processed_logprobs  the adjusted values of the kept set and the T of the draw
    processed_logits    fl(x / T)

A greedy row's processed values are the whole of its adjusted ones, at T = 1. The rank of a token is
the number of tokens with value >= its own, in the values that the mode is computed from; processed
modes count only the tokens that they give a value.
"""

from dataclasses import dataclass

import numpy as np

from .arithmetic import F32
from .cut import Cut, is_kept
from .log2 import log2_64
from .order import by_total_order
from .params import Params
from .row_status import Status, scan_row
from .temperature import effective_temperature, is_greedy, temperature_scale
from .weight import weights

LN2 = float.fromhex("0x1.62e42fefa39efp-1")


@dataclass(frozen=True)
class Logprobs:
    logprob: float  # of the sampled token
    rank: int
    ids: np.ndarray  # the first tokens of the total order that have a value in this mode
    values: np.ndarray


def log_mass(mass: int) -> float:
    """The natural logarithm of Z * 2^-40; a mass of 0 gives NaN."""
    return LN2 * log2_64(float(mass) * 2.0**-40) if mass > 0 else float("nan")


def logprobs_row(
    x: np.ndarray, cut: Cut, params: Params, mode: str, token: int, count: int = 0
) -> Logprobs:
    """x: raw values for raw modes, else adjusted ones. A raw NaN or +inf gives NaN."""
    is_processed = mode.startswith("processed")
    has_temperature = is_processed and not is_greedy(params)
    temperature = effective_temperature(params) if has_temperature else F32(1)
    # The tokens that the mode gives a value: the kept ones, or all that are neither -inf nor NaN.
    listed = is_kept(x, cut) if has_temperature else x > -np.inf

    status, m = scan_row(x)
    mass = 0
    if status == Status.OK:
        scale = temperature_scale(temperature)
        mass = int(weights(x, m, scale)[listed].sum())
    offset = log_mass(mass)

    @np.errstate(invalid="ignore", over="ignore")
    def value(logit: np.float32) -> np.float32:
        if mode == "raw_logits":
            return logit
        if mode == "processed_logits":
            return logit / temperature
        distance = np.float64(logit) - np.float64(m)
        return F32(distance / np.float64(temperature) - offset)

    is_ranked = x >= x[token]
    if is_processed:
        is_ranked &= listed
    (ids,) = np.nonzero(listed)
    ids = ids[by_total_order(x[ids])][:count]
    values = np.array([value(x[i]) for i in ids], dtype=F32)
    return Logprobs(float(value(x[token])), int(np.count_nonzero(is_ranked)), ids, values)
