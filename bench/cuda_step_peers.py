#!/usr/bin/env python3
"""Times whole sampling steps of vLLM's Sampler, and of FlashInfer after it, against Sluice's.

    sluice_cuda_step --batch 32 > FILE
    python3 bench/cuda_step_peers.py --vllm DIR --sluice FILE [--flashinfer-modules DIR]
        [--task NAME]... [--json FILE]

The requests are those of sluice_cuda_step (bench/cuda/cuda_step.cu), which writes its rows: k = 50,
p = 0.9, 256 tokens of prompt and 256 of output, rows like a model's, in fp32. DIR has the files of
vLLM's package; its Sampler runs as it is, by three paths: native (torch sorts), triton (its own
kernels) and flashinfer, which it takes when no request has a seed.

`peer_ns`: of a step among steps that follow each other, with what the host does of it, less the copy
that restores the logits. `peer_device_ns`: of its kernels alone. `peer_memory_bytes`: the most that a step
takes in addition to its logits. Sluice's `ns` is the larger one of what the host takes for a call and what
the device takes for a step, with what runs during the model (accept and prepare) added.

What helps vLLM: its kernel of the repetition penalty is in a library that is not here, and counts
as free. What does not: ranks of log-probabilities are counted by torch and not by a compiled
function.
"""

import argparse
import importlib.util
import json
import sys
import types
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "python")]
import cuda_vllm  # noqa: E402
import peers  # noqa: E402
import vllm_modules  # noqa: E402

TRITON = "vllm.v1.sample.ops.topk_topp_triton"
HISTORY = 256
STEPS, WARM_UPS = 8, 3
FEATURES = {  # name: what it has in addition to k and p; by the names of sluice_cuda_step
    "step-k50-p0.9": (), "step-penalties": ("penalties",), "step-bitmask": ("mask",),
    "step-bias": ("bias",), "step-bad-words": ("bad_words",), "step-min-tokens": ("min_tokens",),
    "step-min-p": ("min_p",), "step-logprobs-20": ("logprobs",),
    "step-all-adjustments": ("penalties", "mask", "bias", "bad_words", "min_tokens"),
    "step-greedy": ("greedy",),
}


