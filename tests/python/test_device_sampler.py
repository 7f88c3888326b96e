"""Metadata of an engine's batch become requests of a sampler; without CUDA the device says so."""

import types

import numpy as np
import pytest
import sluice
from sluice.metadata_sampler import MetadataSampler, rows_of

VOCAB = 40


class Generator:
    def __init__(self, seed):
        self._seed = seed

    def initial_seed(self):
        return self._seed


class HostSampler:
    """A sluice.Sampler that answers as a DeviceSampler does."""

    def __init__(self, **options):
        self._sampler = sluice.Sampler(vocab=VOCAB, **options)
        self.added = 0
        for name in ("remove", "accept", "rollback", "tokens"):
            setattr(self, name, getattr(self._sampler, name))

    vocab = VOCAB

    def add(self, params, *, prompt):
        self.added += 1
        return self._sampler.add(params, prompt=prompt)

    def step(self, logits, requests):
        tokens = self._sampler.step(logits, requests)
        return types.SimpleNamespace(get=lambda: tokens)


def metadata_of(outputs, **fields):
    count = len(outputs)
    values = {"temperature": np.full(count, 0.8, np.float32),
              "top_k": np.full(count, VOCAB, np.int32), "top_p": None, "all_greedy": False,
              "no_penalties": True, "generators": {}, "output_token_ids": outputs}
    return types.SimpleNamespace(**{**values, **fields})


def logits_of(rows, seed=0):
    return np.random.default_rng(seed).normal(0, 3, (rows, VOCAB)).astype(np.float32)


def test_rows_say_what_the_metadata_say():
    mask = np.zeros((3, VOCAB), bool)
    mask[1, 5:] = True
    metadata = metadata_of(
        [[1], [], [2, 3]], no_penalties=False, top_k=np.array([5, VOCAB, 7]),
        top_p=np.array([0.5, 1.0, 0.75], np.float32), min_p=np.array([0.0, 0.25, 0.0], np.float32),
        frequency_penalties=np.array([0.5, 0, 0], np.float32),
        presence_penalties=np.zeros(3, np.float32),
        repetition_penalties=np.array([1, 2, 1], np.float32),
        prompt_token_ids=np.array([[4, 5], [6, VOCAB], [VOCAB, VOCAB]]),
        allowed_token_ids_mask=mask, bad_words_token_ids={2: [[1, 2], [3]]},
        logit_bias=[{7: 2.5}, None, None], min_tokens={0: (4, [1], {9, 8})},
        generators={1: Generator(77)}, max_num_logprobs=3)
    first, second, third = rows_of(metadata, VOCAB)
    assert first.fields["top_k"] == 5 and second.fields["top_k"] == 0
    assert first.fields["logit_bias"] == {7: 2.5} and "logit_bias" not in second.fields
    assert (first.fields["min_tokens"], first.fields["stop_token_ids"]) == (4, [8, 9])
    assert second.fields["seed"] == 77 and "seed" not in first.fields
    assert second.fields["repetition_penalty"] == 2 and second.prompt == [6] and third.prompt == []
    assert third.fields["bad_words"] == [[1, 2], [3]] and third.fields["logprobs"] == 3
    assert first.bitmask is None and second.bitmask.tolist() == [0b11111, 0]


def test_every_row_is_a_request_with_its_own_history():
    outputs = [[3], [], [9, 9]]
    prompts = np.array([[1, 2], [4, VOCAB], [VOCAB, VOCAB]])
    fields = {"generators": {row: Generator(row) for row in range(3)}, "no_penalties": False,
              "frequency_penalties": np.full(3, 0.5, np.float32),
              "repetition_penalties": np.full(3, 1.3, np.float32),
              "presence_penalties": np.zeros(3, np.float32), "prompt_token_ids": prompts}
    metadata = metadata_of(outputs, **fields)
    host = HostSampler()
    sampler = MetadataSampler(host)
    expected = sluice.Sampler(vocab=VOCAB)
    handles = [expected.add(temperature=np.float32(0.8), frequency_penalty=0.5,
                            repetition_penalty=np.float32(1.3), seed=row,
                            prompt=[token for token in prompts[row] if token < VOCAB])
               for row in range(3)]
    for handle, output in zip(handles, outputs):
        expected.accept(handle, output)
    for step in range(10):
        logits = logits_of(3, step)
        ids = sampler(logits, metadata).get().ids
        assert ids.tolist() == expected.step(logits, handles).ids.tolist()
        for output, token in zip(outputs, ids.tolist()):
            output.append(token)
    assert host.added == 3


def test_requests_leave_join_and_change_places():
    a, b, c = [], [], []
    host = HostSampler(max_requests=2)
    sampler = MetadataSampler(host)
    for batch in ([a, b], [b, a], [b, c], [c]):
        metadata = metadata_of(batch, generators={i: Generator(5) for i in range(len(batch))})
        for _ in range(2):
            ids = sampler(logits_of(len(batch)), metadata).get().ids
            for output, token in zip(batch, ids.tolist()):
                output.append(token)
    assert [len(a), len(b), len(c)] == [4, 6, 4]
    assert host.added == 3


def test_tokens_that_the_engine_replaces_are_replaced():
    output = []
    metadata = metadata_of([output], generators={0: Generator(1)})
    host = HostSampler()
    sampler = MetadataSampler(host)
    sampler(logits_of(1), metadata)
    output[:] = [11]  # whatever was sampled
    sampler(logits_of(1), metadata)
    output[:] = [11, 12, 13]
    sampler(logits_of(1), metadata)
    request = sampler._requests[0].handle
    assert host.tokens(request).tolist()[:3] == [11, 12, 13]


