"""The plug-in's whole step inside a running vLLM on GPUs: every token is given again by a replay.

    python tests/python/whole_vllm_gpu.py [--requests 60] [--tensor-parallel 2]
    python tests/python/whole_vllm_gpu.py --soak 100000
    python tests/python/whole_vllm_gpu.py --alone 256

Requests with all kinds of parameters join and leave, their prompts come in pieces, and some are
preempted. The logits of each step are kept in each worker, and a sluice.Sampler on the CPU gets
each request's own: its tokens and log-probabilities have to be those that vLLM was given, bit for
bit. Then some requests come that only vLLM's own sampler serves.
--soak: this number of requests join, leave and are aborted; one in a hundred is given again.
--alone: requests alone, then each in a batch of that size, in vLLM's batch-invariant mode: the same
tokens from end to end.
Fails with an assertion; says what it ran.
"""

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/cli"), str(ROOT / "tests/python")]
import tiny_model  # noqa: E402

# The engine in one process, which starts workers where there are several GPUs.
os.environ |= {"SLUICE_VLLM": "top_k_top_p,draw,step,logprobs",
               "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1",
               "VLLM_USE_DEEP_GEMM": "0", "HF_HUB_OFFLINE": "1",
               "PYTHONPATH": os.pathsep.join([str(ROOT / "tests/python"),
                                              os.environ.get("PYTHONPATH", "")])}


def params_of(source, SamplingParams, is_known, longest):
    more = {}
    if source.random() < 0.5:
        more |= {"top_k": source.choice([1, 5, 40]), "top_p": source.choice([0.5, 0.9, 1.0])}
    if source.random() < 0.4:
        more |= {"repetition_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": -0.2}
    if source.random() < 0.3:
        more |= {"logit_bias": {source.randrange(400): source.uniform(-5, 5) for _ in range(4)}}
    if source.random() < 0.3:
        more |= {"min_tokens": 8, "stop_token_ids": [source.randrange(400) for _ in range(3)]}
    if source.random() < 0.2:
        more |= {"min_p": 0.05}
    if source.random() < 0.2:
        more |= {"allowed_token_ids": source.sample(range(400), 100)}
    if source.random() < 0.4:
        more |= {"logprobs": source.choice([0, 1, 5, 20])}
    if not is_known:
        more |= {"logprob_token_ids": [1, 2, 3], "logprobs": None}
    if source.random() < 0.7:
        more |= {"seed": source.randrange(2**62)}
    return SamplingParams(temperature=source.choice([0.0, 0.3, 1.0, 1.7]), ignore_eos=True,
                          max_tokens=source.randrange(8, longest), detokenize=False, **more)


def prompt_of(source):
    return {"prompt_token_ids": [source.randrange(400) for _ in range(source.randrange(3, 150))]}


def replay(llm):
    """What the workers gave again; all of them the same."""
    results = llm.collective_rpc("sluice_replay", args=(tiny_model.VOCAB,))
    assert all(result == results[0] for result in results), results
    return results[0]


