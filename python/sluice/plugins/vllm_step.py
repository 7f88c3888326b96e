"""The whole step of vLLM's model runner V2 by a DeviceSampler: penalties, masks, draw, reports.

vLLM adds each request to its sampler when it joins a batch, and then it is added to the
DeviceSampler, with its tokens. A step of requests that have all been added is one step of the
DeviceSampler. Any other step is vLLM's own, and `counts` has the reason. A request of such a step
gets what it misses from vLLM's tokens at its next step here.
"""

import collections
import functools
import importlib
import logging
import os

import numpy as np
import torch

from sluice.device_sampler import DeviceSampler
from sluice.errors import Error

logger = logging.getLogger("vllm.plugins.sluice")

MOST_LOGPROBS, MOST_LISTED_IDS = 128, 1024
MEMORY_SHARE, BYTES_A_TOKEN = 0.01, 56  # the histories of requests: of the device, and a token
MOST_FAILURES, STEPS_TO_FORGET_THEM = 3, 1000
WARM_UP = ("_warmup", "_v2_mixed_warmup")  # what ids of requests begin with that vLLM makes up
_OWN_PROCESSORS = ("LogitBiasState", "PenaltiesState", "BadWordsState")
_RAW = ("raw_logprobs", "raw_logits")
_NOT_ADDED = "requests of the warm-up"

takes_logprobs = False  # of requests that have some
counts = collections.Counter()  # of this process: "steps" here, and those of vLLM by their reasons


