#!/usr/bin/env python3
"""Calls of tools and reasoning, as OpenAI's own client sees them: of an engine that writes a given
text, and of the built-in model with a grammar.

Usage: tools_test.py SLUICE ROOT. Exit code 77: skipped.
"""

import json
import subprocess
import sys
import unittest
from contextlib import contextmanager
from pathlib import Path

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "tests/cli"))
import served  # noqa: E402

try:
    import openai
except ImportError as missing:
    print(f"skipped: {missing}; scripts/setup.sh python installs it")
    sys.exit(77)
if subprocess.run([SLUICE, "inspect", "model"], capture_output=True).returncode:
    print("skipped: this build has no built-in model")
    sys.exit(77)

FAMILIES = ROOT / "tests/fixtures/chats/families"
ASK = [{"role": "user", "content": "What is the weather in Oslo and in Bergen?"}]
# [tools]
TOOLS = [{
    "type": "function",
    "function": {
        "name": "weather",
        "description": "the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Oslo", "Bergen"]}},
            "required": ["city"],
        },
    },
}]
# [tools]
CALLS = """I look.
<tool_call>
{"name": "weather", "arguments": {"city": "Oslo"}}
</tool_call>
<tool_call>
{"name": "weather", "arguments": {"city": "Bergen"}}
</tool_call>"""


@contextmanager
def writing(text, template, *flags):
    """A client of a server with an engine that gives each request this text."""
    with served.writing(SLUICE, text, FAMILIES / template, *flags) as server:
        yield openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def create(client, **more):
    return client.chat.completions.create(**{"model": "mock", "messages": ASK, **more})


class Calls(unittest.TestCase):
    def test_a_message_has_its_calls(self):
        with writing(CALLS, "hermes.jinja") as client:
            # [tool_calls]
            completion = client.chat.completions.create(
                model="mock", messages=ASK, tools=TOOLS, tool_choice="auto")
            message = completion.choices[0].message
            calls = [(call.function.name, json.loads(call.function.arguments))
                     for call in message.tool_calls]
            # [tool_calls]
        self.assertEqual(calls, [("weather", {"city": "Oslo"}), ("weather", {"city": "Bergen"})])
        self.assertEqual(message.content, "I look.\n")
        self.assertEqual(completion.choices[0].finish_reason, "tool_calls")
        ids = {call.id for call in message.tool_calls}
        self.assertEqual(len(ids), 2)
        self.assertTrue(all(len(i) == 9 and i.isalnum() for i in ids))

    def test_a_stream_has_the_calls_of_the_whole(self):
        with writing(CALLS, "hermes.jinja") as client:
            whole = create(client, tools=TOOLS).choices[0].message
            chunks = list(create(client, tools=TOOLS, stream=True))
        choices = [chunk.choices[0] for chunk in chunks]
        calls = {}
        for choice in choices:
            for part in choice.delta.tool_calls or []:
                if part.id:
                    calls[part.index] = [part.id, part.function.name, ""]
                calls[part.index][2] += part.function.arguments
        self.assertEqual([calls[i][1:] for i in sorted(calls)],
                         [[c.function.name, c.function.arguments] for c in whole.tool_calls])
        self.assertEqual("".join(c.delta.content or "" for c in choices), whole.content)
        self.assertGreater(sum(bool(c.delta.tool_calls) for c in choices), 4)
        self.assertEqual(choices[-1].finish_reason, "tool_calls")

    def test_one_call_where_no_more_may_come(self):
        with writing(CALLS, "hermes.jinja") as client:
            message = create(client, tools=TOOLS, parallel_tool_calls=False).choices[0].message
        self.assertEqual(len(message.tool_calls), 1)

    def test_without_tools_all_is_content(self):
        with writing(CALLS, "hermes.jinja") as client:
            for more in ({}, {"tools": TOOLS, "tool_choice": "none"}):
                choice = create(client, **more).choices[0]
                self.assertEqual(choice.message.content, CALLS)
                self.assertIsNone(choice.message.tool_calls)
                self.assertEqual(choice.finish_reason, "stop")

    def test_a_history_has_calls_and_their_results(self):
        with writing("Rain in both.", "hermes.jinja") as client:
            # [tool_history]
            history = ASK + [
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "call00001", "type": "function",
                     "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}]},
                {"role": "tool", "tool_call_id": "call00001", "content": "rain"},
            ]
            # [tool_history]
            completion = create(client, messages=history, tools=TOOLS,
                                extra_body={"return_token_ids": True})
            detokenize = str(client.base_url).replace("/v1/", "/detokenize")
            prompt = client.post(detokenize, cast_to=object, body={
                "tokens": completion.model_extra["prompt_token_ids"]})["prompt"]
        self.assertEqual(completion.choices[0].message.content, "Rain in both.")
        self.assertIn('{"name": "weather", "about": "weather(', prompt)
        self.assertIn('{"name": "weather", "arguments": {"city": "Oslo"}}', prompt)
        self.assertIn("<tool_response>\nrain\n</tool_response>", prompt)

    def test_a_message_of_the_client_is_part_of_a_history(self):
        with writing(CALLS, "hermes.jinja") as client:
            message = create(client, tools=TOOLS).choices[0].message
            again = create(client, tools=TOOLS, messages=[
                *ASK, message, *({"role": "tool", "tool_call_id": c.id, "content": "rain"}
                                 for c in message.tool_calls)])
        self.assertEqual(len(again.choices[0].message.tool_calls), 2)

    def test_a_form_by_name(self):
        text = '[TOOL_CALLS]weather[ARGS]{"city": "Oslo"}'
        with writing(text, "hermes.jinja", "--tool-format", "mistral") as client:
            message = create(client, tools=TOOLS).choices[0].message
        self.assertEqual(message.tool_calls[0].function.arguments, '{"city": "Oslo"}')

    def test_a_template_without_a_form_is_named(self):
        with writing(CALLS, "vicuna.jinja") as client:
            with self.assertRaises(openai.BadRequestError) as raised:
                create(client, tools=TOOLS)
        self.assertEqual(raised.exception.param, "tools")
        self.assertIn("--tool-format", str(raised.exception))


