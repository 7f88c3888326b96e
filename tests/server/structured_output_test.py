#!/usr/bin/env python3
"""Outputs with a grammar, as OpenAI's own client sees them, of the built-in model.

Usage: structured_output_test.py SLUICE ROOT. Exit code 77: skipped.
"""

import json
import subprocess
import sys
import time
import unittest
from enum import Enum
from pathlib import Path

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "tests/cli"))
import served  # noqa: E402

try:
    import openai
    import pydantic
except ImportError as missing:
    print(f"skipped: {missing}; scripts/setup.sh python installs it")
    sys.exit(77)
if subprocess.run([SLUICE, "inspect", "model"], capture_output=True).returncode:
    print("skipped: this build has no built-in model")
    sys.exit(77)
if not list(Path(sys.prefix).glob("lib/python*/site-packages/xgrammar/libxgrammar_bindings.so")):
    print("skipped: no xgrammar; scripts/setup.sh python installs it")
    sys.exit(77)

ASK = [{"role": "user", "content": "Once upon a time there was a king. Describe him."}]
SEEDS = range(8)


class Mood(str, Enum):
    glad = "glad"
    sad = "sad"


class Horse(pydantic.BaseModel):
    colour: str = pydantic.Field(max_length=20)
    legs: int = pydantic.Field(ge=3, le=4)


class King(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=20, le=99)
    mood: Mood
    rich: bool
    horses: list[Horse] = pydantic.Field(max_length=2)
    queen: str | None = pydantic.Field(max_length=20)


def setUpModule():
    global server, client
    server = served.Server(SLUICE, "--grammar-library", sys.prefix).__enter__()
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def tearDownModule():
    server.__exit__()


def create(**more):
    return client.chat.completions.create(**{"model": "default", "messages": ASK, "seed": 1, **more})


def content(**more):
    choice = create(**more).choices[0]
    assert choice.finish_reason == "stop", choice
    return choice.message.content


def extra(**fields):
    return content(extra_body=fields)


class OtherApis(unittest.TestCase):
    RESPONSE = {"model": "default", "input": ASK[0]["content"], "extra_body": {"seed": 1}}
    MESSAGE = {"messages": ASK, "max_tokens": 400, "seed": 1}

    def test_responses_parse(self):
        parsed = client.responses.parse(**self.RESPONSE, text_format=King).output_parsed
        with client.responses.stream(**self.RESPONSE, text_format=King) as stream:
            final = stream.get_final_response()
        self.assertIsInstance(parsed, King)
        self.assertEqual(final.output_parsed, parsed)

    def test_responses_call_what_they_have_to(self):
        tool = openai.pydantic_function_tool(King)["function"]
        for choice in ("required", {"type": "function", "name": "King"}):
            response = client.responses.parse(**self.RESPONSE, tools=[{"type": "function", **tool}],
                                              tool_choice=choice, parallel_tool_calls=False)
            call, = response.output
            King.model_validate(call.parsed_arguments)

    def test_messages_match_their_schema(self):
        schema = King.model_json_schema()
        _, _, message = server.post("/v1/messages", {
            **self.MESSAGE, "output_config": {"format": {"type": "json_schema", "schema": schema}}})
        King.model_validate_json(message["content"][0]["text"])
        for choice in ({"type": "any"}, {"type": "tool", "name": "King"}):
            _, _, message = server.post("/v1/messages", {
                **self.MESSAGE, "tools": [{"name": "King", "input_schema": schema}],
                "tool_choice": {**choice, "disable_parallel_tool_use": True}})
            block, = message["content"]
            King.model_validate(block["input"])
            self.assertEqual((block["name"], message["stop_reason"]), ("King", "tool_use"))

    def test_schemas_that_cannot_be_are_named(self):
        schema = {"type": "object", "properties": {"a": {"type": "nothing"}}}
        for path, body, field in (
                ("/v1/messages", {**self.MESSAGE, "tools": [{"name": "f", "input_schema": schema}],
                                  "tool_choice": {"type": "any"}}, "tools[0].input_schema"),
                ("/v1/responses", {"input": "a", "tool_choice": "required", "tools": [
                    {"type": "function", "name": "f", "parameters": schema}]},
                 "tools[0].parameters")):
            status, _, answer = server.post(path, body)
            self.assertEqual((status, answer["error"]["param"].partition(".properties")[0]), (400, field))


