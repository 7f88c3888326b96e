"""The whole step of vLLM's model runner V2 by a DeviceSampler: penalties, masks, draw, reports.

vLLM adds each request to its sampler when it joins a batch; it is added to the DeviceSampler there,
with its tokens. A step of requests that are all known is one step of the DeviceSampler. Any other
step is vLLM's own, and ``counts`` has the reason: a request that has had one is added again, with
the tokens that vLLM has of it, at its next step here.
"""

import atexit
import collections
import functools
import logging
import os

import numpy as np
import torch

from sluice.device_sampler import DeviceSampler
from sluice.errors import Error

logger = logging.getLogger("vllm.plugins.sluice")

MOST_LOGPROBS, MOST_LISTED_IDS = 128, 1024
MOST_BYTES, BYTES_A_TOKEN = 512 << 20, 56  # of the histories of requests
MOST_FAILURES = 3
_OWN_PROCESSORS = ("LogitBiasState", "PenaltiesState", "BadWordsState")
_RAW = ("raw_logprobs", "raw_logits")

takes_logprobs = False  # of requests that have some
counts = collections.Counter()  # of this process: "steps" here, and those of vLLM by their reasons


def _room(max_requests, max_model_len):
    """How many tokens a request may have."""
    given = os.environ.get("SLUICE_VLLM_TOKENS")
    if given is not None:
        if not given.isdecimal() or int(given) < 1:
            raise Error("SLUICE_VLLM_TOKENS", given, "a whole number from 1")
        return min(int(given), max_model_len)
    return max(1, min(max_model_len, MOST_BYTES // (BYTES_A_TOKEN * max_requests)))


def why_not_sampler(sampler):
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
        return f"there is a logits processor {(set(names) - set(_OWN_PROCESSORS) or {'less'}).pop()}"
    return ""


def why_not_request(params, mode, most_logprobs):
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


def fields_of(params, seed, vocab):
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
        fields["logprobs"] = params.logprobs
    return fields


class Steps:
    """The steps of one sampler of vLLM. What has an index of vLLM's slots has a place a slot."""

    def __init__(self, sampler, max_requests, vocab, device, max_model_len, max_logprobs):
        self.room = _room(max_requests, max_model_len)
        self.most_logprobs = min(max(max_logprobs, 0), MOST_LOGPROBS)
        self._mode, self._states = sampler.logprobs_mode, sampler.req_states
        self._sampler = DeviceSampler(
            vocab=vocab, device=device, max_requests=max_requests, max_tokens=self.room,
            max_listed_ids=MOST_LISTED_IDS, max_logprobs=self.most_logprobs,
            max_temperature=float(np.finfo(np.float32).max))
        self._params = [None] * max_requests
        self._handles = [None] * max_requests
        self._reasons = ["not added"] * max_requests
        self._is_known = np.zeros(max_requests, bool)
        # Tokens that the request's next one follows; -1 where the tokens of vLLM have to be read.
        self._lengths = np.full(max_requests, -1, np.int64)
        self._tokens = {}  # slot: (length of the prompt, all tokens), until the request is added
        self._batch = (None, ())  # of the last step: the slots as bytes, the handles
        self._failures = 0

    def note_tokens(self, slot, prompt_length, tokens):
        self._tokens[slot] = (prompt_length, tokens)

    def add(self, sampler, slot, params):
        prompt_length, tokens = self._tokens.pop(slot, (0, None))
        self.remove(slot)
        if tokens is None:
            return  # a request that vLLM makes up to warm up
        reason = why_not_request(params, self._mode, self.most_logprobs)
        if not reason and int(self._states.max_seq_len[slot]) > self.room:
            reason = f"more than {self.room} tokens"
        if not reason:
            seed = sampler.sampling_states.seeds.np[slot]
            try:
                self._params[slot] = fields_of(params, seed, self._sampler.vocab)
                self._start(slot, tokens[:prompt_length], tokens[prompt_length:])
            except Error as error:
                reason = f"a value of {error.parameter}"
            except RuntimeError:
                reason = "a request that the device did not take"
        self._reasons[slot] = reason
        self._is_known[slot] = not reason

    def remove(self, slot):
        self._tokens.pop(slot, None)
        if self._handles[slot] is not None:
            self._sampler.remove(self._handles[slot])
        self._handles[slot] = self._params[slot] = None
        self._is_known[slot], self._lengths[slot] = False, -1
        self._reasons[slot] = "not added"
        self._batch = (None, ())

    def _start(self, slot, prompt, output):
        handle = self._sampler.add(prompt=np.asarray(prompt, np.int32), **self._params[slot])
        self._handles[slot] = handle
        if len(output):
            self._sampler.accept(handle, np.asarray(output, np.int32))
        self._lengths[slot] = len(prompt) + len(output)
        self._batch = (None, ())

    def _start_again(self, slot, length):
        """With the tokens that vLLM has, which waits for the device."""
        counts["read again"] += 1
        if self._handles[slot] is not None:
            self._sampler.remove(self._handles[slot])
            self._handles[slot] = None
        prompt_length = int(self._states.prompt_len.np[slot])
        tokens = self._states.all_token_ids.gpu[slot, :length].cpu().numpy()
        self._start(slot, tokens[:prompt_length], tokens[prompt_length:])

    def take(self, sampler, logits, batch):
        """(tokens, ids, logprobs, ranks) of each request of the batch; None when vLLM has to."""
        slots = batch.idx_mapping_np
        reason = self._why_not(slots, logits)
        if reason:
            counts[reason] += 1
            if counts[reason] == 1:
                logger.info("Sluice leaves a step to vLLM: %s.", reason)
            return None
        lengths = batch.seq_lens_cpu_upper_bound.numpy()[:len(slots)]
        samples = lengths >= self._states.prefill_len.np[slots]  # others are amid their prompt
        try:
            table = self._step(sampler, logits, slots, lengths, samples)
        except Exception:
            self._failures += 1
            counts["failures"] += 1
            self._lengths[slots] = -1
            logger.warning("Sluice's step failed and vLLM samples%s:",
                           " from now on" if self._failures >= MOST_FAILURES else " this one",
                           exc_info=True)
            return None
        counts["steps"] += 1
        return table

    def _why_not(self, slots, logits):
        if self._failures >= MOST_FAILURES:
            return "steps failed"
        if len(slots) != logits.shape[0]:
            return "rows of drafts"
        known = self._is_known[slots]
        return "" if known.all() else self._reasons[slots[int(np.argmin(known))]]

    def _step(self, sampler, logits, slots, lengths, samples):
        takes_all = samples.all()
        own, own_lengths = (slots, lengths) if takes_all else (slots[samples], lengths[samples])
        for at in np.flatnonzero(self._lengths[own] != own_lengths):
            self._start_again(int(own[at]), int(own_lengths[at]))
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
        """Rows amid their prompt get 0 everywhere: vLLM does not look at them."""
        table = self._sampler.new_table(logits.shape[0], listed)
        for tensor in table:
            if tensor is not None:
                tensor.zero_()
        if len(own) == 0:
            return table
        rows = torch.from_numpy(np.flatnonzero(samples)).to(logits.device, non_blocking=True)
        reports = any("logprobs" in self._params[slot] for slot in own.tolist())
        of_some = self._sampler.step(logits[rows], self._handles_of(own),
                                     table=listed if reports else -1).table
        for to, values in zip(table, of_some):
            if values is not None:
                to[rows] = values
        return table


# What replaces functions of vLLM; plugins/vllm.py says where.


def init(original):
    @functools.wraps(original)
    def __init__(self, vllm_config, max_num_reqs, vocab_size, device, req_states, *rest, **given):
        original(self, vllm_config, max_num_reqs, vocab_size, device, req_states, *rest, **given)
        self._sluice_steps = req_states._sluice_steps = None
        if torch.device(device).type != "cuda":
            return
        if reason := why_not_sampler(self):
            logger.info("Sluice leaves all steps to vLLM: %s.", reason)
            return
        config = vllm_config.model_config
        try:
            steps = Steps(self, max_num_reqs, vocab_size, device, req_states.max_model_len,
                          getattr(config, "max_logprobs", 20))
        except (Error, RuntimeError) as error:
            logger.warning("Sluice leaves all steps to vLLM: %s.", error)
            return
        self._sluice_steps = req_states._sluice_steps = steps

    return __init__


def add_tokens(original):
    @functools.wraps(original)
    def add_request(self, req_id, prompt_len, all_token_ids, *rest, **given):
        original(self, req_id, prompt_len, all_token_ids, *rest, **given)
        if steps := getattr(self, "_sluice_steps", None):
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


def call(original):
    from vllm.v1.outputs import LogprobsTensors

    vllm = original.__globals__

    @functools.wraps(original)
    def __call__(self, logits, input_batch):
        steps = getattr(self, "_sluice_steps", None)
        table = None if steps is None else steps.take(self, logits, input_batch)
        if table is None:
            return original(self, logits, input_batch)
        num_nans = vllm["get_num_nans"](logits) if self.compute_nans else None
        reports = None
        if table.ids is not None:
            reports = LogprobsTensors(table.ids, table.logprobs, table.ranks)
        num_sampled, num_rejected = vllm["get_num_sampled_and_rejected"](
            input_batch.seq_lens.new_ones(input_batch.num_reqs), input_batch.seq_lens,
            input_batch.cu_num_logits, input_batch.idx_mapping, self.req_states.prefill_len.gpu)
        return vllm["SamplerOutput"](sampled_token_ids=table.tokens, logprobs_tensors=reports,
                                     num_nans=num_nans, num_sampled=num_sampled,
                                     num_rejected=num_rejected)

    return __call__


@atexit.register
def _report():
    if counts["steps"]:
        others = {name: number for name, number in counts.items() if name != "steps"}
        logger.info("Sluice took %d steps; others: %s.", counts["steps"], others or "none")