def run(llm, options):
    from vllm import SamplingParams

    source = random.Random(5)

    def generate(count, unknown):
        params = [params_of(source, SamplingParams, at % 8 != 7 or not unknown, 90)
                  for at in range(count)]
        llm.generate([prompt_of(source) for _ in params], params, use_tqdm=False)

    llm.collective_rpc("sluice_watch", args=(1,))
    generate(options.requests, False)
    result = replay(llm)
    print("all of them Sluice's:", result, flush=True)
    assert result["tokens"] > 10 * options.requests and result["tokens of vLLM"] == 0
    assert min(result[what] for what in ("preempted", "reports", "pieces of prompts")) > 0
    generate(options.requests, True)
    result = replay(llm)
    print("some of them vLLM's:", result, flush=True)
    assert result["tokens"] > 0 and result["tokens of vLLM"] > 0
    # vLLM's kernels divide logits by temperatures and round penalties otherwise.
    assert result["of which differ"] <= max(2, result["tokens of vLLM"] // 200)


def soak(llm, count):
    """Three in four requests run to their end, the others are aborted at a random step."""
    from vllm import SamplingParams

    llm.collective_rpc("sluice_watch", args=(100,))
    source, engine = random.Random(6), llm.llm_engine
    live, ends, added, done, aborted, tokens = {}, {}, 0, 0, 0, 0
    step = 0
    while added < count or live:
        while added < count and len(live) < 200:
            params = params_of(source, SamplingParams, source.random() < 0.999, 12)
            name = f"soak-{added}"
            engine.add_request(name, prompt_of(source), params)
            live[name] = params.max_tokens, params.stop_token_ids
            if source.random() < 0.25:
                ends[name] = step + source.randrange(12)
            added += 1
        late = [name for name, end in ends.items() if end <= step]
        if late:
            engine.abort_request(late)
            for name in late:
                del ends[name]
                aborted += live.pop(name, None) is not None
        for output in engine.step():
            if output.finished and output.request_id in live:
                most, stops = live.pop(output.request_id)
                ends.pop(output.request_id, None)
                given = output.outputs[0].token_ids
                assert len(given) == most or given[-1] in (stops or ()), output
                tokens += len(given)
                done += 1
        step += 1
        if step % 500 == 0:
            print(f"{added} requests, {step} steps", flush=True)
    while engine.has_unfinished_requests():
        engine.step()
    llm.generate([prompt_of(source)], SamplingParams(max_tokens=2, detokenize=False), use_tqdm=False)
    result = replay(llm)
    print(f"{done} requests to their end with {tokens} tokens, {aborted} aborted:", result)
    assert done + aborted == count and "failures" not in result["counts"]
    assert result["tokens"] > count / 100 and result["tokens of vLLM"] <= result["tokens"] / 2
    for free, slots in llm.collective_rpc("sluice_free_slots"):
        assert free >= slots - 1, (free, slots)  # the last request leaves with the next step


def alone(llm, batch):
    from vllm import SamplingParams

    source = random.Random(7)
    prompts = [prompt_of(source) for _ in range(batch)]
    params = [params_of(source, SamplingParams, True, 60) for _ in range(batch)]
    for at, one in enumerate(params):
        one.seed = at  # vLLM draws a seed where a request has none

    def tokens_of(some):
        outputs = llm.generate([prompts[at] for at in some], [params[at] for at in some],
                               use_tqdm=False)
        return [output.outputs[0].token_ids for output in outputs]

    llm.collective_rpc("sluice_watch", args=(1,))
    together = tokens_of(range(batch))
    some = range(0, batch, max(1, batch // 16))
    singly = [tokens_of([at])[0] for at in some]
    same = sum(one == together[at] for at, one in zip(some, singly))
    tokens = sum(map(len, singly))
    print(f"{same} of {len(some)} requests had the same tokens alone and among {batch - 1} others "
          f"({tokens} tokens):", replay(llm))
    assert same == len(some)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--soak", type=int, default=0)
    parser.add_argument("--alone", type=int, default=0)
    options = parser.parse_args()
    if options.alone:
        os.environ["VLLM_BATCH_INVARIANT"] = "1"
    from vllm import LLM, __version__

    # Heads of 64 are the smallest that every attention kernel takes.
    tiny_model.DIM, tiny_model.HEADS = 256, 4
    more = {}
    if not options.soak and not options.alone:  # preemptions, and prompts in pieces
        more = {"max_num_seqs": 16, "max_num_batched_tokens": 64, "num_gpu_blocks_override": 64}
    elif options.soak:
        more = {"max_num_seqs": 128, "max_num_batched_tokens": 1024,
                "num_gpu_blocks_override": 600}
    with tempfile.TemporaryDirectory() as folder:
        model = str(tiny_model.write(Path(folder) / "tiny", ROOT, context=512))
        llm = LLM(model, enforce_eager=True, dtype="bfloat16", max_model_len=512, max_logprobs=20,
                  gpu_memory_utilization=0.2, enable_prefix_caching=False,
                  tensor_parallel_size=options.tensor_parallel,
                  disable_custom_all_reduce=True, worker_extension_cls="vllm_watch.Watch",
                  **{"max_num_seqs": 256, **more})
    print(f"vLLM {__version__} on {options.tensor_parallel} GPU(s)", flush=True)
    if options.soak:
        soak(llm, options.soak)
    elif options.alone:
        alone(llm, options.alone)
    else:
        run(llm, options)


if __name__ == "__main__":
    main()
