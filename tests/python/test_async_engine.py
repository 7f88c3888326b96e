"""Engines from asyncio: many requests on one loop, and none that is left behind."""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import time

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

LONG = {"max_tokens": 900, "ignore_eos": True}


@pytest.fixture(scope="module")
def expected():
    with make_client("local") as client:
        return [client.generate(prompt, **keywords) for prompt, keywords in requests_of(32)]


@pytest.fixture(params=LOCAL_KINDS + PROCESS_KINDS[:1])
def kind(request):
    return request.param


def run(main, kind, timeout=120):
    """main(client) on a loop of its own; afterwards nothing runs any more."""
    async def whole():
        async with make_client(kind, sluice.AsyncEngineClient) as client:
            result = await asyncio.wait_for(main(client), timeout)
            await drained(client)
            return result

    return asyncio.run(whole())


async def drained(client, timeout=60):
    driver = client._driver
    end = time.monotonic() + timeout
    while driver.live() > 0:
        assert time.monotonic() < end, "requests live on"
        await asyncio.sleep(0.005)
    counters = await client.engine_counters()
    assert counters is None or counters["running"] == counters["waiting"] == 0


async def text_of(stream):
    return "".join([output.text async for output in stream])


def test_concurrent_requests_get_the_same_text_as_alone(kind, expected):
    requests = requests_of(32)

    async def main(client):
        streams = [client.stream(prompt, **keywords) for prompt, keywords in requests]
        prompts = [client.generate(prompt, **keywords) for prompt, keywords in requests]
        return await asyncio.gather(*map(text_of, streams), *prompts)

    results = run(main, kind)
    assert results[:32] == [output.text for output in expected]
    assert [output.ids for output in results[32:]] == [output.ids for output in expected]


def test_cancelled_tasks_abort_their_requests_and_nobody_elses(kind, expected):
    requests = requests_of(32)

    async def main(client):
        async def forever(place):
            held.append(client.stream("Once upon a time", seed=place, **LONG))
            async for _ in held[-1]:
                started.add(place)

        started, held = set(), []
        doomed = [asyncio.create_task(forever(place)) for place in range(16)]
        kept = [asyncio.create_task(text_of(client.stream(prompt, **keywords)))
                for prompt, keywords in requests]
        while len(started) < 8:
            await asyncio.sleep(0)
        doomed.append(asyncio.create_task(client.generate(["The king"] * 3, **LONG)))
        await asyncio.sleep(0.02)
        for task in doomed:
            task.cancel()
        ends = await asyncio.gather(*doomed, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        assert [output for stream in held async for output in stream] == []
        return await asyncio.gather(*kept)

    assert run(main, kind) == [output.text for output in expected]


def test_leaving_the_iterator_aborts(kind):
    async def leave(client):
        async for _ in client.stream("Once upon a time", **LONG):
            break

    async def leave_by_an_exception(client):
        with pytest.raises(RuntimeError, match="mine"):
            async for _ in client.stream("Once upon a time", **LONG):
                raise RuntimeError("mine")

    async def leave_by_a_timeout(client):
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(client.generate("Once upon a time", **LONG), 0.02)

    async def close(client):
        stream = client.stream("Once upon a time", **LONG)
        await anext(stream)
        await stream.aclose()
        assert [output async for output in stream] == []

    async def main(client):
        for way in (leave, leave_by_an_exception, leave_by_a_timeout, close):
            aborts = (await client.counters())["aborts"]
            for _ in range(20):  # on a machine that does other things, one may end before it is left
                await way(client)
                gc.collect()  # the traceback of an exception has the stream
                await drained(client)
                ends = (await client.counters())["aborts"] - aborts
                if ends > 0:
                    break
            assert ends == 1, way.__name__
        requests = (await client.counters())["requests"]
        client.stream("Once upon a time", **LONG)  # never begun
        gc.collect()
        await drained(client)
        return (await client.counters())["requests"] - requests

    assert run(main, kind) == 0


def test_a_second_consumer_is_refused_and_the_first_goes_on(kind):
    async def main(client):
        stream = client.stream("Once upon a time", max_tokens=20, seed=3)
        first = asyncio.create_task(text_of(stream))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task"):
            await asyncio.wait_for(anext(stream), 60)
        return await first, await client.generate("Once upon a time", max_tokens=20, seed=3)

    text, whole = run(main, kind)
    assert text == whole.text


def test_what_a_slow_consumer_missed_comes_as_one_output(kind):
    async def main(client):
        stream = client.stream("Once upon a time", max_tokens=64, seed=3, logprobs=1, ignore_eos=True)
        outputs = [await anext(stream)]
        while client._driver.live() > 0:
            await asyncio.sleep(0.01)
        outputs += [output async for output in stream]
        return outputs, await client.generate("Once upon a time", max_tokens=64, seed=3, logprobs=1,
                                              ignore_eos=True)

    outputs, whole = run(main, kind)
    assert len(outputs) <= 2  # one on a machine that was slower to ask than to generate
    assert "".join(output.text for output in outputs) == whole.text
    assert sum((output.ids for output in outputs), []) == whole.ids
    assert outputs[-1].output_tokens == 64 and outputs[-1].finish == "length"
    assert [x for output in outputs for x in output.top_logprobs.tolist()] == (
        whole.top_logprobs.tolist())


def test_cumulative_outputs_are_replaced(kind):
    async def main(client):
        stream = client.stream("Once upon a time", max_tokens=20, seed=3, mode="cumulative")
        last = await anext(stream)
        while client._driver.live() > 0:
            await asyncio.sleep(0.01)
        for last in [output async for output in stream]:
            pass
        return last, await client.generate("Once upon a time", max_tokens=20, seed=3)

    last, whole = run(main, kind)
    assert (last.text, last.ids) == (whole.text, whole.ids)


def test_the_loop_goes_on_meanwhile(kind):
    async def main(client):
        task = asyncio.create_task(client.generate("Once upon a time", max_tokens=400, ignore_eos=True))
        turns = 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0.001)
        return turns

    assert run(main, kind) > 10  # a loop that waits for the request has one


