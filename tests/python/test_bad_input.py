"""Every wrong argument is an Error that names it, its value and what is allowed."""

import numpy as np
import pytest

import sluice

LOGITS = np.zeros((2, 8), np.float32)
SIX = np.zeros((2, 3, 8), np.float32)
READ_ONLY = np.zeros((2, 8), np.float32)
READ_ONLY.flags.writeable = False
FLOATS = "float32, bfloat16 or float16"
LAST_AXIS = "a last axis whose elements are adjacent; np.ascontiguousarray(logits, dtype=np.float32)"
V, T = sluice.Error, sluice.ArgumentTypeError


def sampler_and_request(**params):
    sampler = sluice.Sampler(vocab=8)
    return sampler, sampler.add(**params)


def step(logits=LOGITS[:1], sampler=None, requests=None, **more):
    own, request = sampler_and_request()
    return (sampler or own).step(logits, [request] if requests is None else requests, **more)


def step_request(**of_request):
    sampler, request = sampler_and_request(draft_mode="reject")
    return sampler.step(LOGITS, [sluice.StepRequest(request, **of_request)])


def stale():
    sampler, request = sampler_and_request()
    sampler.remove(request)
    return sampler.tokens(request)


# (call, class, parameter, value, allowed)
CASES = [
    # logits
    (lambda: sluice.select([1.0, 2.0]), T, "logits", "a list", "an array of float32, bfloat16"),
    (lambda: sluice.select(None), T, "logits", "None", "an array of float32, bfloat16"),
    (lambda: sluice.select(LOGITS.astype("f8")), T, "logits.dtype", "float64", FLOATS),
    (lambda: sluice.select(LOGITS.astype("c8")), T, "logits.dtype", "complex64", FLOATS),
    (lambda: sluice.select(LOGITS.astype(">f4")), T, "logits.dtype", ">f4", FLOATS),
    (lambda: sluice.select(LOGITS.astype("O")), T, "logits.dtype", "object", FLOATS),
    (lambda: sluice.select(b"abcd"), T, "logits.dtype", "uint8", FLOATS),
    (lambda: sluice.select(LOGITS[0, 0]), V, "logits.ndim", "0", "1 or 2"),
    (lambda: sluice.select(SIX), V, "logits.ndim", "3", "1 or 2"),
    (lambda: sluice.select(np.zeros((1,) * 6, "f4")), V, "logits.ndim", "6", "1 or 2"),
    (lambda: sluice.select(LOGITS[:, ::2]), V, "logits.strides", "[8, 2]", LAST_AXIS),
    (lambda: sluice.select(LOGITS[:, ::-1]), V, "logits.strides", "[8, -1]", LAST_AXIS),
    (lambda: sluice.select(np.asfortranarray(LOGITS)), V, "logits.strides", "[1, 2]", LAST_AXIS),
    (lambda: sluice.select(LOGITS[::-1]), V, "logits.strides", "[-8, 1]", "rows that follow"),
    (lambda: sluice.select(np.broadcast_to(LOGITS[0], (3, 8))), V, "logits.strides", "[0, 1]",
     "rows that follow"),
    (lambda: sluice.select(np.zeros((2, 0), "f4")), V, "logits.vocab", "0", "[1, 8388608]"),
    (lambda: sluice.mask_(READ_ONLY), V,
     "logits", "a read-only array", "an array that can be written"),
    (lambda: sluice.mask_(b"abcd"), V,
     "logits", "a read-only array", "an array that can be written"),
    # parameters
    (lambda: sluice.select(LOGITS, 3), T, "params", "3", "SamplingParams, or a sequence"),
    (lambda: sluice.select(LOGITS, [None, None]), T,
     "params", "None", "SamplingParams, or a sequence"),
    (lambda: sluice.select(LOGITS, [sluice.SamplingParams()] * 3), V, "params.size", "3",
     "one for all rows or one a row, 2"),
    (lambda: sluice.select(LOGITS, top_p=0), V, "top_p", "0", "(0, 1]"),
    (lambda: sluice.select(LOGITS, top_p=1e400), V, "top_p", "inf", "(0, 1]"),
    (lambda: sluice.select(LOGITS, temperature=10**400), V, "temperature", "1" + "0" * 39 + "...",
     "a number that a float holds"),
    (lambda: sluice.select(LOGITS, temperature=2.5), V, "temperature", "2.5", "[0, 2]"),
    (lambda: sluice.select(LOGITS, sluice.SamplingParams(temperature=2.5)), V, "temperature", "2.5",
     "[0, 2]"),
    (lambda: sluice.select(LOGITS, max_temperature=0), V, "max_temperature", "0", "above 0"),
    (lambda: sluice.select(LOGITS, top_k=-2), V, "top_k", "-2", "[-1, 2147483647]"),
    (lambda: sluice.select(LOGITS, top_k=2**31), V, "top_k", "2147483648", "[-1, 2147483647]"),
    (lambda: sluice.select(LOGITS, top_k=1.5), T, "top_k", "1.5", "a whole number, or one a row"),
    (lambda: sluice.select(LOGITS, top_k="2"), T, "top_k", "'2'", "a whole number, or one a row"),
    (lambda: sluice.select(LOGITS, top_k=object()), T, "top_k", "a object", "a whole number"),
    (lambda: sluice.select(LOGITS, top_p="x"), T, "top_p", "'x'", "a number, or one a row"),
    (lambda: sluice.select(LOGITS, top_k=[1, 2, 3]), V, "top_k.size", "3",
     "one for all rows or one a row, 2"),
    (lambda: sluice.select(LOGITS, top_p=np.ones((2, 1))), V, "top_p.ndim", "2", "1"),
    (lambda: sluice.select(LOGITS, top_k=np.ones(2)), T,
     "top_k.dtype", "float64", "an integer type"),
    (lambda: sluice.select(LOGITS, top_p=np.ones(2, "c8")), T,
     "top_p.dtype", "complex64", "float32"),
    (lambda: sluice.select(LOGITS, top_k=[2**40, 1]), V, "top_k", "1099511627776", "[-2147483648"),
    (lambda: sluice.select(LOGITS, top_k=["a", "b"]), T, "top_k", "'a'", "a whole number"),
    (lambda: sluice.select(LOGITS, profile=["hf"]), V, "profile.size", "1", "one for all rows"),
    (lambda: sluice.select(LOGITS, profile="x"), V, "profile", '"x"', "vllm, hf"),
    (lambda: sluice.select(LOGITS, xtc_probability=0.5), V,
     "seed", "None", "a seed when XTC is on"),
    (lambda: sluice.select(LOGITS, top_q=1), T, "top_q", "1", "did you mean top_k? The keywords are temperature"),
    (lambda: sluice.select(LOGITS, logits=3), TypeError, None, None, None),
    (lambda: sluice.select(), TypeError, None, None, None),
    (lambda: sluice.sample(LOGITS, repetition_penalty=1.5), V, "repetition_penalty", "1.5",
     "1.0 in a call without a history; use sluice.Sampler"),
    (lambda: sluice.sample(LOGITS, sluice.SamplingParams(bad_words=[[1]])), V, "bad_words", "[[1]]",
     "[] in a call without a history; use sluice.Sampler"),
    (lambda: sluice.sample(LOGITS, allowed_token_ids=[1]), V,
     "allowed_token_ids", "[1]", "None in a"),
    (lambda: sluice.sample(LOGITS, repetition_penalty=0), V,
     "repetition_penalty", "0.0", "1.0 in a"),
    # keys
    (lambda: sluice.sample(LOGITS, seed=-1), V, "seed", "-1", "[0, 18446744073709551615]"),
    (lambda: sluice.sample(LOGITS, seed=2**64), V, "seed", "18446744073709551616", "[0, 1844"),
    (lambda: sluice.sample(LOGITS, seed=np.array([1, -1])), V, "seed", "-1", "[0, 1844"),
    (lambda: sluice.sample(LOGITS, seed=[0.5, 1]), T, "seed", "0.5", "a whole number"),
    (lambda: sluice.sample(LOGITS, position=-1), V, "position", "-1", "[0, 4294967295]"),
    (lambda: sluice.sample(LOGITS, choice=2**24), V, "choice", "16777216", "[0, 16777215]"),
    (lambda: sluice.sample(LOGITS, stream="both"), V, "stream", "'both'", "target, draft"),
    # what else a call takes
    (lambda: sluice.sample(LOGITS, draw_method="dice"), V, "draw_method", '"dice"', "gumbel, cdf"),
    (lambda: sluice.sample(LOGITS, logprob_mode="x"), V, "logprob_mode", '"x"', "raw_logprobs"),
    (lambda: sluice.sample(LOGITS, logprobs=9), V, "logprobs", "9", "[-1, 8]"),
    (lambda: sluice.sample(LOGITS, logprobs=-2), V, "logprobs", "-2", "[-1, 8388608]"),
    (lambda: sluice.sample(LOGITS, [sluice.SamplingParams(), sluice.SamplingParams(seed=1)]), V,
     "seed", "different from row to row", "one value for all rows of a call"),
    (lambda: sluice.sample(LOGITS, out=3), T, "out", "3", "sluice.TokenResults"),
    (lambda: sluice.sample(LOGITS, out=sluice.sample(LOGITS[:1])), V, "out.rows", "1", "2"),
    (lambda: sluice.sample(LOGITS, logprobs=3, out=sluice.sample(LOGITS, logprobs=1)), V,
     "out.top_ids.size", "4", "at least 8"),
    (lambda: sluice.sample(LOGITS, cuts=3), T, "cuts", "3", "sluice.Cuts"),
    (lambda: sluice.sample(LOGITS, cuts=sluice.select(LOGITS[0])), V, "cuts.size", "1", "2"),
    (lambda: sluice.select(LOGITS, masses=1), T, "masses", "1", "True or False"),
    (lambda: sluice.select(LOGITS, backend="x"), V, "backend", '"x"', "auto, cpu"),
    (lambda: sluice.select(LOGITS, backend=1), T, "backend", "1", "a name"),
    (lambda: sluice.select(LOGITS, algorithm="x"), V, "algorithm", '"x"', "auto, certified"),
    (lambda: sluice.select(LOGITS, threads=2), T, "threads", "2", "sluice.Threads"),
    (lambda: sluice.Threads(0), V, "workers", "0", "[1, 65536]"),
    (lambda: sluice.candidates(LOGITS, order="x"), V, "order", "'x'", "id, rank"),
    (lambda: sluice.kept_bitmask(LOGITS, out=np.zeros((2, 1), "i8")), T,
     "out.dtype", "int64", "int32"),
    (lambda: sluice.kept_bitmask(LOGITS, out=np.zeros((2, 2), "i4")), V,
     "out.shape", "(2, 2)", "(2, 1)"),
    (lambda: sluice.kept_bitmask(LOGITS, out=np.zeros(2, "i4")), V, "out.ndim", "1", "2"),
    (lambda: sluice.kept_bitmask(LOGITS, out=np.zeros((4, 1), "i4")[::2]), V,
     "out.strides", "[2, 1]",
     "elements that are adjacent in memory"),
    (lambda: sluice.kept_bitmask(LOGITS, out=READ_ONLY.view("i4")), V, "out", "a read-only array",
     "an array that can be written"),
    (lambda: sluice.logprobs(LOGITS, 8), V, "tokens", "8", "[0, 7]"),
    (lambda: sluice.logprobs(LOGITS, None), T, "tokens", "None", "a whole number"),
    (lambda: sluice.logprobs(LOGITS, [-1, 0]), V, "tokens", "-1", "[0, 7]"),
    (lambda: sluice.logprobs(LOGITS, [1, 2, 3]), V, "tokens.size", "3", "one for all rows"),
    (lambda: sluice.logprobs(LOGITS, sluice.sample(LOGITS[0])), V,
     "tokens.size", "1", "one for all"),
    # topk
    (lambda: sluice.topk(LOGITS, 0), V, "k", "0", "[1, 8388608]"),
    (lambda: sluice.topk(LOGITS, 1.5), T, "k", "1.5", "a whole number"),
    (lambda: sluice.topk(LOGITS.astype("f8"), 1), T, "scores.dtype", "float64", FLOATS),
    (lambda: sluice.topk(LOGITS, 1, lengths=[9, 1]), V, "lengths", "9", "[0, 8]"),
    (lambda: sluice.topk(LOGITS, 1, lengths=[1]), V, "lengths.size", "1", "2"),
    (lambda: sluice.topk(LOGITS, 1, next_n=3), V, "scores.rows", "2", "a multiple of next_n, 3"),
    (lambda: sluice.topk(LOGITS, 1, hint=np.zeros((2, 3))), T, "hint.dtype", "float64", "int32"),
    (lambda: sluice.topk(LOGITS, 1, hint=np.zeros((3, 3), "i4")), V, "hint.size", "9", "6"),
    (lambda: sluice.topk(LOGITS, 1, thresholds=np.zeros(2)), T, "thresholds.dtype", "float64",
     "float32"),
    (lambda: sluice.topk(LOGITS, 1, thresholds=np.zeros(3, "f4")), V, "thresholds.shape", "(3,)",
     "(2,)"),
    (lambda: sluice.topk(LOGITS, 1, top_k=3), T, "top_k", "3", "one of the keywords out, backend"),
    (lambda: sluice.topk(LOGITS, 2, out=sluice.topk(LOGITS, 1)), V, "out.indices.size", "2",
     "at least 4"),
    # dense_head
    (lambda: sluice.dense_head(LOGITS[0], LOGITS), V, "weight.ndim", "1", "2"),
    (lambda: sluice.dense_head(LOGITS, LOGITS[:, :4]), V, "hidden.dim", "4", "8"),
    (lambda: sluice.dense_head(LOGITS, LOGITS, bias=np.zeros(3, "f4")), V,
     "bias.shape", "(3,)", "(2,)"),
    (lambda: sluice.dense_head(LOGITS, LOGITS, query_start_loc=[]), V, "query_start_loc", "empty",
     "requests + 1 elements"),
    (lambda: sluice.dense_head(LOGITS, LOGITS, query_start_loc=[0, 3]), V, "query_start_loc", "3",
     "[1, 2]"),
    (lambda: sluice.dense_head(LOGITS, LOGITS, out=np.zeros((2, 2))), T,
     "out.dtype", "float64", "float32"),
    # verify
    (lambda: sluice.verify(LOGITS, 3), T, "drafts", "3", "one list of token ids for each request"),
    (lambda: sluice.verify(LOGITS, [3]), T, "drafts", "3", "a whole number, or one a row"),
    (lambda: sluice.verify(LOGITS, [[1], [2]]), V,
     "logits.rows", "2", "one a draft and one more a"),
    (lambda: sluice.verify(LOGITS, [[8]]), V, "drafts.ids", "8", "[0, 7]"),
    (lambda: sluice.verify(LOGITS, [[1]], draft_mode="x"), V, "draft_mode", '"x"', "match, reject"),
    (lambda: sluice.verify(LOGITS, [[1]], seed=[1, 2]), V, "seed.size", "2", "one for all rows"),
    (lambda: sluice.verify(LOGITS, [[1]], draft_mode="reject", draft_logits=LOGITS), V,
     "draft_cuts",
     "None", "the Cuts that the drafts were drawn from"),
    (lambda: sluice.verify(LOGITS, [[1]], draft_mode="reject", draft_probabilities=LOGITS[:1]), V,
     "drafts.probabilities.rows", "1", "2"),
    # Sampler
    (lambda: sluice.Sampler(), T, "vocab", "None", "the number of tokens"),
    (lambda: sluice.Sampler(vocab=0), V, "vocab", "0", "[1, 8388608]"),
    (lambda: sluice.Sampler(vocab=8, max_requests=0), V, "max_requests", "0", "[1, 1048576]"),
    (lambda: sluice.Sampler(vocab=8, seed=1), T, "seed", "1", "one of the keywords backend"),
    (lambda: sampler_and_request(prompt=[8]), V, "prompt", "8", "[0, 7]"),
    (lambda: sampler_and_request(prompt="ab"), T, "prompt", "'ab'", "a whole number, or one a row"),
    (lambda: sampler_and_request(temperature=2.5), V, "temperature", "2.5", "[0, 2]"),
    (lambda: sampler_and_request(bad_words=[[9]]), V, "bad_words", "9", "[0, 7]"),
    (lambda: sampler_and_request(choice=-1), V, "choice", "-1", "[0, 4294967295]"),
    (lambda: sampler_and_request(processors=[3]), T, "processors", "3", "callables"),
    (lambda: sampler_and_request(processors=[None]), T, "processors", "None", "callables"),
    (lambda: sampler_and_request(processors=len), T,
     "processors", "a builtin", "a list of callables"),
    (lambda: sampler_and_request(params=3), T, "params", "3", "SamplingParams"),
    (stale, V, "request", "a handle of a request that was removed", "a handle that Add returned"),
    (lambda: step(LOGITS), V, "logits.rows", "2", "1"),
    (lambda: step(LOGITS[:1, :4]), V, "logits.vocab", "4", "8"),
    (lambda: step(requests=3), T, "requests", "3", "a list of requests"),
    (lambda: step(requests=[3]), T,
     "requests", "3", "handles of Sampler.add or sluice.StepRequest"),
    (lambda: step(requests=[None]), T,
     "requests", "None", "handles of Sampler.add or sluice.StepRequest"),
    (lambda: step(adjusted=READ_ONLY), V, "adjusted", "a read-only array", "an array that can be"),
    (lambda: step(adjusted=np.zeros((1, 8), "f2")), T, "adjusted.dtype", "float16", "float32"),
    (lambda: step_request(drafts=[8]), V, "drafts", "8", "[0, 7]"),
    (lambda: step_request(drafts=[1], forced=8), V, "forced", "8", "[-1, 7]"),
    (lambda: step_request(drafts=[1], bitmask=np.zeros(3, "i4")), V, "bitmask.size", "3", "2"),
    (lambda: step_request(drafts=[1], bitmask=np.zeros((3, 1), "i4")), V,
     "bitmask.shape", "(3, 1)", "(2, -1)"),
    (lambda: step_request(drafts=[1], bitmask=np.zeros(2)), T, "bitmask.dtype", "float64", "int32"),
    (lambda: step_request(drafts=[1], draft_probabilities=LOGITS), V,
     "draft_probabilities.rows", "2", "1"),
    (lambda: step_request(drafts=[1], draft_logits=LOGITS[:1]), V,
     "draft_cuts", "None", "the Cuts"),
    (lambda: sluice.StepRequest(3), TypeError, None, None, None),
    (lambda: sluice.LogitsProcessor(3), T, "function", "3", "a callable"),
]


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda i: f"{i}-{CASES[i][2]}")
def test_a_wrong_argument_is_named(case):
    call, kind, parameter, value, allowed = CASES[case]
    with pytest.raises(kind) as caught:
        call()
    if parameter is None:
        return
    error = caught.value
    assert type(error) is kind
    assert isinstance(error, ValueError)
    assert error.parameter == parameter
    assert error.value == value or (value[:2] == "a " and error.value.startswith(value))
    assert error.allowed.startswith(allowed)
    assert str(error) == f"{parameter} = {error.value} is not allowed: {error.allowed}"


