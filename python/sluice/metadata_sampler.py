"""A sampler that gets its requests as vLLM's own does: by a batch's metadata at every step.

    step = sluice.MetadataSampler(sluice.DeviceSampler(vocab=vocab))(logits, sampling_metadata)

A request is known again by its list in ``output_token_ids``, which an engine keeps for as long as
the request lives. Where no request of the batch needs them an engine gives no lists: then a request
with a seed is known by its generator, and its position is the number of tokens that were drawn with
it here; the others begin anew whenever the batch changes, with seeds of their own. The tensors of a
metadata object are read when it is a new one, which waits for the device; engines make one when
their batch changes.
"""

from typing import NamedTuple

import numpy as np

from sluice._sluice import SamplingParams, StepRequest
from sluice.errors import Error

# Of the metadata, one a row, to fields of SamplingParams.
_COLUMNS = {"temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
# A batch has these columns, and prompts, as soon as one of its rows needs them: what they say of the
# others changes nothing, and is left out, so that a row does not depend on its company.
_PENALTIES = {"frequency_penalties": ("frequency_penalty", 0),
              "presence_penalties": ("presence_penalty", 0),
              "repetition_penalties": ("repetition_penalty", 1)}


# Of SamplingParams, what is decided by the tokens before.
_OF_HISTORY = {field for field, _ in _PENALTIES.values()} | {"bad_words", "min_tokens"}


class _Request:
    def __init__(self, handle, row):
        self.handle, self.output, self.fields = handle, row.output, row.fields
        self.generator = row.generator
        self.known = []  # of the output, what the sampler has


class _Row(NamedTuple):
    output: list  # None: the engine does not say it
    fields: dict
    prompt: list
    bitmask: object
    generator: object


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


def _processor_fields(metadata, outputs):
    """What the built-in processors of the batch do to each row: newer versions have no columns for
    it. They are known by the names of their classes and fields. One that looks at the output of a
    row has its list, which may be missing in ``outputs``."""
    rows = len(outputs)
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
            for row, (least, output, stops, *grammar) in processor.min_toks.items():
                if any(grammar):  # which may take the stops' mask back
                    raise Error("min_tokens", f"{least} with structured outputs", "one of the two")
                if outputs[row] is None:
                    outputs[row] = output
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


def rows_of(metadata, vocab, has_drafts=False, rows=0):
    """What the metadata says of each row, of ``rows`` where it does not say how many it has."""
    _check_known(metadata, has_drafts)
    outputs = list(metadata.output_token_ids) or [None] * rows
    count = len(outputs)
    fields = _processor_fields(metadata, outputs)
    columns = {name: (field, None) for name, field in _COLUMNS.items()}
    if not getattr(metadata, "no_penalties", False):
        columns |= _PENALTIES
    for name, (field, neutral) in columns.items():
        values = getattr(metadata, name, None)
        for row, value in enumerate([] if values is None else values.tolist()):
            if value != neutral:
                fields[row][field] = value
    logprobs = _logprobs(metadata)
    generators = []
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
        generators.append(_of_row(metadata, "generators", row))
        if generators[row] is not None:
            of_row["seed"] = generators[row].initial_seed() % 2**64
        if outputs[row] is None and (needs := sorted(_OF_HISTORY & of_row.keys())):
            raise Error("output_token_ids", "no lists", f"one for row {row}, for its {needs[0]}")
    prompts = getattr(metadata, "prompt_token_ids", None)
    prompts = [[]] * count if prompts is None else prompts.tolist()
    penalized = {field for field, _ in _PENALTIES.values()}
    prompts = [prompt if penalized & of_row.keys() else []
               for prompt, of_row in zip(prompts, fields)]
    bitmasks = _bitmasks(metadata) or [None] * count
    return [_Row(outputs[row], fields[row],
                 [token for token in prompts[row] if 0 <= token < vocab],  # filled up with vocab
                 bitmasks[row], generators[row]) for row in range(count)]


def _of_row(metadata, name, row):
    """Of a list, or of a dictionary of the rows that have one; None when there is none."""
    values = getattr(metadata, name, None)
    if not values:
        return None
    return (values.get(row) if isinstance(values, dict) else values[row]) or None


class MetadataSampler:
    """Wraps a DeviceSampler, which has no other user then; a call is a step of all requests.

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
        """``drafts``: a list of ids for each request of the metadata, and the logits then have a row for
        each draft and one more."""
        self._take_answers()
        rows = self._rows
        if metadata is self._metadata:
            _check_known(metadata, drafts is not None)
        else:
            rows = rows_of(metadata, self.sampler.vocab, drafts is not None,
                           logits.shape[0] if drafts is None else len(drafts))
        if drafts is not None and len(drafts) != len(rows):
            raise Error("drafts", f"{len(drafts)} lists", f"one for each request, {len(rows)}")
        counts = [1] * len(rows) if drafts is None else [1 + len(some) for some in drafts]
        if sum(counts) != logits.shape[0]:
            raise Error("output_token_ids", f"{len(rows)} lists",
                        f"one for each row of the logits, {logits.shape[0]}, that is no draft's")
        if metadata is not self._metadata:
            self._change_batch(rows)
            self._metadata = metadata
        for request, row in zip(self._requests, rows):
            if row.output is not None:
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
        same = self._same_requests(rows)
        kept = [request if request is not None and request.fields == row.fields else None
                for request, row in zip(same, rows)]
        for request in self._requests:
            if request not in kept:
                self.sampler.remove(request.handle)
        self._requests, self._rows, self._metadata = [], rows, None
        try:
            for request, row, earlier in zip(kept, rows, same):
                if request is None:
                    params = SamplingParams(draft_mode=self._draft_mode, **row.fields)
                    handle = self.sampler.add(params, prompt=row.prompt)
                    request = _Request(handle, row)
                self._requests.append(request)
                if request is not earlier and earlier is not None and row.output is None:
                    request.output = earlier.output
                    if earlier.known:  # its position, which no other field says
                        self.sampler.accept(request.handle, earlier.known)
                        request.known = earlier.known
        except Exception:  # those after it are live: the next call finds them here
            self._requests += [request for request in kept[len(self._requests):] if request]
            raise

    def _same_requests(self, rows):
        """Of each row the request that it was until now, or None."""
        by_list = {id(request.output): request for request in self._requests
                   if request.output is not None}
        by_generator = {id(request.generator): request for request in self._requests
                        if request.generator is not None}
        return [by_list.get(id(row.output)) if row.output is not None
                else by_generator.pop(id(row.generator), None) for row in rows]

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
