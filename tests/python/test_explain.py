"""explain says of every token what select, sample and the Sampler do with it."""

from pathlib import Path

import conftest
import numpy as np
import pytest

import sluice

ROOT = Path(__file__).resolve().parents[2]
LOGITS = np.array([1.5, 0.25, 3, 2.75, -1, 2.5], np.float32)


def test_kept_is_membership_of_the_cut(params):
    for r, row in enumerate(conftest.random_rows(rows=4, vocab=67)):
        key = {"seed": 40 + r, "position": r}
        words = sluice.kept_bitmask(row, cuts=sluice.select(row, **params, **key))
        kept = np.unpackbits(words.view("u1"), bitorder="little")
        drawn = sluice.sample(row, **params, **key).ids
        for i in range(len(row)):
            why = sluice.explain(row, i, **params, **key)
            assert (why.is_kept, why.is_drawn) == (kept[i] == 1, i == drawn)
            assert why.drawn_id == drawn and why.cuts.counts == kept.sum()
            assert why.is_kept == (why.dropped_by is None)
            assert [s.name for s in why.stages if s.dropped_here] == (
                [] if why.is_kept else [why.dropped_by])


def test_every_filter_compares_what_it_says():
    holds = {"<": float.__lt__, "<=": float.__le__, ">=": float.__ge__, ">": float.__gt__}
    row = conftest.random_rows(rows=1, vocab=67)[0]
    for params in conftest.PARAMS:
        for i in range(len(row)):
            for stage in sluice.explain(row, i, **params, seed=1).stages:
                if stage.is_filter and stage.comparison is not None:
                    keeps = holds[stage.comparison](stage.quantity, stage.limit)
                    assert stage.is_left == (keeps or stage.is_exempt)


@pytest.mark.parametrize("method", ["gumbel", "cdf"])
def test_with_a_history_it_is_what_the_sampler_does(method):
    params = sluice.SamplingParams(top_k=5, top_p=0.95, repetition_penalty=1.3, seed=42,
                                   frequency_penalty=0.4, min_tokens=3, stop_token_ids=[3],
                                   bad_words=[[8]], logit_bias={7: 2.0}, draw_method=method)
    rows = conftest.random_rows(rows=6, vocab=40)
    bitmask = np.array([-2, -1], np.int32)  # all but token 0
    sampler = sluice.Sampler(vocab=40)
    request = sampler.add(params, prompt=[2, 0, 2], choice=1)
    for row in rows:
        history = sampler.tokens(request)
        adjusted = np.empty((1, 40), np.float32)
        token = sampler.step(row[np.newaxis], [sluice.StepRequest(request, bitmask=bitmask)],
                             kept=True, adjusted=adjusted)
        kept = np.unpackbits(token.kept.view("u1"), bitorder="little")
        for i in range(40):
            why = sluice.explain(row, i, params, tokens=history, prompt_length=3, choice=1,
                                 bitmask=bitmask)
            assert why.is_kept == (kept[i] == 1) and why.drawn_id == token.ids[0]
            assert why.logit == row[i] and why.adjusted == adjusted[0, i]
            assert why.draw_method == method
    assert why["bitmask"].is_on and why["bad words"].is_on and not why["dry"].is_on


def test_the_sentence_is_that_of_the_command():
    text = (ROOT / "tests/cli/golden.txt").read_text(encoding="utf-8")
    command, title, *_, last = text.split("# [explain]\n")[1].strip().splitlines()
    assert command == ("$ sluice explain tests/fixtures/logits.npy --id 8 --top-k 8 --top-p 0.9")
    logits = np.load(ROOT / "tests/fixtures/logits.npy")[0]
    why = sluice.explain(logits, 8, top_k=8, top_p=0.9)
    assert last.strip() == f"token 8: {why}" and str(why) == why.sentence
    assert repr(why) == f"Explanation(id=8, '{why.sentence}')"


def test_one_row_of_a_matrix_of_any_type():
    for dtype in (np.float32, np.float16):
        why = sluice.explain(LOGITS.astype(dtype)[np.newaxis], np.int64(0), top_k=4)
        assert why.is_kept and why.rank == 4


