"""A sampler that is told of its requests as vLLM tells its own: a batch's metadata at every step.

    step = sluice.MetadataSampler(sluice.DeviceSampler(vocab=vocab))(logits, sampling_metadata)

A request is known again by its list in ``output_token_ids``, which an engine keeps for as long as
the request lives. The tensors of a metadata object are read when it is a new one, which waits for
the device; engines make one when their batch changes.
"""

from typing import NamedTuple

import numpy as np

from sluice._sluice import SamplingParams, StepRequest
from sluice.errors import Error

# Of the metadata, one a row, to fields of SamplingParams.
_COLUMNS = {"temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
# A batch has these columns, and prompts, as soon as one of its rows wants them: what they say of the
# others changes nothing, and is left out, so that a row does not depend on its company.
_PENALTIES = {"frequency_penalties": ("frequency_penalty", 0),
              "presence_penalties": ("presence_penalty", 0),
              "repetition_penalties": ("repetition_penalty", 1)}


class _Request:
    def __init__(self, handle, output, fields):
        self.handle, self.output, self.fields = handle, output, fields
        self.known = []  # of the output, what the sampler has


class _Row(NamedTuple):
    output: list
    fields: dict
    prompt: list
    bitmask: object


def _host(tensor):
    return np.asarray(tensor.cpu() if hasattr(tensor, "cpu") else tensor)


def _bitmasks(metadata):
    """One a row, where tokens are forbidden; in the metadata True is a token that is not allowed."""
    mask = getattr(metadata, "allowed_token_ids_mask", None)
    if mask is None:
        return None
    forbidden = _host(mask).astype(bool)
    rows, vocab = forbidden.shape
    allowed = np.zeros((rows, (vocab + 31) // 32 * 32), bool)
    allowed[:, :vocab] = ~forbidden
    words = np.packbits(allowed, axis=1, bitorder="little").view("<i4")
    return [words[row] if forbidden[row].any() else None for row in range(rows)]


def _logprobs(metadata):
    most = getattr(metadata, "max_num_logprobs", None)
    if most is not None and most < 0:
        raise Error("max_num_logprobs", str(most), "None, or from 0 to 128")
    return most


def _processor_fields(metadata, rows):
    """What the built-in processors of the batch do to each row: newer versions have no columns for
    it. They are known by the names of their classes and fields."""
    fields = [{} for _ in range(rows)]
    processors = getattr(metadata, "logitsprocs", None)
    for processor in processors.all if processors is not None else ():
        name = type(processor).__name__
        if name == "MinPLogitsProcessor":
            for row in range(rows if processor.min_p_count else 0):
                if (least := processor.get_min_p_by_index(row)) != 0:
                    fields[row]["min_p"] = least
        elif name == "LogitBiasLogitsProcessor":
            for row, bias in processor.biases.items():
                fields[row]["logit_bias"] = dict(bias)
        elif name == "MinTokensLogitsProcessor":
            for row, (least, _, stops, *_) in processor.min_toks.items():
                fields[row] |= {"min_tokens": least, "stop_token_ids": sorted(stops)}
        else:
            raise Error("logitsprocs", name, "the built-in min-p, logit bias and min-tokens")
    return fields


def _check_known(metadata, has_drafts):
    """Raises for what DeviceSampler has no word for."""
    if any((getattr(metadata, "logprob_token_ids", None) or {}).values()):
        raise Error("logprob_token_ids", "given", "none")
    if not has_drafts and any(getattr(metadata, "spec_token_ids", None) or ()):
        raise Error("spec_token_ids", "given", "none without drafts in the call")
    holder = getattr(metadata, "thinking_budget_state_holder", None)
    if holder is not None and holder.has_tracked_requests():
        raise Error("thinking_budget_state_holder", "requests with a budget", "none")


def rows_of(metadata, vocab, has_drafts=False):
    """What the metadata says of each row."""
    _check_known(metadata, has_drafts)
    outputs = metadata.output_token_ids
    count = len(outputs)
    fields = _processor_fields(metadata, count)
    columns = {name: (field, None) for name, field in _COLUMNS.items()}
    if not getattr(metadata, "no_penalties", False):
        columns |= _PENALTIES
    for name, (field, neutral) in columns.items():
        values = getattr(metadata, name, None)
        for row, value in enumerate([] if values is None else values.tolist()):
            if value != neutral:
                fields[row][field] = value
    logprobs = _logprobs(metadata)
    for row, of_row in enumerate(fields):
        if getattr(metadata, "all_greedy", False) or "temperature" not in of_row:
            of_row["temperature"] = 0.0
        if of_row.get("top_k", 0) >= vocab:
            of_row["top_k"] = 0
        if logprobs is not None:
            of_row["logprobs"] = logprobs
        if (bias := _of_row(metadata, "logit_bias", row)) is not None:
            of_row["logit_bias"] = dict(bias)
        if (words := _of_row(metadata, "bad_words_token_ids", row)) is not None:
            of_row["bad_words"] = [list(word) for word in words]
        if (least := _of_row(metadata, "min_tokens", row)) is not None:
            of_row["min_tokens"], of_row["stop_token_ids"] = least[0], sorted(least[-1])
        if (generator := _of_row(metadata, "generators", row)) is not None:
            of_row["seed"] = generator.initial_seed() % 2**64
    prompts = getattr(metadata, "prompt_token_ids", None)
    prompts = [[]] * count if prompts is None else prompts.tolist()
    penalized = {field for field, _ in _PENALTIES.values()}
    prompts = [prompt if penalized & of_row.keys() else []
               for prompt, of_row in zip(prompts, fields)]
    bitmasks = _bitmasks(metadata) or [None] * count
    return [_Row(outputs[row], fields[row],
                 [token for token in prompts[row] if 0 <= token < vocab],  # filled up with vocab
                 bitmasks[row]) for row in range(count)]


def _of_row(metadata, name, row):
    """Of a list, or of a dictionary of the rows that have one; None when there is none."""
    values = getattr(metadata, name, None)
    if not values:
        return None
    return (values.get(row) if isinstance(values, dict) else values[row]) or None


class MetadataSampler:
    """Wraps a DeviceSampler, which nobody else uses then; a call is a step of all requests.

    ``draft_mode``: "match" or "reject", of requests that have drafts.
    """

    def __init__(self, sampler, *, draft_mode="match"):
        self.sampler = sampler
        self._draft_mode = draft_mode
        self._requests = []
        self._counts = []  # of the last step: rows of each request
        self._rows = []
        self._metadata = None
        self._step = None  # the last one

    def __call__(self, logits, metadata, drafts=None):
        """``drafts``: a list of ids for each request of the metadata, whose logits then have a row for
        each draft and one more."""
        self._take_answers()
        rows = self._rows
        if metadata is not self._metadata:
            rows = rows_of(metadata, self.sampler.vocab, drafts is not None)
        if drafts is not None and len(drafts) != len(rows):
            raise Error("drafts", f"{len(drafts)} lists", f"one for each request, {len(rows)}")
        counts = [1] * len(rows) if drafts is None else [1 + len(some) for some in drafts]
        if sum(counts) != logits.shape[0]:  # some engines leave the lists out when nobody needs them
            raise Error("output_token_ids", f"{len(rows)} lists",
                        f"one for each row of the logits, {logits.shape[0]}, that is no draft's")
        if metadata is not self._metadata:
            self._change_batch(rows)
            self._metadata = metadata
        for request in self._requests:
            self._follow(request)
        drafts = [()] * len(rows) if drafts is None else drafts
        step_requests = [self._step_request(request, row, list(some))
                         for request, row, some in zip(self._requests, self._rows, drafts)]
        self._step = self.sampler.step(logits, step_requests)
        self._counts = counts
        return self._step

    @staticmethod
    def _step_request(request, row, drafts):
        if row.bitmask is None and not drafts:
            return request.handle
        bitmask = row.bitmask
        if bitmask is not None and drafts:
            bitmask = np.tile(bitmask, (1 + len(drafts), 1))
        return StepRequest(request.handle, drafts=drafts, bitmask=bitmask)

    def _take_answers(self):
        """What the last step gave: the engine has read it, or else does now."""
        if self._step is None:
            return
        ids, before = self._step.get().ids.tolist(), 0
        for request, count in zip(self._requests, self._counts):
            for token in ids[before:before + count]:
                if token < 0:
                    break
                request.known.append(token)
            before += count
        self._step = None

    def _change_batch(self, rows):
        before = {id(request.output): request for request in self._requests}
        kept = [before.get(id(row.output)) for row in rows]
        kept = [request if request is not None and request.fields == row.fields else None
                for request, row in zip(kept, rows)]
        for request in self._requests:
            if request not in kept:
                self.sampler.remove(request.handle)
        self._requests, self._rows, self._metadata = [], rows, None
        try:
            for request, row in zip(kept, rows):
                if request is None:
                    params = SamplingParams(draft_mode=self._draft_mode, **row.fields)
                    handle = self.sampler.add(params, prompt=row.prompt)
                    request = _Request(handle, row.output, row.fields)
                self._requests.append(request)
        except Exception:  # those behind it are live: the next call finds them here
            self._requests += [request for request in kept[len(self._requests):] if request]
            raise

    def _follow(self, request):
        """Makes the sampler's history that of the engine, which may have replaced tokens, the last
        one among them."""
        output, known = request.output, request.known
        if len(output) == len(known) and output[-1:] == known[-1:]:
            return
        same = 0
        while same < min(len(output), len(known)) and output[same] == known[same]:
            same += 1
        if len(known) > same:
            self.sampler.rollback(request.handle, len(known) - same)
            del known[same:]
        if len(output) > same:
            self.sampler.accept(request.handle, output[same:])
        request.known = list(output)
