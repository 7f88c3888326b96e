"""Calls on rows: the same answer on every backend, alone or in a batch, however it is asked for."""

import conftest
import numpy as np
import pytest
from conftest import assert_same

import sluice

KEYS = {"seed": 42, "position": 3}


def per_row(rows, params):
    """The parameters as arrays, one element a row."""
    return {name: [value] * len(rows) if isinstance(value, str) else np.full(len(rows), value)
            for name, value in params.items()}


def sampled(rows, params, **more):
    return sluice.sample(rows, **params, **{**KEYS, **more}, logprobs=1)


def test_every_backend_selects_what_the_definition_does(rows, params, backend):
    assert_same(sluice.select(rows, **params, **KEYS, masses=True, backend=backend),
                sluice.select(rows, **params, **KEYS, masses=True, backend="ref"))


@pytest.mark.parametrize("method", ["gumbel", "cdf"])
def test_every_backend_draws_what_the_definition_does(rows, params, backend, method):
    assert_same(sampled(rows, params, backend=backend, draw_method=method),
                sampled(rows, params, backend="ref", draw_method=method))


@pytest.mark.parametrize("mode", ["raw_logits", "processed_logprobs", "processed_logits"])
def test_every_backend_gives_the_same_logprobs(rows, params, backend, mode):
    assert_same(sampled(rows, params, backend=backend, logprob_mode=mode),
                sampled(rows, params, backend="ref", logprob_mode=mode))


def test_a_batch_is_its_rows(rows, params):
    batch = sampled(rows, params)
    for r, row in enumerate(rows):
        alone = conftest.columns(sampled(row, params))
        for name, value in conftest.columns(batch).items():
            if name not in ("emitted", "kept"):
                np.testing.assert_array_equal(value[r], alone[name], err_msg=name)


def test_one_value_for_all_rows_is_the_same_in_every_row(rows, params):
    arrays = per_row(rows, {**params, **KEYS})
    lists = {name: list(value) for name, value in arrays.items()}
    objects = [sluice.SamplingParams(**params, seed=42)] * len(rows)
    expected = sluice.sample(rows, **params, **KEYS)
    assert_same(sluice.sample(rows, **arrays), expected)
    assert_same(sluice.sample(rows, **lists), expected)
    assert_same(sluice.sample(rows, objects, position=3), expected)
    assert_same(sluice.sample(rows, objects[0], position=3), expected)


def test_each_row_has_its_own_parameters():
    rows = conftest.random_rows(5)
    cuts = sluice.select(rows, top_k=[1, 2, 3, 4, 0], top_p=[1, 1, 1, 1, 1e-6])
    assert cuts.counts.tolist() == [1, 2, 3, 4, 1]
    cuts = sluice.select(np.zeros((2, 4), "f4"), top_k=2, profile=["vllm", "hf"])
    assert cuts.counts.tolist() == [2, 4]


