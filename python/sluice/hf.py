"""Sluice inside transformers: a logits processor, a way to generate, and the head.

    processor = sluice.hf.LogitsProcessor(temperature=0.8, top_k=50, top_p=0.9)
    model.generate(**inputs, do_sample=True, top_k=0, logits_processor=[processor])

    sampling = sluice.hf.Generate(seed=[1, 2])  # one a prompt
    model.generate(**inputs, do_sample=True, temperature=0.8, custom_generate=sampling)

    sluice.hf.replace_lm_head(model, k=64)

Parameters mean what they mean to transformers (profile="hf") unless ``profile`` says otherwise.
docs/plugins/transformers.md has the rest.
"""

import copy

import torch
import transformers
from transformers.generation import logits_process

from sluice._sluice import CertifiedHead, Status
from sluice.errors import ArgumentTypeError, Error
from sluice.rows import mask_
from sluice.torch_rows import chosen_seeds, draw, tokens_or_zero

__all__ = ["CertifiedLmHead", "Generate", "LogitsProcessor", "replace_lm_head"]

_LEAST_TEMPERATURE = 0.01  # to which sluice raises those between 0 and it

# What generate() adds for do_sample=True: the parameter, its value when it is off, the class.
_FILTERS = {
    "temperature": (1.0, logits_process.TemperatureLogitsWarper),
    "top_k": (0, logits_process.TopKLogitsWarper),
    "top_p": (1.0, logits_process.TopPLogitsWarper),
    "min_p": (0.0, logits_process.MinPLogitsWarper),
    "typical_p": (1.0, logits_process.TypicalLogitsWarper),
}
# Parameters of transformers that sluice does not have; they would act on another distribution.
_UNKNOWN = ("epsilon_cutoff", "eta_cutoff", "top_h", "watermarking_config")


def _divide_by_temperature_(scores, temperature):
    """In place; a greedy row, of which one token is left, stays as it is."""
    if isinstance(temperature, (int, float)):
        if temperature not in (0, 1):
            scores /= max(temperature, _LEAST_TEMPERATURE)
        return
    column = torch.as_tensor(temperature, dtype=torch.float32, device=scores.device).reshape(-1, 1)
    scores /= torch.where(column == 0, 1.0, column.clamp(min=_LEAST_TEMPERATURE))


class LogitsProcessor(transformers.LogitsProcessor):
    """Masks what the parameters drop: exact sets, from sluice.mask_, on the CPU or CUDA.

    Keywords are those of sluice.mask_, a number for all rows or one a row. The scores that are kept
    are divided by the temperature, so that what draws from their softmax draws from the right
    distribution. A row with a status (NaN, +inf, everything masked) stays as it is.
    ``in_place=True`` writes into the tensor of the caller, which generate() shares with the raw
    logits of ``output_logits=True``.
    """

    supports_continuous_batching = False  # rows change places there

    def __init__(self, *, in_place=False, profile="hf", **keywords):
        self.in_place = in_place
        self.keywords = {"profile": profile, **keywords}

    def __call__(self, input_ids, scores):
        scores = scores if self.in_place else scores.clone()
        position = {"position": input_ids.shape[-1]} if "seed" in self.keywords else {}
        mask_(scores, **{**position, **self.keywords})
        if (temperature := self.keywords.get("temperature")) is not None:
            _divide_by_temperature_(scores, temperature)
        return scores


class Generate:
    """A ``custom_generate`` for model.generate: every token is a draw of sluice.sample.

    Parameters are those of the generation config; keywords are those of sluice.sample, come first,
    and are a number for all rows or one a prompt. The token of a row is a function of its logits,
    its seed, its position (the tokens before it, padding left out) and its choice (its place among
    ``num_return_sequences``), so it is the same alone as in any batch. Without a ``seed``, torch's
    generator chooses one a prompt; ``seeds`` are those of the last call. Without ``do_sample=True``
    it is greedy.
    """

    def __init__(self, *, seed=None, profile="hf", **keywords):
        for name in ("position", "choice"):
            if name in keywords:
                raise ArgumentTypeError(name, str(keywords[name])[:40],
                                        "left out: Generate counts it")
        self.seed = seed
        self.seeds = None
        self.keywords = {"profile": profile, **keywords}

    def __call__(self, model, input_ids, logits_processor, stopping_criteria, generation_config,
                 **model_kwargs):
        _check(generation_config)
        rows, copies = input_ids.shape[0], generation_config.num_return_sequences or 1
        device = input_ids.device
        seed = self.seed
        if seed is None:
            seed = chosen_seeds(input_ids[::copies])
        elif isinstance(seed, (list, tuple)):
            seed = torch.tensor([_signed(one) for one in seed])
        elif isinstance(seed, int):
            seed = torch.tensor(_signed(seed))
        seeds = _one_a_row("seed", torch.as_tensor(seed).to(device), rows, copies)
        self.seeds = seeds[::copies]
        fields = _filters_of(generation_config)
        for name, value in self.keywords.items():
            is_column = not isinstance(value, (int, float, str)) and value is not None
            fields[name] = (_one_a_row(name, torch.as_tensor(value).to(device), rows, copies)
                            if is_column else value)
        fields["choice"] = torch.arange(rows, device=device) % copies
        others = _without_filters(logits_processor, generation_config)
        others.append(_Draw(seeds, _lengths(model, input_ids, model_kwargs), input_ids.shape[1],
                            fields))
        config = copy.copy(generation_config)
        config.do_sample = False  # the processor drew: one token is left
        return model._sample(input_ids, logits_processor=type(logits_processor)(others),
                             stopping_criteria=stopping_criteria, generation_config=config,
                             **model_kwargs)


