"""Sluice inside vLLM, as a general plug-in: the whole step, top-k, top-p, the draw; the head on request.

vLLM calls ``register`` in each of its processes. It replaces functions of vLLM at named seams, if
the version is one of KNOWN and every seam has the parameters that stand there; else it changes
nothing and logs one message. The variable SLUICE_VLLM says what is replaced:
"top_k_top_p,draw,step,logprobs" unless set, "head" in addition, or "off". The step is taken over on
CUDA alone. docs/plugins/vllm.md has the rest.
"""

import functools
import importlib
import inspect
import logging
import os
import sys
from typing import NamedTuple

import torch

from sluice._sluice import build, dense_head
from sluice.errors import Error
from sluice.plugins import vllm_lists, vllm_step
from sluice.rows import mask_
from sluice.torch_rows import chosen_seeds, draw, tokens_or_zero

logger = logging.getLogger("vllm.plugins.sluice")

PARTS = ("top_k_top_p", "draw", "step", "logprobs", "head")
_DEFAULT = "top_k_top_p,draw,step,logprobs"
_FILTERS_MODULE = "vllm.v1.sample.ops.topk_topp_sampler"
_RUNNER_MODULE = "vllm.v1.worker.gpu.sample.sampler"
_STATES_MODULE = "vllm.v1.worker.gpu.states"
_OUTPUTS_MODULE, _ENCODER_MODULE = "vllm.v1.outputs", "vllm.v1.serial_utils"
_HEAD_MODULE = "vllm.model_executor.layers.logits_processor"
_PROCESSED = ("processed_logits", "processed_logprobs")


class Seam(NamedTuple):
    part: str
    module: str
    path: str  # of the function in the module
    parameters: tuple[str, ...]  # which vLLM's own function must have
    replace: object  # makes the new function from vLLM's own


def _is_ours(logits):
    """Whether these are rows that Sluice takes; on other devices vLLM's own functions stay."""
    return logits.device.type in ("cpu", "cuda") and (logits.shape[-1] <= 1 or
                                                      logits.stride(-1) == 1)


def _top_k_top_p(original):
    @functools.wraps(original)
    def apply_top_k_top_p(logits, k, p, *arguments, **keywords):
        if not _is_ours(logits):
            return original(logits, k, p, *arguments, **keywords)
        return logits if k is None and p is None else mask_(logits, top_k=k, top_p=p)

    return apply_top_k_top_p


def _forward(original):
    """TopKTopPSampler.forward_...: the rows are divided by their temperatures already."""
    @functools.wraps(original)
    def forward(self, logits, generators, k, p):
        if not _is_ours(logits):
            return original(self, logits, generators, k, p)
        returned = None
        if self.logprobs_mode in _PROCESSED:
            mask_(logits, top_k=k, top_p=p)
            k = p = None  # a second top-p would cut what the first one kept
            returned = (logits if self.logprobs_mode == "processed_logits" else
                        logits.log_softmax(dim=-1, dtype=torch.float32))
        rows = logits.shape[0]
        seeds = (chosen_seeds(logits) if len(generators) != rows else
                 torch.empty(rows, dtype=torch.int64, device=logits.device))
        for row, generator in generators.items():
            torch.randint(2**63 - 1, (1,), generator=generator, out=seeds[row:row + 1])
        ids, _ = draw(logits, seed=seeds, position=0, top_k=k, top_p=p)
        return tokens_or_zero(ids), returned

    return forward


def _sample_random(original):
    """Sampler._sample_random of the model runner V2: seeds and positions are the requests' own."""
    @functools.wraps(original)
    def sample_random(self, logits, expanded_idx_mapping, idx_mapping_np, pos, top_k, top_p, *rest):
        if not _is_ours(logits):
            return original(self, logits, expanded_idx_mapping, idx_mapping_np, pos, top_k, top_p,
                            *rest)
        if self.logprobs_mode in _PROCESSED or getattr(self, "return_sampling_mask", False):
            mask_(logits, top_k=top_k, top_p=top_p)
            top_k = top_p = None  # a second top-p would cut what the first one kept
        states = self.sampling_states
        is_greedy = states.temperature.gpu[expanded_idx_mapping] == 0
        ids, _ = draw(logits, seed=states.seeds.gpu[expanded_idx_mapping], position=pos + 1,
                      temperature=(~is_greedy).float(), top_k=top_k, top_p=top_p)
        return tokens_or_zero(ids), logits

    return sample_random


def _apply_head(original):
    """LogitsProcessor._apply_head: on the CPU, in the defined order of additions."""
    @functools.wraps(original)
    def apply_head(self, lm_head, hidden_states, embedding_bias):
        # Only this method leaves the weight as it was loaded, on the CPU too.
        is_plain = type(lm_head.quant_method).__name__ == "UnquantizedEmbeddingMethod"
        if hidden_states.device.type != "cpu" or not is_plain:
            return original(self, lm_head, hidden_states, embedding_bias)
        rows = hidden_states.detach().reshape(-1, hidden_states.shape[-1]).contiguous()
        bias = None if embedding_bias is None else embedding_bias.detach().float()
        logits = torch.from_numpy(dense_head(lm_head.weight.detach(), rows, bias=bias))
        return logits.reshape(*hidden_states.shape[:-1], -1)

    return apply_head


