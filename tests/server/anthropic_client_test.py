#!/usr/bin/env python3
"""The server as Anthropic's own client sees it; skipped where that package is missing.

Usage: anthropic_client_test.py SLUICE ROOT. Exit code 77: skipped.
"""

import sys
import tempfile
import unittest
from contextlib import contextmanager
from pathlib import Path

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "tests/cli"))
import served  # noqa: E402
import tiny_model  # noqa: E402

try:
    import anthropic
except ImportError as missing:
    print(f"skipped: {missing}; scripts/setup.sh python installs it")
    sys.exit(77)

FOLDER = tempfile.TemporaryDirectory()
TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")
MODEL = str(tiny_model.write(Path(FOLDER.name) / "tiny", ROOT, chat_template=TEMPLATE, context=4096))
HELLO = [{"role": "user", "content": "Hello"}]
WHOLE = {"model": "tiny", "max_tokens": 16, "extra_body": {"seed": 5}}
TOOLS = [{"name": "weather", "description": "weather(city): the weather of a city",
          "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]
CALLS = ('I look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
         '<tool_call>\n{"name": "weather", "arguments": {"city": "Bergen"}}\n</tool_call>')


def setUpModule():
    global server, client
    server = served.Server(SLUICE, "--model", MODEL, "--name", "tiny", "--api-key", "k1").__enter__()
    client = anthropic.Anthropic(base_url=server.url, api_key="k1", max_retries=0)


def tearDownModule():
    server.__exit__()


@contextmanager
def writing(text, template="hermes.jinja"):
    """A client of a server whose engine writes this text."""
    template = ROOT / "tests/fixtures/chats/families" / template
    with served.writing(SLUICE, text, template) as its:
        yield anthropic.Anthropic(base_url=its.url, api_key="none", max_retries=0)


class Texts(unittest.TestCase):
    def test_a_stream_is_the_whole_in_pieces(self):
        whole = client.messages.create(messages=HELLO, **WHOLE)
        self.assertEqual((whole.role, whole.stop_reason, whole.model), ("assistant", "max_tokens", "tiny"))
        self.assertEqual(whole.usage.output_tokens, 16)
        with client.messages.stream(messages=HELLO, **WHOLE) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.content[0].text, text)
        self.assertEqual((final.stop_reason, final.usage.output_tokens), ("max_tokens", 16))
        self.assertEqual(final.usage.input_tokens + final.usage.cache_read_input_tokens,
                         whole.usage.input_tokens + whole.usage.cache_read_input_tokens)
        raw = list(client.messages.create(messages=HELLO, stream=True, **WHOLE))
        self.assertEqual(raw[0].type, "message_start")
        self.assertEqual(raw[-1].type, "message_stop")

    def test_tokens_are_counted(self):
        count = client.messages.count_tokens(model="tiny", messages=HELLO, system="Be kind.")
        whole = client.messages.create(messages=HELLO, system="Be kind.", **WHOLE)
        usage = whole.usage
        self.assertEqual(count.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)

    def test_the_model_goes_on_with_the_assistants_text(self):
        asked = client.messages.create(messages=HELLO, **WHOLE)
        first = asked.content[0].text
        on = client.messages.count_tokens(
            model="tiny", messages=[*HELLO, {"role": "assistant", "content": first}])
        self.assertGreater(on.input_tokens, asked.usage.input_tokens)

    def test_a_key_is_needed(self):
        with self.assertRaises(anthropic.AuthenticationError) as raised:
            client.with_options(api_key="k2").messages.create(messages=HELLO, **WHOLE)
        self.assertEqual(raised.exception.body["error"]["type"], "authentication_error")
        bearer = anthropic.Anthropic(base_url=server.url, auth_token="k1", max_retries=0)
        self.assertEqual(bearer.messages.create(messages=HELLO, **WHOLE).type, "message")

    def test_errors_name_what_is_wrong(self):
        with self.assertRaises(anthropic.BadRequestError) as raised:
            client.messages.create(**WHOLE, messages=[{"role": "user", "content": [
                {"type": "text", "text": "What is it?"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}]}])
        body = raised.exception.body
        self.assertEqual((body["type"], body["error"]["type"]), ("error", "invalid_request_error"))
        self.assertTrue(body["error"]["message"].startswith('messages[0].content[1].type = "image"'))
        self.assertEqual(raised.exception.request_id, body["request_id"])
        with self.assertRaises(anthropic.NotFoundError):
            client.messages.create(messages=HELLO, **{**WHOLE, "model": "other"})
        with self.assertRaises(anthropic.BadRequestError) as raised:
            client.messages.create(messages=[{"role": "user", "content": "a b c " * 5000}], **WHOLE)
        self.assertIn("prompt is too long: ", raised.exception.body["error"]["message"])


class Tools(unittest.TestCase):
    def test_calls_are_blocks(self):
        with writing(CALLS) as client:
            # [messages]
            message = client.messages.create(
                model="mock", max_tokens=200, system="Be brief.", tools=TOOLS,
                messages=[{"role": "user", "content": "Is it wet in Oslo and in Bergen?"}])
            calls = [block for block in message.content if block.type == "tool_use"]
            # [messages]
            self.assertEqual(len(calls), 2)
            with client.messages.stream(model="mock", max_tokens=200, messages=HELLO,
                                        tools=TOOLS) as stream:
                final = stream.get_final_message()
        for answer in (message, final):
            self.assertEqual([block.type for block in answer.content], ["text", "tool_use", "tool_use"])
            self.assertEqual(answer.content[0].text, "I look.\n")
            self.assertEqual([block.input for block in answer.content[1:]],
                             [{"city": "Oslo"}, {"city": "Bergen"}])
            self.assertEqual(answer.stop_reason, "tool_use")
            self.assertEqual(len({block.id for block in answer.content[1:]}), 2)

    def test_one_call_where_no_more_may_come(self):
        with writing(CALLS) as its:
            message = its.messages.create(
                model="mock", max_tokens=200, messages=HELLO, tools=TOOLS,
                tool_choice={"type": "auto", "disable_parallel_tool_use": True})
        self.assertEqual([block.type for block in message.content], ["text", "tool_use"])

    def test_an_answer_and_its_results_are_a_history(self):
        with writing(CALLS) as its:
            message = its.messages.create(model="mock", max_tokens=200, messages=HELLO, tools=TOOLS)
            results = [{"type": "tool_result", "tool_use_id": block.id, "content": "rain"}
                       for block in message.content if block.type == "tool_use"]
            again = its.messages.create(model="mock", max_tokens=200, tools=TOOLS, messages=[
                *HELLO, {"role": "assistant", "content": message.content},
                {"role": "user", "content": results}])
        self.assertEqual(again.stop_reason, "tool_use")
        self.assertGreater(again.usage.input_tokens, message.usage.input_tokens)

    def test_reasoning_is_a_block_of_its_own(self):
        with writing("<think>\nHm.\n</think>\n\nYes.", "deepseek_v31.jinja") as its:
            with its.messages.stream(model="mock", max_tokens=200, messages=HELLO) as stream:
                kinds = {event.delta.type for event in stream if event.type == "content_block_delta"}
                final = stream.get_final_message()
            hidden = its.messages.create(model="mock", max_tokens=200, messages=HELLO,
                                         thinking={"type": "disabled"})
        self.assertEqual(kinds, {"thinking_delta", "signature_delta", "text_delta"})
        self.assertEqual([block.type for block in final.content], ["thinking", "text"])
        self.assertIn("Hm.", final.content[0].thinking)
        self.assertEqual([block.type for block in hidden.content], ["text"])


if __name__ == "__main__":
    unittest.main()
