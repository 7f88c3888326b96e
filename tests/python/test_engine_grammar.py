"""Outputs with a grammar, by keyword; where the tests have the grammar engine."""

import asyncio
import json
import os
import re
from pathlib import Path

import pytest
from engines import MODEL, NEEDS_ENGINE

import sluice

pytestmark = NEEDS_ENGINE

LIBRARY = Path(__file__).parent.parent.parent / "build" / "python-venv"
KING = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 20, "maximum": 99},
                                         "mood": {"enum": ["glad", "sad"]}},
        "required": ["age", "mood"]}


@pytest.fixture(scope="module")
def client():
    try:
        made = sluice.EngineClient.local(MODEL, grammar_library=LIBRARY)
    except sluice.UnavailableError as missing:
        pytest.skip(str(missing))
    with made:
        yield made


def generate(client, **keywords):
    return client.generate("The king's", **{"max_tokens": 200, "seed": 3, **keywords})


def assert_is_king(text):
    king = json.loads(text)
    assert sorted(king) == ["age", "mood"] and 20 <= king["age"] <= 99, text
    assert king["mood"] in ("glad", "sad"), text


class Model:
    """As pydantic has it."""

    @staticmethod
    def model_json_schema():
        return KING


@pytest.mark.parametrize("schema", [KING, json.dumps(KING), Model], ids=["dict", "text", "model"])
def test_a_schema_is_a_dict_or_json_or_a_model(client, schema):
    assert client.info["has_grammars"] is True
    output = generate(client, json_schema=schema)
    assert output.finish == "stop_token"
    assert_is_king(output.text)


def test_each_kind_binds_the_text(client):
    assert re.fullmatch("[a-c]{3}-[0-9]{2}", generate(client, regex="[a-c]{3}-[0-9]{2}").text)
    assert generate(client, choices=["glad", 'so "so"']).text in ("glad", 'so "so"')
    assert generate(client, grammar='root ::= "a" [0-9] "b"').text in [f"a{i}b" for i in range(10)]
    assert generate(client, grammar='start: "x" | "y"').text in ("x", "y")
    assert generate(client, json_object=True).text.lstrip().startswith("{")
    assert generate(client, json_object=False, regex=None).text == generate(client).text


def test_streams_and_lists_of_prompts_have_it_too(client):
    text = "".join(delta.text for delta in client.stream("The king's", json_schema=KING, seed=3))
    assert_is_king(text)
    for output in client.generate(["The king", "The queen"], json_schema=KING, seed=3):
        assert_is_king(output.text)


def test_the_asynchronous_client_has_it(client):
    async def main():
        async with sluice.AsyncEngineClient.local(MODEL, grammar_library=LIBRARY) as its:
            return await its.generate("The king's", json_schema=KING, seed=3)

    assert_is_king(asyncio.run(main()).text)


@pytest.mark.parametrize("keywords, message", [
    ({"regex": "a", "json_schema": KING}, "regex = 'a' is not allowed: None together with json_schema"),
    ({"json_object": True, "choices": ["a"]}, "None together with json_object"),
    ({"json_object": 1}, "json_object = 1 is not allowed: True or False"),
    ({"json_schema": 1}, "json_schema = 1 is not allowed: a dict, JSON as a str, or a model of pydantic"),
    ({"regex": b"a"}, "regex = "),
    ({"grammar": ["a"]}, "grammar = "),
    ({"choices": "glad"}, "choices = 'glad' is not allowed: a list of one str or more"),
    ({"choices": []}, "choices = an empty list is not allowed"),
    ({"json_schema": {"not": {}}}, 'json_schema = a schema is not allowed: "not" is not a supported'),
    ({"grammar": "root ::= other"}, 'grammar = "root ::= other" is not allowed'),
    ({"regex": "("}, "regex = "),
])
def test_what_is_wrong_is_named(client, keywords, message):
    with pytest.raises(sluice.Error) as raised:
        generate(client, **keywords)
    assert message in str(raised.value)


def test_without_a_library_a_grammar_is_refused(monkeypatch, tmp_path):
    with pytest.raises(sluice.UnavailableError):
        sluice.EngineClient.local(MODEL, grammar_library=tmp_path)
    monkeypatch.setenv("SLUICE_GRAMMAR_LIBRARY", str(tmp_path))
    with pytest.raises(sluice.UnavailableError) as raised:
        sluice.EngineClient.local(MODEL)
    assert "SLUICE_GRAMMAR_LIBRARY" in str(raised.value)


def test_the_variable_names_the_library(monkeypatch, client):
    monkeypatch.setenv("SLUICE_GRAMMAR_LIBRARY", os.fspath(LIBRARY))
    with sluice.EngineClient.local(MODEL) as its:
        assert its.info["has_grammars"] is True


def test_reasoning_ends_at_its_budget_and_the_grammar_follows(client):
    prompt = "The king's <think>"
    free = client.generate(prompt, seed=3, max_tokens=40).text
    for budget in (0, 5):
        output = client.generate(prompt, seed=3, max_tokens=200, thinking_budget=budget, json_schema=KING)
        reasoning, end, king = output.text.partition("</think>")
        assert end == "</think>" and (not reasoning or free.startswith(reasoning)), output.text
        assert bool(reasoning) == (budget > 0)
        assert_is_king(king)
    assert client.generate(prompt, seed=3, max_tokens=40, thinking_budget=None).text == free
    with pytest.raises(ValueError, match=r"thinking_budget = -1 is not allowed: \[0, 2147483647\]"):
        generate(client, thinking_budget=-1)
    with pytest.raises(ValueError, match="reasoning_format"):
        generate(client, thinking_budget=1, reasoning_format="harmony")
