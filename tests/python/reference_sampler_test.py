"""The whole step of sluice.reference against the C sampler, bit for bit: adjustments with a
history, grammar masks, forced tokens, processors, drafts in both modes, reports, rollback."""

import c_api
import c_rows
import numpy as np
import pytest
from c_api import c
from reference_support import (
    narrowed,
    needs_library,
    plain,
    random_row,
    random_select_params,
    reference,
    same_bits,
)

pytestmark = needs_library
BACKENDS = c_api.backends() if c_api.lib else []


def test_every_float_of_an_adjustment_is_fp32():
    x = np.array([0.1, -0.1, 3.0, 7.0, -0.0], np.float32)
    y = reference.adjust(
        x,
        tokens=[0, 1, 1, 3, 4],
        prompt_length=1,
        repetition_penalty=1.3,
        frequency_penalty=0.1,
        presence_penalty=0.3,
        logit_bias=[(2, 1000.0), (3, 0.1), (3, 0.1)],
    )
    f = np.float32
    seven = (f(7) + f(0.1) + f(0.1)) / f(1.3)
    expected = [f(0.1) / f(1.3), (f(-0.1) * f(1.3) - f(0.1) * f(2)) - f(0.3), f(103)]
    expected += [(seven - f(0.1)) - f(0.3), (f(-0.0) * f(1.3) - f(0.1)) - f(0.3)]
    assert y.tobytes() == np.array(expected, np.float32).tobytes()


def random_params(vocab: int, random: np.random.Generator) -> "reference.Params":
    """Of a request: all adjustments, any selection that is valid, any report."""
    while True:
        params = random_select_params(vocab, random)
        try:
            reference.check_request(params, vocab)
            break
        except ValueError:
            continue
    changes = vars(params) | {"seed": int(random.integers(2**64, dtype=np.uint64))}

    def maybe(share: float, name: str, *values) -> None:
        if random.random() < share:
            changes[name] = values[random.integers(len(values))]

    def ids(n: int) -> tuple[int, ...]:
        return tuple(int(i) for i in random.integers(vocab, size=n))

    anywhere = float(random.random())
    maybe(0.4, "repetition_penalty", 1.1, 0.5, 2.0, 1e-30, 1e30, 1 + anywhere)
    maybe(0.4, "frequency_penalty", 0.1, -2.0, 2.0, anywhere)
    maybe(0.4, "presence_penalty", 0.1, -2.0, 2.0, anywhere)
    maybe(0.3, "min_tokens", 2, 5, 1000)
    maybe(0.5, "stop_token_ids", ids(1), ids(3))
    maybe(0.5, "dry_multiplier", 0.8, 100.0, 1e-3)
    maybe(0.5, "dry_base", 1.0, 2.0, 100.0, 1 + anywhere)
    maybe(0.5, "dry_allowed_length", 1, 2, 3)
    maybe(0.3, "dry_range", 0, 1, 5, 12, 1000)
    maybe(0.3, "dry_sequence_breakers", ids(1), ids(3))
    bias = tuple((i, float(b)) for i, b in zip(ids(4), random.normal(0, 60, 4)))
    maybe(0.4, "logit_bias", bias[:1], bias, bias + bias, ((0, np.inf), (0, -np.inf)))
    maybe(0.2, "allowed_token_ids", ids(1), ids(20), ids(vocab))
    maybe(0.4, "bad_words", (ids(1),), (ids(2), ids(2), ids(3)), (ids(1), ids(4)))
    maybe(1.0, "draw_method", *c_api.DRAW_METHODS)
    maybe(1.0, "draft_mode", *c_api.DRAFT_MODES)
    maybe(0.7, "logprobs", -1, 0, 1, min(5, vocab), vocab)
    maybe(1.0, "logprob_mode", *c_api.LOGPROB_MODES)
    return reference.Params(**changes)


def nudge(tokens: list[int], prompt_length: int, x: np.ndarray) -> None:
    """A processor: it sees the history and changes one value."""
    x[(len(tokens) + prompt_length) % len(x)] += np.float32(0.75)


def shift(tokens: list[int], prompt_length: int, x: np.ndarray) -> None:
    x += np.float32(1.5)


shift.argmax_invariant = True