def test_keywords_go_on_top_of_params():
    params = sluice.SamplingParams(top_k=2, temperature=0.5)
    assert sluice.select(np.arange(9, dtype="f4"), params, top_k=3).counts == 3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types_are_widened_exactly(params, backend, dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed").bfloat16
    rows = conftest.random_rows().astype(dtype)
    wide = rows.astype(np.float32)
    assert_same(sluice.sample(rows, **params, **KEYS, backend=backend),
                sluice.sample(wide, **params, **KEYS, backend=backend))


def test_out_is_written_again(rows):
    tokens = sampled(rows, {"top_k": 5})
    ids, lists = tokens.ids, tokens.top_ids
    again = sampled(rows, {"top_k": 2}, out=tokens)
    assert again is tokens
    fresh = sampled(rows, {"top_k": 2})
    assert_same(again, fresh)
    np.testing.assert_array_equal(ids, fresh.ids)  # the arrays show the same memory
    np.testing.assert_array_equal(lists, fresh.top_ids)

    cuts = sluice.select(rows, masses=True)
    assert_same(sluice.select(rows, top_k=2, masses=True, out=cuts),
                sluice.select(rows, top_k=2, masses=True))
    mask = sluice.kept_bitmask(rows, top_k=2)
    out = np.empty_like(mask)
    assert sluice.kept_bitmask(rows, top_k=2, out=out) is out
    np.testing.assert_array_equal(out, mask)


def test_arrays_outlive_their_result():
    ids = sluice.sample(conftest.random_rows(), seed=1).ids
    before = ids.copy()
    for _ in range(100):
        sluice.sample(conftest.random_rows(), seed=2)
    np.testing.assert_array_equal(ids, before)


def test_everything_made_of_a_set_agrees(rows, params, backend):
    cuts = sluice.select(rows, **params, **KEYS, backend=backend)
    masked = rows.copy()
    assert sluice.mask_(masked, cuts=cuts, backend=backend) is masked
    directly = sluice.mask_(rows.copy(), **params, **KEYS, backend=backend)
    np.testing.assert_array_equal(masked, directly)
    sets = sluice.candidates(rows, **params, **KEYS, backend=backend)
    ranked = sluice.candidates(rows, **params, **KEYS, cuts=cuts, order="rank", backend=backend)
    words = sluice.kept_bitmask(rows, cuts=cuts, backend=backend)
    bits = np.unpackbits(words.view("u1"), axis=1, bitorder="little")[:, :rows.shape[1]]
    assert np.diff(sets.offsets).tolist() == cuts.counts.tolist() == bits.sum(axis=1).tolist()
    for r in range(len(rows)):
        ids = sets.ids[sets.offsets[r]:sets.offsets[r + 1]]
        assert ids.tolist() == np.flatnonzero(bits[r]).tolist()
        by_rank = sorted(ids, key=lambda i: (-rows[r, i], i))
        assert ranked.ids[sets.offsets[r]:sets.offsets[r + 1]].tolist() == by_rank
        if cuts.statuses[r] == sluice.Status.OK:
            assert (masked[r] == np.where(bits[r] == 1, rows[r], -np.inf)).all()
        else:
            np.testing.assert_array_equal(masked[r], rows[r])


def test_a_cut_is_drawn_from_as_it_is(params, backend):
    rows = conftest.random_rows()
    tokens = sluice.sample(rows, **params, **KEYS, backend=backend)
    assert_same(tokens, sluice.sample(rows, **params, **KEYS, backend=backend, cuts=tokens.cuts))


def test_cuts_that_somebody_wrote_into_are_harmless(backend):
    rows = conftest.random_rows(3)
    for count in (-1, 10**9):
        cuts = sluice.select(rows, top_k=3)
        cuts.counts[1], cuts.ties_kept[1], cuts.lower[1] = count, count, -5
        sluice.mask_(rows.copy(), cuts=cuts, backend=backend)
        sluice.kept_bitmask(rows, cuts=cuts, backend=backend)
        sluice.sample(rows, cuts=cuts, seed=1, backend=backend)
        with pytest.raises(sluice.Error, match="cuts.count"):
            sluice.candidates(rows, cuts=cuts, backend=backend)


def test_logprobs_of_any_token(rows):
    tokens = sampled(rows, {})
    assert_same(tokens, sluice.logprobs(rows, tokens, logprobs=1))
    ok = tokens.statuses == 0
    told = sluice.logprobs(rows[ok], tokens.ids[ok], logprobs=1)
    np.testing.assert_array_equal(told.logprobs, tokens.logprobs[ok])
    everything = sluice.logprobs(rows[ok], tokens, logprobs=-1) if ok.all() else None
    assert everything is None or everything.top_ids.shape == (len(rows), rows.shape[1] + 1)


def test_seeds_that_were_chosen_replay_the_draws():
    rows = np.zeros((50, 1000), "f4")
    tokens = sluice.sample(rows)
    assert len(set(tokens.seeds.tolist())) == len(rows)
    assert len(set(tokens.ids.tolist())) > 10
    np.testing.assert_array_equal(sluice.sample(rows, seed=tokens.seeds).ids, tokens.ids)
    with pytest.raises(AttributeError):
        sluice.sample(rows, seed=1).seeds  # noqa: B018


def test_threads_change_nothing(rows, params):
    threads = sluice.Threads(3)
    assert_same(sampled(rows, params, threads=threads), sampled(rows, params))


@pytest.mark.parametrize("algorithm", [info["name"] for info in sluice.algorithms()])
def test_algorithms_change_nothing(rows, params, algorithm):
    assert_same(sluice.select(rows, **params, **KEYS, algorithm=algorithm),
                sluice.select(rows, **params, **KEYS))


def test_an_empty_batch_gives_empty_results():
    rows = np.zeros((0, 8), "f4")
    assert sluice.select(rows, top_k=2, masses=True).counts.shape == (0,)
    assert sluice.sample(rows, top_k=[], logprobs=3).top_ids.shape == (0, 4)
    assert sluice.sample(rows, seed=1).ids.shape == (0,)
    assert sluice.kept_bitmask(rows).shape == (0, 1)
    assert sluice.candidates(rows).ids.shape == (0,)
    assert sluice.mask_(rows) is rows
    assert sluice.topk(rows, 2).indices.shape == (0, 2)
    assert sluice.verify(rows, []).emitted.shape == (0,)
    assert sluice.dense_head(np.zeros((3, 4), "f4"), np.zeros((0, 4), "f4")).shape == (0, 3)


def test_trouble_with_a_row_is_its_status():
    rows = np.zeros((4, 8), "f4")
    rows[1, 2], rows[2, 2], rows[3] = np.nan, np.inf, -np.inf
    tokens = sluice.sample(rows, seed=1)
    names = [sluice.Status(s).name for s in tokens.statuses]
    assert names == ["OK", "NAN_INPUT", "POS_INF_INPUT", "EMPTY_SUPPORT"]
    assert tokens.ids[1:].tolist() == [-1, -1, -1]
    tokens = sluice.sample(np.zeros((3, 8), "f4"), seed=1, top_p=[0.5, 1.5, np.nan])
    assert tokens.statuses.tolist() == [0, sluice.Status.BAD_PARAM, sluice.Status.BAD_PARAM]


def test_one_row_gives_numbers():
    row = np.array([0, 3, 1], "f4")
    tokens = sluice.sample(row, temperature=0, logprobs=1)
    assert (tokens.ids, tokens.statuses, tokens.ranks, len(tokens)) == (1, sluice.Status.OK, 1, 1)
    assert isinstance(tokens.ids, int) and isinstance(tokens.logprobs, float)
    assert tokens.top_ids.tolist() == [1, 1]
    cuts = sluice.select(row, top_k=2, masses=True)
    assert (cuts.counts, cuts.lower, cuts.upper) == (2, 1.0, np.inf)
    assert 0 < cuts.kept_masses <= cuts.total_masses
    assert sluice.topk(row, 2).indices.tolist() == [1, 2]