def triton_members(folder):
    """vLLM's Triton kernels, among the stand-ins of cuda_vllm."""
    cuda_vllm._stand_ins()
    path = folder / "vllm/v1/sample/ops/topk_topp_triton.py"
    spec = importlib.util.spec_from_file_location("vllm_topk_topp", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        del sys.modules[name]
    return vars(module)


class Vllm:
    """vLLM's files, loaded for one path of its sampler."""

    def __init__(self, folder, path, triton):
        sources = peers.Sources("vllm", vllm_modules.VERSION, folder)
        given = vllm_modules.given(sources)
        platform = types.SimpleNamespace(
            is_cuda=lambda: True, is_cpu=lambda: False, is_xpu=lambda: False,
            is_cuda_alike=lambda: True, simple_compile_backend="eager")
        given["vllm.platforms"] = {"current_platform": platform}
        given["vllm._custom_ops"] = {"apply_repetition_penalties": lambda *tensors: None}
        if path != "native":
            given["vllm.triton_utils"] = {"HAS_TRITON": True}
            given[TRITON] = {name: value for name, value in triton.items()
                             if not name.startswith("__")}
        with vllm_modules.loaded(sources, given) as modules:
            filters = modules.topk_topp_sampler
            filters.flashinfer_sampler_supported = lambda: path == "flashinfer"
            filters.register_top_k_top_p_warmups = lambda: None
            self.modules, self.sampler = modules, modules.sampler.Sampler()

    def metadata(self, batch, vocab, features, is_seeded):
        random = torch.Generator().manual_seed(9)

        def tokens():  # small ids more often than large ones
            u = torch.rand(batch, HISTORY, generator=random, dtype=torch.float64)
            return (vocab * u**3).long()

        prompts, outputs = tokens(), tokens().tolist()
        has, builtin, device = features.__contains__, self.modules.builtin, "cuda"
        params = types.SimpleNamespace(
            min_p=0.02 if has("min_p") else 0.0, structured_outputs=None,
            logit_bias={1000 * i + 7: 0.5 for i in range(16)} if has("bias") else {},
            min_tokens=1000 if has("min_tokens") else 0,
            all_stop_token_ids={2, 128001, 128009})
        config = types.SimpleNamespace(
            scheduler_config=types.SimpleNamespace(max_num_seqs=batch))
        processors = [kind(config, torch.device(device), False) for kind in (
            builtin.MinTokensLogitsProcessor, builtin.LogitBiasLogitsProcessor,
            builtin.MinPLogitsProcessor)]
        for processor in processors:
            processor.update_state(self.modules.interface.BatchUpdate(
                batch_size=batch, removed=[], moved=[],
                added=[(row, params, None, outputs[row]) for row in range(batch)]))

        def column(value, dtype=torch.float32):
            return torch.full((batch,), value, dtype=dtype, device=device)

        mask = None
        if has("mask"):
            mask = torch.zeros(batch, vocab, dtype=torch.bool, device=device)
            mask[:, 31::32] = True
        is_greedy = has("greedy")
        return self.modules.metadata.SamplingMetadata(
            temperature=None if is_greedy else column(1.0), all_greedy=is_greedy,
            all_random=not is_greedy, top_p=None if is_greedy else column(0.9),
            top_k=None if is_greedy else column(50, torch.int32),
            generators={row: torch.Generator(device).manual_seed(row)
                        for row in range(batch)} if is_seeded and not is_greedy else {},
            max_num_logprobs=20 if has("logprobs") else None,
            no_penalties=not has("penalties"), prompt_token_ids=prompts.to(device),
            frequency_penalties=column(0.2), presence_penalties=column(0.1),
            repetition_penalties=column(1.1), output_token_ids=outputs,
            allowed_token_ids_mask=mask,
            bad_words_token_ids={row: [[50 + i, 90 + i] for i in range(8)]
                                 for row in range(batch)} if has("bad_words") else {},
            logitsprocs=self.modules.state.LogitsProcessors(processors))


def model_rows(batch, vocab):
    """A body of N(-2, 1.6) and 40 outliers, as bench/cuda_peers.py has them."""
    generator = torch.Generator("cuda").manual_seed(3)
    rows = torch.randn(batch, vocab, generator=generator, device="cuda") * 1.6 - 2
    gaps = torch.empty(batch, 40, device="cuda").exponential_(4.0, generator=generator)
    at = torch.randint(vocab, (batch, 40), generator=generator, device="cuda")
    return rows.scatter_(1, at, 11.0 - gaps.cumsum(1))


def steps_ns(work):
    for _ in range(WARM_UPS):
        work()
    times = []
    for _ in range(3):
        torch.cuda.synchronize()
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(STEPS):
            work()
        stop.record()
        stop.synchronize()
        times.append(1e6 * start.elapsed_time(stop) / STEPS)
    return sorted(times)[1]


def device_ns(work):
    profiler = torch.profiler
    with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as trace:
        work()
        work()
        torch.cuda.synchronize()
    spans = [event.time_range.elapsed_us() for event in trace.events()
             if event.device_type == torch.autograd.DeviceType.CUDA]
    return 1e3 * sum(spans) / 2


class Rows:
    """Logits that a step may write, and what it takes to restore them."""

    def __init__(self, batch, vocab):
        self.master = model_rows(batch, vocab)
        self.logits = self.master.clone()
        self.copy_ns, self.copy_device_ns = steps_ns(self.restore), device_ns(self.restore)

    def restore(self):
        self.logits.copy_(self.master)


def measure(vllm, rows, features, is_seeded):
    logits = rows.logits
    metadata = vllm.metadata(*logits.shape, features, is_seeded)

    def step():
        rows.restore()
        return vllm.sampler(logits, metadata).sampled_token_ids

    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    memory = torch.cuda.max_memory_allocated() - before
    spent, on_device = steps_ns(step), device_ns(step)
    on_device -= rows.copy_device_ns
    return {"ns": round(max(spent - rows.copy_ns, on_device)), "device_ns": round(on_device),
            "memory_bytes": memory}


def load_flashinfer(folder):
    import tvm_ffi
    from flashinfer import sampling

    compiled = types.SimpleNamespace(
        build_and_load=lambda: tvm_ffi.load_module(str(Path(folder) / "sampling.so")))
    sampling.gen_sampling_module = lambda: compiled


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--vllm", type=Path, required=True)
    parser.add_argument("--sluice", type=Path, required=True,
                        help="what sluice_cuda_step has printed")
    parser.add_argument("--flashinfer-modules", help="folder with its sampling.so")
    parser.add_argument("--task", action="append")
    parser.add_argument("--json", default="/dev/stdout")
    options = parser.parse_args()
    paths = ["native", "triton"]
    if options.flashinfer_modules is not None:
        load_flashinfer(options.flashinfer_modules)
        paths.append("flashinfer")
    triton = triton_members(options.vllm)
    peers_of = {path: Vllm(options.vllm, path, triton) for path in paths}
    cuda_vllm._module("vllm", __path__=[])  # one function imports when it is called
    cuda_vllm._module("vllm._custom_ops", apply_repetition_penalties=lambda *tensors: None)
    rows, shape, logits = [], None, None
    head = json.loads(options.sluice.read_text(encoding="utf-8"))
    for row in head["rows"]:
        task, batch, vocab = row["task"], row["batch"], row["vocab"]
        if task not in FEATURES or (options.task and task not in options.task):
            continue
        if shape != (batch, vocab):
            logits, shape = None, (batch, vocab)
            logits = Rows(batch, vocab)
        beside = row["accept_ns"] + row["prepare_ns"]
        base = {"bench": "cuda-step-peers", "task": task, "backend": "cuda", "dtype": "float32",
                "vocab": vocab, "batch": batch, "distribution": "mid",
                "ns": max(row["host_ns"], row["ns"] + beside), "device_ns": row["ns"],
                "beside_ns": beside, "host_ns": row["host_ns"],
                "memory_bytes": row["memory_bytes"]}
        for path, vllm in peers_of.items():
            is_seeded = path != "flashinfer"
            peer = measure(vllm, logits, FEATURES[task], is_seeded)
            rows.append({**base, "peer": f"vllm-{path}", "peer_is_seeded": is_seeded,
                         **{f"peer_{name}": value for name, value in peer.items()}})
            print(f"{task:22} V={vocab} B={batch:<4} vllm-{path:10} {peer['ns'] / 1e3:9.1f} us, "
                  f"on the device {peer['device_ns'] / 1e3:9.1f}  "
                  f"{peer['ns'] / base['ns']:6.1f}x {peer['device_ns'] / row['ns']:6.1f}x  "
                  f"{peer['memory_bytes'] / 2**20:8.1f} MiB", file=sys.stderr)
        write(options.json, head, rows)


def write(path, head, rows):
    """After each row: what is there when the time is over is complete."""
    env = {**head["env"], "torch": torch.__version__, "vllm": vllm_modules.VERSION}
    text = json.dumps({"env": env, "commit": head["commit"], "rows": rows})
    text = text.replace('{"bench"', '\n{"bench"')
    Path(path).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
