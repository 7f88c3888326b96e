#!/usr/bin/env python3
"""Decode steps of a real SGLang with its own sampling backend and with Sluice's, by kind of request and batch.

    python bench/sglang_steps.py --model FOLDER --commit HASH --json OUT.json
        [--turns 3] [--batch 32 --batch 128] [--kind NAME] [--steps 96] [--limit 600]

Each turn starts an engine process of each backend, one after the other, so that they alternate. step_us
is what Engine.generate takes for a step: a long generation less a short one. With seeds SGLang's own
backend has the same tokens only in its deterministic mode, which is not on here.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from engine_steps import CUT, KINDS, alternate, measure_all, options_of, prompts  # noqa: E402

SGLANG_KINDS = {
    **KINDS,
    "penalties, min-p": {**CUT, "repetition_penalty": 1.1, "frequency_penalty": 0.1,
                         "presence_penalty": 0.1, "min_p": 0.01},
}
_ALWAYS = {"SGLANG_DISABLE_CUDNN_CHECK": "1"}
SAMPLERS = {"SGLang": {**_ALWAYS, "SAMPLING_BACKEND": "flashinfer"},
            "Sluice": {**_ALWAYS, "SAMPLING_BACKEND": "sluice"}}


def measure(options):
    import os

    import sglang

    engine = sglang.Engine(
        model_path=options.model, skip_tokenizer_init=True, dtype="bfloat16", attention_backend="triton",
        sampling_backend=os.environ["SAMPLING_BACKEND"], mem_fraction_static=options.memory,
        max_running_requests=max(options.batch), disable_radix_cache=True, context_length=1024,
        random_seed=1, disable_prefill_cuda_graph=True, cuda_graph_bs_decode=sorted(set(options.batch)))

    def generate(kind, batch, tokens, salt):
        params, more = [], {}
        for row in range(batch):
            given = dict(SGLANG_KINDS[kind])
            if "seed" in given:
                given["sampling_seed"] = given.pop("seed") + row
            if "logprobs" in given:
                more = {"return_logprob": True, "top_logprobs_num": given.pop("logprobs")}
            params.append({**given, "max_new_tokens": tokens, "ignore_eos": True})
        ids = [one["prompt_token_ids"] for one in prompts(batch, salt)]
        begin = time.perf_counter()
        engine.generate(input_ids=ids, sampling_params=params, **more)
        return time.perf_counter() - begin, []

    measure_all(options, generate)
    engine.shutdown()


def main():
    options = options_of(__doc__, SAMPLERS, SGLANG_KINDS)
    if options.rows:
        return measure(options)
    alternate(__file__, options, "sglang-steps", SAMPLERS,
              ("sglang", "torch", "triton", "flashinfer-python", "numpy"))


if __name__ == "__main__":
    main()