def _seams(more=()):
    """Those of a version; `more`: what top-k with top-p and _sample_random take in addition to the rest."""
    forward = ("self", "logits", "generators", "k", "p")
    return (
        Seam("top_k_top_p", _FILTERS_MODULE, "apply_top_k_top_p", ("logits", "k", "p", *more),
             _top_k_top_p),
        *(Seam("draw", _FILTERS_MODULE, f"TopKTopPSampler.{name}", forward, _forward)
          for name in ("forward_native", "forward_cuda", "forward_cpu")),
        Seam("draw", _RUNNER_MODULE, "Sampler._sample_random",
             ("self", "processed_logits", "expanded_idx_mapping", "idx_mapping_np", "pos", "top_k",
              "top_p", *more, "use_fused_sampler"), _sample_random),
        Seam("step", _RUNNER_MODULE, "Sampler.__init__",
             ("self", "vllm_config", "max_num_reqs", "vocab_size", "device", "req_states",
              "logprobs_mode", "num_speculative_tokens", "use_fp64_gumbel", "enable_trace_replay",
              "return_sampling_mask", "custom_logits_processors"), vllm_step.init),
        Seam("step", _RUNNER_MODULE, "Sampler.add_request", ("self", "req_idx", "sampling_params"),
             vllm_step.add_request),
        Seam("step", _RUNNER_MODULE, "Sampler.__call__", ("self", "logits", "input_batch"),
             vllm_step.call),
        Seam("step", _STATES_MODULE, "RequestState.add_request",
             ("self", "req_id", "prompt_len", "all_token_ids", "num_computed_tokens", "max_tokens"),
             vllm_step.add_tokens),
        Seam("step", _STATES_MODULE, "RequestState.remove_request", ("self", "req_id"),
             vllm_step.remove_request),
        Seam("logprobs", _OUTPUTS_MODULE, "LogprobsLists.slice_request",
             ("self", "req_idx", "num_positions"), vllm_lists.slice_request),
        Seam("logprobs", _ENCODER_MODULE, "MsgpackEncoder.enc_hook", ("self", "obj"),
             vllm_lists.enc_hook),
        Seam("head", _HEAD_MODULE, "LogitsProcessor._apply_head",
             ("self", "lm_head", "hidden_states", "embedding_bias"), _apply_head),
    )


KNOWN = {
    "0.31": _seams(),
    "0.32": _seams(),
    "0.33": _seams(("has_topp_only_rows",)),
}

_replaced = []  # (object, name, vLLM's own)


def _wanted():
    given = os.environ.get("SLUICE_VLLM", _DEFAULT)
    words = [word.strip() for word in given.split(",") if word.strip()]
    if words == ["off"]:
        return []
    for word in words:
        if word not in PARTS:
            raise Error("SLUICE_VLLM", word, f"off, or some of {', '.join(PARTS)}")
    # A step that stays vLLM's has the noise of the steps here by `draw`.
    for word, needs in (("logprobs", "step"), ("step", "draw")):
        if word in words and needs not in words:
            raise Error("SLUICE_VLLM", given, f"{word} only with {needs}")
    return words


def _why_not(platform):
    if torch.version.hip is not None:
        return "PyTorch is built for ROCm"
    if platform.is_cuda():
        return "" if build()["cuda"] else "this build of Sluice has no CUDA"
    return "" if platform.is_cpu() else "the platform is neither CUDA nor a CPU"


def _holder_of(seam):
    """The module or class that has the function, and its name; or ImportError, AttributeError."""
    holder = importlib.import_module(seam.module)
    *owners, name = seam.path.split(".")
    for owner in owners:
        holder = getattr(holder, owner)
    found = tuple(inspect.signature(getattr(holder, name)).parameters)
    if found != seam.parameters:
        raise AttributeError(f"its parameters are {', '.join(found)}")
    return holder, name


def _inert(reason):
    logger.warning("Sluice is inert: %s.", reason)
    return False


def seams_of(version):
    """None when the version is not known."""
    return KNOWN.get(".".join(version.split(".")[:2]))


def register():
    """Replaces what SLUICE_VLLM names; whether anything was."""
    if _replaced:
        return True
    parts = _wanted()
    if not parts:
        return False
    import vllm

    version = vllm.__version__
    seams = seams_of(version)
    if seams is None:
        return _inert(f"vLLM {version} is not one of {', '.join(KNOWN)}")
    from vllm.platforms import current_platform

    if reason := _why_not(current_platform):
        return _inert(reason)
    if not current_platform.is_cuda():
        parts = [part for part in parts if part not in ("step", "logprobs")]
    vllm_step.takes_logprobs = "logprobs" in parts
    found = []
    for seam in (seam for seam in seams if seam.part in parts):
        try:
            holder, name = _holder_of(seam)
            found.append((holder, name, seam.replace(getattr(holder, name))))
        except (ImportError, AttributeError) as error:
            return _inert(f"vLLM {version} has another {seam.module}.{seam.path}: {error}")
    for holder, name, new in found:
        _replace(holder, name, new)
    logger.info("Sluice replaces %s of vLLM %s.", ", ".join(parts), version)
    return True


def _replace(holder, name, new):
    original = getattr(holder, name)
    holders = [holder]
    if inspect.ismodule(holder):  # those that have imported the function by its name
        holders += [module for module_name, module in list(sys.modules.items())
                    if module_name.startswith("vllm.") and module is not holder
                    and getattr(module, "__dict__", {}).get(name) is original]
    for one in holders:
        _replaced.append((one, name, original))
        setattr(one, name, new)


def unregister():
    """Puts back what register replaced."""
    while _replaced:
        holder, name, original = _replaced.pop()
        setattr(holder, name, original)
