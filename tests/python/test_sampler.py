"""The Sampler: what a request gets depends on its own history and on nothing else."""

import gc
import threading
import weakref

import numpy as np
import pytest
from conftest import assert_same, columns, random_rows

import sluice

VOCAB = 97
PARAMS = [
    {"temperature": 0, "repetition_penalty": 1.5},
    {"top_k": 8, "frequency_penalty": 0.5, "presence_penalty": 0.25, "seed": 1},
    {"top_p": 0.8, "logit_bias": {3: 5.0, 4: -100}, "bad_words": [[5], [6, 7]], "seed": 2},
    {"min_p": 0.1, "min_tokens": 3, "stop_token_ids": [1, 2, 9], "seed": 3},
    {"dry_multiplier": 0.8, "dry_allowed_length": 1, "seed": 4, "draw_method": "cdf"},
    {"allowed_token_ids": [5, 50, 51], "seed": 5},
]


def logits_of(step):
    return random_rows(len(PARAMS), VOCAB, seed=step)


def run(backend=None, threads=None, steps=6):
    """All requests together; what each was given, and its tokens."""
    sampler = sluice.Sampler(vocab=VOCAB, backend=backend, threads=threads)
    handles = [sampler.add(prompt=[i, i + 1], **params) for i, params in enumerate(PARAMS)]
    results = [columns(sampler.step(logits_of(s), handles, masses=True, kept=True))
               for s in range(steps)]
    return results, [sampler.tokens(h).tolist() for h in handles]


def test_every_backend_steps_as_the_definition_does(backend):
    results, tokens = run(backend)
    expected, expected_tokens = run("ref")
    assert tokens == expected_tokens
    for a, b in zip(results, expected):
        for name in b:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def test_a_request_gets_the_same_alone():
    _, together = run()
    for i, params in enumerate(PARAMS):
        sampler = sluice.Sampler(vocab=VOCAB)
        handle = sampler.add(sluice.SamplingParams(**params), prompt=np.array([i, i + 1]))
        for step in range(6):
            sampler.step(logits_of(step)[i], [handle])  # one row, one axis
        assert sampler.tokens(handle).tolist() == together[i]


def test_threads_change_nothing():
    assert run(threads=sluice.Threads(3))[1] == run()[1]


def test_drafts_change_nothing():
    rows = random_rows(5, VOCAB)
    plain = sluice.Sampler(vocab=VOCAB)
    request = plain.add(seed=9, top_k=9)
    expected = [int(plain.step(row[None], [request]).ids[0]) for row in rows]
    drafted = sluice.Sampler(vocab=VOCAB)
    request = drafted.add(seed=9, top_k=9)
    wrong = (expected[3] + 1) % VOCAB
    one = sluice.StepRequest(request, drafts=[*expected[:3], wrong])
    tokens = drafted.step(rows, [one])
    assert tokens.emitted.tolist() == [4]
    assert tokens.ids.tolist() == [*expected[:4], -1]
    assert drafted.tokens(request).tolist() == expected[:4]


def test_trees_of_drafts_change_nothing():
    rows = random_rows(5, VOCAB)
    plain = sluice.Sampler(vocab=VOCAB)
    request = plain.add(seed=9, top_k=9)
    expected = [int(plain.step(rows[r][None], [request]).ids[0]) for r in (0, 2, 4)]
    drafted = sluice.Sampler(vocab=VOCAB)
    request = drafted.add(seed=9, top_k=9)
    wrong = (expected[0] + 1) % VOCAB
    drafts, parents = [wrong, expected[0], expected[1], expected[1]], [-1, -1, 0, 1]
    tokens = drafted.step(rows, [sluice.StepRequest(request, drafts=drafts, parents=parents)])
    assert tokens.emitted.tolist() == [3]
    assert tokens.ids.tolist() == [*expected, -1, -1]
    assert tokens.path.tolist() == [0, 2, 4, -1, -1]
    assert not hasattr(drafted.step(rows[:1], [request]), "path")
    with pytest.raises(sluice.Error, match="parents"):
        drafted.step(rows, [sluice.StepRequest(request, drafts=drafts, parents=[0, -1, 0, 1])])