def _room(max_requests, max_model_len, memory):
    """How many tokens a request may have; `memory`: the device's, in bytes."""
    given = os.environ.get("SLUICE_VLLM_TOKENS")
    if given is not None:
        if not given.isdecimal() or int(given) < 1:
            raise Error("SLUICE_VLLM_TOKENS", given, "a whole number from 1")
        return min(int(given), max_model_len)
    return max(1, min(max_model_len, int(memory * MEMORY_SHARE) // (BYTES_A_TOKEN * max_requests)))


def refusal_of_sampler(sampler):
    """Why no step of this sampler of vLLM can be taken over; "" where they can."""
    if type(sampler).__name__ != "Sampler":
        return f"the sampler is a {type(sampler).__name__}"
    if sampler.num_speculative_tokens > 1:
        return "there are draft tokens"
    if sampler.return_sampling_mask:
        return "sampling masks are on"
    if sampler.trace_replay_state is not None:
        return "trace replay is on"
    names = [type(processor).__name__ for processor in sampler.logits_processors]
    if sorted(names) != sorted(_OWN_PROCESSORS):
        return f"its logits processors are {', '.join(names)}"
    return ""


def refusal_of_request(params, mode, most_logprobs):
    """Why a request's steps stay vLLM's; "" where they do not."""
    if params.logprobs is not None:
        if not takes_logprobs:
            return "log-probabilities, without logprobs in SLUICE_VLLM"
        if mode not in _RAW:
            return "log-probabilities of processed logits"
        if not 0 <= params.logprobs <= most_logprobs:
            return f"more than {most_logprobs} log-probabilities"
    if params.logprob_token_ids:
        return "log-probabilities of given tokens"
    if getattr(params, "thinking_token_budget", None) is not None:
        return "a thinking budget"
    if params.min_tokens and params.structured_outputs is not None:
        return "min_tokens with structured outputs"  # which may take the mask of the stops back
    if any(abs(bias) > 100 for bias in (params.logit_bias or {}).values()):
        return "a bias beyond 100"
    return ""


def fields_of(params, seed, vocab, mode):
    """Of SamplingParams of vLLM, as keywords of SamplingParams here."""
    fields = {"temperature": params.temperature, "top_p": params.top_p, "min_p": params.min_p,
              "top_k": params.top_k if 0 < params.top_k < vocab else 0, "seed": int(seed) % 2**64}
    for name, neutral in (("repetition_penalty", 1), ("frequency_penalty", 0),
                          ("presence_penalty", 0)):
        if (value := getattr(params, name)) != neutral:
            fields[name] = value
    if params.logit_bias:
        fields["logit_bias"] = dict(params.logit_bias)
    if params.allowed_token_ids:
        fields["allowed_token_ids"] = sorted(set(params.allowed_token_ids))
    if params.bad_words_token_ids:
        fields["bad_words"] = [list(word) for word in params.bad_words_token_ids]
    if params.min_tokens > 0 and params.all_stop_token_ids:
        fields |= {"min_tokens": params.min_tokens,
                   "stop_token_ids": sorted(params.all_stop_token_ids)}
    if params.logprobs is not None:
        fields |= {"logprobs": params.logprobs, "logprob_mode": mode}
    return fields


def prompt_of(tokens, vocab, has_repetition_penalty):
    """The prompt with ids of the vocabulary alone: those of images are not, and only a repetition
    penalty looks at the ids of a prompt."""
    prompt = np.asarray(tokens, np.int64)
    if not has_repetition_penalty:
        prompt = np.where((prompt >= 0) & (prompt < vocab), prompt, 0)
    return prompt


class Steps:
    """The steps of one sampler of vLLM. Lists and arrays are indexed by vLLM's slots."""

    def __init__(self, sampler, vllm_config, max_requests, vocab, device):
        memory = torch.cuda.get_device_properties(device).total_memory
        model = vllm_config.model_config
        self.room = _room(max_requests, sampler.req_states.max_model_len, memory)
        listed = getattr(model, "max_logprobs", 20)  # -1: as many as there are tokens
        self.most_logprobs = MOST_LOGPROBS if listed < 0 else min(listed, MOST_LOGPROBS)
        # Ranks draw the same tokens from the same logits, so none may go another way alone.
        self._may_fall_back = vllm_config.parallel_config.tensor_parallel_size == 1
        self._mode, self._states = sampler.logprobs_mode, sampler.req_states
        self._vocab = vocab
        self._sampler = DeviceSampler(
            vocab=vocab, device=device, max_requests=max_requests, max_tokens=self.room,
            max_listed_ids=MOST_LISTED_IDS, max_logprobs=self.most_logprobs, bitmasks=False,
            goes_on_with_zero=True, max_temperature=float(np.finfo(np.float32).max))
        self._params = [None] * max_requests
        self._handles = [None] * max_requests
        self._refusals = [_NOT_ADDED] * max_requests
        self._is_added = np.zeros(max_requests, bool)
        # Tokens that the DeviceSampler has of a request; -1 where it has to be added again.
        self._lengths = np.full(max_requests, -1, np.int64)
        self._tokens = {}  # slot: (length of the prompt, all tokens), until the request is added
        self._batch = (None, ())  # of the last step: the slots as bytes, the handles
        self._failures, self._steps_since = 0, 0
        logger.info("Sluice samples vLLM's steps, of requests of up to %d tokens.", self.room)

    def note_tokens(self, slot, prompt_length, tokens):
        self._tokens[slot] = (prompt_length, tokens)

    def add(self, sampler, slot, params):
        prompt_length, tokens = self._tokens.pop(slot, (0, None))
        self.remove(slot)
        if tokens is None:
            return
        refusal = refusal_of_request(params, self._mode, self.most_logprobs)
        if not refusal and len(tokens) >= self.room:
            refusal = f"more than {self.room} tokens"
        if not refusal:
            seed = sampler.sampling_states.seeds.np[slot]
            try:
                self._params[slot] = fields_of(params, seed, self._vocab, self._mode)
                self._start(slot, tokens[:prompt_length], tokens[prompt_length:])
            except Error as error:
                refusal = f"values of {error.parameter}"
            except Exception:
                refusal = "requests that the device did not take"
                self._warn("A request could not be added and vLLM samples its steps:")
        self._refusals[slot] = refusal
        self._is_added[slot] = not refusal

    def remove(self, slot):
        handle, self._handles[slot] = self._handles[slot], None
        self._tokens.pop(slot, None)
        self._params[slot], self._refusals[slot] = None, _NOT_ADDED
        self._is_added[slot], self._lengths[slot] = False, -1
        if handle is not None:
            try:
                self._sampler.remove(handle)
            except Exception:
                self._warn("A request could not be removed:")

    def _warn(self, words):
        if not self._may_fall_back:
            raise  # the exception that is being handled
        logger.warning("Sluice: %s", words, exc_info=True)

    def _start(self, slot, prompt, output):
        params = self._params[slot]
        handle = self._sampler.add(
            prompt=prompt_of(prompt, self._vocab, "repetition_penalty" in params), **params)
        self._handles[slot] = handle
        if len(output):
            self._sampler.accept(handle, np.asarray(output, np.int64))
        self._lengths[slot] = len(prompt) + len(output)
        self._batch = (None, ())

    def _catch_up(self, slots, lengths):
        """Gives requests the tokens that vLLM has of them, which waits for the device once."""
        counts["requests that caught up"] += len(slots)
        begins = [int(had) if 0 <= had < length else 0
                  for had, length in zip(self._lengths[slots], lengths)]
        parts = [self._states.all_token_ids.gpu[slot, begin:length]
                 for slot, begin, length in zip(slots, begins, lengths)]
        tokens = torch.cat(parts).cpu().numpy()
        at = 0
        for slot, begin, length in zip(slots, begins, lengths):
            own = tokens[at:at + length - begin]
            at += length - begin
            if begin > 0:
                self._sampler.accept(self._handles[slot], own)
                self._lengths[slot] = length
                continue
            if self._handles[slot] is not None:
                self._sampler.remove(self._handles[slot])
                self._handles[slot] = None
            prompt_length = int(self._states.prompt_len.np[slot])
            self._start(slot, own[:prompt_length], own[prompt_length:])

    def take(self, sampler, logits, batch):
        """A TokenTable of the batch's requests; None when vLLM has to sample them."""
        try:
            slots = batch.idx_mapping_np
            lengths = batch.seq_lens_cpu_upper_bound.numpy()[:len(slots)]
            if refusal := self._refusal_of(slots, lengths, logits):
                self._count(refusal)
                return None
            table = self._step(sampler, logits, slots, lengths)
        except Exception:
            self._failures += 1
            self._steps_since = 0
            self._lengths[batch.idx_mapping_np] = -1
            self._warn("A step failed and vLLM samples " + (
                "from now on:" if self._failures >= MOST_FAILURES else "it:"))
            self._count("failures")
            return None
        self._steps_since += 1
        if self._steps_since == STEPS_TO_FORGET_THEM:
            self._failures = 0
        self._count("steps")
        return table

    def _count(self, what):
        counts[what] += 1
        if counts[what] == 1 and what not in ("steps", "failures", _NOT_ADDED):
            logger.info("Sluice leaves a step to vLLM: %s.", what)
        total = sum(counts.values()) - counts["requests that caught up"] - counts[_NOT_ADDED]
        if total >= 1000 and str(total).strip("0") == "1":  # 1000, 10000, ...
            others = {name: count for name, count in counts.items() if name != "steps"}
            logger.info("Sluice sampled %d of %d steps; others: %s.", counts["steps"], total,
                        others or "none")

    def _refusal_of(self, slots, lengths, logits):
        if self._failures >= MOST_FAILURES:
            return "steps failed"
        if len(slots) != logits.shape[0]:
            return "rows of drafts"
        if logits.shape[1] != self._vocab or logits.stride(1) != 1:
            return "logits of another shape"
        for slot in slots[self._is_added[slots] & (lengths >= self.room)].tolist():
            self._is_added[slot] = False
            self._refusals[slot] = f"more than {self.room} tokens"
        added = self._is_added[slots]
        return "" if added.all() else self._refusals[slots[int(np.argmin(added))]]

    def _step(self, sampler, logits, slots, lengths):
        samples = lengths >= self._states.prefill_len.np[slots]  # the others still read their prompt
        takes_all = samples.all()
        own, own_lengths = (slots, lengths) if takes_all else (slots[samples], lengths[samples])
        lacks = self._lengths[own] != own_lengths
        if lacks.any():
            self._catch_up(own[lacks].tolist(), own_lengths[lacks].tolist())
        listed = int(sampler.sampling_states.num_logprobs[slots].max())
        if takes_all:
            table = self._sampler.step(logits, self._handles_of(own), table=listed).table
        else:
            table = self._step_of_some(logits, own, samples, listed)
        self._lengths[own] += 1
        return table

    def _handles_of(self, slots):
        key = slots.tobytes()
        if key != self._batch[0]:
            self._batch = (key, [self._handles[slot] for slot in slots.tolist()])
        return self._batch[1]

    def _step_of_some(self, logits, own, samples, listed):
        """Rows of unfinished prompts get 0 everywhere: vLLM does not look at them."""
        table = self._sampler.new_table(logits.shape[0], listed)
        for tensor in table:
            if tensor is not None:
                tensor.zero_()
        if len(own) == 0:
            return table
        rows = torch.from_numpy(np.flatnonzero(samples)).to(logits.device, non_blocking=True)
        sampled = self._sampler.step(logits[rows], self._handles_of(own), table=listed).table
        for into, values in zip(table, sampled):
            if values is not None:
                into[rows] = values
        return table


# What replaces functions of vLLM; plugins/vllm.py says where.


def init(original):
    @functools.wraps(original)
    def __init__(self, vllm_config, max_num_reqs, vocab_size, device, req_states, *rest, **given):
        original(self, vllm_config, max_num_reqs, vocab_size, device, req_states, *rest, **given)
        self._sluice_steps = req_states._sluice_steps = None
        if torch.device(device).type != "cuda":
            return
        if refusal := refusal_of_sampler(self):
            logger.info("Sluice leaves all steps to vLLM: %s.", refusal)
            return
        try:
            steps = Steps(self, vllm_config, max_num_reqs, vocab_size, device)
        except Exception as error:
            if vllm_config.parallel_config.tensor_parallel_size > 1:
                raise  # the other ranks would draw other tokens
            logger.warning("Sluice leaves all steps to vLLM: %s.", error)
            return
        self._sluice_steps = req_states._sluice_steps = steps

    return __init__


def add_tokens(original):
    @functools.wraps(original)
    def add_request(self, req_id, prompt_len, all_token_ids, *rest, **given):
        original(self, req_id, prompt_len, all_token_ids, *rest, **given)
        steps = getattr(self, "_sluice_steps", None)
        if steps and not req_id.startswith(WARM_UP):
            steps.note_tokens(self.req_id_to_index[req_id], prompt_len, all_token_ids)

    return add_request


def remove_request(original):
    @functools.wraps(original)
    def remove(self, req_id):
        slot = original(self, req_id)
        if slot is not None and (steps := getattr(self, "_sluice_steps", None)):
            steps.remove(slot)
        return slot

    return remove


def add_request(original):
    @functools.wraps(original)
    def add(self, req_idx, sampling_params):
        original(self, req_idx, sampling_params)
        if steps := getattr(self, "_sluice_steps", None):
            steps.add(self, req_idx, sampling_params)

    return add


def _names_of_vllm():
    """(LogprobsTensors, SamplerOutput, get_num_nans, get_num_sampled_and_rejected)"""
    worker = "vllm.v1.worker.gpu"
    return tuple(getattr(importlib.import_module(module), name) for module, name in (
        ("vllm.v1.outputs", "LogprobsTensors"), (f"{worker}.sample.output", "SamplerOutput"),
        (f"{worker}.metrics.logits", "get_num_nans"),
        (f"{worker}.input_batch", "get_num_sampled_and_rejected")))


def call(original):
    Reports, Output, get_num_nans, get_counts = _names_of_vllm()

    @functools.wraps(original)
    def __call__(self, logits, input_batch):
        steps = getattr(self, "_sluice_steps", None)
        table = None if steps is None else steps.take(self, logits, input_batch)
        if table is None:
            return original(self, logits, input_batch)
        num_sampled, num_rejected = get_counts(
            input_batch.seq_lens.new_ones(input_batch.num_reqs), input_batch.seq_lens,
            input_batch.cu_num_logits, input_batch.idx_mapping, self.req_states.prefill_len.gpu)
        return Output(
            sampled_token_ids=table.tokens,
            logprobs_tensors=(None if table.ids is None else
                              Reports(table.ids, table.logprobs, table.ranks)),
            num_nans=get_num_nans(logits) if self.compute_nans else None,
            num_sampled=num_sampled, num_rejected=num_rejected)

    return __call__
