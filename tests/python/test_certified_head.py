"""CertifiedHead: what dense_head and sample give, from planes."""

import time

import numpy as np
import pytest

import sluice

VOCAB, DIM = 2000, 256


def made(seed=1):
    random = np.random.default_rng(seed)
    weight = (random.normal(size=(VOCAB, DIM)) / np.sqrt(DIM)).astype(np.float32)
    hidden = random.normal(size=(6, DIM)) + 8 * weight[random.integers(0, VOCAB, 6)]
    return weight, hidden.astype(np.float32)


@pytest.fixture(params=["dither4", "strict"])
def head(request):
    weight, _ = made()
    bias = np.linspace(-1, 1, VOCAB, dtype=np.float32)
    return sluice.CertifiedHead(weight, bias, kind=request.param, seed=3), weight, bias


def test_topk_is_the_dense_heads(head):
    certified, weight, bias = head
    _, hidden = made()
    logits = sluice.dense_head(weight, hidden, bias=bias)
    top = certified.topk(hidden, 5)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(top.indices, order)
    np.testing.assert_array_equal(top.values, np.take_along_axis(logits, order, axis=1))
    one = certified.topk(hidden[2], k=5)
    np.testing.assert_array_equal(one.indices, order[2])
    stats = certified.stats
    assert stats["rows"] == 7 and stats["dense_rows"] == 0
    assert 0 < stats["bytes_read"] < stats["dense_bytes"]
    assert stats["least_margin"] > 0


@pytest.mark.parametrize("params", [
    {"temperature": 0.0}, {"temperature": 1.0}, {"top_k": 3, "top_p": 0.9}, {"min_p": 0.2},
    {"top_p": 0.9}, {"top_k": 4, "draw_method": "cdf"}])
def test_sample_is_dense_head_and_sample(head, params):
    certified, weight, bias = head
    _, hidden = made()
    keys = {"seed": 5, "position": np.arange(6)}
    expected = sluice.sample(sluice.dense_head(weight, hidden, bias=bias), **params, **keys)
    tokens = certified.sample(hidden, **params, **keys)
    np.testing.assert_array_equal(tokens.ids, expected.ids)
    np.testing.assert_array_equal(tokens.statuses, expected.statuses)
    with pytest.raises(AttributeError, match="with_cuts=True"):
        tokens.cuts
    detailed = certified.sample(hidden, **params, **keys, with_cuts=True, out=tokens)
    np.testing.assert_array_equal(detailed.ids, expected.ids)
    np.testing.assert_array_equal(detailed.cuts.counts, expected.cuts.counts)
    assert certified.stats["rows"] == 12


def test_a_token_of_top_p_alone_takes_less_than_its_cut(head):
    certified, weight, bias = head
    _, hidden = made()
    keys = {"seed": 5, "position": np.arange(6)}
    certified.sample(hidden, top_p=0.6, **keys)
    alone = certified.stats["bytes_read"]
    certified.sample(hidden, top_p=0.6, **keys, with_cuts=True)
    assert alone < certified.stats["bytes_read"] - alone


