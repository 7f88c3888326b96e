"""What the tests of engines share: the built-in model's folder, and how clients of it are made."""

import shutil
from pathlib import Path

import pytest

import sluice

MODEL = Path(__file__).parent.parent.parent / "models" / "default"
PROGRAM = shutil.which("sluice")
NEEDS_ENGINE = pytest.mark.skipif(not hasattr(sluice, "EngineClient"),
                                  reason="built without Sluice::link")
NEEDS_PROGRAM = pytest.mark.skipif(not PROGRAM, reason="no program sluice on the PATH")

LOCAL_KINDS = ["local", "in-flight"]
PROCESS_KINDS = [pytest.param(kind, marks=NEEDS_PROGRAM) for kind in ("process", "frontend")]


def engine_command(*flags):
    return [PROGRAM, "engine", "--listen", "tcp://127.0.0.1:*", "--model", str(MODEL), "--quiet", *flags]


def make_client(kind, client_class=None):
    """A client of the model: where its engine is, and who looks for stops."""
    client_class = client_class or sluice.EngineClient
    if kind == "local":
        return client_class.local(MODEL)
    if kind == "in-flight":  # and with more requests than run at once
        return client_class.local(MODEL, steps_in_flight=1, max_requests=8, stop_at="frontend")
    if kind == "process":
        return client_class.spawn(MODEL)
    return client_class.spawn(engine_command("--steps-in-flight", "1"), MODEL, stop_at="frontend")


def requests_of(count):
    """(prompt, keywords) of as many different requests, each with a seed."""
    prompts = ["Once upon a time", "The king", "In the deep forest there lived", "A", "The fox said"]
    shapes = [{"temperature": 0}, {"temperature": 0.9, "top_p": 0.9}, {"top_k": 40},
              {"repetition_penalty": 1.2, "temperature": 0.8}, {"min_p": 0.05},
              {"frequency_penalty": 0.5, "draw_method": "cdf"}]
    return [(prompts[i % len(prompts)],
             {"seed": i, "max_tokens": 5 + i % 13, **shapes[i % len(shapes)]})
            for i in range(count)]
