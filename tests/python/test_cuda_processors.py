"""Processors of sluice.DeviceSampler on tensors of torch, and the kept sets of its steps: the bits
of sluice.Sampler."""

import gc
import weakref

import numpy as np
import pytest

import sluice

torch = pytest.importorskip("torch", reason="torch is not installed")
if not sluice._sluice.build()["cuda"]:
    pytest.skip("this build of Sluice has no CUDA", allow_module_level=True)
if not torch.cuda.is_available():
    pytest.skip("torch sees no CUDA device", allow_module_level=True)

VOCAB = 100


def logits_of(rows, seed=0):
    return np.random.default_rng(seed).normal(0, 3, (rows, VOCAB)).astype(np.float32)


def on_device(rows):
    return torch.as_tensor(rows).cuda()


def by_length(tokens, prompt_length, logits):
    logits[(len(tokens) * 7 + prompt_length) % VOCAB] = 9
    logits[tokens[-1]] = -np.inf


def by_length_there(rows):
    count = rows.token_count.item()
    tokens = rows.tokens[:count].tolist() + rows.drafts.tolist()
    for d in range(len(rows.logits)):
        rows.logits[d, (7 * (count + d) + rows.prompt_length) % VOCAB] = 9
        rows.logits[d, tokens[count + d - 1]] = -np.inf


def test_equal_the_samplers_with_drafts_and_histories():
    sampler = sluice.DeviceSampler(vocab=VOCAB, max_requests=2, max_drafts=2, max_processed_rows=3,
                                   kept=True, masses=True)
    host = sluice.Sampler(vocab=VOCAB)
    fields = {"top_k": 20, "frequency_penalty": 0.5, "seed": 3, "prompt": [4, 5]}
    mine = [sampler.add(processors=[by_length_there], **fields), sampler.add(seed=4)]
    theirs = [host.add(processors=[by_length], **fields), host.add(seed=4)]
    emitted = set()
    for step in range(20):
        rows = logits_of(4, step)
        drafts = [(step * 3) % VOCAB, 8]
        rows[0, drafts[0]] = 20
        if step % 2:
            rows[1, 8] = 20
        answer = sampler.step(on_device(rows),
                              [sluice.StepRequest(mine[0], drafts=drafts), mine[1]])
        expected = host.step(rows, [sluice.StepRequest(theirs[0], drafts=drafts), theirs[1]],
                             kept=True, masses=True)
        got = answer.get()
        assert got.ids.tolist() == answer.ids.tolist() == expected.ids.tolist()
        assert answer.kept.tolist() == expected.kept.tolist()
        for name in ("upper", "lower", "counts", "kept_masses", "total_masses", "margins"):
            np.testing.assert_array_equal(getattr(got.cuts, name), getattr(expected.cuts, name))
        emitted.add(int(got.emitted[0]))
    assert len(emitted) > 1


def test_an_exception_leaves_the_step_and_nothing_is_accepted():
    class Trouble(Exception):
        pass

    trouble = [False]

    def moody(rows):
        if trouble[0]:
            raise Trouble

    sampler = sluice.DeviceSampler(vocab=VOCAB, max_requests=1, max_processed_rows=1)
    same = sluice.DeviceSampler(vocab=VOCAB, max_requests=1)
    request = sampler.add(seed=1, presence_penalty=2.0, processors=[moody])
    other = same.add(seed=1, presence_penalty=2.0)
    logits = on_device(logits_of(1))
    for step in range(6):
        trouble[0] = step % 2 == 1
        if trouble[0]:
            with pytest.raises(Trouble):
                sampler.step(logits, [request])
        else:
            ids = sampler.step(logits, [request]).get().ids
            assert ids.tolist() == same.step(logits, [other]).get().ids.tolist()


def test_a_processor_may_not_call_the_sampler():
    sampler = sluice.DeviceSampler(vocab=VOCAB, max_requests=1, max_processed_rows=1)
    request = sampler.add(processors=[lambda rows: sampler.remove(request)])
    with pytest.raises(sluice.Error, match="one call at a time"):
        sampler.step(on_device(logits_of(1)), [request])
    assert sampler.free_slots == 0


def test_greedy_requests_skip_what_cannot_move_the_argmax():
    def move(rows):
        rows.logits[:, 5] = 100

    sampler = sluice.DeviceSampler(vocab=VOCAB, max_requests=2, max_processed_rows=2)
    requests = [sampler.add(temperature=0, processors=[move]),
                sampler.add(temperature=0,
                            processors=[sluice.LogitsProcessor(move, argmax_invariant=True)])]
    rows = logits_of(2)
    ids = sampler.step(on_device(rows), requests).get().ids
    assert ids.tolist() == [5, rows[1].argmax()]


def test_a_sampler_that_its_processor_knows_is_collected():
    class Processor:
        def __call__(self, rows):
            pass

    processor = Processor()
    processor.sampler = sluice.DeviceSampler(vocab=VOCAB, max_requests=1, max_processed_rows=1)
    processor.sampler.add(processors=[processor])
    gone = weakref.ref(processor)
    del processor
    gc.collect()
    assert gone() is None


def test_what_was_not_planned_is_refused():
    sampler = sluice.DeviceSampler(vocab=VOCAB, max_requests=2, max_processed_rows=1)
    requests = [sampler.add(processors=[by_length_there], prompt=[1]) for _ in range(2)]
    logits = on_device(logits_of(2))
    with pytest.raises(sluice.Error, match="processed rows"):
        sampler.step(logits, requests)
    assert sampler.step(logits[:1], requests[:1]).kept is None
    with pytest.raises(sluice.Error, match="processors"):
        sluice.DeviceSampler(vocab=VOCAB).add(processors=[by_length_there])
    with pytest.raises(sluice.Error, match="callables"):
        sampler.add(processors=[5])
    with pytest.raises(sluice.Error, match="kept"):
        sluice.DeviceSampler(vocab=VOCAB, kept=2)
