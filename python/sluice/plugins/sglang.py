"""Sluice inside SGLang: ``--sampling-backend sluice``.

SGLang calls ``register`` in each of its processes, which adds the backend, if the version is one of
KNOWN and the methods that the sampler builds on have the parameters that stand here; else it adds
nothing and logs one message. The variable SLUICE_SGLANG lists the names to register under: "sluice"
unless set, "sluice,pytorch" to serve deterministic inference too, or "off".
docs/plugins/sglang.md has the rest.
"""

import functools
import hashlib
import inspect
import logging
import os

import torch

from sluice._sluice import build
from sluice.errors import Error
from sluice.rows import mask_
from sluice.torch_rows import MAX_TEMPERATURE, chosen_seeds, draw, tokens_or_zero

logger = logging.getLogger("sglang.plugins.sluice")

KNOWN = ("0.5.21", "0.5.22", "0.5.23")
NAMES = ("sluice", "pytorch")

# Methods of SGLang's sampler that are called or overridden.
_METHODS = {
    "_preprocess_logits": ("self", "logits", "sampling_info"),
    "_sample_from_probs": ("self", "probs", "sampling_info", "positions", "simple_sampling_case"),
    "_sample_from_logprobs": ("self", "logprobs", "sampling_info", "positions"),
    "_sync_token_ids_across_tp": ("self", "batch_next_token_ids", "sampling_info"),
}


def _filters_of(info):
    # Greedy rows come as top_k 1; all that tie would be kept, where a batch of them takes one.
    temperatures = info.temperatures.view(-1)
    if info.is_any_greedy:
        temperatures = torch.where(info.top_ks <= 1, 0.0, temperatures)
    return {"temperature": temperatures,
            "top_k": info.top_ks if info.need_top_k_sampling else None,
            "top_p": info.top_ps if info.need_top_p_sampling else None,
            "min_p": info.min_ps if info.need_min_p_sampling else None,
            "profile": "sglang"}


def _draw(logits, info, positions):
    """Tokens (int32), each a function of its row, its seed and how many tokens stand before it."""
    is_seeded = info.sampling_seed is not None and len(info.sampling_seed) == len(logits)
    ids, _ = draw(logits, seed=info.sampling_seed if is_seeded else chosen_seeds(logits),
                  position=positions + 1 if is_seeded else 0, **_filters_of(info))
    return tokens_or_zero(ids).to(torch.int32)


def _sampler_class(module):
    class SluiceSampler(module.Sampler):
        """Draws from logits; where probabilities are requested, SGLang makes them itself."""

        is_used = False  # in this process
        positions = None  # of the step with tokens still to be drawn
        tokens = None
        is_kept = None  # when sampling masks are requested

        def __init__(self, *arguments, **keywords):
            super().__init__(*arguments, **keywords)
            SluiceSampler.is_used = True

        def forward(self, logits_output, sampling_info, return_logprob, top_logprobs_nums,
                    token_ids_logprobs, positions, **more):
            if not (sampling_info.is_all_greedy or return_logprob or more
                    or sampling_info.sampling_mask_batch_indices is not None):
                logits = self._preprocess_logits(logits_output.next_token_logits, sampling_info)
                tokens = _draw(logits, sampling_info, positions)
                self._sync_token_ids_across_tp(tokens, sampling_info)
                return tokens
            self.positions = None if sampling_info.is_all_greedy else positions
            return super().forward(logits_output, sampling_info, return_logprob, top_logprobs_nums,
                                   token_ids_logprobs, positions, **more)

        def _preprocess_logits(self, logits, sampling_info):
            logits = super()._preprocess_logits(logits, sampling_info)
            if self.positions is not None:  # before SGLang turns the logits into probabilities
                self.tokens = _draw(logits, sampling_info, self.positions)
                self.positions = self.is_kept = None
                if sampling_info.sampling_mask_batch_indices is not None:
                    kept = mask_(logits.clone(), max_temperature=MAX_TEMPERATURE,
                                 **_filters_of(sampling_info))
                    self.is_kept = kept > -torch.inf
            return logits

        def _sample_from_probs(self, probs, sampling_info, positions, simple_sampling_case):
            tokens, rows = self.tokens, sampling_info.sampling_mask_batch_indices
            if rows is None:
                return tokens, None
            weights = probs[rows].masked_fill(~self.is_kept[rows], 0)
            return tokens, module._SamplingMaskCapture(
                weights=weights, token_ids=None, batch_rows=rows,
                selected_weight=weights.gather(1, tokens[rows].long()[:, None])[:, 0])

        def _sample_from_logprobs(self, logprobs, sampling_info, positions):
            return self.tokens

    return SluiceSampler


