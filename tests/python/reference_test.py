"""sluice.reference against the library, bit for bit: selection, draws, log-probabilities, drafts,
topk, the dense head, shards. On every backend that this machine has."""

import c_api
import c_rows
import numpy as np
import pytest
from c_api import c
from reference_support import (
    DTYPES,
    EXTREME_PARAMS,
    hostile_rows,
    narrowed,
    needs_library,
    plain,
    random_key,
    random_profile,
    random_row,
    random_select_params,
    reference,
    same_bits,
    with_padding,
)

pytestmark = needs_library
BACKENDS = c_api.backends() if c_api.lib else []


def reference_rows(logits, params, keys, max_temperature):
    """For each row: the selection and the two draws."""
    rows = []
    for x, p, key in zip(logits, params, keys):
        selection = reference.select(x, p, key=key, max_temperature=max_temperature)
        tokens = {
            method: reference.draw(x, selection.cut, p, key=key, draw_method=method)
            for method in c_api.DRAW_METHODS
        }
        rows.append((selection, tokens))
    return rows


def compare(logits, params, keys, max_temperature=2.0, mode="raw_logprobs", width=0) -> None:
    """Everything about a batch, on every backend. The params are one a row."""
    rows = reference_rows(logits, params, keys, max_temperature)
    cuts = [selection.cut for selection, _ in rows]
    by_rank = width % 2 == 0
    candidates = reference.candidates(logits, cuts, params, by_rank=by_rank)
    masked = [reference.mask(x, cut) for x, cut in zip(logits, cuts)]
    bitmasks = [reference.kept_bitmask(x, cut) for x, cut in zip(logits, cuts)]
    tokens = [draws["gumbel"] for _, draws in rows]
    logprobs = [
        reference.logprobs(logits[r], token, cuts[r], params[r], mode=mode, count=max(0, width - 1))
        if token >= 0
        else None
        for r, token in enumerate(tokens)
    ]
    for backend in BACKENDS:
        batch = c_rows.Rows(logits, params, keys, max_temperature, backend)
        c_cuts, c_masses = batch.select()
        c_tokens = {method: batch.sample(method) for method in c_api.DRAW_METHODS}
        c_candidates = batch.collect(c_cuts, by_rank)
        c_masked = batch.mask(c_cuts)
        c_bitmasks = batch.kept_bitmask(c_cuts)
        gumbel = c_tokens["gumbel"]
        lists = batch.logprobs(mode, gumbel, width)
        for r, (selection, draws) in enumerate(rows):
            where = (backend, r, logits.dtype.name, logits.shape, params[r], keys[r])
            assert plain(selection.cut) == c_api.plain(c_cuts[r]), where
            assert plain(selection.mass) == c_api.plain(c_masses[r]), where
            for method, token in draws.items():
                result = c_tokens[method][r]
                assert (token, selection.cut.status) == (result.id, result.status), (method, where)
                assert plain(selection.cut) == c_api.plain(result.cut), (method, where)
            for own, other in zip(candidates[r], c_candidates[r]):
                assert same_bits(own.astype(other.dtype), other), where
            if by_rank:
                assert (selection.ids == c_candidates[r][0]).all(), where
            assert masked[r].tobytes() == c_masked[r].tobytes(), where
            assert same_bits(bitmasks[r], c_bitmasks[r]), where
            compare_logprobs(logprobs[r], gumbel[r], lists[0][r], lists[1][r], (mode, where))


def compare_logprobs(own, result, ids: np.ndarray, values: np.ndarray, where) -> None:
    """own: none for a row without a token."""
    if own is None:
        assert (c_api.bits(result.logprob), result.rank) == ("nan", 0), where
        assert (ids == -1).all() and np.isnan(values).all(), where
        return
    assert c_api.bits(own.logprob) == c_api.bits(result.logprob), where
    assert own.rank == result.rank, where
    if len(ids) == 0:
        return
    n = len(own.ids)
    assert ids[0] == result.id and c_api.bits(values[0]) == c_api.bits(own.logprob), where
    assert (ids[1 : 1 + n] == own.ids).all() and (ids[1 + n :] == -1).all(), where
    assert same_bits(values[1 : 1 + n], own.values), where
    assert (values[1 + n :] == -np.inf).all(), where


def some_vocab(random: np.random.Generator) -> int:
    """Mostly small, at most 2048."""
    kind = random.random()
    if kind < 0.5:
        return int(random.integers(1, 70))
    if kind < 0.9:
        return int(random.integers(70, 400))
    return int(random.integers(400, 2049))