def test_nobody_spins_while_there_is_nothing_to_do(kind):
    async def main(client):
        await client.generate("The king", max_tokens=3)
        await drained(client)
        counting = client._driver._client = CountingClient(client._driver._client)
        start, cpu_start = time.monotonic(), time.process_time()
        await asyncio.sleep(0.2)
        return counting.polls, (time.process_time() - cpu_start) / (time.monotonic() - start)

    polls, share = run(main, kind)
    assert polls < 100  # a loop that polls has thousands
    assert share < 0.2  # of a core, of which a loop that spins takes all that others leave


def test_wrong_arguments_are_the_callers(kind):
    async def main(client):
        with pytest.raises(sluice.Error, match="top_p = 1.5"):
            await client.generate("The king", top_p=1.5)
        with pytest.raises(sluice.ArgumentTypeError, match="prompt = 7"):
            await anext(client.stream(7))
        with pytest.raises(sluice.Error, match="max_tokens"):
            await client.generate(["The king", "The queen"], max_tokens=-1)
        assert await client.generate([]) == []
        outputs = await client.generate(["The king", "The queen"], max_tokens=2, temperature=0)
        assert [output.output_tokens for output in outputs] == [2, 2]
        assert await client.health() == "ready"

    run(main, kind)


def test_closing_ends_every_wait(kind):
    async def main():
        client = await make_client(kind, sluice.AsyncEngineClient)
        assert client.info["vocab"] == len(client.tokenizer)
        waits = [asyncio.create_task(text_of(client.stream("Once upon a time", **LONG)))
                 for _ in range(32)]  # which take seconds together
        await asyncio.sleep(0.02)
        await client.close()
        for wait in waits:
            with pytest.raises(sluice.Error, match="client = closed"):
                await asyncio.wait_for(wait, 60)
        with pytest.raises(sluice.Error, match="client = closed"):
            client.stream("The king")
        await client.close()

    asyncio.run(main())


class CountingClient:
    """A client that counts its polls."""

    def __init__(self, client):
        self._client = client
        self.polls = 0

    def __getattr__(self, name):
        return getattr(self._client, name)

    def poll(self, timeout):
        self.polls += 1
        return self._client.poll(timeout)


class FailingClient:
    """A client whose next polls raise."""

    def __init__(self, client, *failures):
        self._client = client
        self.failures = list(failures)

    def __getattr__(self, name):
        return getattr(self._client, name)

    def poll(self, timeout):
        if self.failures:
            raise self.failures.pop(0)
        return self._client.poll(timeout)


def test_a_thread_that_failed_fails_whoever_comes_later():
    async def main():
        client = await make_client("local", sluice.AsyncEngineClient)
        driver = client._driver
        waits = [asyncio.create_task(text_of(client.stream("The king", **LONG)))
                 for _ in range(32)]  # which take seconds together
        await asyncio.sleep(0.02)
        driver._client = FailingClient(driver._client, MemoryError("mine"))
        while driver._client.failures:
            time.sleep(0.001)  # the loop does not hear of it before it has asked for more
        waits.append(asyncio.create_task(client.health()))
        waits += [asyncio.create_task(text_of(client.stream("The king", **LONG)))]
        for wait in waits:
            with pytest.raises(MemoryError, match="mine"):
                await asyncio.wait_for(wait, 60)
        for wait in [client.generate("The king", **LONG), client.counters()]:
            with pytest.raises(MemoryError, match="mine"):
                await asyncio.wait_for(wait, 60)
        await asyncio.wait_for(client.close(), 60)

    asyncio.run(main())


