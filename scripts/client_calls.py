#!/usr/bin/env python3
"""Structured output of a running `sluice serve` through the client libraries that are installed.

Usage: check_clients.py [URL] [CLIENT...]    http://127.0.0.1:8080, and all clients

A table of client, call and result; every answer is validated against its JSON schema. A small model may not end an
object without a bound (json_object, Mode.JSON): then the client reports the length. A client that is not
installed is left out. Exit code 1 where a call failed. To install them, each in an environment of its own:

    pip install jsonschema openai | instructor | langchain-openai | pydantic-ai-slim[openai] | litellm
"""

import asyncio
import importlib.metadata
import json
import sys
from enum import Enum
from typing import Literal, Optional

import jsonschema
import pydantic

MODEL = "default"
ASK = "Once upon a time there was a king. Describe him."
MESSAGES = [{"role": "user", "content": ASK}]


class Mood(str, Enum):
    glad = "glad"
    sad = "sad"


class Horse(pydantic.BaseModel):
    """A horse."""
    colour: str = pydantic.Field(max_length=20, description="of its hair")
    legs: int = pydantic.Field(ge=3, le=4)


class King(pydantic.BaseModel):
    """A king of a story."""
    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=20, le=99)
    mood: Mood
    rich: bool
    horses: list[Horse] = pydantic.Field(max_length=2)
    house: Literal["castle", "hut"] = "castle"
    queen: Optional[str] = pydantic.Field(default=None, max_length=20)


class Plain(pydantic.BaseModel):
    """Without a bound of anything."""
    name: str
    age: int


def valid(value, schema=King):
    """The value, a model or JSON, where it matches; else an exception."""
    if isinstance(value, str):
        value = json.loads(value)
    if isinstance(value, pydantic.BaseModel):
        value = value.model_dump(mode="json", exclude_none=False)
    jsonschema.validate(value, schema.model_json_schema() if isinstance(schema, type) else schema)
    return value


def json_schema(model):
    return {"type": "json_schema", "json_schema": {"name": model.__name__,
                                                   "schema": model.model_json_schema()}}


def openai_calls(url):
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    common = {"model": MODEL, "messages": MESSAGES, "seed": 1}

    def text(**more):
        return client.chat.completions.create(**common, **more).choices[0].message.content

    def stream():
        with client.chat.completions.stream(**common, response_format=King) as events:
            for _ in events:
                pass
            return valid(events.get_final_completion().choices[0].message.parsed)

    async def parse_async():
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as its:
            answer = await its.chat.completions.parse(**common, response_format=King)
            return valid(answer.choices[0].message.parsed)

    yield "chat.completions.parse(King)", lambda: valid(
        client.chat.completions.parse(**common, response_format=King).choices[0].message.parsed)
    yield "chat.completions.parse(Plain)", lambda: valid(
        client.chat.completions.parse(**common, response_format=Plain).choices[0].message.parsed, Plain)
    yield "AsyncOpenAI ... parse(King)", lambda: asyncio.run(parse_async())
    yield "chat.completions.stream(King)", stream
    yield "create(json_schema), not strict", lambda: valid(text(response_format=json_schema(King)))
    yield "create(json_object)", lambda: valid(text(response_format={"type": "json_object"}),
                                               {"type": "object"})
    yield "completions.create(guided_json)", lambda: valid(client.completions.create(
        model=MODEL, prompt=ASK, seed=1,
        extra_body={"guided_json": King.model_json_schema()}).choices[0].text)


def instructor_calls(url):
    import instructor
    import openai

    def call(mode, model):
        client = instructor.from_openai(
            openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0), mode=mode)
        return valid(client.chat.completions.create(
            model=MODEL, messages=MESSAGES, response_model=model, max_retries=0, seed=1), model)

    yield "Mode.JSON_SCHEMA", lambda: call(instructor.Mode.JSON_SCHEMA, King)
    yield "Mode.JSON", lambda: call(instructor.Mode.JSON, King)


def langchain_calls(url):
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(base_url=f"{url}/v1", api_key="none", model=MODEL, seed=1, max_retries=0)

    def call(schema, **how):
        answer = model.with_structured_output(schema, **how).invoke(ASK)
        return valid(answer, schema)

    async def call_async():
        return valid(await model.with_structured_output(King, method="json_schema").ainvoke(ASK))

    def stream():
        last = None
        for last in model.with_structured_output(King, method="json_schema").stream(ASK):
            pass
        return valid(last)

    yield 'with_structured_output(King, "json_schema")', lambda: call(King, method="json_schema")
    yield "... strict=True", lambda: call(King, method="json_schema", strict=True)
    yield "... a dict", lambda: call(King.model_json_schema(), method="json_schema")
    yield "... ainvoke", lambda: asyncio.run(call_async())
    yield "... stream", stream
    yield 'with_structured_output(..., "json_mode")', lambda: valid(model.with_structured_output(
        None, method="json_mode").invoke(ASK), {"type": "object"})


def pydantic_ai_calls(url):
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def agent(output, **more):
        model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
        return Agent(model, output_type=output, retries=0, model_settings={"seed": 1}, **more)

    async def stream():
        async with agent(NativeOutput(King)).run_stream(ASK) as result:
            return valid(await result.get_output())

    yield "NativeOutput(King)", lambda: valid(agent(NativeOutput(King)).run_sync(ASK).output)
    yield "NativeOutput(King, strict=True)", lambda: valid(
        agent(NativeOutput(King, strict=True)).run_sync(ASK).output)
    yield "NativeOutput([King, Horse])", lambda: type(
        agent(NativeOutput([King, Horse])).run_sync(ASK).output).__name__
    yield "run_stream(NativeOutput(King))", lambda: asyncio.run(stream())


def litellm_calls(url):
    import litellm

    def text(prefix="openai", **more):
        return litellm.completion(model=f"{prefix}/{MODEL}", api_base=f"{url}/v1", api_key="none",
                                  messages=MESSAGES, seed=1, **more).choices[0].message.content

    def stream():
        parts = litellm.completion(model=f"openai/{MODEL}", api_base=f"{url}/v1", api_key="none", seed=1,
                                   messages=MESSAGES, stream=True, response_format=King)
        return valid("".join(part.choices[0].delta.content or "" for part in parts))

    yield "response_format=King", lambda: valid(text(response_format=King))
    yield "... json_schema", lambda: valid(text(response_format=json_schema(King)))
    yield "... json_object", lambda: valid(text(response_format={"type": "json_object"}),
                                           {"type": "object"})
    yield "... stream", stream
    yield "hosted_vllm/..., King", lambda: valid(text("hosted_vllm", response_format=King))


CLIENTS = {"openai": openai_calls, "instructor": instructor_calls,
           "langchain-openai": langchain_calls, "pydantic-ai-slim": pydantic_ai_calls,
           "litellm": litellm_calls}


def main():
    arguments = sys.argv[1:]
    url = arguments.pop(0) if arguments and "://" in arguments[0] else "http://127.0.0.1:8080"
    failed = 0
    for name, calls in CLIENTS.items():
        if arguments and name not in arguments:
            continue
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            print(f"{name:28} not installed")
            continue
        for call, run in calls(url):
            try:
                result = f"ok   {json.dumps(run(), ensure_ascii=False)[:90]}"
            except Exception as error:  # whatever a client throws is its result
                failed += 1
                result = f"FAIL {type(error).__name__}: {' '.join(str(error).split())[:300]}"
            print(f"{name + ' ' + version:28} {call:42} {result}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