def test_threads_params_and_masks_are_heeded(head):
    certified, weight, bias = head
    _, hidden = made()
    bitmask = np.zeros((6, (VOCAB + 31) // 32), np.int32)
    bitmask[:, 3] = 0b1010
    logits = sluice.dense_head(weight, hidden, bias=bias)[:, [97, 99]]
    best = np.where(logits[:, 0] >= logits[:, 1], 97, 99)
    params = sluice.SamplingParams(temperature=0.0)
    tokens = certified.sample(hidden, params, bitmask=bitmask, threads=sluice.Threads(2))
    np.testing.assert_array_equal(tokens.ids, best)
    np.testing.assert_array_equal(certified.topk(hidden, 1, bitmask=bitmask).indices[:, 0], best)


# What each of six requests asks for, beside a seed of its own.
REQUESTS = [
    {"temperature": 0.0, "repetition_penalty": 1.5},
    {"top_k": 5, "frequency_penalty": 0.5, "presence_penalty": 0.3},
    {"logit_bias": {7: 4.0, 8: -100.0}, "min_p": 0.1},
    {"allowed_token_ids": [3, 5, 900]},
    {"min_tokens": 3, "stop_token_ids": list(range(50)), "bad_words": [[60], [61, 62]]},
    {"top_p": 0.6, "repetition_penalty": 1.2, "dry_multiplier": 0.8},
]


def sampler_of(requests):
    sampler = sluice.Sampler(vocab=VOCAB)
    prompt = np.random.default_rng(2).integers(0, VOCAB, 300)
    return sampler, [sampler.add(seed=9 + i, prompt=prompt, **given)
                     for i, given in enumerate(requests)]


@pytest.mark.parametrize("with_cuts", [False, True])
def test_step_is_dense_head_and_the_samplers_step(head, with_cuts):
    certified, weight, bias = head
    dense, of_dense = sampler_of(REQUESTS)
    sampler, requests = sampler_of(REQUESTS)
    bitmask = np.full((6, (VOCAB + 31) // 32), -1, np.int32)
    bitmask[0, :20] = 0
    for step in range(5):
        _, hidden = made(step)
        logits = sluice.dense_head(weight, hidden, bias=bias)
        given = [sluice.StepRequest(request, bitmask=bitmask[[i]])
                 for i, request in enumerate(of_dense)]
        expected = dense.step(logits, given)
        tokens = sampler.step_from_head(certified, hidden, requests, bitmask=bitmask,
                                        with_cuts=with_cuts, threads=sluice.Threads(1 + step % 2))
        np.testing.assert_array_equal(tokens.ids, expected.ids)
        np.testing.assert_array_equal(tokens.statuses, expected.statuses)
        if with_cuts:
            np.testing.assert_array_equal(tokens.cuts.counts, expected.cuts.counts)
    for mine, theirs in zip(requests, of_dense):
        np.testing.assert_array_equal(sampler.tokens(mine), dense.tokens(theirs))
    assert certified.stats["rows"] == 30 and certified.stats["dense_rows"] < 30
    one = sampler.step_from_head(certified, made()[1][0], requests[:1], out=None)
    assert one.ids.shape == (1,) and certified.stats["rows"] == 31


def test_an_output_has_what_its_last_call_wrote(head):
    certified, weight, bias = head
    _, hidden = made()
    one = hidden[:1]
    sampler, requests = sampler_of(REQUESTS[1:2])
    logits = sluice.dense_head(weight, one, bias=bias)
    out = sampler.step(logits, requests, masses=True, kept=True)
    assert out.kept.shape[0] == 1 and out.emitted.tolist() == [1]
    sampler.step_from_head(certified, one, requests, out=out)
    assert out.ids.shape == (1,)
    assert out.ids[0] == sampler.tokens(requests[0])[-1]
    for gone in ("kept", "cuts", "seeds"):
        with pytest.raises(AttributeError):
            getattr(out, gone)
    assert out.emitted.shape == (0,)
    certified.sample(one[0], top_k=3, with_cuts=True, out=out)
    assert isinstance(out.ids, int) and isinstance(out.seeds, int)
    assert isinstance(out.cuts.counts, int)
    sampler.step_from_head(certified, one, requests, with_cuts=True, out=out)
    assert out.ids.shape == (1,) and out.cuts.counts.shape == (1,)
    with pytest.raises(AttributeError):
        out.seeds
    before = out.ids.tolist()
    with pytest.raises(sluice.Error, match="twice"):
        sampler.step_from_head(certified, np.concatenate([one, one]), requests * 2)
    with pytest.raises(sluice.Error, match="requests"):
        sampler.step_from_head(certified, one, [], out=out)
    assert out.ids.tolist() == before and out.cuts.counts.shape == (1,)
    sampler.step(logits, requests, kept=True, out=out)
    assert out.kept.shape[0] == 1 and out.ids.shape == (1,)
    sluice.sample(logits[0], seed=3, top_k=2, out=out)
    assert isinstance(out.ids, int)
    with pytest.raises(AttributeError):
        out.kept


def test_a_slot_that_was_taken_again_has_its_own_logprobs(head):
    certified, _, _ = head
    _, hidden = made()
    sampler = sluice.Sampler(vocab=VOCAB, max_requests=1)
    old = sampler.add()
    sampler.remove(old)
    sampler.add(logprobs=2)
    with pytest.raises(sluice.Error, match="a request that was removed"):
        sampler.step_from_head(certified, hidden[:1], [old])


def test_a_step_that_cannot_be_says_why_and_accepts_nothing(head):
    certified, _, _ = head
    _, hidden = made()
    sampler, requests = sampler_of(REQUESTS)
    processed = sampler.add(processors=[lambda tokens, prompt_length, logits: None])
    with_logprobs = sampler.add(logprobs=2)
    for call, said in [
            (lambda: sampler.step_from_head(None, hidden, requests), "head = None"),
            (lambda: sampler.step_from_head(certified, hidden, None), "requests = None"),
            (lambda: sampler.step_from_head(certified, hidden, requests[:5]), r"requests\.size = 5"),
            (lambda: sampler.step_from_head(certified, hidden, requests[:5] + requests[:1]), "twice"),
            (lambda: sampler.step_from_head(certified, hidden, requests[:5] + [processed]),
             "a request with a logits processor"),
            (lambda: sampler.step_from_head(certified, hidden, requests[:5] + [with_logprobs]),
             "logprobs = 2 is not allowed: None"),
            (lambda: sampler.step_from_head(certified, hidden,
                                            requests[:5] + [sluice.StepRequest(requests[5], forced=3)]),
             "drafts and forced tokens are for Sampler.step"),
            (lambda: sluice.Sampler(vocab=9).step_from_head(certified, hidden, requests),
             "sampler.vocab = 9"),
            (lambda: sampler.step_from_head(certified, hidden, requests, masses=True), "masses"),
            (lambda: sampler.step_from_head(certified, hidden[:, :8], requests), "hidden.dim = 8"),
            (lambda: sampler.step_from_head(certified, hidden, requests,
                                            bitmask=np.zeros(3, np.int32)),
             "bitmask")]:
        with pytest.raises(sluice.Error, match=said):
            call()
    assert all(len(sampler.tokens(request)) == 300 for request in requests)


def test_planes_are_saved_and_mapped(head, tmp_path):
    certified, weight, bias = head
    _, hidden = made()
    path = tmp_path / "head.planes"
    certified.save(path)
    assert path.stat().st_size == certified.nbytes
    loaded = sluice.CertifiedHead(weight, bias, planes=path)
    assert loaded.kind == certified.kind
    np.testing.assert_array_equal(loaded.topk(hidden, 3).values, certified.topk(hidden, 3).values)
    other = weight.copy()
    other[7, 7] += 1
    with pytest.raises(sluice.Error, match="of other weights"):
        sluice.CertifiedHead(other, planes=path)
    sluice.CertifiedHead(other, planes=path, check=False)


@pytest.mark.parametrize("threads", [None, 3])
def test_building_tells_how_far_it_is(threads):
    weight, _ = made()
    told = []
    sluice.CertifiedHead(weight, threads=None if threads is None else sluice.Threads(threads),
                         progress=lambda rows, vocab: told.append((rows, vocab)))
    assert told == sorted(told) and len(set(told)) == len(told) > 1
    assert told[-1] == (VOCAB, VOCAB) and all(vocab == VOCAB for _, vocab in told)

    calls = []

    def fail(rows, vocab):
        calls.append(rows)
        time.sleep(0.01)  # others run meanwhile, and have something to tell
        raise KeyError(f"enough of {len(calls)}")

    with pytest.raises(KeyError, match="enough of 1"):
        sluice.CertifiedHead(weight, threads=None if threads is None else sluice.Threads(threads),
                             progress=fail)
    assert len(calls) == 1


def test_what_is_said_beside_planes_is_heeded(head, tmp_path):
    certified, weight, bias = head
    path = tmp_path / "head.planes"
    certified.save(path)
    assert sluice.CertifiedHead(weight, bias, planes=path, kind=certified.kind).kind == certified.kind
    other = {"dither4": "strict", "strict": "dither4"}[certified.kind]
    said = f'kind = "{other}" is not allowed: None or {certified.kind}, the kind of planes'
    with pytest.raises(sluice.Error, match=said):
        sluice.CertifiedHead(weight, planes=path, kind=other)
    with pytest.raises(sluice.Error, match="seed = 3 is not allowed: None with planes"):
        sluice.CertifiedHead(weight, planes=path, seed=3)
    with pytest.raises(sluice.Error, match='planes = "" '):
        sluice.CertifiedHead(weight, planes="")
    with pytest.raises(sluice.Error, match="dither4 or strict"):
        sluice.CertifiedHead(weight, planes=path, kind="int3")
    assert sluice.CertifiedHead(weight).kind == "dither4"


def test_wrong_arguments_are_named(head):
    certified, weight, _ = head
    _, hidden = made()
    for call, said in [
            (lambda: sluice.CertifiedHead(weight, kind="int3"), "dither4 or strict"),
            (lambda: sluice.CertifiedHead(weight[0]), "weight"),
            (lambda: sluice.CertifiedHead(weight, progress=3), "progress = 3"),
            (lambda: sluice.CertifiedHead(weight, bias=np.zeros(3, np.float32)), "bias"),
            (lambda: sluice.CertifiedHead(np.full((2, 2), np.nan, np.float32)), r"weight\[0\]\[0\]"),
            (lambda: certified.topk(hidden, 0), "k = 0"),
            (lambda: certified.topk(hidden[:, :8], 1), "hidden.dim = 8"),
            (lambda: certified.topk(hidden, 1, bitmask=np.zeros((6, 3), np.int32)), "bitmask"),
            (lambda: certified.sample(hidden, logprobs=3), "logprobs = 3"),
            (lambda: certified.sample(hidden, with_cuts=1), "with_cuts"),
            (lambda: certified.sample(hidden, top_p=np.ones(4)), "top_p")]:
        with pytest.raises(sluice.Error, match=said):
            call()


def test_a_state_that_is_not_finite_is_a_status(head):
    certified, _, _ = head
    _, hidden = made()
    hidden[1, 3] = np.nan
    top = certified.topk(hidden, 2)
    assert top.indices[1].tolist() == [-1, -1]
    assert sluice.Status(top.statuses[1]).name.lower().startswith("nan")
    assert top.statuses[0] == 0
