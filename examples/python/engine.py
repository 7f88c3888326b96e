"""Text from an engine: all at once, as it comes, in a loop of one's own, and from asyncio."""

import asyncio
import os
import shutil
from pathlib import Path

import sluice

os.chdir(Path(__file__).parent.parent.parent)

# [generate]
with sluice.EngineClient.local("models/default") as client:
    output = client.generate("Once upon a time", max_tokens=40, temperature=0.8, seed=7)
    print(output.text, output.finish)

    king, queen = client.generate(["The king", "The queen"], max_tokens=20, stop=["."])

    for delta in client.stream("Once upon a time", max_tokens=40, temperature=0.8, seed=7):
        print(delta.text, end="", flush=True)  # to break out of the loop aborts the request
# [generate]

assert output.finish == "length" and output.output_tokens == 40
assert "." not in king.text + queen.text

# [prompt]
with sluice.EngineClient.local("models/default") as client:
    scored = client.generate("Once upon a time", max_tokens=0, prompt_logprobs=0)
    print(scored.prompt_logprobs.sum())
# [prompt]

assert len(scored.prompt_logprobs) == scored.prompt_tokens - 1 and scored.text == ""

# [poll]
with sluice.EngineClient.local("models/default", max_requests=8, steps_in_flight=1) as client:
    texts = {client.submit("The king", max_tokens=20, seed=seed): "" for seed in range(16)}
    client.abort(next(iter(texts)))
    while outputs := client.poll():
        for delta in outputs:
            texts[delta.id] += delta.text
# [poll]

assert sum(len(text) > 0 for text in texts.values()) >= 15

# [async]
async def main():
    async with sluice.AsyncEngineClient.local("models/default") as client:
        async def tell(prompt):
            text = ""
            async for delta in client.stream(prompt, max_tokens=30):
                text += delta.text
            return text

        return await asyncio.gather(*[tell(f"The {who}") for who in ("king", "fox", "witch")])
# [async]


assert all(asyncio.run(main()))

if shutil.which("sluice"):
    # [process]
    with sluice.EngineClient.spawn("models/default") as client:
        again = client.generate("Once upon a time", max_tokens=40, temperature=0.8, seed=7)
    # [process]
    assert again.text == output.text
