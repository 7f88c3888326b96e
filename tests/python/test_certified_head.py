"""CertifiedHead: what dense_head and sample give, from planes."""

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


def test_what_is_said_beside_planes_is_heeded(head, tmp_path):
    certified, weight, bias = head
    path = tmp_path / "head.planes"
    certified.save(path)
    assert sluice.CertifiedHead(weight, bias, planes=path, kind=certified.kind).kind == certified.kind
    other = {"dither4": "strict", "strict": "dither4"}[certified.kind]
    said = f'kind = "{other}" is not allowed: None or {certified.kind}, the kind of planes'
    with pytest.raises(sluice.Error, match=said):
        sluice.CertifiedHead(weight, planes=path, kind=other)
    with pytest.raises(sluice.Error, match="seed = 3 is not allowed: None beside planes"):
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
