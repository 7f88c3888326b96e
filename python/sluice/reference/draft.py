"""Verifying draft tokens against the target.

Probabilities are integers in units of 2^-40: P = (W * floor(2^103 / Z)) >> 63 of the kept tokens, 0
of dropped ones and throughout a set of mass 0. Q is the same of a draft model's own Cut, or
floor(q * 2^40) of given fp32 probabilities, or 2^40 on the draft token when nothing is known.

    match    accept iff the draft is the token that the ordinary draw gives, so that the output with
             and without drafts is identical
    reject   accept iff Q > 0 and P * 2^32 >= (U + 1) * Q, U the acceptance stream's 32-bit word;
             otherwise the token is a cdf draw from max(P - Q, 0) in id order, recovered stream, or
             the first kept one in the total order when that is empty. The law is the target's.

Several drafts after one node of a tree are tried in order: when one is rejected, and max(P - Q, 0)
is not empty, that against its own sum is the P of the next one. The n-th try has the n-th U.

A greedy row accepts its argmax, whatever Q.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .arithmetic import fixed40
from .cut import Cut
from .draw import draw_by_mass, first_kept, kept_weights
from .noise import ACCEPTANCE, RECOVERED, uniform32
from .params import NoiseKey, Params
from .row_status import Status, scan_row
from .temperature import draw_scale, is_greedy
from .validate import MAX_TEMPERATURE, selects_validly
from .weight import FULL_WEIGHT


class Verdict(NamedTuple):
    accepted: int  # which of the drafts; -1: none
    id: int  # that draft, or the token in place of all of them
    status: Status


@dataclass(frozen=True)
class DraftModel:
    """What a draft was drawn from: a Sluice draft model's row, its parameters and its Cut."""

    x: np.ndarray  # widened
    cut: Cut
    params: Params
    max_temperature: float = MAX_TEMPERATURE


def probabilities40(weights: np.ndarray) -> np.ndarray:
    """P of each token, from the weights of the kept ones."""
    mass = int(weights.sum())
    if mass == 0:
        return np.zeros(len(weights), np.int64)
    reciprocal = (1 << 103) // mass
    return np.array([int(w) * reciprocal >> 63 for w in weights], dtype=np.int64)


def accepts(p: int, q: int, u: int) -> bool:
    return q > 0 and p << 32 >= (u + 1) * q


def source_probabilities(
    source: np.ndarray | DraftModel | None, draft: int, vocab: int
) -> tuple[Status, np.ndarray]:
    """Q of each token, or why there is none."""
    q = np.zeros(vocab, np.int64)
    if source is None:
        q[draft] = FULL_WEIGHT
    elif isinstance(source, DraftModel):
        status, m = scan_row(source.x)
        if not selects_validly(source.params, NoiseKey(), source.max_temperature):
            status = Status.BAD_PARAM
        status = max(status, source.cut.status)
        if status != Status.OK:
            return status, q
        q = probabilities40(kept_weights(source.x, source.cut, m, draw_scale(source.params)))
    else:
        if not ((source >= 0) & (source <= 1)).all():
            return Status.BAD_PARAM, q
        q = np.array([fixed40(share) for share in source], dtype=np.int64)
    return Status.OK, q


# A draft, and what it was drawn from.
Try = tuple[int, np.ndarray | DraftModel | None]


def verify_row(
    x: np.ndarray, cut: Cut, params: Params, key: NoiseKey, tries: Sequence[Try]
) -> Verdict:
    """Drafts by the mode `reject`. cut: that of the target's row, without a status."""
    if is_greedy(params):
        best = first_kept(x, cut)
        drafts = [draft for draft, _ in tries]
        return Verdict(drafts.index(best) if best in drafts else -1, best, Status.OK)

    p = probabilities40(kept_weights(x, cut, scan_row(x)[1], draw_scale(params)))
    for n, (draft, source) in enumerate(tries):
        status, q = source_probabilities(source, draft, len(x))
        if status != Status.OK:
            return Verdict(-1, -1, status)
        if accepts(int(p[draft]), int(q[draft]), uniform32(key, ACCEPTANCE, n)):
            return Verdict(n, draft, Status.OK)
        rest = np.maximum(p - q, 0).astype(np.uint64)
        p = probabilities40(rest)
        if not rest.any():
            break
    recovered = draw_by_mass(rest, key, RECOVERED)
    return Verdict(-1, recovered if recovered >= 0 else first_kept(x, cut), Status.OK)
