#!/usr/bin/env python3
"""Decode steps of a real vLLM with and without the plug-in, by kind of request and batch.

    python bench/vllm_steps.py --model FOLDER --commit HASH --json OUT.json
        [--turns 3] [--batch 32 --batch 256] [--kind NAME] [--steps 96] [--limit 600]

Each turn starts an engine process of each sampler, one after the other, so that they alternate.
step_us is what LLM.generate takes for a step: a long generation less a short one. engine_step_us is
the time between two outputs of the engine's process, the median: what Python does in the client's
process is not in it.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from engine_steps import CUT, KINDS, PENALTIES, alternate, measure_all, options_of, prompts  # noqa: E402

_CHANGED = {**CUT, **PENALTIES, "seed": 7, "logit_bias": {at * 97: 1.5 for at in range(8)}}
VLLM_KINDS = {
    **KINDS,
    "penalties, min-p, bias, seeded": _CHANGED,
    # Only where the model's folder has a tokenizer. No text of this grammar ends.
    "a grammar, penalties, min-p, bias, seeded": {**_CHANGED, "grammar": "root ::= [a-z ] root"},
}
_ALWAYS = {"VLLM_NO_USAGE_STATS": "1", "VLLM_USE_DEEP_GEMM": "0"}
SAMPLERS = {"vLLM": {**_ALWAYS, "SLUICE_VLLM": "off"},
            "Sluice": {**_ALWAYS, "SLUICE_VLLM": "top_k_top_p,draw,step,logprobs"}}


def measure(options):
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    has_tokenizer = (Path(options.model) / "tokenizer.json").exists()
    llm = LLM(options.model, skip_tokenizer_init=not has_tokenizer, dtype="bfloat16", max_model_len=1024,
              max_num_seqs=max(options.batch), gpu_memory_utilization=options.memory,
              enable_prefix_caching=False, max_logprobs=20, seed=1, disable_log_stats=True,
              compilation_config={"cudagraph_capture_sizes": sorted(
                  {1, 2, 4, 8, 16, *options.batch})})
    core = llm.llm_engine.engine_core
    get_output, stamps = core.get_output, []

    def stamped():
        outputs = get_output()
        stamps.append((outputs.timestamp, len(outputs.outputs)))
        return outputs

    core.get_output = stamped

    def generate(kind, batch, tokens, salt):
        params = []
        for row in range(batch):
            given = dict(VLLM_KINDS[kind])
            if "seed" in given:
                given["seed"] += row
            if "grammar" in given:
                given["structured_outputs"] = StructuredOutputsParams(grammar=given.pop("grammar"))
            params.append(SamplingParams(max_tokens=tokens, ignore_eos=True, detokenize=False,
                                         **given))
        stamps.clear()
        begin = time.perf_counter()
        llm.generate(prompts(batch, salt), params, use_tqdm=False)
        seconds = time.perf_counter() - begin
        full = [stamp for stamp, count in stamps if count == batch]
        return seconds, [later - earlier for earlier, later in zip(full, full[1:])]

    measure_all(options, generate)


def main():
    options = options_of(__doc__, SAMPLERS, VLLM_KINDS)
    if not (Path(options.model) / "tokenizer.json").exists():
        options.kind = [kind for kind in options.kind if "grammar" not in VLLM_KINDS[kind]]
    if options.rows:
        return measure(options)
    alternate(__file__, options, "vllm-steps", SAMPLERS,
              ("vllm", "torch", "triton", "flashinfer-python", "numpy"))


if __name__ == "__main__":
    main()
