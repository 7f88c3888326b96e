#!/usr/bin/env python3
"""Structured output and tools of a running `sluice serve`, through the client libraries of this Python.

Usage: client_calls.py URL [--json FILE] [CLIENT...]    without a client: all

A line a call with its result; every answer is validated against its JSON schema. The server has a model
that has learnt no calls and a grammar engine: what a call must be, a grammar makes it. FILE gets the rows.
Exit code 1 where a call failed. scripts/check_clients.py installs the clients and runs this for each.
"""

import argparse
import asyncio
import importlib.metadata
import json
import os
import sys
import urllib.request
import warnings
from enum import Enum
from typing import Literal, Optional

import jsonschema
import pydantic

MODEL = "default"
SEED = 1
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


class Anything(pydantic.BaseModel):
    """Any object."""
    model_config = pydantic.ConfigDict(extra="allow")


WEATHER = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Bergen"]},
                                            "days": {"type": "integer", "minimum": 1, "maximum": 7}},
           "required": ["city", "days"]}
WEATHER_TOOL = {"type": "function", "function": {"name": "weather", "parameters": WEATHER}}
NAMED = {"type": "function", "function": {"name": "weather"}}


def weather(city: Literal["Oslo", "Bergen"]) -> str:
    """The weather of a city."""
    return f"rain in {city}"