class Reasoning(unittest.TestCase):
    TEXT = "<think>\nIt rains.\n</think>\n\nRain."

    def test_is_apart_whole_and_streamed(self):
        with writing(self.TEXT, "qwen_reasoning.jinja") as client:
            # [reasoning]
            message = create(client).choices[0].message
            reasoning, answer = message.reasoning_content, message.content
            # [reasoning]
            deltas = [chunk.choices[0].delta for chunk in create(client, stream=True)]
        self.assertEqual((reasoning, answer), ("It rains.", "Rain."))
        self.assertEqual("".join(getattr(d, "reasoning_content", None) or "" for d in deltas),
                         reasoning)
        self.assertEqual("".join(d.content or "" for d in deltas), answer)

    def test_ends_at_its_budget(self):
        with writing(self.TEXT, "qwen_reasoning.jinja") as client:
            # [thinking_budget]
            message = client.chat.completions.create(
                model="mock", messages=ASK,
                extra_body={"thinking_token_budget": 3}).choices[0].message
            # [thinking_budget]
            self.assertTrue("It rains.".startswith(message.reasoning_content))
            self.assertLess(len(message.reasoning_content), len("It rains."))
            self.assertNotIn("<think>", message.content)
            whole = create(client, extra_body={"thinking_budget": 100}).choices[0].message
            self.assertEqual((whole.reasoning_content, whole.content), ("It rains.", "Rain."))
        with writing(self.TEXT, "qwen_reasoning.jinja", "--reasoning-budget", "0") as client:
            self.assertFalse(getattr(create(client).choices[0].message, "reasoning_content", None))

    def test_stays_in_the_content_where_the_server_or_the_request_says_so(self):
        with writing(self.TEXT, "qwen_reasoning.jinja", "--reasoning-format", "none") as client:
            self.assertEqual(create(client).choices[0].message.content, self.TEXT)
        with writing(self.TEXT, "qwen_reasoning.jinja") as client:
            message = create(client, extra_body={"separate_reasoning": False}).choices[0].message
            self.assertEqual(message.content, self.TEXT)
            message = create(client, extra_body={"include_reasoning": False}).choices[0].message
            self.assertEqual(message.content, "Rain.")
            self.assertNotIn("reasoning_content", message.model_extra)


class BuiltInModel(unittest.TestCase):
    """It has learnt no calls: a grammar makes it write them."""

    def test_calls_what_it_has_to(self):
        check = subprocess.run([SLUICE, "serve", "--check", "--port", "0", "--grammar-library",
                                sys.prefix], capture_output=True, text=True)
        if "xgrammar" in check.stderr:
            self.skipTest(check.stderr)
        with served.Server(SLUICE, "--grammar-library", sys.prefix) as server:
            client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
            try:
                create(client, model="default", tools=TOOLS, tool_choice="required", seed=1)
            except openai.BadRequestError as error:
                if error.param == "tool_choice" and "no grammars" in str(error):
                    self.skipTest(str(error))
                raise
            for seed in range(4):
                choices = [
                    # [tool_choice]
                    client.chat.completions.create(
                        model="default", messages=ASK, tools=TOOLS, seed=seed,
                        tool_choice={"type": "function", "function": {"name": "weather"}})
                    # [tool_choice]
                    .choices[0],
                    create(client, model="default", tools=TOOLS, tool_choice="required", seed=seed,
                           parallel_tool_calls=False).choices[0]]
                for choice in choices:
                    self.assertEqual(choice.finish_reason, "tool_calls")
                    call, = choice.message.tool_calls
                    self.assertEqual(call.function.name, "weather")
                    self.assertIn(json.loads(call.function.arguments)["city"], ["Oslo", "Bergen"])
                    self.assertIsNone(choice.message.content)


if __name__ == "__main__":
    unittest.main(verbosity=2)
