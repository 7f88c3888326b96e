"""Stage 1: are the parameters of a row in their ranges?

For selection a parameter out of range is the row's status `bad_param`; for a request it is refused
when the request is made.
"""

from dataclasses import fields

from .params import NoiseKey, Params

MAX_TEMPERATURE = 2.0  # what the operator of a service may lift


def is_in_range(value: float, metadata) -> bool:
    """False for NaN."""
    low, high = metadata["low"], metadata["high"]
    return (value > low if metadata["opens"] else value >= low) and value <= high


def selects_validly(params: Params, key: NoiseKey, max_temperature: float) -> bool:
    """Only what decides the kept set and the draw; 24 bits are left for a choice (noise.py)."""
    in_range = all(
        is_in_range(getattr(params, f.name), f.metadata)
        for f in fields(params)
        if f.metadata.get("selects")
    )
    return in_range and params.temperature <= max_temperature and 0 <= key.choice < 1 << 24


def check_request(params: Params, vocab: int, max_temperature: float = MAX_TEMPERATURE) -> None:
    """Raises ValueError on parameters that a request may not have."""

    def check(name: str, holds: bool) -> None:
        if not holds:
            raise ValueError(f"{name} = {getattr(params, name)!r} is not allowed")

    for f in fields(params):
        value = getattr(params, f.name)
        if f.metadata and value is not None:
            check(f.name, is_in_range(value, f.metadata))
    check("temperature", params.temperature <= max_temperature)
    check("logprobs", params.logprobs is None or params.logprobs <= vocab)
    check("draw_method", params.draw_method in ("gumbel", "cdf"))
    check("draft_mode", params.draft_mode in ("match", "reject"))
    modes = ("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits")
    check("logprob_mode", params.logprob_mode in modes)

    def check_ids(name: str, ids) -> None:
        check(name, all(0 <= token < vocab for token in ids))

    check_ids("dry_sequence_breakers", params.dry_sequence_breakers)
    check_ids("stop_token_ids", params.stop_token_ids)
    check_ids("logit_bias", [token for token, _ in params.logit_bias])
    check("logit_bias", all(bias == bias for _, bias in params.logit_bias))
    if params.allowed_token_ids is not None:
        check("allowed_token_ids", len(params.allowed_token_ids) > 0)
        check_ids("allowed_token_ids", params.allowed_token_ids)
    for word in params.bad_words:
        check("bad_words", len(word) > 0)
        check_ids("bad_words", word)