def ending(url):
    """A bias for what ends an object: a model of stories does not end one that has no bound."""
    body = json.dumps({"model": MODEL, "prompt": "}"}).encode()
    request = urllib.request.Request(f"{url}/tokenize", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return {str(json.load(answer)["tokens"][-1]): 50}


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
    common = {"model": MODEL, "messages": MESSAGES, "seed": SEED}

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

    def tools(choice):
        call, = client.chat.completions.create(
            **common, tools=[WEATHER_TOOL], tool_choice=choice,
            parallel_tool_calls=False).choices[0].message.tool_calls
        return valid(call.function.arguments, WEATHER)

    def parsed_tool():
        answer = client.chat.completions.parse(
            **common, tools=[openai.pydantic_function_tool(King)], tool_choice="required",
            parallel_tool_calls=False)
        return valid(answer.choices[0].message.tool_calls[0].function.parsed_arguments)

    def streamed_tool():
        with client.chat.completions.stream(
                **common, tools=[openai.pydantic_function_tool(King)], tool_choice="required",
                parallel_tool_calls=False) as events:
            kinds = [event.type for event in events]
            final = events.get_final_completion()
        assert kinds.count("tool_calls.function.arguments.delta") > 2, kinds
        return valid(final.choices[0].message.tool_calls[0].function.parsed_arguments)

    def conversation():
        tool = {"tools": [WEATHER_TOOL], "tool_choice": NAMED}
        first = client.chat.completions.create(**common, **tool).choices[0].message
        history = [*MESSAGES, first, {"role": "tool", "content": "rain",
                                      "tool_call_id": first.tool_calls[0].id}]
        second = client.chat.completions.create(
            **{**common, "messages": history}, **tool).choices[0].message
        assert second.tool_calls[0].id != first.tool_calls[0].id
        return valid(second.tool_calls[0].function.arguments, WEATHER)

    responding = {"model": MODEL, "extra_body": {"seed": SEED}}
    flat_tool = {"type": "function", "name": "weather", "parameters": WEATHER, "strict": False}

    def response_stream():
        with client.responses.stream(**responding, input=ASK, text_format=King) as events:
            for _ in events:
                pass
            return valid(events.get_final_response().output_parsed)

    def response_tools(**more):
        response = client.responses.create(
            **responding, tools=[flat_tool], tool_choice={"type": "function", "name": "weather"}, **more)
        call, = [item for item in response.output if item.type == "function_call"]
        return response, call

    def response_conversation():
        asked = [{"role": "user", "content": ASK}]
        first, call = response_tools(input=asked)
        _, again = response_tools(input=[
            *asked, *first.output,
            {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}])
        assert again.call_id != call.call_id
        return valid(again.arguments, WEATHER)

    yield "chat.completions.parse(King)", lambda: valid(
        client.chat.completions.parse(**common, response_format=King).choices[0].message.parsed)
    yield "chat.completions.parse(Plain)", lambda: valid(
        client.chat.completions.parse(**common, response_format=Plain).choices[0].message.parsed, Plain)
    yield "AsyncOpenAI: parse(King)", lambda: asyncio.run(parse_async())
    yield "chat.completions.stream(King)", stream
    yield "create(json_schema), not strict", lambda: valid(text(response_format=json_schema(King)))
    yield "create(json_object)", lambda: valid(
        text(response_format={"type": "json_object"}, logit_bias=ending(url)), {"type": "object"})
    yield "completions.create(guided_json)", lambda: valid(client.completions.create(
        model=MODEL, prompt=ASK, seed=SEED,
        extra_body={"guided_json": King.model_json_schema()}).choices[0].text)
    yield 'create(tools, tool_choice="required")', lambda: tools("required")
    yield "create(tools, a named function)", lambda: tools(NAMED)
    yield "parse(tools=[pydantic_function_tool])", parsed_tool
    yield "stream(tools=[pydantic_function_tool])", streamed_tool
    yield "a result of a tool, and a second call", conversation
    yield "responses.parse(King)", lambda: valid(client.responses.parse(
        **responding, input=ASK, text_format=King).output_parsed)
    yield "responses.stream(King)", response_stream
    yield "responses.create(tools, a named function)", lambda: valid(
        response_tools(input=ASK)[1].arguments, WEATHER)
    yield "responses: a result of a tool, and a second call", response_conversation


def anthropic_calls(url):
    import anthropic

    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    tool = {"name": "weather", "input_schema": WEATHER}
    common = {"model": MODEL, "max_tokens": 400, "messages": MESSAGES, "extra_body": {"seed": SEED}}
    named = {"tools": [tool], "tool_choice": {"type": "tool", "name": "weather"}}

    def call_of(message):
        call, = [block for block in message.content if block.type == "tool_use"]
        assert message.stop_reason == "tool_use" and message.stop_sequence is None, message
        return call

    def streamed_text():
        with client.messages.stream(**common, stop_sequences=["."]) as stream:
            text = "".join(stream.text_stream)
        final = stream.get_final_message()
        assert text == final.content[0].text and final.stop_sequence == ".", final
        return text

    def streamed_tool():
        with client.messages.stream(**common, **named) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_message()
        assert kinds.count("input_json") > 2, kinds
        return valid(call_of(final).input, WEATHER)

    def conversation(is_error):
        first = client.messages.create(**common, **named)
        call = call_of(first)
        history = [*MESSAGES, {"role": "assistant", "content": first.content},
                   {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id,
                                                 "content": "rain", "is_error": is_error}]}]
        again = call_of(client.messages.create(**{**common, "messages": history}, **named))
        assert again.id != call.id
        return valid(again.input, WEATHER)

    def prefill():
        message = client.messages.create(**{**common, "messages": [
            *MESSAGES, {"role": "assistant", "content": "The king was"}]})
        return message.content[0].text

    def counted():
        count = client.messages.count_tokens(model=MODEL, messages=MESSAGES).input_tokens
        usage = client.messages.create(**common).usage
        assert count == usage.input_tokens + usage.cache_read_input_tokens
        return count

    yield "messages.create(tool_choice=tool)", lambda: valid(
        call_of(client.messages.create(**common, **named)).input, WEATHER)
    yield "messages.create(output_config.format)", lambda: valid(client.messages.create(
        **common, output_config={"format": {"type": "json_schema", "schema": King.model_json_schema()}}
    ).content[0].text)
    yield "messages.stream(stop_sequences)", streamed_text
    yield "messages.stream(tools)", streamed_tool
    yield "messages: a result of a tool, and a second call", lambda: conversation(False)
    yield "messages: an error of a tool", lambda: conversation(True)
    yield "messages: a beginning of the answer", prefill
    yield "messages.count_tokens", counted