class OpenAi(unittest.TestCase):
    def test_parse_gives_a_model_of_pydantic(self):
        for seed in SEEDS:
            completion = client.chat.completions.parse(
                model="default", messages=ASK, response_format=King, seed=seed)
            self.assertIsInstance(completion.choices[0].message.parsed, King)
            self.assertEqual(completion.choices[0].finish_reason, "stop")

    def test_properties_come_in_the_order_of_the_schema(self):
        names = ("zeal", "name", "age")
        schema = {"type": "object", "required": ["age", "name", "zeal"],
                  "properties": {name: {"type": "string", "maxLength": 5} for name in names}}
        text = content(response_format={"type": "json_schema",
                                        "json_schema": {"name": "free", "schema": schema}})
        self.assertEqual(tuple(json.loads(text)), names)

    def test_a_stream_is_the_whole_in_pieces(self):
        whole = content(response_format=openai.lib._parsing.type_to_response_format_param(King))
        with client.chat.completions.stream(model="default", messages=ASK, response_format=King,
                                            seed=1) as stream:
            text = "".join(event.delta for event in stream if event.type == "content.delta")
            final = stream.get_final_completion()
        self.assertEqual(text, whole)
        self.assertEqual(final.choices[0].message.parsed, King.model_validate_json(whole))
        self.assertEqual(final.choices[0].finish_reason, "stop")

    def test_choices_of_n_all_match(self):
        completion = create(n=4, response_format=openai.lib._parsing.type_to_response_format_param(King))
        texts = {choice.message.content for choice in completion.choices}
        self.assertGreater(len(texts), 1)
        for text in texts:
            King.model_validate_json(text)

    def test_any_object(self):
        for seed in SEEDS:
            completion = create(response_format={"type": "json_object"}, seed=seed, max_tokens=400)
            if completion.choices[0].finish_reason == "stop":
                self.assertIsInstance(json.loads(completion.choices[0].message.content), dict)

    def test_completions_have_it_too(self):
        choice = client.completions.create(
            model="default", prompt="The king was ", seed=1, extra_body={"response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": Horse.model_json_schema()}}}).choices[0]
        Horse.model_validate_json(choice.text)
        self.assertEqual(choice.finish_reason, "stop")

    def test_a_grammar_changes_no_draw_where_it_forbids_nothing(self):
        free = create(max_tokens=20).choices[0].message.content
        bound = create(max_tokens=20, extra_body={"regex": r"(.|\n)*"}).choices[0].message.content
        self.assertEqual(bound, free)


class OtherNames(unittest.TestCase):
    SCHEMA = Horse.model_json_schema()

    def test_schemas(self):
        for fields in [{"structured_outputs": {"json": self.SCHEMA}},
                       {"structured_outputs": {"json": json.dumps(self.SCHEMA)}},
                       {"guided_json": self.SCHEMA}, {"json_schema": self.SCHEMA},
                       {"json_schema": json.dumps(self.SCHEMA)},
                       {"response_format": {"type": "json_object", "schema": self.SCHEMA}}]:
            with self.subTest(fields=list(fields)):
                Horse.model_validate_json(extra(**fields))

    def test_without_white_space(self):
        text = extra(structured_outputs={"json": King.model_json_schema(),
                                         "disable_any_whitespace": True})
        self.assertEqual(text, json.dumps(json.loads(text), separators=(",", ":"),
                                          ensure_ascii=False))

    def test_regular_expressions(self):
        for fields in [{"structured_outputs": {"regex": "[0-9]{3}-[a-f]{2,5}"}},
                       {"guided_regex": "[0-9]{3}-[a-f]{2,5}"}, {"regex": "[0-9]{3}-[a-f]{2,5}"}]:
            self.assertRegex(extra(**fields), "^[0-9]{3}-[a-f]{2,5}$")

    def test_choices(self):
        words = ["a king", "a \"queen\"", "ein König", "a\nb"]
        for fields in [{"structured_outputs": {"choice": words}}, {"guided_choice": words}]:
            self.assertIn(extra(**fields), words)

    def test_grammars(self):
        gbnf = 'root ::= "the " ("king" | "queen") [.!]'
        lark = 'start: "the " ("king" | "queen") /[.!]/'
        for text in (gbnf, lark):
            for fields in [{"structured_outputs": {"grammar": text}}, {"guided_grammar": text},
                           {"grammar": text}]:
                self.assertRegex(extra(**fields), "^the (king|queen)[.!]$")

    def test_structural_tags(self):
        tag = {"type": "structural_tag", "format": {
            "type": "tag", "begin": "<horse>", "end": "</horse>",
            "content": {"type": "regex", "pattern": "[0-9]{2}"}}}
        for fields in [{"structured_outputs": {"structural_tag": json.dumps(tag)}},
                       {"response_format": tag}, {"structural_tag": tag}]:
            text = extra(**fields)
            self.assertRegex(text, "^<horse>[0-9]{2}</horse>$")


def ref(to):
    return {"$ref": to}


