#!/usr/bin/env python3
"""The server as OpenAI's own client and httpx see it; skipped where these packages are missing.

Usage: openai_client_test.py SLUICE ROOT. Exit code 77: skipped.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "tests/cli"))
import served  # noqa: E402
import tiny_model  # noqa: E402

try:
    import httpx
    import openai
except ImportError as missing:
    print(f"skipped: {missing}; scripts/setup.sh python installs it")
    sys.exit(77)

FOLDER = tempfile.TemporaryDirectory()
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
MODEL = str(tiny_model.write(Path(FOLDER.name) / "tiny", ROOT, chat_template=TEMPLATE, context=4096))
HELLO = [{"role": "user", "content": "Hello"}]
WHOLE = {"max_tokens": 16, "seed": 5}


def setUpModule():
    global server, client, mock, slow
    server = served.Server(SLUICE, "--model", MODEL, "--name", "tiny", "--threads", "2").__enter__()
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    # An engine of a hundred tokens a second, which repeats the prompt.
    mock = subprocess.Popen([SLUICE, "mock-engine", "--listen", "tcp://127.0.0.1:*", "--tokenizer",
                             MODEL + "/tokenizer.json", "--rate", "100", "--batch", "1", "--quiet"],
                            env=served.ENVIRONMENT, stdout=subprocess.PIPE)
    endpoint = mock.stdout.readline().decode().split()[-1]
    slow = served.Server(SLUICE, "--model", MODEL, "--engine", endpoint).__enter__()


def tearDownModule():
    server.__exit__()
    slow.__exit__()
    mock.kill()
    mock.communicate()


class Chats(unittest.TestCase):
    def create(self, **more):
        return client.chat.completions.create(model="tiny", messages=HELLO, **WHOLE, **more)

    def test_a_stream_is_the_whole_in_pieces(self):
        whole = self.create()
        chunks = list(self.create(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual([c.choices[0].finish_reason for c in chunks[-2:-1]], ["length"])
        self.assertEqual((chunks[-1].choices, chunks[-1].usage), ([], whole.usage))
        self.assertEqual({c.id for c in chunks}, {chunks[0].id})
        self.assertEqual({c.object for c in chunks}, {"chat.completion.chunk"})

    def test_choices_come_side_by_side(self):
        whole = self.create(n=3)
        self.assertEqual([choice.index for choice in whole.choices], [0, 1, 2])
        texts = ["", "", ""]
        ends = []
        for chunk in self.create(n=3, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                if choice.finish_reason:
                    ends.append(choice.index)
        self.assertEqual(texts, [choice.message.content for choice in whole.choices])
        self.assertEqual(sorted(ends), [0, 1, 2])

    def test_log_probabilities_are_of_the_tokens_of_the_text(self):
        answer = self.create(logprobs=True, top_logprobs=2)
        tokens = answer.choices[0].logprobs.content
        self.assertEqual(len(tokens), 16)
        # Random weights make bytes that are no text.
        text = b"".join(bytes(token.bytes) for token in tokens).decode("utf-8", "replace")
        self.assertEqual(text, answer.choices[0].message.content)
        for token in tokens:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 2)
        chunks = [c.choices[0] for c in self.create(logprobs=True, top_logprobs=2, stream=True)]
        streamed = [t for c in chunks if c.logprobs for t in c.logprobs.content]
        self.assertEqual([t.token for t in streamed], [t.token for t in tokens])

    def test_max_completion_tokens_and_the_clients_extras_are_taken(self):
        answer = client.chat.completions.create(
            model="tiny", messages=[{"role": "system", "content": [{"type": "text", "text": "Be"}]},
                                    *HELLO],
            max_completion_tokens=3, user="me", store=False, metadata={"a": "b"},
            extra_body={"top_k": 5, "min_p": 0.1, "ignore_eos": True})
        self.assertEqual(answer.usage.completion_tokens, 3)

    def test_stops_end_the_text_in_front_of_them(self):
        whole = self.create().choices[0].message.content
        cut = self.create(stop=[whole[6:8]])
        self.assertEqual(cut.choices[0].finish_reason, "stop")
        self.assertEqual(cut.choices[0].message.content, whole[:whole.index(whole[6:8])])


class Completions(unittest.TestCase):
    def create(self, **more):
        return client.completions.create(model="tiny", **{"prompt": "It was", **WHOLE, **more})

    def test_a_stream_is_the_whole_in_pieces(self):
        whole = self.create()
        text = "".join(c.choices[0].text for c in self.create(stream=True))
        self.assertEqual(text, whole.choices[0].text)
        self.assertEqual(whole.usage.total_tokens,
                         whole.usage.prompt_tokens + whole.usage.completion_tokens)

    def test_prompts_are_texts_or_ids(self):
        both = self.create(prompt=["It was", "The king"])
        self.assertEqual([choice.index for choice in both.choices], [0, 1])
        self.assertEqual(both.choices[0].text, self.create().choices[0].text)
        ids = httpx.post(f"{server.url}/tokenize", json={"prompt": "It was"}).json()["tokens"]
        self.assertEqual(self.create(prompt=ids).choices[0].text, both.choices[0].text)

    def test_log_probabilities_have_their_places(self):
        # Random weights make bytes that are no text, unless they may not.
        letters = httpx.post(f"{server.url}/tokenize", json={
            "prompt": "It was a dark and stormy night", "add_special_tokens": False}).json()
        answer = self.create(logprobs=2, extra_body={"allowed_token_ids": letters["tokens"]})
        text, logprobs = answer.choices[0].text, answer.choices[0].logprobs
        self.assertEqual("".join(logprobs.tokens), text)
        self.assertEqual(len(logprobs.tokens), 16)
        for token, at in zip(logprobs.tokens, logprobs.text_offset, strict=True):
            self.assertEqual(text[at:at + len(token)], token)

    def test_the_seed_that_was_used_is_told(self):
        first = client.completions.create(model="tiny", prompt="It was", max_tokens=16)
        again = self.create(seed=first.model_extra["seed"])
        self.assertEqual(again.choices[0].text, first.choices[0].text)


class Failures(unittest.TestCase):
    def test_errors_are_of_the_kinds_that_the_client_knows(self):
        with self.assertRaises(openai.BadRequestError) as raised:
            client.completions.create(model="tiny", prompt="a", temperature=-1)
        self.assertEqual(raised.exception.param, "temperature")
        with self.assertRaises(openai.NotFoundError) as raised:
            client.completions.create(model="other", prompt="a")
        self.assertEqual(raised.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as raised:
            client.completions.create(model="tiny", prompt="a " * 5000)
        self.assertEqual(raised.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError) as raised:
            client.chat.completions.create(model="tiny", messages=HELLO, tools=[
                {"type": "function", "function": {"name": "f"}}])
        self.assertEqual(raised.exception.param, "tools")

    def test_a_key_is_asked_for(self):
        with served.Server(SLUICE, "--model", MODEL, "--api-key", "right") as locked:
            def models(key):
                return openai.OpenAI(base_url=f"{locked.url}/v1", api_key=key).models.list().data
            self.assertEqual(len(models("right")), 1)
            with self.assertRaises(openai.AuthenticationError):
                models("wrong")

    def test_a_lost_engine_is_an_error_in_the_middle_of_a_stream(self):
        with served.Server(SLUICE, "--model", MODEL) as own:
            its = openai.OpenAI(base_url=f"{own.url}/v1", api_key="none", max_retries=0)
            stream = its.completions.create(model="tiny", prompt="It was", max_tokens=4000,
                                            stream=True, extra_body={"ignore_eos": True})
            next(stream)
            with self.assertRaises(openai.APIError) as raised:
                os.kill(own.start["engine_pid"], signal.SIGKILL)
                for _ in stream:
                    pass
            self.assertIn("engine", str(raised.exception))

    def free_within_a_while(self):
        """Until the slow engine, which has one place, has nothing to do."""
        end = time.monotonic() + served.PATIENCE
        while "sluice_choices_running 0" not in slow.get("/metrics")[2].decode():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def test_to_close_a_stream_frees_its_place(self):
        its = openai.OpenAI(base_url=f"{slow.url}/v1", api_key="none", max_retries=0)
        stream = its.completions.create(model="mock", prompt="It was", max_tokens=100000,
                                        stream=True)
        next(stream)
        stream.close()
        self.free_within_a_while()
        answer = its.completions.create(model="mock", prompt="It was", max_tokens=4)
        self.assertEqual(answer.usage.completion_tokens, 4)

    def test_to_give_up_waiting_frees_its_place_too(self):
        its = openai.OpenAI(base_url=f"{slow.url}/v1", api_key="none", max_retries=0, timeout=0.3)
        with self.assertRaises(openai.APITimeoutError):
            its.completions.create(model="mock", prompt="It was", max_tokens=100000)
        self.free_within_a_while()

    def test_a_cancelled_task_frees_its_place_too(self):
        async def main():
            its = openai.AsyncOpenAI(base_url=f"{slow.url}/v1", api_key="none", max_retries=0)

            async def read():
                async for _ in await its.completions.create(
                        model="mock", prompt="It was", max_tokens=100000, stream=True):
                    begun.set()
            begun = asyncio.Event()
            task = asyncio.create_task(read())
            await begun.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            await its.close()
        asyncio.run(main())
        self.free_within_a_while()


class Httpx(unittest.TestCase):
    def test_many_on_a_few_connections(self):
        async def main():
            limits = httpx.Limits(max_connections=4)
            async with httpx.AsyncClient(base_url=server.url, limits=limits, timeout=60) as its:
                answers = await asyncio.gather(*[
                    its.post("/v1/completions", json={"prompt": "It was", "max_tokens": 8,
                                                      "seed": i % 4}) for i in range(32)])
            return [answer.json()["choices"][0]["text"] for answer in answers]
        texts = asyncio.run(main())
        self.assertEqual(texts, texts[:4] * 8)

    def test_events_are_lines_of_utf8(self):
        with httpx.stream("POST", f"{server.url}/v1/chat/completions", timeout=60,
                          json={"messages": HELLO, **WHOLE, "stream": True}) as response:
            self.assertEqual(response.headers["content-type"], "text/event-stream; charset=utf-8")
            lines = [line for line in response.iter_lines() if line]
        self.assertTrue(all(line.startswith("data: ") for line in lines))
        self.assertEqual(lines[-1], "data: [DONE]")


class Example(unittest.TestCase):
    @unittest.skipIf(subprocess.run([SLUICE, "inspect", "model"], capture_output=True).returncode,
                     "this build has no built-in model")
    def test_it_runs_as_it_stands(self):
        with served.Server(SLUICE) as inside:
            result = subprocess.run([sys.executable, ROOT / "examples/python/openai_client.py",
                                     inside.url], capture_output=True, timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        self.assertIn("temperature", result.stdout.decode())


if __name__ == "__main__":
    unittest.main()