class _Draw(transformers.LogitsProcessor):
    """Leaves the token that sluice draws from each row, with the score 0."""

    def __init__(self, seeds, lengths, first_width, fields):
        self.seeds = seeds
        self.lengths = lengths  # of the prompts, without padding
        self.first_width = first_width
        self.fields = fields

    def __call__(self, input_ids, scores):
        position = self.lengths + (input_ids.shape[1] - self.first_width)
        ids, statuses = draw(scores, seed=self.seeds, position=position, **self.fields)
        if not scores.is_cuda and statuses.any():  # on CUDA to look would be to wait
            row = int(statuses.nonzero()[0, 0])
            raise Error("scores", f"{Status(int(statuses[row])).name.lower()} in row {row}",
                        "rows with a token that is not masked, without NaN and +inf")
        drawn = torch.full_like(scores, -torch.inf)
        return drawn.scatter_(1, tokens_or_zero(ids)[:, None], 0.0)


def _check(config):
    if (config.num_beams or 1) > 1:
        raise Error("num_beams", str(config.num_beams), "1: a draw has no beams")
    for name in _UNKNOWN:
        if getattr(config, name, None):
            raise Error(name, str(getattr(config, name))[:40], "off: sluice does not have it")


def _signed(seed):
    if not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise Error("seed", str(seed)[:40], f"[0, {2**64 - 1}]")
    return seed - 2**64 if seed >= 2**63 else seed


def _one_a_row(name, values, rows, copies):
    if values.dim() == 0 or len(values) == 1:
        return values.reshape(1).expand(rows).contiguous()
    if len(values) * copies != rows:
        raise Error(f"{name}.size", str(len(values)),
                    f"one for all or one a prompt, {rows // copies}")
    return values.repeat_interleave(copies)


def _filters_of(config):
    if not config.do_sample:
        return {"temperature": 0.0}
    fields = {}
    for name, (off, _) in _FILTERS.items():
        value = getattr(config, name, None)
        fields[name] = off if value is None else value
    return fields


def _without_filters(processors, config):
    """All but those that generate() appended for the config; the user's own stand before them."""
    appended = {kind for name, (off, kind) in _FILTERS.items()
                if config.do_sample and getattr(config, name, None) not in (None, off)}
    kept = []
    for processor in reversed(processors):
        if type(processor) in appended:
            appended.remove(type(processor))
        else:
            kept.append(processor)
    return kept[::-1]


def _lengths(model, input_ids, model_kwargs):
    """Tokens before the first drawn one, one a row."""
    name = "decoder_attention_mask" if model.config.is_encoder_decoder else "attention_mask"
    mask = model_kwargs.get(name)
    if mask is None:  # generate() leaves a mask of ones out
        return torch.full((input_ids.shape[0],), input_ids.shape[1], device=input_ids.device)
    return mask.sum(dim=-1)


class CertifiedLmHead(torch.nn.Module):
    """In the place of an ``lm_head``: the k largest logits, those of the dense head; -inf beyond.

    The logits are fp32, in the order of additions that sluice.dense_head defines. On the CPU, for
    inference: it has no gradients. ``head`` is the sluice.CertifiedHead; its ``stats`` say what
    was read.
    """

    def __init__(self, weight, bias=None, *, k=64, kind="dither4", **keywords):
        super().__init__()
        if weight.device.type != "cpu":
            raise ArgumentTypeError("lm_head.weight.device", str(weight.device), "cpu")
        self.vocab = weight.shape[0]
        if not 1 <= k <= self.vocab:
            raise Error("k", str(k), f"[1, {self.vocab}]")
        self.k = k
        self.head = CertifiedHead(weight.detach(), None if bias is None else bias.detach().float(),
                                  kind=kind, **keywords)

    @torch.no_grad()
    def forward(self, hidden):
        rows = hidden.reshape(-1, hidden.shape[-1])
        top = self.head.topk(rows, self.k)
        logits = torch.full((rows.shape[0], self.vocab), -torch.inf)
        ids = torch.from_numpy(top.indices).long()
        has_status = torch.from_numpy(top.statuses) != 0
        logits.scatter_(1, ids.clamp(min=0), torch.from_numpy(top.values))
        logits[has_status] = torch.nan  # a hidden state with a NaN
        return logits.reshape(*hidden.shape[:-1], self.vocab)


def replace_lm_head(model, *, k=64, kind="dither4", **keywords):
    """Puts a CertifiedLmHead where the model has its output embeddings; returns what stood there.

    The other keywords are those of sluice.CertifiedHead. Whatever looks at no more than the ``k``
    largest logits of a row (greedy, top_k up to k) gives what the dense head gives. The weights
    must not change afterwards. ``model.set_output_embeddings(returned)`` undoes it.
    """
    head = model.get_output_embeddings()
    if head is None:
        raise ArgumentTypeError("model", type(model).__name__, "a model with output embeddings")
    cap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    if cap:
        raise Error("final_logit_softcapping", str(cap), "none: it makes masked logits finite")
    model.set_output_embeddings(
        CertifiedLmHead(head.weight, getattr(head, "bias", None), k=k, kind=kind, **keywords))
    return head