def _seed_of(request, key):
    """Its own, or one that all ranks compute from its id and a number of this server."""
    seed = request.sampling_params.sampling_seed
    if seed is None:
        hashed = hashlib.blake2b(str(request.rid).encode(), key=key, digest_size=8)
        seed = int.from_bytes(hashed.digest(), "little", signed=True)
    return seed


def _with_seeds(original, sampler, key_of_server):
    """SamplingBatchInfo.from_schedule_batch, which has seeds for deterministic inference alone. Every
    batch gets them, because SGLang merges the seeds of two batches only where both have some; not
    those with drafts, which SGLang verifies in another way where there are seeds."""
    @functools.wraps(original)
    def from_schedule_batch(cls, batch, vocab_size):
        info = original(batch, vocab_size)
        has_drafts = not (batch.spec_algorithm is None or batch.spec_algorithm.is_none())
        if sampler.is_used and info.sampling_seed is None and not has_drafts:
            key = key_of_server()
            seeds = torch.tensor([_seed_of(request, key) for request in batch.reqs],
                                 dtype=torch.int64,
                                 pin_memory=torch.device(batch.device).type == "cuda")
            info.sampling_seed = seeds.to(batch.device, non_blocking=True)
        return info

    return classmethod(from_schedule_batch)


def _key_of_server():
    """SGLang draws random_seed at each start, unless it is given, and sends it to all ranks."""
    from sglang.srt.runtime_context import get_server_args

    return str(getattr(get_server_args(), "random_seed", 0)).encode()


def _names():
    given = os.environ.get("SLUICE_SGLANG", "sluice")
    names = [name.strip() for name in given.split(",") if name.strip()]
    if names == ["off"]:
        return []
    for name in names:
        if name not in NAMES:
            raise Error("SLUICE_SGLANG", name, f"off, or some of {', '.join(NAMES)}")
    return names


def is_known(version):
    return ".".join(version.split("+")[0].split(".")[:3]) in KNOWN


def _has_parameters(holder, name, parameters):
    method = getattr(holder, name, None)
    return method is not None and tuple(inspect.signature(method).parameters) == parameters


def _why_not(version, module, batches):
    if not is_known(version):
        return f"SGLang {version} is not one of {', '.join(KNOWN)}"
    for name, parameters in _METHODS.items():
        if not _has_parameters(module.Sampler, name, parameters):
            return f"SGLang {version} has another Sampler.{name}"
    if not (_has_parameters(batches, "from_schedule_batch", ("batch", "vocab_size"))
            and hasattr(batches, "sampling_seed")):
        return f"SGLang {version} has another SamplingBatchInfo"
    if not hasattr(module, "_SamplingMaskCapture"):
        return f"SGLang {version} has no _SamplingMaskCapture"
    if torch.version.hip is not None or (torch.version.cuda is not None
                                         and torch.cuda.is_available() and not build()["cuda"]):
        return "this build of Sluice has no kernels for the GPU"
    return ""


def register():
    """Adds the backends that SLUICE_SGLANG names; whether there is one."""
    names = _names()
    if not names:
        return False
    import sglang
    from sglang.srt.layers import sampler as module
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo

    if reason := _why_not(sglang.__version__, module, SamplingBatchInfo):
        logger.warning("Sluice is inert: %s.", reason)
        return False
    made = _sampler_class(module)
    for name in names:
        module.register_sampler_backend(name, made)
    SamplingBatchInfo.from_schedule_batch = _with_seeds(
        SamplingBatchInfo.from_schedule_batch, made, _key_of_server)
    logger.info("Sluice is the sampling backend %s of SGLang %s.", " and ".join(names),
                sglang.__version__)
    return True
