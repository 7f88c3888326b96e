"""Clients of engines: the same text wherever the engine is, and no request that is lost or left over."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from engines import (
    LOCAL_KINDS,
    MODEL,
    NEEDS_ENGINE,
    NEEDS_PROGRAM,
    PROCESS_KINDS,
    make_client,
    requests_of,
)

import sluice

pytestmark = NEEDS_ENGINE

STORY = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0.8, "seed": 11}


@pytest.fixture(scope="module", params=LOCAL_KINDS + PROCESS_KINDS)
def client(request):
    with make_client(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def local():
    with make_client("local") as made:
        yield made


@pytest.fixture(scope="module")
def expected(local):
    """What each request gives alone."""
    return [local.generate(prompt, **keywords) for prompt, keywords in requests_of(32)]


def assert_same(output, other):
    for name in ("text", "ids", "finish", "stop", "stop_token", "prompt_tokens", "output_tokens",
                 "seed", "message"):
        assert getattr(output, name) == getattr(other, name), name


def whole(client, prompt, mode, **keywords):
    """The outputs of a request in this mode."""
    outputs = list(client.stream(prompt, mode=mode, **keywords))
    assert [output.finish is None for output in outputs] == [True] * (len(outputs) - 1) + [False]
    return outputs


def drained(client):
    while client.live_requests:
        client.poll(0.01)
    counters = client.engine_counters
    return counters is None or counters["running"] == counters["waiting"] == 0


def test_a_request_gets_the_same_text_alone_and_among_others(client, expected):
    requests = requests_of(32)
    for index in (3, 17):
        prompt, keywords = requests[index]
        assert_same(client.generate(prompt, **keywords), expected[index])
    ids = [client.submit(prompt, mode="final", **keywords) for prompt, keywords in requests]
    assert len(set(ids)) == 32
    outputs = {}
    while polled := client.poll():
        outputs |= {output.id: output for output in polled}
    for id, other in zip(ids, expected, strict=True):
        assert_same(outputs[id], other)
    assert drained(client)


def test_a_list_of_prompts_gives_a_list_in_its_order(client, local):
    tokenizer = client.tokenizer
    prompts = ["The king", tokenizer.encode("The queen"), "The", np.array(tokenizer.encode("A fox"))]
    outputs = client.generate(prompts, max_tokens=4, temperature=0)
    for prompt, output in zip(prompts, outputs, strict=True):
        assert_same(output, local.generate(prompt, max_tokens=4, temperature=0, seed=output.seed))
    assert client.generate([]) == []
    assert [o.text for o in client.generate(("The king",), max_tokens=4, temperature=0)] == [
        outputs[0].text]


def test_more_prompts_than_slots_wait_for_each_other(local):
    slots = local.info["max_client_requests"]
    outputs = local.generate([[5]] * (slots + 3), max_tokens=1, temperature=0)
    assert len(outputs) == slots + 3 and len({output.text for output in outputs}) == 1


def test_a_seed_that_was_chosen_gives_the_text_again(client):
    first = client.generate("The king", max_tokens=12)
    assert_same(client.generate("The king", max_tokens=12, seed=first.seed), first)
    assert client.generate("The king", max_tokens=12).seed != first.seed


def test_params_come_first_and_keywords_on_top(client, local):
    params = sluice.SamplingParams(seed=7, temperature=2, top_k=20)
    output = client.generate("The king", params, temperature=0.5, max_tokens=8)
    assert_same(output, local.generate("The king", seed=7, temperature=0.5, top_k=20, max_tokens=8))


def test_choices_of_a_seed_differ_and_repeat(client):
    texts = [client.generate(**STORY, choice=choice).text for choice in range(4)]
    assert len(set(texts)) == 4
    assert client.generate(**STORY, choice=2).text == texts[2]


@pytest.mark.parametrize("keywords", [{}, {"stop": ["the "]}, {"logprobs": 2}], ids=str)
def test_modes_tell_the_same(client, keywords):
    keywords = {**STORY, **keywords}
    deltas = whole(client, mode="delta", **keywords)
    cumulated = whole(client, mode="cumulative", **keywords)
    (final,) = whole(client, mode="final", **keywords)
    assert "".join(output.text for output in deltas) == final.text
    assert sum((output.ids for output in deltas), []) == final.ids
    assert_same(cumulated[-1], final)
    for before, behind in zip(cumulated, cumulated[1:]):
        assert behind.text.startswith(before.text)
        assert behind.ids[: len(before.ids)] == before.ids
    assert [output.output_tokens for output in deltas] == sorted(
        output.output_tokens for output in deltas)


@pytest.mark.parametrize("interval", [1, 5, 100])
def test_outputs_come_in_intervals(local, interval):
    outputs = whole(local, mode="delta", stream_interval=interval, ignore_eos=True, **STORY)
    tokens = [output.output_tokens for output in outputs]
    # The first at once, then every so many, and the last.
    assert tokens == [*range(1, 24, interval), 24]
    assert "".join(output.text for output in outputs) == local.generate(**STORY, ignore_eos=True).text


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_ends_the_text(client, include):
    text = client.generate(**STORY).text
    stop = text.split()[3]
    before, _, _ = text.partition(stop)
    output = client.generate(**STORY, stop=stop, include_stop=include)
    assert (output.finish, output.stop) == ("stop_string", stop)
    assert output.text == before + (stop if include else "")
    assert output.output_tokens < 24
    streamed = "".join(o.text for o in client.stream(**STORY, stop=["xyz", stop],
                                                     include_stop=include))
    assert streamed == output.text


def test_a_stop_token_and_a_limit_end_the_text(client):
    ids = client.generate(**STORY).ids
    output = client.generate(**STORY, stop_token_ids=[ids[5]])
    place = ids.index(ids[5])
    assert (output.finish, output.stop_token, output.output_tokens) == (
        "stop_token", ids[5], place + 1)
    assert client.generate(**STORY).finish == "length"


def test_a_full_context_ends_the_text(local):
    context = local.info["context"]
    output = local.generate([5] * (context - 2), max_tokens=9, ignore_eos=True)
    assert (output.finish, output.prompt_tokens) == ("context", context - 2)


def test_log_probabilities_stand_beside_their_tokens(client):
    final = client.generate(**STORY, logprobs=3)
    assert final.top_ids.shape == final.top_logprobs.shape == (24, 4)
    assert final.logprobs.shape == final.ranks.shape == (24,)
    assert final.top_ids[:, 0].tolist() == final.ids
    assert (final.top_logprobs[:, 0] == final.logprobs).all()
    assert (np.diff(final.top_logprobs[:, 1:]) <= 0).all()
    assert (final.ranks[final.logprobs == final.top_logprobs[:, 1]] == 1).all()
    deltas = list(client.stream(**STORY, logprobs=3, stream_interval=4))
    for name in ("logprobs", "ranks", "top_ids", "top_logprobs"):
        joined = np.concatenate([getattr(output, name) for output in deltas])
        np.testing.assert_array_equal(joined, getattr(final, name), err_msg=name)
    for output in deltas:
        assert len(output.logprobs) == len(output.ids)
    without = client.generate(**STORY)
    assert without.logprobs is without.ranks is without.top_ids is without.top_logprobs is None
    assert without.ids == final.ids


def test_a_prompt_is_scored_in_the_first_output_alone(client):
    names = ("prompt_logprobs", "prompt_ranks", "prompt_top_ids", "prompt_top_logprobs")
    whole_prompt = {**STORY, "prompt_logprobs": 3}
    final = client.generate(**whole_prompt)
    scored = final.prompt_tokens - 1
    assert final.text == client.generate(**STORY).text
    assert final.prompt_logprobs.shape == final.prompt_ranks.shape == (scored,)
    assert final.prompt_top_ids.shape == final.prompt_top_logprobs.shape == (scored, 4)
    assert (final.prompt_logprobs < 0).all() and (final.prompt_ranks >= 1).all()
    assert (final.prompt_top_logprobs[:, 0] == final.prompt_logprobs).all()
    assert (np.diff(final.prompt_top_logprobs[:, 1:]) <= 0).all()
    for mode in ("delta", "cumulative", "final"):
        first, *rest = whole(client, mode=mode, **whole_prompt)
        for name in names:
            assert (getattr(first, name) == getattr(final, name)).all()
            assert all(getattr(output, name) is None for output in rest)
    without = client.generate(**STORY)
    assert all(getattr(without, name) is None for name in names)
    # The prompt alone, and one that has nothing to score.
    alone = client.generate(STORY["prompt"], max_tokens=0, prompt_logprobs=3)
    assert (alone.text, alone.ids, alone.finish) == ("", [], "length")
    assert (alone.prompt_top_logprobs == final.prompt_top_logprobs).all()
    single = client.generate([5], max_tokens=1, prompt_logprobs=3, temperature=0)
    assert single.prompt_logprobs.shape == (0,) and single.prompt_top_ids.shape == (0, 4)
    nothing = client.generate(STORY["prompt"], max_tokens=0)
    assert (nothing.text, nothing.finish, nothing.prompt_logprobs) == ("", "length", None)


def test_streams_and_polled_requests_do_not_take_each_others_outputs(client, expected):
    (prompt, keywords), (other_prompt, other) = requests_of(14)[12:]
    id = client.submit(prompt, **keywords)
    left = client.stream(prompt, **keywords)
    right = client.stream(other_prompt, **other)
    texts = {"left": next(left).text, "right": ""}
    texts["right"] += "".join(output.text for output in right)
    texts["left"] += "".join(output.text for output in left)
    assert_same(client.generate(prompt, **keywords), expected[12])
    polled = ""
    while outputs := client.poll():
        assert {output.id for output in outputs} == {id}
        polled += outputs[0].text
    assert texts == {"left": expected[12].text, "right": expected[13].text}
    assert polled == expected[12].text
    assert drained(client)


def test_an_aborted_request_ends_once(client):
    ids = [client.submit("Once upon a time", max_tokens=500, ignore_eos=True) for _ in range(4)]
    while len({output.id for output in client.poll()}) == 0:
        pass
    client.abort(ids[1])
    client.abort(ids[1])
    client.abort(12345)
    ends = [output for output in client.poll() if output.finish is not None]
    assert [(output.id, output.finish) for output in ends] == [(ids[1], "cancelled")]
    for id in ids:
        client.abort(id)
    ends = []
    while outputs := client.poll():
        ends += [output.id for output in outputs if output.finish == "cancelled"]
    assert sorted(ends) == sorted(set(ids) - {ids[1]})
    assert drained(client)


def test_a_stream_that_is_left_aborts_its_request(client):
    before = client.counters["aborts"]
    for leave in ("break", "close", "drop", "unread"):
        stream = client.stream("Once upon a time", max_tokens=500, ignore_eos=True)
        if leave == "unread":
            del stream
            continue
        for _ in stream:
            break
        if leave == "close":
            stream.close()
            assert list(stream) == []
        del stream
    assert client.counters["aborts"] == before + 4
    assert client.poll() == []
    assert drained(client)


def test_nothing_to_wait_for_is_told_at_once(client):
    assert client.poll() == []
    start = time.monotonic()
    assert client.poll(0.1) == []
    assert time.monotonic() - start >= 0.1
    assert client.poll(0) == []


def test_a_poll_waits_no_longer_than_it_is_told(client):
    ids = [client.submit("Once upon a time", max_tokens=900, ignore_eos=True, mode="final")
           for _ in range(32)]  # which take seconds together
    start = time.monotonic()
    assert client.poll(0.1) == []
    assert time.monotonic() - start >= 0.1
    assert client.live_requests == len(ids), "it did not wait for their ends"
    for id in ids:
        client.abort(id)
    ends = []
    while polled := client.poll():
        ends += [output.finish for output in polled]
    assert ends == ["cancelled"] * len(ids)


def test_one_call_at_a_time(local):
    """A handler of a signal runs within the call that the signal comes in."""
    errors = set()

    def interrupt(number, frame):
        try:
            local.poll(0)
        except sluice.Error as error:
            errors.add(str(error))

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        for _ in range(100):  # until a signal came within a call
            local.generate("Once upon a time", max_tokens=200, ignore_eos=True)
            if errors:
                break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert errors == {"client = in another call is not allowed: one call at a time"}


def test_ctrl_c_ends_a_wait_and_leaves_nothing_behind(client):
    def interrupt():  # it runs while the call waits or computes, or the call does not end
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    before = client.counters["aborts"]
    for call in (lambda: client.generate(["The king"] * 32, max_tokens=900, ignore_eos=True),
                 lambda: client.poll(20)):
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            call()
        thread.join()
    assert client.counters["aborts"] == before + 32
    assert client.poll(0) == []
    assert drained(client)
    assert client.generate("The king", max_tokens=3).output_tokens == 3


# (keywords, class, parameter, value, allowed)
BAD = [
    ({"prompt": 7}, sluice.ArgumentTypeError, "prompt", "7", "a str, or the ids"),
    ({"prompt": b"x"}, sluice.ArgumentTypeError, "prompt", "a bytes", "a str, or the ids"),
    ({"prompt": None}, sluice.ArgumentTypeError, "prompt", "None", "a whole number"),
    ({"prompt": []}, sluice.Error, "prompt", "0 tokens", "1 to 1023"),
    ({"prompt": [8192]}, sluice.Error, "prompt", "8192", "[0, 8191]"),
    ({"prompt": [5] * 1024}, sluice.Error, "prompt", "1024 tokens", "1 to 1023"),
    ({"params": 3}, sluice.ArgumentTypeError, "params", "3", "SamplingParams"),
    ({"max_tokens": -1}, sluice.Error, "max_tokens", "-1", "[0, "),
    ({"max_tokens": 2.5}, sluice.ArgumentTypeError, "max_tokens", "2.5", "a whole number"),
    ({"choice": 2**24}, sluice.Error, "choice", "16777216", "[0, 16777215]"),
    ({"stop": 3}, sluice.ArgumentTypeError, "stop", "3", "a str, or a list of them"),
    ({"stop": ["a", 3]}, sluice.ArgumentTypeError, "stop", "3", "a str, or a list of them"),
    ({"stop": ["x"] * 17}, sluice.Error, "stops.size", "17", ""),
    ({"include_stop": 1}, sluice.ArgumentTypeError, "include_stop", "1", "True or False"),
    ({"mode": "all"}, sluice.Error, "mode", '"all"', "delta, cumulative or final"),
    ({"mode": 3}, sluice.ArgumentTypeError, "mode", "3", "a name"),
    ({"stream_interval": 0}, sluice.Error, "stream_interval", "0", "[1, "),
    ({"temperature": 3}, sluice.Error, "temperature", "3", "[0, 2]"),
    ({"top_p": 1.5}, sluice.Error, "top_p", "1.5", "(0, 1]"),
    ({"logprobs": 21}, sluice.Error, "logprobs", "21", "[0, 20]"),
    ({"prompt_logprobs": 21}, sluice.Error, "prompt_logprobs", "21", "[0, 20]"),
    ({"prompt_logprobs": -1}, sluice.Error, "prompt_logprobs", "-1", "[0, 20]"),
    ({"prompt_logprobs": 1.5}, sluice.ArgumentTypeError, "prompt_logprobs", "1.5", "a whole number"),
    ({"stop_token_ids": [9000]}, sluice.Error, "stop_token_ids", "9000", "[0, 8191]"),
    ({"max_new_tokens": 3}, sluice.ArgumentTypeError, "max_new_tokens", "3",
     "one of the keywords temperature"),
]


@pytest.mark.parametrize("case", range(len(BAD)), ids=lambda i: f"{i}-{BAD[i][2]}")
def test_a_wrong_argument_is_named(client, case):
    keywords, kind, parameter, value, allowed = BAD[case]
    with pytest.raises(sluice.Error) as caught:
        client.submit(**{"prompt": "The king", **keywords})
    error = caught.value
    assert type(error) is kind
    assert (error.parameter, error.value) == (parameter, value)
    assert error.allowed.startswith(allowed)
    assert client.live_requests == 0


def test_wrong_arguments_of_a_client_are_named():
    for folder, value in (("nowhere", '"nowhere"'), (__file__, f'"{__file__}"'), ("", '""')):
        with pytest.raises(sluice.Error) as refused:
            sluice.EngineClient.local(folder)
        assert (refused.value.parameter, refused.value.value) == ("model_dir", value)
        assert refused.value.allowed.startswith("a folder with config.json")
    with pytest.raises(sluice.ArgumentTypeError, match="model_dir = 3 is not allowed: the path of a folder"):
        sluice.EngineClient.local(3)
    with pytest.raises(sluice.Error, match="head"):
        sluice.EngineClient.local(MODEL, head="best")
    with pytest.raises(sluice.Error, match="max_requests"):
        sluice.EngineClient.local(MODEL, max_requests=0)
    with pytest.raises(sluice.Error, match="steps_in_flight"):
        sluice.EngineClient.local(MODEL, steps_in_flight=2)
    with pytest.raises(sluice.Error, match="stop_at"):
        sluice.EngineClient.local(MODEL, stop_at="both")
    with pytest.raises(sluice.ArgumentTypeError, match="threads"):
        sluice.EngineClient.local(MODEL, threads=2)
    with pytest.raises(sluice.Error, match="endpoint"):
        sluice.EngineClient.connect("somewhere", MODEL)
    with pytest.raises(sluice.Error, match="endpoints"):
        sluice.EngineClient.connect([], MODEL)
    with pytest.raises(sluice.Error, match="credits"):
        sluice.EngineClient.connect("tcp://127.0.0.1:1", MODEL, credits=0)
    with pytest.raises(sluice.Error, match="connect_timeout"):
        sluice.EngineClient.connect("tcp://127.0.0.1:1", MODEL, connect_timeout=-1)
    with pytest.raises(sluice.Error, match="path"):
        sluice.EngineClient.connect("tcp://127.0.0.1:1", "/nowhere")
    with pytest.raises(sluice.ArgumentTypeError, match="tokenizer"):
        sluice.EngineClient.spawn(["sluice"])
    with pytest.raises(sluice.UnavailableError, match="127.0.0.1:1"):
        sluice.EngineClient.connect("tcp://127.0.0.1:1", MODEL, connect_timeout=0.05)
    with pytest.raises(sluice.UnavailableError):
        sluice.EngineClient.spawn(["false"], MODEL)


@pytest.mark.parametrize("head", ["dither4", "clusters"])
def test_a_model_with_threads_and_a_small_cache_gives_the_same_text(expected, head):
    threads = sluice.Threads(2)
    with sluice.EngineClient.local(MODEL, threads=threads, cache_tokens=1024, max_requests=5,
                                   head=head) as client:
        del threads
        ids = [client.submit(prompt, mode="final", **keywords)
               for prompt, keywords in requests_of(32)]
        outputs = {}
        while polled := client.poll():
            outputs |= {output.id: output for output in polled}
        for id, other in zip(ids, expected, strict=True):
            assert_same(outputs[id], other)


@pytest.mark.parametrize("kind", LOCAL_KINDS + PROCESS_KINDS[:1])
def test_a_client_may_be_closed_while_requests_live(kind):
    client = make_client(kind)
    stream = client.stream("Once upon a time", max_tokens=900, ignore_eos=True)
    client.submit("The king", max_tokens=900)
    next(stream)
    client.close()
    client.close()
    for call in (client.poll, lambda: client.submit("A"), lambda: client.info, stream.__next__):
        with pytest.raises(sluice.Error, match="client = closed"):
            call()
    stream.close()
    del client, stream
    dropped = make_client(kind)
    dropped.submit("The king", max_tokens=900)
    del dropped


@NEEDS_PROGRAM
def test_an_engine_that_is_killed_ends_every_request():
    with sluice.EngineClient.spawn(MODEL) as client:
        id = client.submit("Once upon a time", max_tokens=900, ignore_eos=True)
        stream = client.stream("The king", max_tokens=900, ignore_eos=True)
        next(stream)
        os.kill(client.pid, signal.SIGKILL)
        with pytest.raises(sluice.UnavailableError, match="engine = lost"):
            for _ in stream:
                pass
        ends = [output for output in client.poll() if output.finish is not None]
        assert [(output.id, output.finish) for output in ends] == [(id, "engine_lost")]
        assert ends[0].message
        assert client.poll() == []
        assert client.health != "ready"
        with pytest.raises(sluice.UnavailableError):
            client.generate("The king")


def test_an_output_says_what_it_is(local):
    stream = local.stream("The king", max_tokens=2, temperature=0)
    first = next(stream)
    assert first.id == stream.id and first.finish is first.stop is first.stop_token is None
    assert first.status == sluice.Status.OK and first.message is None
    assert repr(first) == f"Output(id={first.id}, text={first.text!r}, output_tokens=1, finish=None)"
    assert repr(next(stream)).endswith("finish='length')")
