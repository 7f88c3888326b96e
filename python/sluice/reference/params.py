"""Every sampling parameter, its default and its range, as in include/sluice/params.def.

Real parameters are rounded once to fp32, here; all arithmetic starts from the rounded number. A
range is written as "[low, high]", or "(low, high]" without its lower end. NaN is in no range.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from .arithmetic import F32

MAX_FLOAT = float(np.finfo(F32).max)
MAX_INT = 2**31 - 1


@dataclass(frozen=True)
class Profile:
    """Where engines mean different things by the same parameter. Each switch has two values."""

    ties: str = "lowest_id"  # or "all": keep every token equal to the boundary of top-k and top-p
    top_k_top_p: str = "sequential"  # or "joint": both look at the same tokens
    min_p_stage: str = "before_top_k"  # or "last"
    top_p_boundary: str = "exclusive"  # or "inclusive": keep what starts exactly at the target
    penalty_scope: str = "output"  # or "prompt_and_output", for frequency and presence
    temperature_stage: str = "before_truncation"  # or "last": the filters see T = 1


PROFILES = {
    "vllm": Profile(),
    "hf": Profile(ties="all", min_p_stage="last"),
    "sglang": Profile(ties="all", top_k_top_p="joint", min_p_stage="last"),
    "llamacpp": Profile(
        min_p_stage="last", penalty_scope="prompt_and_output", temperature_stage="last"
    ),
    "tensorrt-llm": Profile(top_p_boundary="inclusive", penalty_scope="prompt_and_output"),
}


def _param(default: Any, low: float, high: float, *, opens: bool = False, selects: bool = False):
    """A number with its range. `selects`: it decides the kept set of a row."""
    metadata = {"low": low, "high": high, "opens": opens, "selects": selects}
    return field(default=default, metadata=metadata)


def _select(default: Any, low: float, high: float, *, opens: bool = False):
    return _param(default, low, high, opens=opens, selects=True)


@dataclass(frozen=True)
class Params:
    # Selection: what decides the kept set of a row.
    temperature: float = _select(1.0, 0, MAX_FLOAT)
    top_k: int = _select(0, -1, MAX_INT)
    top_p: float = _select(1.0, 0, 1, opens=True)
    min_p: float = _select(0.0, 0, 1)
    top_n_sigma: float = _select(0.0, 0, 16)
    typical_p: float = _select(1.0, 0, 1, opens=True)
    xtc_probability: float = _select(0.0, 0, 1)
    xtc_threshold: float = _select(0.1, 0, 1)

    # Adjustments: what changes the logits of a request before selection.
    repetition_penalty: float = _param(1.0, 0, MAX_FLOAT, opens=True)
    frequency_penalty: float = _param(0.0, -2, 2)
    presence_penalty: float = _param(0.0, -2, 2)
    min_tokens: int = _param(0, 0, MAX_INT)
    dry_multiplier: float = _param(0.0, 0, 100)
    dry_base: float = _param(1.75, 1, 100)
    dry_allowed_length: int = _param(2, 1, MAX_INT)
    dry_range: int = _param(-1, -1, MAX_INT)
    dry_sequence_breakers: tuple[int, ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()  # (id, bias), applied in this order
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()
    stop_token_ids: tuple[int, ...] = ()

    # The draw, and what is reported about it.
    seed: int | None = _param(None, 0, 2**64 - 1)
    draw_method: str = "gumbel"  # or "cdf"
    draft_mode: str = "match"  # or "reject"
    logprobs: int | None = _param(None, -1, 2**23)
    logprob_mode: str = "raw_logprobs"  # "raw_logits", "processed_logprobs", "processed_logits"
    profile: Profile = Profile()  # or the name of one

    @np.errstate(over="ignore")
    def __post_init__(self):
        for f in fields(self):
            if f.type is float:
                object.__setattr__(self, f.name, float(F32(getattr(self, f.name))))
        if isinstance(self.profile, str):
            object.__setattr__(self, "profile", PROFILES[self.profile])


def params_from(params: Params | None, changes: dict[str, Any]) -> Params:
    """The given parameters, or the defaults, with some of them changed by name."""
    return replace(params or Params(), **changes) if changes else params or Params()


@dataclass(frozen=True)
class NoiseKey:
    """What a row's noise is a pure function of."""

    seed: int = 0
    position: int = 0  # number of tokens before this one, prompt and output
    choice: int = 0  # index among the completions of one request; below 2^24
    stream: str = "target"  # or "draft": a draft model that draws for the mode `reject`
