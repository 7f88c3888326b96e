"""Structured output of `sluice serve` through OpenAI's client: a model of pydantic, and a choice.

Usage: structured_client.py [URL], of a server that runs: http://127.0.0.1:8080
"""

import sys

try:
    import openai
except ImportError:
    sys.exit("skipped: no openai; pip install openai")

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"

# [client]
from openai import OpenAI
from pydantic import BaseModel, Field


class King(BaseModel):
    name: str = Field(max_length=20)
    age: int = Field(ge=20, le=99)
    horses: list[str] = Field(max_length=3)


client = OpenAI(base_url=f"{url}/v1", api_key="a key, where the server has some")
messages = [{"role": "user", "content": "Describe the king of this story."}]

answer = client.chat.completions.parse(
    model="default", messages=messages, response_format=King, seed=1
)
king = answer.choices[0].message.parsed  # a King
print(king.name, king.age, king.horses)

mood = client.chat.completions.create(
    model="default",
    messages=messages,
    seed=1,
    extra_body={"structured_outputs": {"choice": ["glad", "sad"]}},  # vLLM's name for it
)
print(mood.choices[0].message.content)
# [client]