# 8 x 50 batches of 25 rows: 10,000 rows. A twin whose inclusive boundary of top-p is an exclusive one
# differs in batch 124 of these 400; one that keeps no ties, in the 7th; p off by 10^-4, in the first.
@pytest.mark.parametrize("seed", range(8))
def test_random_rows(seed):
    random = np.random.default_rng(seed)
    for _ in range(50):
        vocab = some_vocab(random)
        rows = np.array([random_row(vocab, random) for _ in range(25)])
        logits = narrowed(rows, str(random.choice(DTYPES)))
        params = [random_select_params(vocab, random) for _ in rows]
        keys = [random_key(random) for _ in rows]
        max_temperature = float(random.choice([2.0, 2.0, 1.0, 1e38]))
        mode = str(random.choice(c_api.LOGPROB_MODES))
        width = int(random.choice([0, 1, 2, 6, vocab + 1]))
        padded = with_padding(logits, int(random.integers(3)))
        compare(padded, params, keys, max_temperature, mode, min(width, vocab + 1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_hostile_rows(dtype):
    random = np.random.default_rng(100)
    for vocab in (66, 67):
        for n, row in enumerate(hostile_rows(vocab)):
            params = [
                reference.Params(**{**vars(p), "profile": random_profile(random)})
                for p in EXTREME_PARAMS
            ]
            logits = np.repeat(narrowed(row[np.newaxis], dtype), len(params), axis=0)
            keys = [random_key(random) for _ in params]
            mode = c_api.LOGPROB_MODES[n % 4]
            compare(with_padding(logits, 1), params, keys, mode=mode, width=min(4, len(row) + 1))


def test_an_empty_batch():
    logits = np.empty((0, 7), np.float32)
    assert reference.select(logits) == reference.sample(logits) == []
    batch = c_rows.Rows(logits, [reference.Params()], [reference.NoiseKey()])
    assert len(batch.select()[0]) == 0 and len(batch.sample("cdf")) == 0
    assert reference.topk(logits, 3)[0].shape == (0, 3)
    assert reference.dense_head(np.ones((4, 2), np.float32), np.empty((0, 2), np.float32)).size == 0


def test_choices_out_of_range():
    logits = np.zeros((1, 5), np.float32)
    for choice in ((1 << 24) - 1, 1 << 24, (1 << 32) - 1):
        compare(logits, [reference.Params()], [reference.NoiseKey(choice=choice)])


@pytest.mark.parametrize("temperature", [1.0, 0.01, 0.7, 2.0, 1e30])
def test_weights_of_many_values(temperature):
    """t from 0 to below -40 in 400,000 steps, and random ones."""
    random = np.random.default_rng(7)
    steps = np.linspace(0.0, -42.0, 200_000)
    scale = temperature * np.log(2.0)
    x = np.concatenate([steps, -42.0 * random.random(200_000), [0.0, -0.0, -1e6, -np.inf]]) * scale
    logits = x.astype(np.float32)[np.newaxis]
    params = reference.Params(temperature=temperature)
    batch = c_rows.Rows(logits, [params], [reference.NoiseKey()], 3e38)
    cuts = batch.select()[0]
    own = reference.candidates(logits[0], reference.Cut(lower=-3e38, ties_kept=1, count=1), params)
    ids, _, weights = batch.collect(cuts, False)[0]
    assert cuts[0].count == len(x) - 1 == len(own.ids)
    assert (ids == own.ids).all() and same_bits(own.weights, weights)


def test_draws_from_a_cut_of_another_row():
    random = np.random.default_rng(8)
    for _ in range(100):
        vocab = some_vocab(random)
        logits = np.array([random_row(vocab, random) for _ in range(4)])
        others = np.array([random_row(vocab, random) for _ in range(4)])
        params = [random_select_params(vocab, random) for _ in range(4)]
        keys = [random_key(random) for _ in range(4)]
        cuts = [s.cut for s in reference.select(others, params, key=keys)]
        for method in c_api.DRAW_METHODS:
            tokens = reference.draw(logits, cuts, params, key=keys, draw_method=method)
            for backend in BACKENDS:
                batch = c_rows.Rows(logits, params, keys, backend=backend)
                results = batch.draw(method, c_api.to_cuts(cuts))
                assert [result.id for result in results] == tokens


# Drafts.


def draft_sources(kind: str, vocab: int, drafts: int, random: np.random.Generator):
    """What the drafts were drawn from, as the reference takes it and as C does: what must stay
    alive, a matrix of probabilities, or a draft model's Rows and Cuts."""
    if kind == "certain":
        return None, None, None, None
    if kind == "probabilities":
        matrix = random.random((drafts + 1, vocab)).astype(np.float32)
        matrix[random.random(matrix.shape) < 0.3] = 0.0
        matrix /= np.maximum(matrix.sum(axis=1, keepdims=True), 1)
        if random.random() < 0.1:
            wrong = random.choice([np.nan, 1.5, -0.25]).astype(np.float32)
            matrix[random.integers(drafts + 1), random.integers(vocab)] = wrong
        return list(matrix), matrix, None, None
    logits = np.array([random_row(vocab, random) for _ in range(drafts + 1)])
    if random.random() < 0.1:
        logits[0, 0] = random.choice([np.nan, np.inf, -np.inf])
    params = [random_select_params(vocab, random) for _ in range(drafts + 1)]
    keys = [reference.NoiseKey(stream="draft")] * (drafts + 1)
    # Its operator's limit may differ from the target's.
    cuts = [s.cut for s in reference.select(logits, params, key=keys)]
    sources = [reference.DraftModel(*row) for row in zip(logits, cuts, params)]
    return sources, None, c_rows.Rows(logits, params, keys), c_api.to_cuts(cuts)


@pytest.mark.parametrize("mode", c_api.DRAFT_MODES)
@pytest.mark.parametrize("kind", ["certain", "probabilities", "model"])
def test_drafts(mode, kind):
    random = np.random.default_rng(20 + len(kind))
    accepted = rejected = 0
    for _ in range(150):
        vocab, drafts = some_vocab(random) % 300 + 1, int(random.integers(4))
        logits = np.array([random_row(vocab, random) for _ in range(drafts + 1)])
        if random.random() < 0.05:
            logits[0, 0] = np.nan
        params = random_select_params(vocab, random)
        params = reference.Params(
            **{**vars(params), "draft_mode": mode, "draw_method": random.choice(c_api.DRAW_METHODS)}
        )
        keys = [random_key(random) for _ in logits]
        ids = [int(i) for i in random.integers(vocab, size=drafts + 1)]
        for j in range(drafts):  # mostly likely ones
            if random.random() < 0.8:
                token = reference.sample(logits[j], params, key=keys[j])
                ids[j] = max(0, token.id)
        sources, matrix, model, model_cuts = draft_sources(kind, vocab, drafts, random)
        tokens = reference.verify(logits, ids[:drafts], params, keys=keys, sources=sources)

        for backend in BACKENDS:
            batch = c_rows.Rows(logits, [params], keys, backend=backend)
            first_row = np.array([0, drafts + 1], np.int64)
            id_array = c_api.int32s(ids)
            given = c_api.Drafts(first_row.ctypes.data, 2, id_array.ctypes.data, len(ids))
            if matrix is not None:
                given.probabilities = c_api.view(matrix)
            if model is not None:
                given.model = model.input
                given.model_cuts, given.model_cut_count = c.addressof(model_cuts), drafts + 1
            results, emitted = (c_api.TokenResult * (drafts + 1))(), np.zeros(1, np.int32)
            modes = (
                c.c_uint8(c_api.DRAFT_MODES.index(mode)),
                c.c_uint8(c_api.DRAW_METHODS.index(params.draw_method)),
            )
            outputs = (results, drafts + 1, emitted, 1)
            c_api.call("sluice_verify", batch.input, given, *modes, *outputs, batch.execution)
            for token, result in zip(tokens, results):
                where = (backend, params, keys, ids)
                assert (token.id, token.status) == (result.id, result.status), where
                assert plain(token.cut) == c_api.plain(result.cut), where
            assert emitted[0] == sum(token.id >= 0 for token in tokens)
        accepted += max(0, sum(token.id >= 0 for token in tokens) - 1)
        rejected += any(token.id < 0 for token in tokens)
    assert accepted > 20 and rejected > 20  # else this test tests little


# Scores, heads, shards.


@pytest.mark.parametrize("dtype", DTYPES)
def test_topk(dtype):
    random = np.random.default_rng(30)
    for n in range(150):
        width, next_n = some_vocab(random), int(random.integers(1, 4))
        requests = int(random.integers(1, 3))
        rows = np.array([random_row(width, random) for _ in range(requests * next_n)])
        if n % 5 == 0:
            rows[random.random(rows.shape) < 0.05] = random.choice([np.inf, -np.inf, np.nan, -0.0])
        scores = with_padding(narrowed(rows, dtype), n % 3)
        k = int(random.integers(1, width + 3))
        lengths = c_api.int32s(random.integers(width + 1, size=requests)) if n % 2 else None
        is_sorted = bool(random.integers(2))
        hint = c_api.int32s(random.integers(-5, width + 5, size=requests * 4))
        own = reference.topk(scores, k, lengths=lengths, next_n=next_n, sorted=is_sorted)

        given = c_api.TopkInput(c_api.view(scores), k, next_n=next_n, sorted=is_sorted)
        if lengths is not None:
            given.lengths, given.length_count = lengths.ctypes.data, requests
        if n % 4 < 2:
            given.hint, given.hint_count = hint.ctypes.data, len(hint)
            given.hint_columns, given.hint_shift = 4, n % 3 - 1
        thresholds = np.full(len(rows), random.normal(), np.float32)
        if n % 3 == 0:
            given.thresholds, given.threshold_count = thresholds.ctypes.data, len(rows)
        for backend in BACKENDS:
            size, need = c.c_size_t(), c_api.execution(None, backend)
            c_api.call("sluice_topk_workspace_bytes", given, need, c.byref(size))
            workspace = c_api.aligned(size.value)
            indices = np.zeros((len(rows), k), np.int32)
            values = np.zeros((len(rows), k), np.float32)
            statuses = np.zeros(len(rows), np.uint8)
            outputs = (indices, indices.size, values, values.size, statuses, len(rows))
            c_api.call("sluice_topk", given, *outputs, c_api.execution(workspace, backend))
            where = (backend, n, width, k, next_n, lengths)
            assert same_bits(own[0], indices) and same_bits(own[1], values), where
            assert own[2] == list(statuses), where


def test_dense_head():
    random = np.random.default_rng(40)
    for n, dim in enumerate([1, 2, 3, 64, 127, 128, 129, 255, 256, 300, 1000, 1024] * 2):
        vocab, positions = int(random.integers(1, 20)), int(random.integers(1, 4))
        spread = [1.0, 1e-22, 1e19, 1e-40][n % 4]
        weight = random.normal(size=(vocab, dim)) * spread
        hidden = random.normal(size=(positions, dim)) * spread
        if n % 3 == 0:
            hidden[random.random(hidden.shape) < 0.01] = random.choice([np.inf, -np.inf, np.nan])
        weight = narrowed(weight.astype(np.float32), DTYPES[n % 3])
        hidden = narrowed(hidden.astype(np.float32), DTYPES[n // 3 % 3])
        bias = random.normal(size=vocab).astype(np.float32) if n % 2 else None
        own = reference.dense_head(weight, hidden, bias)

        head = c_api.DenseHead(c_api.view(weight))
        if bias is not None:
            head.bias, head.bias_count = bias.ctypes.data, vocab
        for backend in BACKENDS:
            size, need = c.c_size_t(), c_api.execution(None, backend)
            given = c_api.view(hidden)
            c_api.call("sluice_project_workspace_bytes", head, given, need, c.byref(size))
            logits = np.zeros((positions, vocab), np.float32)
            execution = c_api.execution(c_api.aligned(size.value), backend)
            none = np.empty(0, np.int32)
            c_api.call("sluice_project", head, given, none, 0, c_api.view(logits), execution)
            assert same_bits(own, logits), (backend, vocab, dim, spread)


def test_shards():
    random = np.random.default_rng(50)
    for _ in range(60):
        vocab, rows = some_vocab(random), 3
        logits = np.array([random_row(vocab, random) for _ in range(rows)])
        params = [random_select_params(vocab, random) for _ in range(rows)]
        keys = [random_key(random) for _ in range(rows)]
        edges = sorted(set(random.integers(1, vocab + 1, size=3)) | {0, vocab})
        parts = [np.ascontiguousarray(logits[:, a:b]) for a, b in zip(edges[:-1], edges[1:])]
        shards = (c_api.Shard * len(parts))(
            *((c_api.view(part), int(first)) for part, first in zip(parts, edges))
        )
        c_params, c_keys = c_api.to_select_params(params), c_api.to_keys(keys)
        given = c_api.ShardInput(
            c.addressof(shards), len(parts), c.addressof(c_params), rows, c.addressof(c_keys), rows,
            c_api.Limits(2.0),
        )  # fmt: skip
        size = c.c_size_t()
        c_api.call("sluice_shards_workspace_bytes", given, c_api.execution(None), c.byref(size))
        workspace = c_api.aligned(size.value)
        execution = c_api.execution(workspace)
        whole = reference.whole_row(parts)
        for method in c_api.DRAW_METHODS:
            results = (c_api.TokenResult * rows)()
            number = c.c_uint8(c_api.DRAW_METHODS.index(method))
            c_api.call("sluice_sample_shards", given, number, results, rows, execution)
            tokens = [
                reference.sample(x, p, key=key, draw_method=method)
                for x, p, key in zip(whole, params, keys)
            ]
            for token, result in zip(tokens, results):
                assert (token.id, token.status) == (result.id, result.status)
                assert plain(token.cut) == c_api.plain(result.cut)

        for x, token in zip(whole, tokens):
            ends = (token.cut.upper, token.cut.lower)
            ties = [int((x[: edges[1]] == end).sum()) for end in ends]
            part = c_api.Cut()
            cut = c_api.to_cuts([token.cut])[0]
            c_api.call("sluice_shard_cut", cut, *(c.c_int64(tie) for tie in ties), part)
            own = reference.shard_cut(token.cut, *ties)
            if token.status == 0:
                assert plain(own) == c_api.plain(part)
                kept = reference.is_kept(x, token.cut)[edges[1] :]
                assert (reference.is_kept(x[edges[1] :], own) == kept).all()
