"""OpenAI's client with `sluice serve`: texts, chats, streams, log-probabilities, and what fails.

Usage: openai_client.py [URL], of a server that runs: http://127.0.0.1:8080
"""

import sys

try:
    import openai
except ImportError:
    sys.exit("skipped: no openai; pip install openai")

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"

# [client]
from openai import OpenAI

client = OpenAI(base_url=f"{url}/v1", api_key="a key, where the server has some")
model = client.models.list().data[0].id

story = client.completions.create(model=model, prompt="Once upon a time", max_tokens=40, seed=3)
print(story.choices[0].text, story.choices[0].finish_reason, story.usage.completion_tokens)

stream = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": "Once upon a time"}],
    max_tokens=40,
    seed=3,
    stop=["."],
    stream=True,
    extra_body={"top_k": 50, "repetition_penalty": 1.1},  # what OpenAI has no name for
)
for chunk in stream:  # to leave the loop with stream.close() aborts the request
    print(chunk.choices[0].delta.content or "", end="", flush=True)
# [client]

assert story.choices[0].finish_reason == "length" and story.usage.completion_tokens == 40

# [errors]
try:
    client.completions.create(model=model, prompt="The king", temperature=-1)
except openai.BadRequestError as error:
    print(error.param, error.body["message"])  # temperature, and what it may be
# [errors]
else:
    raise AssertionError("a temperature below 0 was taken")
