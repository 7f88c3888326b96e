#!/usr/bin/env python3
"""The same requests to two servers of one model, and where their answers differ.

    python3 bench/front_compare.py URL URL [--names vLLM,Sluice] [--model NAME] [--api-key KEY]
        [--json OUT.json] [--markdown OUT.md] [--only WORD]

Of each request: the status, the keys of the body with the types of their values, and the values,
but for ids, times and versions. Of a stream, what all its events say together and the keys that they
have: a server may send several tokens in one.
Requests are greedy or have a seed, so both engines must be equal, or be one. Exit code 0: none
differs; 1: some do; 2: a server does not answer.
"""

import argparse
import http.client
import json
import re
import sys
import time
import urllib.parse
from pathlib import Path

# Values that differ between two answers of one server, or by design.
FREE = {"id", "created", "request_id", "system_fingerprint", "owned_by", "root", "permission",
        "created_at", "completed_at", "item_id", "call_id", "version", "service_tier", "seed"}
TOLERANCE = 1e-3  # of log-probabilities: a batch may be computed in another order
MOST_SHOWN = 8

TEXT = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
CHAT = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8,
        "temperature": 0, "ignore_eos": True}
TOOL = {"type": "function", "function": {"name": "weather", "description": "of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                       "required": ["city"]}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
          "additionalProperties": False}


def cases(model):
    """Name, method, path, body."""
    text = {"model": model, **TEXT}
    chat = {"model": model, **CHAT}
    for path in ("/health", "/ping", "/version", "/v1/models", "/load", "/metrics", "/docs",
                 "/openapi.json", "/no/such/route", "/is_sleeping", "/tokenizer_info"):
        yield path, "GET", path, None
    yield "HEAD /health", "HEAD", "/health", None
    yield "POST /ping", "POST", "/ping", None
    yield "GET of completions", "GET", "/v1/completions", None
    yield "tokenize", "POST", "/tokenize", {"model": model, "prompt": "Once upon a time"}
    yield "tokenize, with texts", "POST", "/tokenize", {
        "model": model, "prompt": "Once", "return_token_strs": True}
    yield "tokenize a chat", "POST", "/tokenize", {"model": model, "messages": CHAT["messages"]}
    yield "detokenize", "POST", "/detokenize", {"model": model, "tokens": [300, 301, 302]}
    fields = {
        "": {}, "echo": {"echo": True}, "n 2": {"n": 2}, "logprobs": {"logprobs": 2},
        "logprobs 0": {"logprobs": 0}, "echo with logprobs": {"echo": True, "logprobs": 1},
        "prompt_logprobs": {"prompt_logprobs": 1}, "stop": {"stop": [" "]},
        "stop, included": {"stop": [" "], "include_stop_str_in_output": True},
        "stop_token_ids": {"stop_token_ids": list(range(300, 400))},
        "seed": {"seed": 7, "temperature": 1.0, "top_k": 20, "top_p": 0.9},
        "penalties": {"repetition_penalty": 1.2, "presence_penalty": 0.5,
                      "frequency_penalty": 0.5},
        "logit_bias": {"logit_bias": {"300": 100}}, "min_tokens": {"min_tokens": 4},
        "bad_words": {"bad_words": ["the"]},
        "allowed_token_ids": {"allowed_token_ids": [300, 301]},
        "two prompts": {"prompt": ["One", "Two"]}, "ids": {"prompt": [300, 301, 302]},
        "return_token_ids": {"return_token_ids": True},
        "ids as tokens": {"logprobs": 1, "return_tokens_as_token_ids": True},
        "cache_salt": {"cache_salt": "a"}, "priority": {"priority": 1},
        "request_id": {"request_id": "mine"}, "max_tokens 1": {"max_tokens": 1},
        "guided choice": {"structured_outputs": {"choice": ["yes", "no"]}},
        "kv_transfer_params": {"kv_transfer_params": {"do_remote_decode": False}}}
    for name, more in fields.items():
        yield "completion" + (f", {name}" if name else ""), "POST", "/v1/completions", {
            **text, **more}
    chats = {
        "": {}, "logprobs": {"logprobs": True, "top_logprobs": 2}, "n 2": {"n": 2},
        "system": {"messages": [{"role": "system", "content": "Be brief."}, *CHAT["messages"]]},
        "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
        "max_completion_tokens": {"max_tokens": None, "max_completion_tokens": 4},
        "json_object": {"response_format": {"type": "json_object"}},
        "json_schema": {"response_format": {"type": "json_schema", "json_schema": {
            "name": "a", "schema": SCHEMA}}, "max_tokens": 40, "ignore_eos": False},
        "tools": {"tools": [TOOL]}, "tools, none": {"tools": [TOOL], "tool_choice": "none"},
        "tool, named": {"tools": [TOOL], "max_tokens": 60, "ignore_eos": False, "tool_choice": {
            "type": "function", "function": {"name": "weather"}}},
        "continue": {"messages": [*CHAT["messages"], {"role": "assistant", "content": "He"}],
                     "add_generation_prompt": False, "continue_final_message": True},
        "image": {"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]}}
    for name, more in chats.items():
        yield "chat" + (f", {name}" if name else ""), "POST", "/v1/chat/completions", {
            **chat, **more}
    stream = {"stream": True}
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    each = {"stream": True, "stream_options": {"include_usage": True,
                                               "continuous_usage_stats": True}}
    for name, more in (("", stream), (", usage", usage), (", usage of each", each),
                       (", logprobs", {**usage, "logprobs": 1}), (", n 2", {**stream, "n": 2})):
        yield "streamed completion" + name, "POST", "/v1/completions", {**text, **more}
    for name, more in (("", stream), (", usage", usage),
                       (", logprobs", {**usage, "logprobs": True, "top_logprobs": 1}),
                       (", tool", {**stream, "tools": [TOOL], "max_tokens": 60, "tool_choice": {
                           "type": "function", "function": {"name": "weather"}}})):
        yield "streamed chat" + name, "POST", "/v1/chat/completions", {**chat, **more}
    wrong = {
        "another model": {"model": "no-such-model"}, "temperature -1": {"temperature": -1},
        "top_p 2": {"top_p": 2}, "max_tokens 0": {"max_tokens": 0},
        "max_tokens too large": {"max_tokens": 10**7}, "n 0": {"n": 0},
        "logprobs 1000": {"logprobs": 1000}, "prompt missing": {"prompt": None},
        "prompt of a number": {"prompt": 1.5}, "id out of range": {"prompt": [10**8]},
        "empty prompt": {"prompt": ""}, "unknown field": {"no_such_field": 1},
        "best_of": {"best_of": 2}, "suffix": {"suffix": "."},
        "a schema that is none": {"structured_outputs": {"json": {"type": "no-such"}}}}
    for name, more in wrong.items():
        yield f"refused: {name}", "POST", "/v1/completions", {**text, **more}
    yield "refused: no messages", "POST", "/v1/chat/completions", {**chat, "messages": []}
    yield "refused: an unknown role", "POST", "/v1/chat/completions", {
        **chat, "messages": [{"role": "no-such", "content": "a"}]}
    yield "refused: no JSON", "POST", "/v1/completions", b"{"
    yield "embeddings", "POST", "/v1/embeddings", {"model": model, "input": "a"}


class Server:
    def __init__(self, name, url, key):
        self.name, self.url = name, urllib.parse.urlsplit(url)
        self.headers = {"Content-Type": "application/json"}
        if key:
            self.headers["Authorization"] = f"Bearer {key}"

    def ask(self, method, path, body):
        """The status, the type, and the bytes of the answer."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=120)
        try:
            connection.request(method, path, body, self.headers)
            response = connection.getresponse()
            return response.status, response.headers.get_content_type(), response.read()
        finally:
            connection.close()

    def model(self):
        return json.loads(self.ask("GET", "/v1/models", None)[2])["data"][0]["id"]


def events_of(data):
    """What a stream's events say, without comments."""
    found = []
    for line in data.decode("utf-8", "replace").split("\n"):
        if line.startswith("data:"):
            said = line[5:].strip()
            found.append(said if said == "[DONE]" else json.loads(said))
    return found


def answer_of(server, method, path, body):
    try:
        status, kind, data = server.ask(method, path, body)
    except (OSError, http.client.HTTPException) as error:
        return {"status": None, "type": None, "body": str(error)}
    try:
        if kind == "text/event-stream":
            read = events_of(data)
        elif kind == "application/json":
            read = json.loads(data)
        elif path == "/metrics":
            read = sorted(set(re.findall(r"(?m)^(vllm:\w+?)(?:_bucket|_count|_sum|_created)?\{",
                                         data.decode())))
        else:
            read = None  # pages differ
    except ValueError:
        read = data.decode("utf-8", "replace")
    return {"status": status, "type": kind, "body": read}


def differences(left, right, path="", out=None):
    """Places with what each has there."""
    out = [] if out is None else out
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys()):
            at = f"{path}.{key}" if path else key
            if key not in left:
                out.append((at, "(missing)", right[key]))
            elif key not in right:
                out.append((at, left[key], "(missing)"))
            elif key in FREE:
                if (left[key] is None) != (right[key] is None):
                    out.append((at, left[key], right[key]))
            else:
                differences(left[key], right[key], at, out)
    elif isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right):
            out.append((path + ".length", len(left), len(right)))
        for at, (one, other) in enumerate(zip(left, right)):
            differences(one, other, f"{path}[{at}]", out)
    elif isinstance(left, float) or isinstance(right, float):
        both = isinstance(left, (int, float)) and isinstance(right, (int, float))
        if not both or abs(left - right) > TOLERANCE * max(1, abs(left)):
            out.append((path, left, right))
    elif type(left) is not type(right) or left != right:
        out.append((path, left, right))
    return out


def paths_of(value, path=""):
    """The keys of a value, without indices."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{path}.{key}" if path else key
            yield from paths_of(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for item in value:
            yield from paths_of(item, path)


def whole_of(events):
    """What a stream says, however its tokens are spread over events."""
    texts, tokens, calls, finish, keys = {}, {}, {}, {}, set()
    whole = {"ends with [DONE]": events[-1:] == ["[DONE]"], "usage": None, "error": None}
    for event in events:
        if not isinstance(event, dict):
            continue
        keys.update(paths_of(event))
        whole["usage"] = event.get("usage") or whole["usage"]
        whole["error"] = event.get("error") or whole["error"]
        for choice in event.get("choices", ()):
            at, delta = str(choice["index"]), choice.get("delta") or {}
            for name, said in (("text", choice.get("text")), ("content", delta.get("content")),
                               ("reasoning", delta.get("reasoning"))):
                if said:
                    texts[f"{name} {at}"] = texts.get(f"{name} {at}", "") + said
            for call in delta.get("tool_calls") or ():
                function = call.get("function") or {}
                said = (function.get("name") or "") + (function.get("arguments") or "")
                name = f"{at}, {call.get('index')}"
                calls[name] = calls.get(name, "") + said
            for name, values in (choice.get("logprobs") or {}).items():
                if isinstance(values, list) and name != "text_offset":
                    tokens.setdefault(f"{name} {at}", []).extend(values)
            if choice.get("finish_reason"):
                finish[at] = [choice["finish_reason"], choice.get("stop_reason")]
    return {**whole, "texts": texts, "logprobs": tokens, "calls": calls, "finish": finish,
            "keys": {key: True for key in keys}}


def compare(one, other, path):
    """What differs of two answers."""
    found = []
    for name in ("status", "type"):
        if one[name] != other[name]:
            found.append((name, one[name], other[name]))
    left, right = one["body"], other["body"]
    if path == "/metrics" and isinstance(left, list) and isinstance(right, list):
        return found + [(name, "(has)", "(missing)") for name in left if name not in right]
    if path == "/openapi.json":
        return found
    if one["type"] == other["type"] == "text/event-stream":
        return differences(whole_of(left), whole_of(right), "stream", found)
    if isinstance(left, dict) and isinstance(right, dict) and "error" in left and "error" in right:
        # Words may be others; what programs look at may not.
        left = {**left, "error": {**left["error"], "message": ""}}
        right = {**right, "error": {**right["error"], "message": ""}}
    return differences(left, right, "", found)


def short(value):
    text = json.dumps(value, ensure_ascii=False)
    return (text if len(text) <= 80 else text[:77] + "...").replace("|", "\\|")


def markdown(names, results):
    lines = [f"| request | difference | {names[0]} | {names[1]} |", "|---|---|---|---|"]
    for result in results:
        for place, left, right in result["differences"][:MOST_SHOWN]:
            lines.append(f"| {result['case']} | {place} | {short(left)} | {short(right)} |")
        if len(result["differences"]) > MOST_SHOWN:
            more = len(result["differences"]) - MOST_SHOWN
            lines.append(f"| {result['case']} | {more} more | | |")
    same = [result["case"] for result in results if not result["differences"]]
    return "\n".join(lines) + f"\n\n{len(same)} of {len(results)} are equal: {'; '.join(same)}.\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url", nargs=2)
    parser.add_argument("--names", default="first,second")
    parser.add_argument("--model", help="its name at both; without it, what each calls it")
    parser.add_argument("--api-key")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--only", help="requests with this word in their name")
    options = parser.parse_args()
    names = options.names.split(",")
    servers = [Server(name, url, options.api_key) for name, url in zip(names, options.url)]
    results = []
    try:
        models = [options.model or server.model() for server in servers]
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        print(f"front_compare: no list of models: {error}", file=sys.stderr)
        sys.exit(2)
    begin = time.monotonic()
    for case, other in zip(cases(models[0]), cases(models[1])):
        name, method, path, body = case
        if options.only and options.only not in name:
            continue
        one = answer_of(servers[0], method, path, body)
        two = answer_of(servers[1], method, path, other[3])
        results.append({"case": name, "method": method, "path": path, "request":
                        None if isinstance(body, bytes) else body, names[0]: one, names[1]: two,
                        "differences": compare(one, two, path)})
    text = markdown(names, results)
    print(text + f"{time.monotonic() - begin:.0f} s", flush=True)
    if options.markdown:
        options.markdown.write_text(text)
    if options.json:
        options.json.write_text(json.dumps({"names": names, "results": results}, indent=1))
    sys.exit(any(result["differences"] for result in results))


if __name__ == "__main__":
    main()
