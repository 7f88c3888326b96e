"""Conversations to render chat templates with: some that cover a feature each, then random ones."""

import random

TEXTS = ["Hi", "  spaces around \n", "What's 2+2?", "línea\n\nnueva", "中文，问题？", "😀👩‍👩‍👧‍👦", "{\"a\": 1}", "",
         "<tool_response>x</tool_response>", "<think>\nhm\n</think>\n\nanswer", "</think>", "a\\n\"b'",
         "tabs\tand\u00a0spaces", "{{ not a template }}", "{% raw %}", "\u2028\u0007", "a < b && c > \"d\"",
         "CR\r\nLF", "<|im_end|>", "ΑΣ ǆ ß"]
WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "Look it \"up\" <now> & here",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "A city", "enum": ["é", "中"]},
        "days": {"type": "integer", "default": 3},
        "units": {"type": ["string", "null"]}}, "required": ["city"]},
    "return": {"type": "number"}}}
NOW = {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {}}}
PARTS = [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": "what?"}]


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def call(name, arguments, number=1):
    return {"id": f"call{number:05}", "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content, number=1):
    return {"role": "tool", "name": "weather", "content": content, "tool_call_id": f"call{number:05}"}


def covering():
    """(title, variables), a feature each."""
    asked = [user("Weather in é?")]
    called = assistant("", tool_calls=[call("weather", {"city": "é", "days": 2.5})])
    twice = assistant(None, tool_calls=[call("weather", {"city": None, "days": None}),
                                        call("now", {}, 2)])
    return [
        ("one message", [user("Hi")], {"add_generation_prompt": True}),
        ("an answer", [user("Hi"), assistant("Hello")], {}),
        ("a system message", [system("Be brief."), user("Hi")], {"add_generation_prompt": True}),
        ("spaces around texts", [system(" a \n"), user("\n b "), assistant(" c\n"), user("d")], {}),
        ("a second system message", [system("One."), user("Hi"), assistant("a"), system("Two."), user("b")], {}),
        ("tools", asked, {"tools": [WEATHER, NOW], "add_generation_prompt": True}),
        ("a tool call", asked + [called, result("{\"t\": 20}"), assistant("Warm.")], {"tools": [WEATHER]}),
        ("arguments as text", asked + [assistant("", tool_calls=[call("weather", "{\"city\": \"é\"}")]),
                                       result("20")], {"tools": [WEATHER]}),
        ("two calls, null arguments", asked + [twice, result("1"), result("2", 2), assistant("Done.")],
         {"tools": [WEATHER, NOW], "add_generation_prompt": True}),
        ("reasoning content", [user("2+2?"), assistant("4", reasoning_content="two and two\n"), user("and 3?")],
         {"add_generation_prompt": True}),
        ("reasoning in the text", [user("2+2?"), assistant("<think>\nhm\n</think>\n\n4"), user("3?")],
         {"add_generation_prompt": True, "enable_thinking": True}),
        ("content of parts", [user(PARTS), assistant([{"type": "text", "text": "A cat."}])], {}),
        ("a developer message", [{"role": "developer", "content": "Be kind."}, user("Hi")],
         {"add_generation_prompt": True}),
        ("null tools and documents", [user("Hi")], {"tools": None, "documents": None, "builtin_tools": None}),
        ("no thinking", [user("Hi")], {"add_generation_prompt": True, "enable_thinking": False}),
        ("an answer to go on with", [user("Count"), assistant("1, 2, ")],
         {"continue_final_message": True, "add_generation_prompt": False}),
        ("other characters", [user("中文 😀\r\nΑΣ\u2028\u0007"), assistant("línea\tß")],
         {"add_generation_prompt": True}),
        ("characters of HTML and templates", [user("a < b && \"c\" {{ x }}"), assistant("{% raw %}'</s>'")], {}),
        ("no message", [], {"add_generation_prompt": True}),
        ("roles in no order", [assistant("a"), assistant("b"), {"role": "critic", "content": "c"}], {}),
        ("documents", [user("Hi")], {"documents": [{"title": "T", "text": "a\nb"}, {"title": "", "text": "c"}],
                                     "add_generation_prompt": True}),
        ("a date", [user("Hi")], {"date_string": "26 Jul 2024", "add_generation_prompt": True}),
        ("a message without content", [user("Hi"), {"role": "assistant"}, user("b")], {}),
        ("calls after calls", asked + [called, result("1"), called, result("2")],
         {"tools": [WEATHER, NOW], "add_generation_prompt": True}),
    ]


def arbitrary(rng):
    """Messages and more variables, at random."""
    messages = [system(rng.choice(TEXTS))] if rng.random() < 0.5 else []
    has_tools = rng.random() < 0.4
    for _ in range(rng.randint(1, 4)):
        content = rng.choice(TEXTS)
        messages.append(user([{"type": "text", "text": content}, *PARTS] if rng.random() < 0.1 else content))
        if has_tools and rng.random() < 0.6:
            calls = [call(rng.choice(["weather", "now"]),
                          {"city": rng.choice(TEXTS), "days": rng.choice([1, 2.5, None, True])}, number)
                     for number in range(1, rng.choice([2, 2, 3]))]
            messages.append(assistant(rng.choice([None, "", "Let me look."]), tool_calls=calls))
            messages += [result(rng.choice(TEXTS), number + 1) for number in range(len(calls))]
        if rng.random() < 0.8:
            more = {"reasoning_content": rng.choice(TEXTS)} if rng.random() < 0.2 else {}
            messages.append(assistant(rng.choice(TEXTS), **more))
    variables = {"add_generation_prompt": rng.random() < 0.5}
    if has_tools:
        variables["tools"] = [WEATHER, NOW][:rng.randint(1, 2)]
    if rng.random() < 0.3:
        variables["enable_thinking"] = rng.random() < 0.5
    return messages, variables


def conversations(count, seed=1, more=None):
    """`count` pairs of a title and the variables of a template."""
    rng = random.Random(seed)
    made = covering()[:count]
    made += [(f"random {number}", *arbitrary(rng)) for number in range(1, count - len(made) + 1)]
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return [(title, {"messages": messages, **tokens, **variables, **(more or {})})
            for title, messages, variables in made]
