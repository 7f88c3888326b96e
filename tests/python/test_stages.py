"""topk, dense_head and verify: the same on every backend, and what numpy says they should be."""

import numpy as np
import pytest
from conftest import assert_same, random_rows

import sluice


@pytest.mark.parametrize("k", [1, 7, 300])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_topk_is_the_first_k_of_a_stable_sort(backend, k, is_sorted):
    scores = random_rows()
    best = sluice.topk(scores, k, sorted=is_sorted, backend=backend)
    for r, row in enumerate(scores):
        expected = np.argsort(-row, kind="stable")[:k]
        if not is_sorted:
            expected = np.sort(expected)
        found = best.indices[r]
        assert found[:len(expected)].tolist() == expected.tolist()
        assert (found[len(expected):] == -1).all()
        assert best.values[r, :len(expected)].tolist() == row[expected].tolist()


def test_topk_sees_as_much_as_the_lengths_say(backend):
    scores = np.arange(24, dtype="f4").reshape(4, 6)
    best = sluice.topk(scores, 2, lengths=[3, 6], next_n=2, backend=backend)
    assert best.indices.tolist() == [[0, 1], [1, 2], [3, 4], [4, 5]]
    assert sluice.topk(scores, 2, lengths=1).indices.tolist() == [[0, -1]] * 4


def test_thresholds_are_told_to_the_next_call_and_change_nothing(backend):
    scores = np.random.default_rng(8).normal(size=(3, 20000)).astype("f4")
    plain = sluice.topk(scores, 500, backend=backend)
    thresholds = np.full(3, np.nan, np.float32)
    for _ in range(2):
        assert_same(plain, sluice.topk(scores, 500, thresholds=thresholds, backend=backend))
        for row, threshold in zip(scores, thresholds):
            assert np.isnan(threshold) if backend == "ref" else (row >= threshold).sum() > 500
    thresholds[:] = np.inf
    assert_same(plain, sluice.topk(scores, 500, thresholds=thresholds, backend=backend))


def test_a_hint_changes_nothing(backend):
    scores = random_rows()
    plain = sluice.topk(scores, 5, backend=backend)
    wrong = np.array([[0, 0, -5, 9999]] * len(scores), np.int32)
    for hint in (plain.indices, wrong):
        assert_same(plain, sluice.topk(scores, 5, hint=hint, hint_shift=1, backend=backend))
    out = sluice.topk(scores, 9)
    assert sluice.topk(scores, 5, out=out) is out
    assert_same(out, plain)
    assert_same(sluice.topk(scores, 5, values=False), plain)  # what saves time on CUDA tensors


def test_dense_head_is_a_product(backend):
    random = np.random.default_rng(3)
    weight = random.normal(size=(50, 33)).astype("f4")
    hidden = random.normal(size=(7, 33)).astype("f4")
    bias = random.normal(size=50).astype("f4")
    logits = sluice.dense_head(weight, hidden, bias=bias, backend=backend)
    np.testing.assert_allclose(logits, hidden @ weight.T + bias, atol=1e-4)  # other order of sums
    defined = sluice.dense_head(weight, hidden, bias=bias, backend="ref")
    np.testing.assert_array_equal(logits, defined)
    np.testing.assert_array_equal(sluice.dense_head(weight, hidden[2], bias=bias), logits[2])
    last = sluice.dense_head(weight, hidden, bias=bias, query_start_loc=[0, 3, 7], backend=backend)
    np.testing.assert_array_equal(last, logits[[2, 6]])
    out = np.empty((7, 50), "f4")
    threads = sluice.Threads(2)
    assert sluice.dense_head(weight, hidden, bias=bias, out=out, threads=threads) is out
    np.testing.assert_array_equal(out, logits)


@pytest.mark.parametrize("mode", ["match", "reject"])
@pytest.mark.parametrize("method", ["gumbel", "cdf"])
def test_every_backend_verifies_alike(backend, mode, method):
    logits = random_rows(9, 65)
    drafts = [[1, 2, 3], [], [7, 8, 9]]
    keys = {"seed": [1, 2, 3], "position": 5, "draft_mode": mode, "draw_method": method,
            "top_k": [0, 4, 1], "logprobs": 1}
    probabilities = np.full((9, 65), 1 / 65, "f4")
    if mode == "reject":
        keys["draft_probabilities"] = probabilities
    tokens = sluice.verify(logits, drafts, **keys, backend=backend)
    assert_same(tokens, sluice.verify(logits, drafts, **keys, backend="ref"))
    assert len(tokens.emitted) == 3 and (tokens.emitted >= 0).all()


def test_drafts_that_match_are_what_sampling_gives():
    logits = random_rows(6, 65)[[0, 2, 3, 4]]
    expected = sluice.sample(logits, seed=4, position=np.arange(10, 14), top_k=9).ids
    tokens = sluice.verify(logits, [expected[:3]], seed=4, position=10, top_k=9)
    assert tokens.ids.tolist() == expected.tolist() and tokens.emitted.tolist() == [4]
    two = sluice.verify(logits, np.array([[expected[0]], [expected[2]]]), seed=4, position=[10, 12],
                        top_k=9)
    assert two.ids.tolist() == expected.tolist()
    chosen = sluice.verify(logits, [[], [], [], []], top_k=9)
    assert sluice.verify(logits, [[], [], [], []], top_k=9, seed=chosen.seeds).ids.tolist() == \
        chosen.ids.tolist()
