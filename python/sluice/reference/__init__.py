"""The semantics of Sluice in numpy: what every backend gives, bit for bit, in code to be read.

One rule a file, named as in src/semantics; each opens with the rule in words. Start with select.py.

    import numpy as np
    from sluice import reference

    logits = np.array([1.0, 3.0, 2.5, -1.0], np.float32)
    reference.select(logits, top_k=3, top_p=0.9).ids             # kept tokens, most likely first
    reference.sample(logits, top_p=0.9, seed=7, position=12).id  # one result on any machine

Logits are float32, float16, or uint16 with the bits of bf16. A row is an array of one axis and
gives one result; a matrix gives a list of them, and then `params` may be a list, too. Parameters
are keyword arguments with the names of params.def, changes to `params` where both are given.

A reference is for reading and comparing: it is exact and slow.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .adjust import Processor, adjust_row
from .candidates import Candidates, candidates_of
from .cut import Cut, CutMass, is_kept, kept_bitmask, mask
from .dot import dot
from .draft import DraftModel, Verdict
from .draw import draw_token, first_kept
from .interval import Interval
from .logprob import Logprobs, logprobs_row
from .params import MAX_FLOAT, PROFILES, NoiseKey, Params, Profile, params_from
from .request import Report, Request, Token, sample_row, verified_row
from .row_status import Status
from .select import Selection, select_row
from .shards import shard_cut, whole_row
from .temperature import is_greedy
from .topk_scores import topk_row, visible_length
from .validate import MAX_TEMPERATURE, check_request
from .widen import widen

__all__ = [
    "Candidates",
    "Cut",
    "CutMass",
    "DraftModel",
    "Interval",
    "Logprobs",
    "MAX_TEMPERATURE",
    "NoiseKey",
    "PROFILES",
    "Params",
    "Processor",
    "Profile",
    "Report",
    "Request",
    "Selection",
    "Status",
    "Token",
    "Verdict",
    "adjust",
    "candidates",
    "check_request",
    "dense_head",
    "draw",
    "is_kept",
    "kept_bitmask",
    "logprobs",
    "mask",
    "sample",
    "select",
    "shard_cut",
    "topk",
    "verify",
    "whole_row",
]


# A Cut for modes that look at none.
EVERYTHING = Cut(lower=-MAX_FLOAT, ties_kept=2**31 - 1)


def _rows(function, logits: np.ndarray, **per_row):
    """function(x, ...) of one row, or a list of its results for the rows of a matrix. A list among
    the other arguments has one element a row."""
    logits = np.asarray(logits)
    if logits.ndim == 1:
        return function(widen(logits), **per_row)

    def of_row(r: int) -> dict[str, Any]:
        return {name: v[r] if isinstance(v, list) else v for name, v in per_row.items()}

    return [function(widen(row), **of_row(r)) for r, row in enumerate(logits)]


def _params(params, changes: dict[str, Any]):
    if isinstance(params, list):
        return [params_from(p, changes) for p in params]
    return params_from(params, changes)


def _key(key, params, position: int, choice: int):
    """The given key, or the one of the parameter `seed`."""
    if key is not None:
        return key
    if isinstance(params, list):
        return [NoiseKey(p.seed or 0, position, choice) for p in params]
    return NoiseKey(params.seed or 0, position, choice)


def select(
    logits: np.ndarray,
    params: Params | list[Params] | None = None,
    *,
    key: NoiseKey | list[NoiseKey] | None = None,
    position: int = 0,
    choice: int = 0,
    max_temperature: float = MAX_TEMPERATURE,
    **changes,
) -> Selection | list[Selection]:
    """Stages 10 to 15: the kept set as a Cut, its masses, its ids by rank, what each rule left.
    Only XTC reads the key."""
    params = _params(params, changes)
    key = _key(key, params, position, choice)
    return _rows(select_row, logits, params=params, key=key, max_temperature=max_temperature)


def sample(
    logits: np.ndarray,
    params: Params | list[Params] | None = None,
    *,
    key: NoiseKey | list[NoiseKey] | None = None,
    position: int = 0,
    choice: int = 0,
    max_temperature: float = MAX_TEMPERATURE,
    **changes,
) -> Token | list[Token]:
    """Stages 10 to 16: selection and draw."""
    params = _params(params, changes)
    key = _key(key, params, position, choice)
    return _rows(sample_row, logits, params=params, key=key, max_temperature=max_temperature)


def draw(
    logits: np.ndarray,
    cut: Cut | list[Cut],
    params: Params | list[Params] | None = None,
    *,
    key: NoiseKey | list[NoiseKey] | None = None,
    position: int = 0,
    choice: int = 0,
    **changes,
) -> int | list[int]:
    """Stage 16: the id of one token from a Cut; -1 when that has a status."""
    params = _params(params, changes)

    def of_row(x: np.ndarray, cut: Cut, params: Params, key: NoiseKey) -> int:
        if cut.status != Status.OK:
            return -1
        return first_kept(x, cut) if is_greedy(params) else draw_token(x, cut, params, key)

    key = _key(key, params, position, choice)
    return _rows(of_row, logits, cut=cut, params=params, key=key)


def candidates(
    logits: np.ndarray,
    cut: Cut | list[Cut],
    params: Params | list[Params] | None = None,
    *,
    by_rank: bool = False,
    **changes,
) -> Candidates | list[Candidates]:
    """The kept tokens of a row with their values and weights, ascending by id or by rank."""
    params = _params(params, changes)
    return _rows(candidates_of, logits, cut=cut, params=params, by_rank=by_rank)


def logprobs(
    logits: np.ndarray,
    token: int | list[int],
    cut: Cut | list[Cut] = EVERYTHING,
    params: Params | list[Params] | None = None,
    *,
    mode: str | None = None,
    count: int = 0,
    **changes,
) -> Logprobs | list[Logprobs]:
    """Log-probability and rank of a token, and those of the `count` first ones of the total order.
    Raw modes take the raw logits and need no Cut; processed modes take the adjusted ones."""
    params = _params(params, changes)
    if mode is None:
        mode = (params[0] if isinstance(params, list) else params).logprob_mode
    return _rows(logprobs_row, logits, cut=cut, params=params, mode=mode, token=token, count=count)


def adjust(
    logits: np.ndarray,
    params: Params | None = None,
    *,
    tokens: Sequence[int] = (),
    prompt_length: int = 0,
    bitmask: np.ndarray | None = None,
    processors: Sequence[Processor] = (),
    forced: int = -1,
    **changes,
) -> np.ndarray:
    """Stages 3 to 9 of one row: a new row in fp32. tokens: prompt and output."""
    params = params_from(params, changes)
    x = widen(logits)
    return adjust_row(x, params, tokens, prompt_length, bitmask, processors, forced)


def verify(
    logits: np.ndarray,
    drafts: Sequence[int],
    params: Params | None = None,
    *,
    keys: Sequence[NoiseKey] | None = None,
    sources: Sequence[np.ndarray | DraftModel] | None = None,
    position: int = 0,
    choice: int = 0,
    max_temperature: float = MAX_TEMPERATURE,
    **changes,
) -> list[Token]:
    """The tokens of a request with n drafts from n + 1 adjusted rows: the accepted drafts, then one
    recovered or bonus token. Later rows have id -1; a row with a status ends the walk.

    sources: what each draft was drawn from, for draft_mode "reject": fp32 probabilities or a
    DraftModel. keys: one a row; without them the rows have ascending positions."""
    params = params_from(params, changes)
    tokens: list[Token] = []
    goes_on = True
    for j, row in enumerate(logits):
        source = sources[j] if sources is not None and j < len(drafts) else None
        tries = [(drafts[j], source)] if j < len(drafts) else []
        key = keys[j] if keys is not None else _key(None, params, position + j, choice)
        if not goes_on:
            tokens.append(Token())
            continue
        token, which = verified_row(widen(row), params, key, tries, max_temperature)
        goes_on = which >= 0
        tokens.append(token)
    return tokens


def topk(
    scores: np.ndarray,
    k: int,
    *,
    lengths: Sequence[int] | None = None,
    next_n: int = 1,
    sorted: bool = False,
    hint: np.ndarray | None = None,
    hint_shift: int = 0,
) -> tuple[np.ndarray, np.ndarray, list[Status]]:
    """The k largest scores of each row of a matrix: (indices[rows, k], values[rows, k], statuses).

    lengths: one a request of next_n rows. A hint changes the time, never the answer: here it is not
    even read."""
    rows = []
    for r, row in enumerate(np.asarray(scores)):
        visible = len(row)
        if lengths is not None:
            visible = visible_length(int(lengths[r // next_n]), next_n, r % next_n)
        rows.append(topk_row(widen(row)[:visible], k, sorted))
    indices = np.array([row[0] for row in rows], dtype=np.int32).reshape(-1, k)
    values = np.array([row[1] for row in rows], dtype=np.float32).reshape(-1, k)
    return indices, values, [row[2] for row in rows]


def dense_head(
    weight: np.ndarray, hidden: np.ndarray, bias: np.ndarray | None = None
) -> np.ndarray:
    """Logits of one hidden state, or of a matrix of them: <weight[v], hidden> + bias[v]."""
    weight, hidden = widen(weight), widen(hidden)
    if hidden.ndim == 2:
        rows = [dense_head(weight, row, bias) for row in hidden]
        return np.array(rows, dtype=np.float32).reshape(len(hidden), len(weight))
    logits = dot(weight, hidden)
    return logits if bias is None else logits + np.asarray(bias, np.float32)