def test_logits_are_as_before_when_a_call_throws():
    logits = np.arange(16, dtype="f4").reshape(2, 8)
    with pytest.raises(sluice.Error):
        sluice.mask_(logits, top_k=1, top_p=2)
    assert (logits == np.arange(16).reshape(2, 8)).all()


def test_errors_are_pickled():
    import pickle

    error = pickle.loads(pickle.dumps(sluice.Error("top_p", "2", "(0, 1]")))
    assert str(error) == "top_p = 2 is not allowed: (0, 1]" and error.parameter == "top_p"


def test_an_empty_value_is_a_missing_one():
    assert str(sluice.Error("prompt", "", "a text")) == "missing prompt: a text"
    assert str(sluice.Error("line 3: prompt", "", "a text")) == "line 3: missing prompt: a text"


def test_no_room_says_so():
    sampler = sluice.Sampler(vocab=8, max_requests=1)
    sampler.add()
    with pytest.raises(sluice.ExhaustedError, match="at most max_requests, 1, at a time"):
        sampler.add()


def test_a_backend_that_is_not_there_says_why():
    missing = [info for info in sluice.backends() if not info["available"]]
    for info in missing:
        with pytest.raises(sluice.UnavailableError) as caught:
            sluice.select(LOGITS, backend=info["name"])
        assert caught.value.allowed == info["reason"]


def test_a_handle_is_not_none():
    _, request = sampler_and_request()
    assert not request == None  # noqa: E711
    assert request == request