class BadInput(unittest.TestCase):
    """400 with the client's field and the place, soon; and the server goes on."""

    def expect(self, fields, param, said):
        begin = time.monotonic()
        with self.assertRaises(openai.BadRequestError) as raised:
            create(max_tokens=5, extra_body=fields)
        self.assertLess(time.monotonic() - begin, served.PATIENCE)
        self.assertEqual(raised.exception.param, param, raised.exception)
        self.assertEqual(raised.exception.type, "invalid_request_error")
        self.assertIn(said, raised.exception.body["message"])
        self.assertTrue(raised.exception.body["message"].startswith(param), raised.exception)

    def expect_schema(self, schema, said):
        self.expect({"response_format": {"type": "json_schema", "json_schema": {
            "name": "x", "schema": schema}}}, "response_format.json_schema.schema", said)

    def test_schemas_name_the_place(self):
        self.expect_schema({"properties": {"a": {"type": "string", "foo": 1}}}, "/properties/a/foo")
        self.expect_schema({"type": "object", "properties": {"a": ref("http://x.org/s")}},
                           "/properties/a/$ref")
        self.expect_schema({"items": ref("#/$defs/none")}, "/items/$ref")
        self.expect_schema({"items": {"type": "string", "pattern": "a(b"}}, "a(b")
        self.expect_schema({"properties": []}, "/properties")
        self.expect_schema({"required": ["a"], "type": "object"}, "/required")
        self.expect_schema({"type": "text"}, "text")

    def test_schemas_without_end(self):
        self.expect_schema(ref("#"), "$ref leads to itself")
        self.expect_schema({"$defs": {"a": ref("#/$defs/b"), "b": ref("#/$defs/a")},
                            "items": ref("#/$defs/a")}, "$ref leads to itself")
        endless = {"$defs": {"a": {"type": "object", "properties": {"a": ref("#/$defs/a")},
                                   "required": ["a"]}}, **ref("#/$defs/a")}
        # No text matches it, and no engine sees that at once: the output ends with its tokens.
        self.assertEqual(create(max_tokens=20, extra_body={"guided_json": endless})
                         .choices[0].finish_reason, "length")

    def test_schemas_that_nothing_matches(self):
        self.expect_schema({"type": "integer", "minimum": 5, "maximum": 4}, "")
        self.expect_schema({"enum": []}, "")
        self.expect_schema({"type": "string", "minLength": 5, "maxLength": 4}, "")

    def test_sizes(self):
        self.expect({"guided_json": {"description": "a" * 1_000_000}}, "guided_json", "262144 bytes")
        nested = create(max_tokens=5, extra_body={"regex": "((a{1,100}){1,100}){1,100}"})
        self.assertRegex(nested.choices[0].message.content, "^a+$")  # soon, for all its length
        self.expect({"regex": "a" * 300_000}, "regex", "262144 bytes")
        self.expect({"guided_choice": ["a" * 100_000] * 3}, "guided_choice", "262144 bytes")

    def test_other_grammars(self):
        self.expect({"regex": "a(b"}, "regex", "")
        self.expect({"grammar": "root ::= nothing"}, "grammar", "nothing")
        self.expect({"guided_grammar": "start: nothing"}, "guided_grammar", "nothing")
        self.expect({"ebnf": "top ::= \"a\""}, "ebnf", "root")
        self.expect({"structural_tag": {"type": "x"}}, "structural_tag", "")
        self.expect({"json_schema": "{"}, "json_schema", "JSON")

    def test_two_grammars(self):
        self.expect({"regex": "a", "response_format": {"type": "json_object"}},
                    "response_format", "together with regex")

    def tearDown(self):
        self.assertEqual(extra(guided_choice=["yes"]), "yes")


class Unavailable(unittest.TestCase):
    def test_an_engine_without_grammars_says_what_to_install(self):
        mock = subprocess.Popen([SLUICE, "mock-engine", "--listen", "tcp://127.0.0.1:*", "--quiet"],
                                env=served.ENVIRONMENT, stdout=subprocess.PIPE)
        self.addCleanup(mock.communicate)
        self.addCleanup(mock.kill)
        endpoint = mock.stdout.readline().decode().split()[-1]
        with served.Server(SLUICE, "--engine", endpoint) as other:
            status, _, answer = other.post("/v1/completions", {"prompt": "a", "regex": "a"})
            self.assertEqual((status, answer["error"]["code"]), (400, "unsupported_parameter"))
            self.assertIn("xgrammar", answer["error"]["message"])
            self.assertEqual(other.post("/v1/completions", {"prompt": "a", "max_tokens": 1})[0], 200)


if __name__ == "__main__":
    unittest.main()