def instructor_calls(url):
    import instructor
    import openai

    def client(mode):
        return instructor.from_openai(
            openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0), mode=mode)

    def call(mode, model, **more):
        return valid(client(mode).chat.completions.create(
            model=MODEL, messages=MESSAGES, response_model=model, max_retries=0, seed=SEED, **more),
            model)

    def partial(mode):
        parts = list(client(mode).chat.completions.create_partial(
            model=MODEL, messages=MESSAGES, response_model=Horse, max_retries=0, seed=SEED))
        assert len(parts) > 2
        return valid(parts[-1], Horse)

    yield "Mode.TOOLS", lambda: call(instructor.Mode.TOOLS, King)
    yield "Mode.TOOLS_STRICT", lambda: call(instructor.Mode.TOOLS_STRICT, King)
    yield "Mode.TOOLS, create_partial", lambda: partial(instructor.Mode.TOOLS)
    yield "Mode.JSON_SCHEMA", lambda: call(instructor.Mode.JSON_SCHEMA, King)
    yield "Mode.JSON_SCHEMA, create_partial", lambda: partial(instructor.Mode.JSON_SCHEMA)
    yield "Mode.JSON", lambda: call(
        instructor.Mode.JSON, Anything, logit_bias=ending(url))


def langchain_calls(url):
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(base_url=f"{url}/v1", api_key="none", model=MODEL, seed=SEED, max_retries=0)

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

    def bound(**how):
        call, = model.bind_tools([WEATHER_TOOL], **how).invoke(ASK).tool_calls
        return valid(call["args"], WEATHER)

    def bound_stream():
        whole, parts = None, 0
        for part in model.bind_tools([WEATHER_TOOL], tool_choice="weather").stream(ASK):
            whole = part if whole is None else whole + part
            parts += bool(part.tool_call_chunks)
        assert parts > 2
        return valid(whole.tool_calls[0]["args"], WEATHER)

    def bound_result():
        from langchain_core.messages import HumanMessage, ToolMessage

        tools = model.bind_tools([WEATHER_TOOL], tool_choice="any", parallel_tool_calls=False)
        history = [HumanMessage(ASK)]
        history.append(tools.invoke(history))
        history.append(ToolMessage("rain", tool_call_id=history[-1].tool_calls[0]["id"]))
        return valid(tools.invoke(history).tool_calls[0]["args"], WEATHER)

    yield 'with_structured_output("json_schema")', lambda: call(King, method="json_schema")
    yield 'with_structured_output("json_schema", strict=True)', lambda: call(
        King, method="json_schema", strict=True)
    yield 'with_structured_output("json_schema") of a dict', lambda: call(
        King.model_json_schema(), method="json_schema")
    yield 'with_structured_output("json_schema"), ainvoke', lambda: asyncio.run(call_async())
    yield 'with_structured_output("json_schema"), stream', stream
    yield 'with_structured_output("json_mode")', lambda: valid(model.with_structured_output(
        None, method="json_mode").invoke(ASK, logit_bias=ending(url)), {"type": "object"})
    yield 'with_structured_output("function_calling")', lambda: call(
        King, method="function_calling")
    yield 'with_structured_output("function_calling", strict=True)', lambda: call(
        King, method="function_calling", strict=True)
    yield "bind_tools(tool_choice=NAME)", lambda: bound(tool_choice="weather")
    yield 'bind_tools(tool_choice="any", strict=True)', lambda: bound(
        tool_choice="any", strict=True, parallel_tool_calls=False)
    yield "bind_tools, stream", bound_stream
    yield "bind_tools, with a ToolMessage", bound_result


