"""The plug-in's whole step inside a running vLLM on a GPU: every token is given again by a replay.

    python tests/python/whole_vllm_gpu.py [--requests 60]

Requests with all kinds of parameters join and leave, their prompts come in pieces, and some are
preempted. The logits of each step are kept, and a sluice.Sampler on the CPU gets each request's
own: its tokens and log-probabilities have to be those that vLLM was given, bit for bit. Then some
requests come that only vLLM's own sampler serves. Fails with an assertion; says what it ran.
"""

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/cli"))
import tiny_model  # noqa: E402

# One process, so that what the plug-in does can be looked at.
os.environ |= {"SLUICE_VLLM": "top_k_top_p,draw,step,logprobs",
               "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1",
               "VLLM_USE_DEEP_GEMM": "0", "HF_HUB_OFFLINE": "1"}


class Record:
    """What a request of vLLM was given: its parameters, logits, tokens and reports."""

    def __init__(self, fields, prompt, output):
        self.fields, self.prompt, self.output, self.steps = fields, prompt, output, []


def watch(records, parts):
    """Has vLLM's sampler note everything in `records`, and count rows of unfinished prompts in `parts`."""
    import numpy as np
    from vllm.v1.worker.gpu.sample.sampler import Sampler

    from sluice.plugins import vllm_step

    live = {}
    add, call = vllm_step.Steps.add, Sampler.__call__

    def noted_add(steps, sampler, slot, params):
        prompt_length, tokens = steps._tokens.get(slot, (0, None))
        add(steps, sampler, slot, params)
        live.pop(slot, None)
        if tokens is None:
            return
        fields = vllm_step.fields_of(params, sampler.sampling_states.seeds.np[slot],
                                     steps._vocab, sampler.logprobs_mode)
        live[slot] = Record(fields, list(tokens[:prompt_length]), list(tokens[prompt_length:]))
        records.append(live[slot])

    def noted_call(sampler, logits, batch):
        before = logits.clone()
        taken = vllm_step.counts["steps"]
        output = call(sampler, logits, batch)
        is_ours = vllm_step.counts["steps"] > taken
        tokens = output.sampled_token_ids[:, 0].tolist()
        reports = output.logprobs_tensors
        lengths = batch.seq_lens_cpu_upper_bound.numpy()
        parts["pieces"] += int((lengths[:len(tokens)] < sampler.req_states.prefill_len.np[
            batch.idx_mapping_np]).sum())
        for row, slot in enumerate(batch.idx_mapping_np.tolist()):
            if slot in live and lengths[row] >= sampler.req_states.prefill_len.np[slot]:
                report = None if reports is None else [
                    np.asarray(part[row].cpu()) for part in reports[:3]]
                live[slot].steps.append((before[row].float().cpu().numpy(), tokens[row], report,
                                         is_ours))
        return output

    vllm_step.Steps.add, Sampler.__call__ = noted_add, noted_call


def replay(records, vocab):
    """How many tokens were given again, how many were vLLM's own, and how many of those differ."""
    import numpy as np

    import sluice

    ours = others = different = reported = 0
    for record in records:
        sampler = sluice.Sampler(vocab=vocab)
        handle = sampler.add(prompt=record.prompt, **record.fields)
        sampler.accept(handle, record.output)
        for logits, token, report, is_ours in record.steps:
            answer = sampler.step(logits[None], [handle])
            if is_ours:
                assert answer.ids[0] == token, (record.fields, answer.ids[0], token)
                ours += 1
            else:
                others += 1
                different += answer.ids[0] != token
            if answer.ids[0] != token:
                sampler.rollback(handle, 1)
                sampler.accept(handle, [token])
            if is_ours and (listed := record.fields.get("logprobs")) is not None:
                ids, values, rank = report
                assert ids[0] == token and rank == answer.ranks[0]
                assert values[0] == answer.logprobs[0]
                if listed:
                    assert ids[1:1 + listed].tolist() == answer.top_ids[0, 1:1 + listed].tolist()
                    np.testing.assert_array_equal(values[1:1 + listed],
                                                  answer.top_logprobs[0, 1:1 + listed])
                reported += 1
    return ours, others, different, reported


def params_of(source, SamplingParams, is_known):
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
                          max_tokens=source.randrange(8, 90), detokenize=False, **more)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=60)
    options = parser.parse_args()
    from vllm import LLM, SamplingParams, __version__

    from sluice.plugins import vllm_step

    # Heads of 64 are the smallest that every attention kernel takes.
    tiny_model.DIM, tiny_model.HEADS = 256, 4
    with tempfile.TemporaryDirectory() as folder:
        model = str(tiny_model.write(Path(folder) / "tiny", ROOT, context=512))
        # Few blocks and few tokens a step: preemptions, and prompts in pieces.
        llm = LLM(model, enforce_eager=True, dtype="bfloat16", max_model_len=512, max_num_seqs=16,
                  max_num_batched_tokens=64, num_gpu_blocks_override=64, max_logprobs=20,
                  gpu_memory_utilization=0.2, enable_prefix_caching=False)
    records, parts = [], {"pieces": 0}
    watch(records, parts)
    source = random.Random(5)

    def generate(count, unknown):
        prompts = [{"prompt_token_ids": [source.randrange(400)
                                         for _ in range(source.randrange(3, 150))]}
                   for _ in range(count)]
        params = [params_of(source, SamplingParams, at % 8 != 7 or not unknown)
                  for at in range(count)]
        llm.generate(prompts, params, use_tqdm=False)

    before = dict(vllm_step.counts)
    generate(options.requests, False)
    ours, others, different, reported = replay(records, tiny_model.VOCAB)
    preempted = sum(bool(record.output) for record in records)
    assert ours > 10 * options.requests and others == 0, (ours, others, vllm_step.counts)
    assert preempted > 0 and reported > 0 and parts["pieces"] > 0, (preempted, reported, parts)
    print(f"vLLM {__version__}: {len(records)} requests, {preempted} of them after a preemption: "
          f"{ours} tokens and {reported} reports given again")
    records.clear()
    generate(options.requests, True)
    ours, others, different, _ = replay(records, tiny_model.VOCAB)
    assert ours > 0 and others > 0, (ours, others)
    # vLLM's kernels divide logits by temperatures and round penalties otherwise.
    assert different <= max(2, others // 200), (others, different)
    print(f"with requests that vLLM serves: {ours} tokens given again, {others} of vLLM's steps, "
          f"of which {different} differ; counts {dict(vllm_step.counts)}, before {before}")


if __name__ == "__main__":
    main()
