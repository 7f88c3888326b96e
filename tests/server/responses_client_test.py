#!/usr/bin/env python3
"""/v1/responses as OpenAI's own client sees it; skipped where that package is missing.

Usage: responses_client_test.py SLUICE ROOT. Exit code 77: skipped.
"""

import asyncio
import json
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
    import openai
    import pydantic
except ImportError as missing:
    print(f"skipped: {missing}; scripts/setup.sh python installs it")
    sys.exit(77)

FOLDER = tempfile.TemporaryDirectory()
TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")
MODEL = str(tiny_model.write(Path(FOLDER.name) / "tiny", ROOT, chat_template=TEMPLATE, context=4096))
WHOLE = {"model": "tiny", "input": "Hello", "extra_body": {"seed": 5}}
TOOLS = [{"type": "function", "name": "weather", "strict": False, "description": "of a city",
          "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]
CALLS = ('I look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
         '<tool_call>\n{"name": "weather", "arguments": {"city": "Bergen"}}\n</tool_call>')
ASK = {"model": "mock", "input": "What is the weather?", "tools": TOOLS}


def setUpModule():
    global server, client
    server = served.Server(SLUICE, "--model", MODEL, "--name", "tiny").__enter__()
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def tearDownModule():
    server.__exit__()


@contextmanager
def writing(text, template="hermes.jinja"):
    """A client of a server whose engine writes this text."""
    template = ROOT / "tests/fixtures/chats/families" / template
    with served.writing(SLUICE, text, template) as its:
        yield openai.OpenAI(base_url=f"{its.url}/v1", api_key="none", max_retries=0)


class Texts(unittest.TestCase):
    def test_a_stream_is_the_whole_in_pieces(self):
        whole = client.responses.create(**WHOLE, max_output_tokens=16)
        self.assertEqual((whole.status, whole.incomplete_details.reason),
                         ("incomplete", "max_output_tokens"))
        self.assertEqual(whole.usage.output_tokens, 16)
        events = list(client.responses.create(**WHOLE, max_output_tokens=16, stream=True))
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        self.assertEqual(text, whole.output_text)
        last = events[-1]
        self.assertEqual((last.type, last.response.output_text), ("response.incomplete", text))
        # What of the prompt the cache has is another matter.
        self.assertEqual(last.response.usage.total_tokens, whole.usage.total_tokens)

    def test_what_is_repeated_is_that_of_the_request(self):
        response = client.responses.create(**WHOLE, max_output_tokens=1, instructions="Be kind.",
                                           metadata={"a": "b"}, store=True, temperature=0.5)
        self.assertEqual((response.instructions, response.metadata), ("Be kind.", {"a": "b"}))
        self.assertEqual((response.temperature, response.max_output_tokens), (0.5, 1))
        self.assertFalse(response.store)
        self.assertEqual(response.tool_choice, "auto")

    def test_errors_name_what_is_wrong(self):
        for more, param in (({"previous_response_id": "resp_1"}, "previous_response_id"),
                            ({"background": True}, "background"),
                            ({"input": []}, "input"),
                            ({"input": [{"role": "user", "content": [
                                {"type": "input_image", "image_url": "x"}]}]},
                             "input[0].content[0].type")):
            with self.assertRaises(openai.BadRequestError) as raised:
                client.responses.create(**{**WHOLE, **more})
            self.assertEqual(raised.exception.param, param)


class Outputs(unittest.TestCase):
    def test_a_stream_of_calls_is_the_whole(self):
        with writing(CALLS) as its:
            whole = its.responses.create(**ASK)
            with its.responses.stream(**ASK) as stream:
                kinds = {event.type for event in stream}
                final = stream.get_final_response()
        for response in (whole, final):
            self.assertEqual([item.type for item in response.output],
                             ["message", "function_call", "function_call"])
            self.assertEqual(response.output_text, "I look.\n")
            self.assertEqual([json.loads(item.arguments) for item in response.output[1:]],
                             [{"city": "Oslo"}, {"city": "Bergen"}])
            self.assertEqual(response.status, "completed")
        self.assertIn("response.function_call_arguments.delta", kinds)

    def test_an_output_is_a_history(self):
        with writing(CALLS) as client:
            # [responses]
            question = {"role": "user", "content": "What is the weather?"}
            first = client.responses.create(model="mock", input=[question], tools=TOOLS)
            outputs = [{"type": "function_call_output", "call_id": item.call_id, "output": "rain"}
                       for item in first.output if item.type == "function_call"]
            again = client.responses.create(model="mock", tools=TOOLS,
                                            input=[question, *first.output, *outputs])
            # [responses]
        self.assertEqual(len(again.output), 3)
        self.assertGreater(again.usage.input_tokens, first.usage.input_tokens)

    def test_reasoning_is_an_item_of_its_own(self):
        with writing("<think>\nHm.\n</think>\n\nYes.", "deepseek_v31.jinja") as its:
            with its.responses.stream(model="mock", input="Hello") as stream:
                kinds = [event.type for event in stream]
                final = stream.get_final_response()
        self.assertIn("response.reasoning_text.delta", kinds)
        self.assertEqual([item.type for item in final.output], ["reasoning", "message"])
        self.assertIn("Hm.", final.output[0].content[0].text)

    def test_a_schema_is_parsed(self):
        class King(pydantic.BaseModel):
            name: str

        # A mock engine has no grammars, and says so by the name of the field.
        with writing('{"name": "Olav"}') as its, self.assertRaises(openai.BadRequestError) as raised:
            its.responses.parse(model="mock", input="Hello", text_format=King)
        self.assertEqual(raised.exception.param, "text.format.schema")

    def test_an_async_client_reads_the_same(self):
        async def read(url):
            async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as its:
                async with its.responses.stream(**ASK) as stream:
                    return await stream.get_final_response()

        with writing(CALLS) as its:
            final = asyncio.run(read(str(its.base_url)))
        self.assertEqual(len(final.output), 3)


if __name__ == "__main__":
    unittest.main()