def pydantic_ai_calls(url):
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def agent(output, **more):
        model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
        return Agent(model, output_type=output, retries=0, **more,
                     model_settings={"seed": SEED, "parallel_tool_calls": False})

    async def stream(output):
        async with agent(output).run_stream(ASK) as result:
            return valid(await result.get_output())

    def with_tool():
        from pydantic_ai.messages import ToolReturnPart

        result = agent(King, tools=[weather]).run_sync(ASK)
        valid(result.output)
        return sum(isinstance(part, ToolReturnPart) and part.tool_name == "weather"
                   for message in result.all_messages() for part in message.parts)

    yield "output_type=King, as a tool", lambda: valid(agent(King).run_sync(ASK).output)
    yield "run_stream(output_type=King)", lambda: asyncio.run(stream(King))
    yield "output_type=King with tools", with_tool
    yield "NativeOutput(King)", lambda: valid(agent(NativeOutput(King)).run_sync(ASK).output)
    yield "NativeOutput(King, strict=True)", lambda: valid(
        agent(NativeOutput(King, strict=True)).run_sync(ASK).output)
    yield "NativeOutput([King, Horse])", lambda: type(
        agent(NativeOutput([King, Horse])).run_sync(ASK).output).__name__
    yield "run_stream(NativeOutput(King))", lambda: asyncio.run(stream(NativeOutput(King)))


def litellm_calls(url):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no look at the network
    import litellm
    litellm.suppress_debug_info = True

    def text(prefix="openai", **more):
        return litellm.completion(model=f"{prefix}/{MODEL}", api_base=f"{url}/v1", api_key="none",
                                  messages=MESSAGES, seed=SEED, **more).choices[0].message.content

    def stream():
        parts = litellm.completion(model=f"openai/{MODEL}", api_base=f"{url}/v1", api_key="none", seed=SEED,
                                   messages=MESSAGES, stream=True, response_format=King)
        return valid("".join(part.choices[0].delta.content or "" for part in parts))

    def tools(prefix="openai", **more):
        return litellm.completion(model=f"{prefix}/{MODEL}", api_base=f"{url}/v1", api_key="none",
                                  messages=MESSAGES, seed=SEED, tools=[WEATHER_TOOL],
                                  tool_choice=NAMED, **more)

    def streamed_tools():
        chunks = list(tools(stream=True))
        whole = litellm.stream_chunk_builder(chunks)
        return valid(whole.choices[0].message.tool_calls[0].function.arguments, WEATHER)

    yield "tools, a named function", lambda: valid(
        tools().choices[0].message.tool_calls[0].function.arguments, WEATHER)
    yield "hosted_vllm/, tools", lambda: valid(
        tools("hosted_vllm").choices[0].message.tool_calls[0].function.arguments, WEATHER)
    yield "tools, stream=True", streamed_tools
    yield "response_format=King", lambda: valid(text(response_format=King))
    yield "response_format, json_schema", lambda: valid(text(response_format=json_schema(King)))
    yield "response_format, json_object", lambda: valid(
        text(response_format={"type": "json_object"}, logit_bias=ending(url)), {"type": "object"})
    yield "response_format=King, stream", stream
    yield "hosted_vllm/, response_format=King", lambda: valid(text("hosted_vllm", response_format=King))


CLIENTS = {"openai": openai_calls, "anthropic": anthropic_calls, "instructor": instructor_calls,
           "langchain-openai": langchain_calls, "pydantic-ai-slim": pydantic_ai_calls,
           "litellm": litellm_calls}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url")
    parser.add_argument("clients", nargs="*", choices=[*CLIENTS, []])
    parser.add_argument("--json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name in options.clients or CLIENTS:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            print(f"{name:28} not installed")
            continue
        for call, run in CLIENTS[name](options.url):
            row = {"client": name, "version": version, "call": call}
            try:
                result = f"ok   {json.dumps(run(), ensure_ascii=False)[:90]}"
            except Exception as error:  # whatever a client throws is its result
                row["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                result = f"FAIL {row['error']}"
            rows.append(row)
            print(f"{name + ' ' + version:28} {call:48} {result}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file)
    return 1 if any("error" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