@NEEDS_PROGRAM
def test_a_poll_that_raises_aborts_what_it_failed():
    async def main(client):
        driver = client._driver
        stream = client.stream("Once upon a time", **LONG)
        await anext(stream)
        driver._client = FailingClient(driver._client, MemoryError("mine"))
        with pytest.raises(MemoryError, match="mine"):
            await asyncio.wait_for(text_of(stream), 60)
        assert (await client.counters())["aborts"] == 1
        assert (await client.generate("The king", max_tokens=4)).output_tokens == 4

    run(main, "process")


@NEEDS_PROGRAM
def test_outputs_behind_an_interrupted_poll_are_not_forgotten():
    class Interruption(BaseException):
        pass

    async def main(client):
        driver = client._driver
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        driver._client = FailingClient(driver._client)
        stream = client.stream("The king", max_tokens=1)
        stream._begin()
        time.sleep(0.2)  # the whole output is there
        taken = []
        poll = driver._client.poll

        def interrupted_poll(timeout):
            if not taken:  # the client has it, and its descriptor is not readable any more
                taken.extend(poll(timeout))
                raise Interruption
            return taken

        driver._client.poll = interrupted_poll
        output = await asyncio.wait_for(anext(stream), 60)
        assert isinstance(told[0]["exception"], Interruption)
        del driver._client.poll
        return output.output_tokens

    told = []
    assert run(main, "process") == 1


def test_opening_twice_at_once_makes_one_client():
    made = []

    async def main():
        client = make_client("local", sluice.AsyncEngineClient)
        make = client._make
        client._make = lambda: made.append(make()) or made[-1]
        await asyncio.gather(client.open(), client.open())
        await client.close()

    asyncio.run(main())
    assert len(made) == 1


def test_a_question_that_raises_is_the_askers(kind):
    async def main(client):
        with pytest.raises(AttributeError, match="no_such"):
            await asyncio.wait_for(client._driver.ask(lambda engine: engine.no_such), 60)
        assert await asyncio.wait_for(client.health(), 60) == "ready"

    run(main, kind)


def test_closing_that_is_cancelled_closes(kind):
    async def main():
        client = await make_client(kind, sluice.AsyncEngineClient)
        engine = client._driver._client
        stream = client.stream("Once upon a time", **LONG)
        await anext(stream)
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await asyncio.get_running_loop().shutdown_default_executor()
        with pytest.raises(sluice.Error, match="client = closed"):
            engine.abort(0)

    asyncio.run(main())


def test_a_program_may_end_without_closing():
    program = f"""
import asyncio, sluice
async def main():
    global client, stream
    client = await sluice.AsyncEngineClient.local({str(MODEL)!r})
    stream = client.stream("Once upon a time", max_tokens=900, ignore_eos=True)
    await anext(stream)
asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == 0


@NEEDS_PROGRAM
def test_a_dead_engine_raises_in_every_waiting_consumer():
    async def main(client):
        waits = [asyncio.create_task(text_of(client.stream("Once upon a time", **LONG)))
                 for _ in range(8)]
        waits.append(asyncio.create_task(client.generate("The king", **LONG)))
        await asyncio.sleep(0.05)
        os.kill(client.pid, signal.SIGKILL)
        for wait in waits:
            with pytest.raises(sluice.UnavailableError, match="engine = lost"):
                await asyncio.wait_for(wait, 60)

    run(main, "process")


def test_more_prompts_than_slots_wait_for_each_other():
    async def main(client):
        client.info["max_client_requests"] = 4
        most = 0

        async def watch():
            nonlocal most
            while True:
                most = max(most, client._driver.live())
                await asyncio.sleep(0)

        watcher = asyncio.create_task(watch())
        outputs = await client.generate([[5 + i] for i in range(11)], max_tokens=3, temperature=0)
        watcher.cancel()
        assert [output.ids for output in outputs] == [
            (await client.generate([5 + i], max_tokens=3, temperature=0)).ids for i in range(11)]
        assert most == 4

    run(main, "local")


def test_generate_waits_for_the_places_of_aborted_requests(kind):
    async def main(client):
        places = client.info["max_client_requests"]
        streams = [client.stream("Once upon a time", **LONG) for _ in range(places)]
        for stream in streams:
            stream._begin()
        waits = [asyncio.create_task(client.generate(["The king"] * 3, max_tokens=4, temperature=0))
                 for _ in range(4)]
        await asyncio.sleep(0.02)
        assert not any(wait.done() for wait in waits)
        with pytest.raises(sluice.ExhaustedError, match="requests"):
            await anext(client.stream("The king"))  # it does not wait
        waits.pop().cancel()
        for stream in streams:
            stream.close()
        results = await asyncio.gather(*waits)
        whole = await client.generate("The king", max_tokens=4, temperature=0)
        assert all(output.ids == whole.ids for outputs in results for output in outputs)

    run(main, kind)
