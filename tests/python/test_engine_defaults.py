"""One prompt and seed give one text on every surface: the command, the server, and clients from Python."""

import asyncio
import json
import subprocess
import urllib.request
from contextlib import contextmanager

import pytest
from engines import MODEL, NEEDS_ENGINE, NEEDS_PROGRAM, PROGRAM, engine_command, make_client

import sluice

pytestmark = NEEDS_ENGINE

PROMPT = "Once upon a time"
REQUEST = {"max_tokens": 15, "seed": 3}
CONFIG = json.loads((MODEL / "generation_config.json").read_text(encoding="utf-8"))
SET = {"temperature": CONFIG["temperature"], "top_p": CONFIG["top_p"]}


def command_text(*flags):
    run = subprocess.run([PROGRAM, "generate", PROMPT, "--max-tokens", "15", "--seed", "3", "--model", str(MODEL),
                          "--json", "--quiet", *flags], capture_output=True, check=True)
    return json.loads(run.stdout)["choices"][0]["text"]


@contextmanager
def server_at(*flags):
    process = subprocess.Popen([PROGRAM, "serve", "--port", "0", "--json", "--model", str(MODEL), *flags],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def served_text(url, **more):
    body = json.dumps({"prompt": PROMPT, **REQUEST, **more}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["choices"][0]["text"]


async def async_text(**options):
    async with sluice.AsyncEngineClient.local(MODEL, **options) as client:
        return (await client.generate(PROMPT, **REQUEST)).text


def test_the_models_configuration_comes_first():
    with make_client("local") as client:
        text = client.generate(PROMPT, **REQUEST).text
        assert text == client.generate(PROMPT, **REQUEST, **SET).text
        assert text != client.generate(PROMPT, **REQUEST, temperature=1.0, top_p=1.0).text
        assert client.default_params == sluice.SamplingParams(**SET)
        # A SamplingParams has a value for everything.
        given = client.generate(PROMPT, sluice.SamplingParams(seed=3), max_tokens=15).text
        assert given == client.generate(PROMPT, **REQUEST, temperature=1.0, top_p=1.0).text
        assert text == client.generate(PROMPT, client.default_params.replace(seed=3), max_tokens=15).text
        assert text == next(iter(client.stream(PROMPT, mode="final", **REQUEST))).text
    assert asyncio.run(async_text()) == text


def test_it_can_be_turned_off():
    with sluice.EngineClient.local(MODEL, generation_config="vllm") as client:
        assert client.default_params == sluice.SamplingParams()
        text = client.generate(PROMPT, **REQUEST).text
    with make_client("local") as client:
        assert text == client.generate(PROMPT, **REQUEST, temperature=1.0, top_p=1.0).text
    assert asyncio.run(async_text(generation_config="vllm")) == text
    with pytest.raises(sluice.Error, match="generation_config = \"hf\" is not allowed: auto or vllm"):
        sluice.EngineClient.local(MODEL, generation_config="hf")


@NEEDS_PROGRAM
@pytest.mark.parametrize("choice", ["auto", "vllm"])
def test_every_surface_gives_one_text(choice):
    flags = [] if choice == "auto" else ["--generation-config", choice]
    with sluice.EngineClient.local(MODEL, generation_config=choice) as client:
        text = client.generate(PROMPT, **REQUEST).text
        cold = client.generate(PROMPT, **REQUEST, temperature=0.5).text
    assert command_text(*flags) == text
    assert command_text(*flags, "--temperature", "0.5") == cold
    for kind in (MODEL, engine_command()):
        with sluice.EngineClient.spawn(kind, MODEL, generation_config=choice) as client:
            assert client.generate(PROMPT, **REQUEST).text == text
    engine = subprocess.Popen(engine_command(), stdout=subprocess.PIPE, text=True)
    try:
        endpoint = engine.stdout.readline().split()[-1]
        with sluice.EngineClient.connect(endpoint, MODEL, generation_config=choice) as client:
            assert client.generate(PROMPT, **REQUEST).text == text
    finally:
        engine.terminate()
        engine.communicate(timeout=60)
    with server_at(*flags) as url:
        assert served_text(url) == text
        assert served_text(url, temperature=0.5) == cold
