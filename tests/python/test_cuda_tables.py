"""The tables that a step of sluice.DeviceSampler writes for engines: what get() gives."""

import numpy as np
import pytest

import sluice

torch = pytest.importorskip("torch", reason="torch is not installed")
if not sluice._sluice.build()["cuda"]:
    pytest.skip("this build of Sluice has no CUDA", allow_module_level=True)
if not torch.cuda.is_available():
    pytest.skip("torch sees no CUDA device", allow_module_level=True)

VOCAB = 300


def logits_of(rows, seed):
    values = np.random.default_rng(seed).normal(0, 3, (rows, VOCAB)).astype(np.float32)
    values[0, seed % 7:] = -np.inf  # fewer tokens than a list has, or none at all
    return torch.as_tensor(values).cuda()


@pytest.mark.parametrize("mode", ["raw_logprobs", "processed_logprobs"])
def test_tables_are_what_get_gives(mode):
    sampler = sluice.DeviceSampler(vocab=VOCAB, max_requests=5, max_logprobs=9)
    requests = [sampler.add(seed=row, logprobs=listed, logprob_mode=mode, frequency_penalty=0.1,
                            top_k=50) for row, listed in enumerate([5, None, 0, 9, 3])]
    for at in range(12):
        step = sampler.step(logits_of(5, at), requests, table=7)
        answer = step.get()
        tokens, ids, logprobs, ranks = (part.cpu().numpy() for part in step.table)
        assert step.ids is None
        np.testing.assert_array_equal(tokens[:, 0], np.maximum(answer.ids, 0))
        np.testing.assert_array_equal(ids[:, 0], np.maximum(answer.ids, 0))
        np.testing.assert_array_equal(ranks, answer.ranks)
        there = answer.top_ids[:, 1:8] >= 0
        np.testing.assert_array_equal(ids[:, 1:], np.where(there, answer.top_ids[:, 1:8], 0))
        np.testing.assert_array_equal(
            logprobs[:, 1:], np.where(there, answer.top_logprobs[:, 1:8], -np.inf))
        np.testing.assert_array_equal(logprobs[:, 0], answer.logprobs)  # NaN without a token


def test_tokens_alone_and_wider_tables():
    sampler = sluice.DeviceSampler(vocab=VOCAB, max_requests=2, max_logprobs=2)
    plain, listed = sampler.add(seed=1), sampler.add(seed=2, logprobs=1)
    step = sampler.step(logits_of(1, 3), [plain], table=-1)
    assert step.table[1:] == (None, None, None)
    assert step.table.tokens.tolist() == [[max(int(step.get().ids[0]), 0)]]
    step = sampler.step(logits_of(1, 4), [listed], table=20)
    assert step.table.ids.shape == (1, 21) and (step.table.ids[0, 2:] == 0).all()
    assert torch.isinf(step.table.logprobs[0, 2:]).all()
    step = sampler.step(logits_of(1, 5), [plain], table=3)  # no request has log-probabilities
    assert step.table.logprobs.tolist() == [[-torch.inf] * 4] and step.table.ranks.tolist() == [0]
    assert step.table.ids.tolist() == [[max(int(step.get().ids[0]), 0), 0, 0, 0]]
    for bad in (-2, 129, 1.5):
        with pytest.raises(sluice.Error, match="table"):
            sampler.step(logits_of(1, 5), [plain], table=bad)


def test_requests_go_on_with_zero_where_an_engine_does():
    rows = np.random.default_rng(1).normal(0, 3, (8, 1, VOCAB)).astype(np.float32)
    rows[3] = -np.inf
    fields = {"seed": 5, "frequency_penalty": 1.5, "presence_penalty": 0.5}
    for goes_on in (False, True):
        sampler = sluice.DeviceSampler(vocab=VOCAB, max_requests=1, goes_on_with_zero=goes_on)
        host = sluice.Sampler(vocab=VOCAB)
        request, expected = sampler.add(**fields), host.add(**fields)
        for row in rows:
            token = int(sampler.step(torch.as_tensor(row).cuda(), [request]).get().ids[0])
            assert token == host.step(row, [expected]).ids[0]
            if token < 0 and goes_on:
                host.accept(expected, [0])