def test_what_does_not_apply_is_none():
    why = sluice.explain(LOGITS, 0, temperature=0)
    assert (why["top-k"].quantity, why["top-k"].comparison, why["top-k"].limit) == (None,) * 3
    assert (why["top-k"].before, why["dry"].before, why["dry"].mass_left) == (None, 1.5, None)
    bad = sluice.explain(np.array([np.nan, 1], np.float32), 1)
    assert bad.status == sluice.Status.NAN_INPUT and bad.probability is None
    assert bad.dropped_by is None and bad.drawn_id == -1 and "nan" in str(bad)
    masked = sluice.explain(np.array([-np.inf, 1], np.float32), 0)
    assert (masked.rank, masked.dropped_by) == (0, "logits")


def test_forced_tokens_and_processors():
    why = sluice.explain(LOGITS, 0, forced=4)
    assert (why.dropped_by, why.drawn_id) == ("forced token", 4)
    seen = []

    def halve(tokens, prompt_length, logits):
        seen.append((tokens.tolist(), prompt_length))
        logits /= 2

    why = sluice.explain(LOGITS, 2, processors=[halve], tokens=[1, 2], prompt_length=1)
    assert why["processors"].after == 1.5 and seen == [([1, 2], 1)]

    def fail(*_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        sluice.explain(LOGITS, 2, processors=[fail])


V, T = sluice.Error, sluice.ArgumentTypeError


@pytest.mark.parametrize(("kind", "parameter", "arguments", "more"), [
    (V, "id", (LOGITS, 6), {}),
    (V, "id", (LOGITS, -1), {}),
    (V, "id", (LOGITS, 2**40), {}),
    (T, "id", (LOGITS, "2"), {}),
    (T, "id", (LOGITS, None), {}),
    (T, "logits", ([1.0, 2.0], 0), {}),
    (V, "logits.rows", (np.zeros((2, 3), "f4"), 0), {}),
    (T, "params", (LOGITS, 0, 3), {}),
    (V, "top_p", (LOGITS, 0), {"top_p": 0}),
    (V, "temperature", (LOGITS, 0), {"temperature": 2.5}),
    (V, "max_temperature", (LOGITS, 0), {"max_temperature": 0}),
    (T, "cuts", (LOGITS, 0), {"cuts": None}),
    (V, "tokens", (LOGITS, 0), {"tokens": [6]}),
    (V, "prompt_length", (LOGITS, 0), {"tokens": [1], "prompt_length": 2}),
    (V, "bitmask.size", (LOGITS, 0), {"bitmask": np.zeros(2, "i4")}),
    (T, "bitmask.dtype", (LOGITS, 0), {"bitmask": np.zeros(1, "i8")}),
    (V, "forced", (LOGITS, 0), {"forced": 6}),
    (V, "position", (LOGITS, 0), {"position": -1}),
    (V, "choice", (LOGITS, 0), {"choice": 2**24}),
    (T, "processors", (LOGITS, 0), {"processors": [3]}),
    (V, "allowed_token_ids", (LOGITS, 0), {"allowed_token_ids": []}),
])
def test_wrong_arguments(kind, parameter, arguments, more):
    with pytest.raises(kind) as error:
        sluice.explain(*arguments, **more)
    assert error.value.parameter == parameter


def test_a_stage_that_there_is_not():
    with pytest.raises(sluice.Error, match="top-k, top-p") as error:
        sluice.explain(LOGITS, 0)["top_k"]  # noqa: B018
    assert error.value.parameter == "stage"


def test_places_have_all_their_digits():
    row = -np.arange(262144, dtype=np.float32) / 64
    explained = sluice.explain(row, 46197, top_k=50)
    assert str(explained.sentence) == "top-k dropped it: it is number 46198, the first 50 are kept"
    explained = sluice.explain(row, 262143, temperature=0)
    assert "number 262144 in the row" in explained.sentence
    explained = sluice.explain(row, 262143, top_k=200000)
    assert "number 262144, the first 200000 are kept" in explained.sentence