def test_masks_and_forced_tokens_hold():
    sampler = sluice.Sampler(vocab=VOCAB)
    a, b = sampler.add(seed=1), sampler.add(seed=2)
    mask = np.zeros((1, 4), np.int32)
    mask[0, 1] = 1 << 5
    for bitmask in (mask, mask[0]):
        step = [sluice.StepRequest(a, bitmask=bitmask), sluice.StepRequest(b, forced=11)]
        assert sampler.step(logits_of(0)[:2], step).ids.tolist() == [37, 11]


def test_rejection_sampling_takes_either_source():
    rows = random_rows(3, VOCAB)
    draft_rows = random_rows(2, VOCAB, seed=4)
    cuts = sluice.select(draft_rows, top_k=5)
    drafts = sluice.sample(draft_rows, top_k=5, seed=3, position=[0, 1], stream="draft").ids
    probabilities = np.zeros((2, VOCAB), np.float32)
    kept = sluice.candidates(draft_rows, cuts=cuts)
    for r in range(2):
        at = slice(kept.offsets[r], kept.offsets[r + 1])
        probabilities[r, kept.ids[at]] = kept.weights[at] / kept.weights[at].sum()
    sources = [{"draft_probabilities": probabilities},
               {"draft_logits": draft_rows, "draft_params": sluice.SamplingParams(top_k=5),
                "draft_cuts": cuts}]
    for source in sources:
        sampler = sluice.Sampler(vocab=VOCAB)
        request = sampler.add(seed=3, draft_mode="reject")
        tokens = sampler.step(rows, [sluice.StepRequest(request, drafts=drafts, **source)])
        assert 1 <= tokens.emitted[0] <= 3
        padded = {name: value if name == "draft_params" else
                  sluice.select(np.vstack([draft_rows, draft_rows[:1]]), top_k=5)
                  if name == "draft_cuts" else np.vstack([value, value[:1]])
                  for name, value in source.items()}
        stateless = sluice.verify(rows, [drafts], seed=3, draft_mode="reject", **padded)
        assert stateless.ids.tolist() == tokens.ids.tolist()


def test_logprobs_are_as_wide_as_the_widest_request_asks():
    sampler = sluice.Sampler(vocab=VOCAB)
    a, b = sampler.add(logprobs=2, temperature=0), sampler.add(logprobs=4, temperature=0)
    tokens = sampler.step(logits_of(0)[:2], [a, b])
    assert tokens.top_ids.shape == (2, 5)
    with pytest.raises(AttributeError):
        sampler.step(logits_of(0)[:1], [sampler.add()]).top_ids  # noqa: B018


def test_adjusted_values_are_written_where_asked():
    sampler = sluice.Sampler(vocab=4)
    request = sampler.add(repetition_penalty=2.0, prompt=[0, 1], temperature=0)
    logits = np.array([[2, -2, 3, 4]], np.float32)
    adjusted = np.empty_like(logits)
    sampler.step(logits, [request], adjusted=adjusted)
    assert adjusted.tolist() == [[1, -4, 3, 4]]
    assert logits.tolist() == [[2, -2, 3, 4]]
    sampler.step(logits, [request], adjusted=logits)
    assert logits.tolist() == [[1, -4, 3, 2]]


def test_out_is_written_again():
    sampler, other = sluice.Sampler(vocab=VOCAB), sluice.Sampler(vocab=VOCAB)
    requests = [[s.add(**params) for params in PARAMS] for s in (sampler, other)]
    asked = {"masses": True, "kept": True}
    out = sampler.step(logits_of(0), requests[0], **asked)
    other.step(logits_of(0), requests[1])
    assert sampler.step(logits_of(1), requests[0], **asked, out=out) is out
    assert_same(out, other.step(logits_of(1), requests[1], **asked))


