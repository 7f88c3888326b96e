"""The same request in the words of other engines and in Sluice's."""

import numpy as np

import sluice

# [vllm]
# vLLM: SamplingParams(temperature=0.7, top_k=40, top_p=0.9, min_p=0.05, presence_penalty=0.5, seed=7)
vllm = sluice.SamplingParams(temperature=0.7, top_k=40, top_p=0.9, min_p=0.05, presence_penalty=0.5, seed=7)
# [vllm]

# [sglang]
# SGLang: {"temperature": 0.7, "top_k": 40, "top_p": 0.9, "min_new_tokens": 8, "sampling_seed": 7}
sglang = sluice.SamplingParams(temperature=0.7, top_k=40, top_p=0.9, min_tokens=8, seed=7, profile="sglang")
# [sglang]

# [hf]
# transformers: generate(do_sample=True, temperature=0.7, top_p=0.9, repetition_penalty=1.1)
hf = sluice.SamplingParams(temperature=0.7, top_k=50, top_p=0.9, repetition_penalty=1.1, profile="hf")
# [hf]

# [llamacpp]
# llama.cpp: {"seed": 7}
llamacpp = sluice.SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, seed=7, profile="llamacpp")
# [llamacpp]

# [tensorrt]
# TensorRT-LLM: SamplingParams(temperature=0.7, top_k=40, top_p=0.9, frequency_penalty=0.3, seed=7)
tensorrt = sluice.SamplingParams(temperature=0.7, top_k=40, top_p=0.9, frequency_penalty=0.3, seed=7,
                                 profile="tensorrt-llm")
# [tensorrt]

random = np.random.default_rng(0)
logits = (4 * random.standard_normal((2, 1000))).astype(np.float32)
for params in (vllm, sglang, hf, llamacpp, tensorrt):
    sampler = sluice.Sampler(vocab=1000)
    tokens = sampler.step(logits, [sampler.add(params, prompt=[3, number]) for number in (5, 6)])
    assert (tokens.ids >= 0).all()

# [rules]
half = np.zeros(4, np.float32)  # four equal tokens, and p = 0.5
tail = np.log(np.array([1, 0.6, 0.6, *[0.1] * 10], np.float32))  # min-p drops the tail
pair = np.array([2, 0], np.float32)  # the second has 0.14 of the first, and 0.37 at temperature 2


def kept(profile):
    return (sluice.select(half, top_p=0.5, profile=profile).counts,
            sluice.select(tail, top_p=0.6, min_p=0.5, profile=profile).counts,
            sluice.select(pair, temperature=2, min_p=0.2, profile=profile).counts)


assert kept("vllm") == (2, 2, 2)
assert kept("sglang") == (4, 3, 2)  # all ties, and min-p last
assert kept("hf") == (4, 3, 2)
assert kept("llamacpp") == (2, 3, 1)  # min-p last, and the filters see temperature 1
assert kept("tensorrt-llm") == (3, 2, 2)  # a token that starts exactly at p is kept
# [rules]

# [joint]
steps = np.array([3, 2, 1, 0], np.float32)  # the first has 0.64 of all four, and 0.73 of the first two
assert sluice.select(steps, top_k=2, top_p=0.7, profile="hf").counts == 1
assert sluice.select(steps, top_k=2, top_p=0.7, profile="sglang").counts == 2
# [joint]
