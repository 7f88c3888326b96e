"""Rows in CUDA memory, as tensors of torch: what select, mask_, sample and topk do with them.

Results are tensors on the same device. A call enqueues its kernels on the current stream and
returns: it waits for nothing, and CUDA graphs and torch.compile take it as it is.

    >>> logits = torch.randn(8, 128256, device="cuda")  # doctest: +SKIP
    >>> sluice.sample(logits, top_k=50, top_p=0.9, seed=42, position=7).ids  # doctest: +SKIP
"""

import torch

from sluice import tensor_ops
from sluice.device_params import (
    FIELDS,
    MAX_TEMPERATURE,
    DeviceParams,
    empty_params,
    merged,
    only_known,
    text_of,
    write_fields,
)
from sluice.device_topk import TopkPlan, TopkTensors, plan_topk, topk
from sluice.errors import ArgumentTypeError, Error

__all__ = ["CutTensors", "DeviceParams", "TokenTensors", "TopkPlan", "TopkTensors", "mask_",
           "plan_topk", "sample", "select", "topk"]

_ROW_KEYWORDS = (*FIELDS, "max_temperature")


class CutTensors:
    """Kept sets, one a row: the properties of sluice.Cuts, as tensors that share one memory."""

    def __init__(self, words, masses=None):
        self.words = words
        self._masses = masses

    @property
    def upper(self):
        return self.words[..., 0].view(torch.float32)

    @property
    def lower(self):
        return self.words[..., 1].view(torch.float32)

    @property
    def ties_dropped(self):
        return self.words[..., 2]

    @property
    def ties_kept(self):
        return self.words[..., 3]

    @property
    def counts(self):
        return self.words[..., 4]

    @property
    def statuses(self):
        return self.words.view(torch.uint8)[..., 20]

    @property
    def kept_masses(self):
        return self._mass(0)

    @property
    def total_masses(self):
        return self._mass(1)

    @property
    def margins(self):
        """As int64: -1 when top-p is off."""
        return self._mass(2)

    def _mass(self, at):
        if self._masses is None:
            raise AttributeError("masses need masses=True")
        return self._masses[..., at]

    def __len__(self):
        return self.words.shape[0] if self.words.dim() == 2 else 1


class TokenTensors:
    """Sampled tokens, one a row: ``ids`` (int32; -1 in a row with a status) and ``statuses``."""

    def __init__(self, ids, statuses, words=None, seeds=None):
        self.ids = ids
        self.statuses = statuses
        self._words = words
        self._seeds = seeds

    @property
    def cuts(self):
        if self._words is None:
            raise AttributeError("cuts need with_cuts=True")
        return CutTensors(self._words)

    @property
    def seeds(self):
        """Those that torch's generator chose because none was given, as int64."""
        if self._seeds is None:
            raise AttributeError("seeds were given, not chosen")
        return self._seeds

    def __len__(self):
        return self.ids.shape[0] if self.ids.dim() == 1 else 1


def _as_matrix(logits):
    logits = logits[None] if logits.dim() == 1 else logits
    tensor_ops.check_logits(logits)
    return logits


def _cut_words(logits, cuts):
    if not isinstance(cuts, CutTensors):
        raise ArgumentTypeError("cuts", text_of(cuts), "sluice.tensors.CutTensors")
    return cuts.words.reshape(-1, tensor_ops.CUT_WORDS)


def _flag(name, value):
    if not isinstance(value, bool):
        raise ArgumentTypeError(name, text_of(value), "True or False")
    return value


def packed(logits, params, keywords, draws=False):
    """What the operators take of parameters, the draw method last, and the seeds if chosen here."""
    if isinstance(params, DeviceParams):
        for name, value in keywords.items():
            if value is not None:
                raise ArgumentTypeError(name, text_of(value),
                                        "no keyword next to DeviceParams, whose update_ sets it")
        if draws and not params.has_seed:
            raise Error("seed", "None", "a seed in the DeviceParams that a draw reads")
        return (params.params, params.keys, params.max_temperature, params.draw_method), None
    fields = merged(params, keywords)
    logprobs, draw_method = fields.pop("logprobs", None), fields.pop("draw_method", "gumbel")
    if draws and logprobs is not None:
        raise ArgumentTypeError("logprobs", text_of(logprobs), "None on a CUDA device")
    only_known(fields, _ROW_KEYWORDS)
    rows, seeds = logits.shape[0], None
    if "seed" not in fields:
        if draws:
            seeds = torch.randint(2**63 - 1, (rows,), device=logits.device)
            fields["seed"] = seeds
        elif "xtc_probability" in fields:
            raise Error("seed", "None", "a seed when XTC is on")
    is_one = all(isinstance(value, (int, float, str)) for value in fields.values())
    memory = empty_params(1 if is_one else rows, logits.device)
    write_fields(*memory, True, fields, rows)
    return (*memory, fields.get("max_temperature", MAX_TEMPERATURE), draw_method), seeds


def select(logits, params=None, *, masses=False, **keywords):
    rows = _as_matrix(logits)
    (params, keys, most, _), _ = packed(rows, params, keywords)
    cuts, found = tensor_ops.select(rows, params, keys, most, _flag("masses", masses))
    if logits.dim() == 1:
        return CutTensors(cuts[0], found[0] if masses else None)
    return CutTensors(cuts, found if masses else None)


def mask_(logits, params=None, *, cuts=None, **keywords):
    if logits.requires_grad and torch.is_grad_enabled():
        raise Error("logits.requires_grad", "True", "False, or torch.no_grad()")
    rows = _as_matrix(logits)
    if cuts is None:
        tensor_ops.mask_(rows, *packed(rows, params, keywords)[0][:3])
    else:
        tensor_ops.mask_cuts_(rows, _cut_words(rows, cuts))
    return logits


def sample(logits, params=None, *, cuts=None, with_cuts=False, **keywords):
    rows = _as_matrix(logits)
    memory, seeds = packed(rows, params, keywords, draws=True)
    arguments = (rows, *memory)
    words = None
    if cuts is None and not _flag("with_cuts", with_cuts):
        ids, statuses = tensor_ops.sample(*arguments)
    else:
        results = (tensor_ops.sample_results(*arguments) if cuts is None else
                   tensor_ops.draw(*arguments, _cut_words(rows, cuts)))
        ids, statuses = results[:, 0], results.view(torch.uint8)[:, 4]
        words = results[:, 4:]
    if logits.dim() == 1:
        return TokenTensors(ids[0], statuses[0], None if words is None else words[0],
                            None if seeds is None else seeds[0])
    return TokenTensors(ids, statuses, words, seeds)