def test_history_goes_back_and_forth():
    sampler = sluice.Sampler(vocab=VOCAB, max_requests=2)
    request = sampler.add(prompt=[1])
    assert (sampler.free_slots, sampler.vocab, sampler.prompt_length(request)) == (1, VOCAB, 1)
    sampler.accept(request, np.array([4, 5, 6]))
    sampler.rollback(request, 2)
    assert sampler.tokens(request).tolist() == [1, 4]
    for call in (lambda: sampler.rollback(request, 2), lambda: sampler.accept(request, [VOCAB])):
        with pytest.raises(sluice.Error):
            call()
    sampler.remove(request)
    again = sampler.add()
    assert again != request and again.slot == request.slot and len({again, request}) == 2


def test_a_processor_sees_the_history_and_changes_the_row():
    seen = []

    def force(tokens, prompt_length, logits):
        seen.append((tokens.tolist(), prompt_length, logits.shape, logits.dtype))
        logits[:] = -np.inf
        logits[len(tokens)] = 0

    sampler = sluice.Sampler(vocab=VOCAB, threads=sluice.Threads(2))
    request = sampler.add(prompt=[8, 9], processors=[force])
    other = sampler.add(seed=1)
    for expected in (2, 3):
        assert sampler.step(logits_of(0)[:2], [request, other]).ids[0] == expected
    assert seen == [([8, 9], 2, (VOCAB,), np.float32), ([8, 9, 2], 2, (VOCAB,), np.float32)]


def test_greedy_rows_skip_processors_that_cannot_move_the_argmax():
    calls = []
    processor = sluice.LogitsProcessor(lambda *a: calls.append(a), argmax_invariant=True)
    sampler = sluice.Sampler(vocab=VOCAB)
    greedy = sampler.add(temperature=0, processors=[processor])
    sampler.step(logits_of(0)[:1], [greedy])
    assert not calls
    sampler.step(logits_of(0)[:1], [sampler.add(processors=[processor])])
    assert len(calls) == 1


@pytest.mark.parametrize("threads", [None, 2])
def test_an_exception_of_a_processor_leaves_the_step(threads):
    def fail(tokens, prompt_length, logits):
        raise KeyError("mine")

    sampler = sluice.Sampler(vocab=VOCAB, threads=threads and sluice.Threads(threads))
    requests = [sampler.add(processors=[fail]), sampler.add(seed=1)]
    with pytest.raises(KeyError, match="mine"):
        sampler.step(logits_of(0)[:2], requests)
    assert sampler.step(logits_of(0)[:1], requests[1:]).statuses.tolist() == [0]


def test_a_processor_may_keep_its_arrays():
    kept = []
    sampler = sluice.Sampler(vocab=VOCAB)
    request = sampler.add(processors=[lambda *a: kept.append(a)])
    for step in range(3):
        sampler.step(logits_of(step)[:1], [request])
    del sampler
    np.testing.assert_array_equal(kept[0][2], logits_of(0)[0])


def test_a_processor_that_knows_its_sampler_is_collected():
    class Marked:
        def __call__(self, tokens, prompt_length, logits):
            pass

    def make():
        sampler = sluice.Sampler(vocab=VOCAB)
        processor = Marked()
        processor.sampler = sampler
        sampler.add(processors=[processor])
        return weakref.ref(processor)

    reference = make()
    gc.collect()
    assert reference() is None


def test_one_call_at_a_time():
    sampler = sluice.Sampler(vocab=VOCAB)
    inside, done = threading.Event(), threading.Event()

    def wait(tokens, prompt_length, logits):
        with pytest.raises(sluice.Error, match="in another call"):
            sampler.add()
        inside.set()
        done.wait(10)

    request = sampler.add(processors=[wait])
    thread = threading.Thread(target=sampler.step, args=(logits_of(0)[:1], [request]))
    thread.start()
    assert inside.wait(10)
    with pytest.raises(sluice.Error, match="sampler = in another call is not allowed: one call"):
        sampler.free_slots  # noqa: B018
    done.set()
    thread.join()
    assert sampler.free_slots == 255