def test_a_refused_request_leaves_the_others_as_they_are():
    a, b = [], []
    host = HostSampler(max_requests=3)
    sampler = MetadataSampler(host)

    def step(batch, top_p):
        metadata = metadata_of(batch, top_p=np.array(top_p, np.float32))
        ids = sampler(logits_of(len(batch)), metadata).get().ids
        for output, token in zip(batch, ids.tolist()):
            output.append(token)

    step([a, b], [0.5, 0.5])
    for _ in range(3):
        with pytest.raises(sluice.Error, match="top_p"):
            step([[], a, b], [2, 0.5, 0.5])
    step([b, a], [0.5, 0.5])
    assert host.added == 2
    assert [len(a), len(b)] == [2, 2]


def test_a_row_does_not_depend_on_who_else_has_penalties():
    alone, joined, other = [], [], []
    neutral = {"no_penalties": False, "frequency_penalties": np.array([0, 0.5], np.float32),
               "presence_penalties": np.zeros(2, np.float32),
               "repetition_penalties": np.array([1, 1.5], np.float32),
               "prompt_token_ids": np.array([[4, 5], [6, 7]])}
    for output, joins_at in ((alone, 9), (joined, 3)):
        sampler = MetadataSampler(HostSampler(max_requests=2))
        for position in range(6):
            batch = [output, other] if position >= joins_at else [output]
            fields = neutral if position >= joins_at else {}
            metadata = metadata_of(batch, generators={0: Generator(7)}, **fields)
            logits = np.stack([logits_of(1, position)[0]] * len(batch))
            ids = sampler(logits, metadata).get().ids
            for one, token in zip(batch, ids.tolist()):
                one.append(token)
    assert alone == joined


@pytest.mark.parametrize("mode", ["match", "reject"])
def test_drafts_are_verified_by_their_requests(mode):
    """One request with as many drafts as there are, one without, one with a mask."""
    outputs, prompts = [[], [], []], np.array([[1, 2], [4, VOCAB], [VOCAB, VOCAB]])
    mask = np.zeros((3, VOCAB), bool)
    mask[2, 20:] = True
    metadata = metadata_of(
        outputs, generators={row: Generator(row) for row in range(3)}, no_penalties=False,
        frequency_penalties=np.full(3, 0.5, np.float32), prompt_token_ids=prompts,
        presence_penalties=np.zeros(3, np.float32), repetition_penalties=np.ones(3, np.float32),
        allowed_token_ids_mask=mask, spec_token_ids=[[3], [], [5]])
    options = {"max_requests": 3}
    sampler = MetadataSampler(HostSampler(**options), draft_mode=mode)
    expected = sluice.Sampler(vocab=VOCAB, **options)
    handles = [expected.add(temperature=np.float32(0.8), frequency_penalty=0.5, seed=row,
                            draft_mode=mode, prompt=[t for t in prompts[row] if t < VOCAB])
               for row in range(3)]
    words = np.packbits(np.r_[~mask[2], np.zeros(-VOCAB % 32, bool)], bitorder="little").view("<i4")
    emitted = set()
    for step in range(12):
        drafts = [list(range(step % 5)), [], [step, 7]]
        logits = logits_of(sum(1 + len(some) for some in drafts), step)
        for at in range(len(drafts[0])):
            logits[at, drafts[0][at]] += 6  # most of these are taken
        tokens = sampler(logits, metadata, drafts).get()
        same = expected.step(logits, [
            sluice.StepRequest(handles[0], drafts=drafts[0]), handles[1],
            sluice.StepRequest(handles[2], drafts=drafts[2], bitmask=np.tile(words, (3, 1)))])
        assert tokens.ids.tolist() == same.ids.tolist()
        before = 0
        for output, some in zip(outputs, drafts):
            new = [token for token in tokens.ids[before:before + 1 + len(some)] if token >= 0]
            output += new  # as the engine does
            emitted.add(len(new))
            before += 1 + len(some)
    assert max(emitted) > 2
    assert sampler.sampler.added == 3


def test_drafts_must_be_said_and_fit():
    sampler = MetadataSampler(HostSampler())
    with pytest.raises(sluice.Error, match="spec_token_ids"):
        sampler(logits_of(2), metadata_of([[]], spec_token_ids=[[3]]))
    with pytest.raises(sluice.Error, match="drafts = 2 lists"):
        sampler(logits_of(2), metadata_of([[]]), [[3], []])
    with pytest.raises(sluice.Error, match="output_token_ids = 1 lists"):
        sampler(logits_of(3), metadata_of([[]]), [[3]])


def test_every_row_needs_a_history():
    with pytest.raises(sluice.Error, match="output_token_ids = 1 lists"):
        MetadataSampler(HostSampler())(logits_of(2), metadata_of([[]]))


def test_all_logprobs_are_refused():
    with pytest.raises(sluice.Error, match="max_num_logprobs"):
        rows_of(metadata_of([[]], max_num_logprobs=-1), VOCAB)


def test_without_cuda_the_class_says_so():
    pytest.importorskip("torch")
    from sluice import _sluice
    if _sluice.build()["cuda"]:
        pytest.skip("built with CUDA")
    with pytest.raises(sluice.UnavailableError, match="no CUDA"):
        sluice.DeviceSampler(vocab=VOCAB)


def test_without_cuda_the_extension_says_so():
    from sluice import _sluice
    if _sluice.build()["cuda"]:
        pytest.skip("built with CUDA")
    with pytest.raises(sluice.UnavailableError, match="no CUDA"):
        _sluice.CudaSampler(0, {"vocab": VOCAB})