class CSampler:
    """A sampler of one request."""

    def __init__(self, vocab: int, backend: int):
        options = c_api.SamplerOptions(
            c_api.ABI_VERSION,
            vocab,
            1,
            c_api.Limits(2.0),
            backend,
            c_api.ParallelFor(workers=1),
        )
        self.vocab, self.sampler = vocab, c.c_void_p()
        c_api.call("sluice_sampler_create", options, c.byref(self.sampler))

    def close(self) -> None:
        c_api.lib.sluice_sampler_destroy(self.sampler)

    def add(self, request: "reference.Request") -> None:
        params, self.alive = c_api.to_sampling_params(request.params)
        prompt = c_api.int32s(request.prompt)
        processors = (c_api.LogitsProcessor * max(1, len(request.processors)))(
            *(self.c_processor(p) for p in request.processors)
        )
        self.alive.append(processors)
        given = c_api.CRequest(
            params,
            prompt.ctypes.data if len(prompt) else None,
            len(prompt),
            request.choice,
            256,
            c.addressof(processors),
            len(request.processors),
        )
        self.handle = c_api.RequestHandle()
        c_api.call("sluice_sampler_add", self.sampler, given, c.byref(self.handle))

    @staticmethod
    def c_processor(processor) -> c_api.LogitsProcessor:
        def apply(_, tokens, count, prompt_length, logits, vocab) -> int:
            x = np.ctypeslib.as_array(logits, (vocab,))
            processor([tokens[i] for i in range(count)], prompt_length, x)
            return 0

        invariant = getattr(processor, "argmax_invariant", False)
        return c_api.LogitsProcessor(None, c_api.APPLY(apply), invariant)

    def tokens(self) -> list[int]:
        data, count = c.POINTER(c.c_int32)(), c.c_size_t()
        args = (c.byref(data), c.byref(count))
        c_api.call("sluice_sampler_tokens", self.sampler, self.handle, *args)
        return data[: count.value]

    def accept(self, tokens: list[int]) -> None:
        c_api.call(
            "sluice_sampler_accept", self.sampler, self.handle, c_api.int32s(tokens), len(tokens)
        )

    def rollback(self, count: int) -> None:
        c_api.call("sluice_sampler_rollback", self.sampler, self.handle, c.c_int64(count))

    def step(
        self, logits, drafts, matrix, model, model_cuts, bitmasks, forced, width, parents=None
    ):
        rows, drafts = len(logits), c_api.int32s(drafts)
        parents = c_api.int32s(() if parents is None else parents)
        given = c_api.StepRequest(self.handle, forced=forced)
        if len(drafts):
            given.drafts, given.draft_count = drafts.ctypes.data, len(drafts)
            given.parents, given.parent_count = parents.ctypes.data, len(parents)
            if matrix is not None:
                given.draft_probabilities = c_api.view(matrix)
            if model is not None:
                given.draft_model = model.input
                given.draft_cuts, given.draft_cut_count = c.addressof(model_cuts), len(drafts)
        if bitmasks is not None:
            given.bitmask, given.word_count = bitmasks.ctypes.data, bitmasks.size
        step = c_api.StepInput(c_api.view(logits), c.addressof(given), 1)

        self.results, self.emitted = (c_api.TokenResult * rows)(), np.zeros(1, np.int32)
        self.ids = np.zeros((rows, width), np.int32)
        self.values = np.zeros((rows, width), np.float32)
        self.kept = np.zeros((rows, (self.vocab + 31) // 32), np.int32)
        self.masses = (c_api.CutMass * rows)()
        self.adjusted = np.zeros((rows, self.vocab), np.float32)
        self.path = np.zeros(rows, np.int32)
        lists = c_api.LogprobLists(
            width, self.ids.ctypes.data, self.ids.size, self.values.ctypes.data, self.values.size
        )
        output = c_api.StepOutput(
            c.addressof(self.results), rows, self.emitted.ctypes.data, 1, lists,
            self.kept.ctypes.data, self.kept.size, c.addressof(self.masses), rows,
            c_api.view(self.adjusted), self.path.ctypes.data, rows,
        )  # fmt: skip
        c_api.call("sluice_sampler_step", self.sampler, step, output)


def random_sources(vocab: int, drafts: int, random: np.random.Generator):
    """(for the reference, a matrix of probabilities for C, or a draft model and its Cuts)"""
    kind = random.integers(3) if drafts else 0
    if kind == 0:
        return None, None, None, None
    if kind == 1:
        matrix = random.dirichlet(np.full(vocab, 0.05), drafts).astype(np.float32)
        return list(matrix), matrix, None, None
    logits = np.array([random_row(vocab, random) for _ in range(drafts)])
    params = [random_select_params(vocab, random) for _ in range(drafts)]
    keys = [reference.NoiseKey(stream="draft")] * drafts
    cuts = [s.cut for s in reference.select(logits, params, key=keys)]
    sources = [reference.DraftModel(*row) for row in zip(logits, cuts, params)]
    return sources, None, c_rows.Rows(logits, params, keys), c_api.to_cuts(cuts)


def compare_step(tokens, reports, sampler: CSampler, width: int, where) -> None:
    assert sampler.emitted[0] == sum(token.id >= 0 for token in tokens), where
    for r, (token, report) in enumerate(zip(tokens, reports)):
        result = sampler.results[r]
        assert (token.id, token.status) == (result.id, result.status), (r, where)
        assert plain(token.cut) == c_api.plain(result.cut), (r, where)
        logprobs = report.logprobs if report is not None else None
        if report is None:
            assert (sampler.kept[r] == 0).all(), (r, where)
            assert c_api.plain(sampler.masses[r]) == plain(reference.CutMass()), (r, where)
        else:
            assert sampler.path[r] == report.row, (r, where)
            assert same_bits(report.adjusted, sampler.adjusted[report.row]), (r, where)
            assert same_bits(report.kept, sampler.kept[r]), (r, where)
            assert plain(report.mass) == c_api.plain(sampler.masses[r]), (r, where)
        ids, values = sampler.ids[r], sampler.values[r]
        if logprobs is None:
            assert (c_api.bits(result.logprob), result.rank) == ("nan", 0), (r, where)
            assert (ids == -1).all() and np.isnan(values).all(), (r, where)
            continue
        assert c_api.bits(logprobs.logprob) == c_api.bits(result.logprob), (r, where)
        assert logprobs.rank == result.rank, (r, where)
        if width > 0:
            n = len(logprobs.ids)
            assert ids[0] == token.id, (r, where)
            assert c_api.bits(values[0]) == c_api.bits(logprobs.logprob), (r, where)
            assert (ids[1 : 1 + n] == logprobs.ids).all(), (r, where)
            assert (ids[1 + n :] == -1).all(), (r, where)
            assert same_bits(values[1 : 1 + n], logprobs.values), (r, where)


@pytest.mark.parametrize("seed", range(6))
def test_requests_with_their_history(seed):
    random = np.random.default_rng(1000 + seed)
    for n in range(40):
        vocab = int(random.integers(1, 12) if n % 2 else random.integers(12, 150))
        params = random_params(vocab, random)
        request = reference.Request(
            params,
            vocab,
            prompt=[int(i) for i in random.integers(vocab, size=random.integers(12))],
            choice=int(random.integers(3)),
            processors=[[], [nudge], [shift, nudge]][random.integers(3)],
        )
        samplers = [CSampler(vocab, backend) for backend in BACKENDS]
        for sampler in samplers:
            sampler.add(request)
        own_width = 1 + (vocab if params.logprobs == -1 else params.logprobs or 0)
        width = 0 if random.random() < 0.2 else own_width

        for _ in range(6):
            drafts = [int(i) for i in random.integers(vocab, size=random.integers(6))]
            parents = None
            if drafts and random.random() < 0.5:
                parents = [int(random.integers(-1, i)) for i in range(len(drafts))]
            rows = np.array([random_row(vocab, random) for _ in range(len(drafts) + 1)])
            if random.random() < 0.05:
                rows[0, random.integers(vocab)] = random.choice([np.nan, np.inf])
            logits = narrowed(rows, str(random.choice(("float32", "bfloat16", "float16"))))
            bitmasks = None
            if random.random() < 0.3:
                shape = (len(rows), (vocab + 31) // 32)
                bitmasks = random.integers(-(2**31), 2**31, size=shape).astype(np.int32)
            forced = int(random.integers(vocab)) if random.random() < 0.1 else -1
            sources, *c_sources = random_sources(vocab, len(drafts), random)
            before = list(request.tokens)
            if random.random() < 0.7 and drafts:  # a likely first draft
                first = request.step(logits[:1], (), None, bitmasks, forced)[0][0]
                drafts[0] = max(0, first.id)
                request.tokens = list(before)

            tokens, reports = request.step(logits, drafts, sources, bitmasks, forced, parents)
            where = (params, before, len(request.prompt), drafts, parents, forced, logits)
            for sampler in samplers:
                sampler.step(logits, drafts, *c_sources, bitmasks, forced, width, parents)
                compare_step(tokens, reports, sampler, width, where)
                assert sampler.tokens() == request.tokens, where

            if random.random() < 0.3:
                back = int(random.integers(len(request.tokens) - len(request.prompt) + 1))
                more = [int(i) for i in random.integers(vocab, size=random.integers(4))]
                request.rollback(back)
                request.accept(more)
                for sampler in samplers:
                    sampler.rollback(back)
                    sampler.accept(more)
        for sampler in samplers:
            sampler.close()


def test_long_repeats():
    """DRY on histories of few tokens, and its powers up to the cap."""
    random = np.random.default_rng(60)
    for n in range(60):
        vocab = 6
        params = reference.Params(
            seed=n,
            dry_multiplier=[0.8, 100.0][n % 2],
            dry_base=[1.75, 100.0, 1.0][n % 3],
            dry_allowed_length=1 + n % 4,
            dry_range=[-1, 40, 7][n % 3],
            dry_sequence_breakers=[(), (5,), (3, 5)][n // 3 % 3],
            repetition_penalty=1.2,
        )
        unit = [int(i) for i in random.integers(vocab, size=random.integers(1, 7))]
        request = reference.Request(params, vocab, (unit * 60)[: int(random.integers(60))])
        logits = random.normal(size=(1, vocab)).astype(np.float32)
        for backend in BACKENDS:
            sampler = CSampler(vocab, backend)
            sampler.add(request)
            sampler.step(logits, [], None, None, None, None, -1, 0)
            own = reference.adjust(
                logits[0], params, tokens=request.prompt, prompt_length=len(request.prompt)
            )
            assert same_bits(own, sampler.adjusted[0]), (backend, params, request.prompt)
            sampler.close()
