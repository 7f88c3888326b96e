"""The tables of figures of README.md and docs/, for scripts/bench_tables.py.

A table is (label, where) for each row and column; a cell is the value of the rows of the file that
agree with all of them. To add one: a `table` here, its two marks in a page, scripts/bench_tables.py --write.
"""

from bench_tables import each, figure, of, ratios, table

BATCHES = each("batch", 1, 8, 32, 128)


def cpu_row(task, rows, peer, **more):
    return of((task, rows), {"task": task, "distribution": rows, "peer": peer}, **more)


def floors(label, backend):
    """Times one read of the row, hot and cold."""
    return of(label, value="{stat}/floor_ns", digits=3,
              parts=[{"where": {"backend": backend, "cache": cache}} for cache in ("hot", "cold")])


CPU = {"dtype": "float32", "vocab": 128256, "batch": 1, "algorithm": "auto"}
AVX512_HOT = {"backend": "cpu-avx512", "cache": "hot"}

PEERS = {
    "numpy": ("numpy argmax", "numpy argpartition", "numpy argsort, cumsum",
              "numpy argpartition, cumsum, searchsorted", "numpy softmax, cumsum, searchsorted"),
    "llama.cpp": ("llama.cpp greedy", "llama.cpp top_k", "llama.cpp top_p", "llama.cpp top_k, top_p, dist",
                  "llama.cpp dist"),
    "torch": ("torch argmax", "torch topk", "torch sort, cumsum, scatter", "torch topk, cumsum, multinomial",
              "torch softmax, exponential, argmax"),
    "transformers": ("transformers TopKLogitsWarper", "transformers TopPLogitsWarper",
                     "transformers warpers, softmax, multinomial"),
}

GPU_TASKS = (("k = 50, p = 0.9", "sample-k50-p0.9"), ("p = 0.7", "sample-p0.7"), ("no filter", "sample"))
GPU_PEERS = (("Sluice", "sluice"), ("FlashInfer, one k for all rows", "flashinfer-k-first"),
             ("FlashInfer, a k a row", "flashinfer-k-first-rows"), ("FlashInfer", "flashinfer-top-p"),
             ("FlashInfer", "flashinfer-logits"), ("vLLM, Triton", "vllm-triton"), ("vLLM, sort", "vllm-sort"),
             ("torch.topk", "torch-topk"), ("torch, softmax and noise", "torch-noise"))
HAS_PEER = {"sample-k50-p0.9": (0, 1, 2, 5, 6, 7), "sample-p0.7": (0, 3, 5, 6), "sample": (0, 4, 8)}

DECODERS = (("8B, V = 128256", "8b-128256"), ("8B, V = 151936", "8b-151936"),
            ("20B-A3B, V = 201088", "20b-a3b"), ("4B, V = 262208", "4b"))
SAMPLERS = (("Sluice", "sluice"), ("Sluice, `DeviceSampler`", "sluice-requests"),
            ("FlashInfer, joint filter", "flashinfer-joint"),
            ("FlashInfer, a k a row", "flashinfer-k-first-rows"), ("vLLM, Triton", "vllm-triton"),
            ("torch, sort", "torch-sort"))
END = "end-to-end-h200.json"
# 128 rows were measured again, in more rounds; the certified head of 128 rows is of the first file.
END_BATCHES = [*each("batch", 1, 8, 32), of("128", {"batch": 128, "file": "end-to-end-h200-128.json"})]
HEADS = (("greedy", "greedy"), ("k = 50, p = 0.9", "k50-p0.9"), ("no filter", "softmax"),
         ("p = 0.9 alone", "p0.9"))

# One engine and its load: front ends by tokens a second, by latency and by CPU time.
FRONTS = (("vLLM's server", "vLLM"), ("vLLM's Rust front end", "vLLM, Rust front end"), ("`sluice serve`", "Sluice"))
STREAMS = (1, 32, 256, 512, 2048)
REQUESTS = (("greedy", "greedy"), ("k = 50, p = 0.95", "k50 p.95"), ("p = 0.95", "p.95"),
            ("k = 50, p = 0.95, seeds", "k50 p.95 seeded"),
            ("+ penalties, min-p, bias", "penalties, min-p, bias, seeded"),
            ("20 log-probabilities", "logprobs 20"))
CHECKS = ("top-k", "top-p", "top-k and top-p", "min-p", "ties", "greedy", "masks", "extremes", "mixed",
          "neighbours", "distribution", "repeats", "batches", "seeds")
CAKE = (("Sluice, from logits", "sluice"), ("FlashInfer cake, softmax included", "flashinfer-cake"),
        ("FlashInfer cake, from ready probabilities", "flashinfer-cake-alone"),
        ("FlashInfer, joint filter", "flashinfer-joint"), ("vLLM, Triton", "vllm-triton"))


def of_way(rows, way):
    """The time of the one row with a task that begins with the way of sharding."""
    (ns,) = (row["ns"] for row in rows if row["task"].startswith(way + "-"))
    return ns


TABLES = [
    table("front", "front-vllm-h200.json", heads=("streams", "front end"), where={"logprobs": 0},
          rows=[of((streams if shown == FRONTS[0][0] else "", shown), {"streams": streams, "front": front})
                for streams in STREAMS for shown, front in FRONTS],
          columns=[of("tokens/s", value="median tokens_s", decimals=0),
                   of("time to first token, 99 %, ms", value="median ttft_p99_ms", decimals=0),
                   of("between tokens, median, ms", value="median itl_p50_ms", decimals=1),
                   of("between tokens, 99 %, ms", value="median itl_p99_ms", decimals=1),
                   of("tokens a CPU-second", value="median tokens_per_cpu_second", decimals=0)]),
    table("front-short", "front-vllm-h200.json", heads=("front end of one vLLM engine",), where={"logprobs": 0},
          value="median tokens_s", decimals=0, rows=[of(shown, {"front": front}) for shown, front in FRONTS],
          columns=[*(of(f"tokens/s, {n} stream{'s' if n > 1 else ''}", {"streams": n}) for n in STREAMS),
                   of("tokens a CPU-second, 512", {"streams": 512}, value="median tokens_per_cpu_second")]),
    table("engine", "vllm-steps-h200.json", heads=("requests", "sampler"), value="engine_step_us/1000",
          decimals=2,
          rows=[of((shown if sampler == "vLLM" else "", sampler), {"task": task, "sampler": sampler})
                for shown, task in REQUESTS for sampler in ("vLLM", "Sluice")],
          columns=each("batch", 32, 128, 256)),
    table("engine-grammar", "vllm-steps-h200-grammar.json", heads=("requests", "sampler"), value="engine_step_us/1000",
          decimals=2,
          rows=[of((shown if sampler == "vLLM" else "", sampler), {"task": task, "sampler": sampler})
                for shown, task in (("greedy", "greedy"), ("a grammar, penalties, min-p, bias, seeds",
                                                           "a grammar, penalties, min-p, bias, seeded"))
                for sampler in ("vLLM", "Sluice")],
          columns=each("batch", 256)),
    table("cards", "conformance-cpu.json", heads=("check",), where={"task": "card"},
          rows=[of(check, value=f"word {check}") for check in CHECKS],
          columns=[of(name, {"sampler": name}) for name in ("sluice", "numpy", "torch", "transformers", "vllm",
                                                            "sglang")]),
    table("drafts", "drafts-cpu.json", heads=("text",), value="cpu_us", decimals=0,
          rows=[of(task, {"task": task}) for task in ("repeating, greedy", "repeating, T = 0.8", "a story, greedy",
                                                      "a story, T = 1")],
          columns=[of("no drafts", {"drafts": 0}), *(of(f"up to {n}", {"drafts": n}) for n in (4, 8, 15))]),
    table("gpu-cake", "cuda-h200-peers-cake.json", heads=("parameters", "sampler"), value="peer_ns/1000",
          decimals=1,
          rows=[of((f"k = {k}, p = 0.9" if index == 0 else "", shown), {"task": f"sample-k{k}-p0.9", "peer": peer})
                for k in (50, 1000) for index, (shown, peer) in enumerate(CAKE)],
          columns=each("batch", 1, 8, 32, 128, 256)),
    table("cpu-selection", "select-cpu.json", heads=("task", "rows"), where=CPU, rows=[
        cpu_row("greedy", "mid", "max_element"),
        cpu_row("top-50", "mid", "partial_sort"),
        cpu_row("top-2048", "mid", "nth_element"),
        cpu_row("top-p", "peaked", "softmax_sort_cumsum", stat="mean_ns"),
        cpu_row("top-p", "mid", "softmax_sort_cumsum", stat="mean_ns"),
        cpu_row("top-p", "flat", "softmax_sort_cumsum", stat="mean_ns"),
        cpu_row("k50-p0.9-draw", "mid", "partial_sort_softmax_cumsum_draw"),
        cpu_row("draw", "mid", "softmax_cdf")],
        columns=[
            of("statistic", value="@stat"),
            of("us, hot", AVX512_HOT, digits=2),
            floors("reads, AVX-512, hot / cold", "cpu-avx512"),
            floors("reads, AVX2, hot / cold", "cpu-avx2"),
            of("idiomatic C++, times", AVX512_HOT, value="peer_ns/{stat}", digits=2)]),
    table("cpu-peers", "select-peers-python.json", heads=("task", "statistic"),
          where={"distribution": "mid", "cache": "hot", "dtype": "float32", "vocab": 128256,
                 "backend": "cpu-avx512"},
          rows=[of((task, "median"), {"task": task}) for task in (
              "greedy", "top-50", "top-2048", "top-p", "k50-p0.9-draw", "draw")],
          columns=[of("Sluice, us"), *(of(f"{name}, times", {"peer": peers}, value="peer_ns/{stat}", digits=2)
                                       for name, peers in PEERS.items())],
          sparse=True),
    table("gpu-sampling", "cuda-h200-peers.json", heads=("parameters", "sampler"), value="peer_ns/1000",
          rows=[of((shown if index == 0 else "", GPU_PEERS[index][0]),
                   {"task": task, "peer": GPU_PEERS[index][1]})
                for shown, task in GPU_TASKS for index in HAS_PEER[task]],
          columns=each("batch", 1, 8, 32, 128, 256, 512)),
    table("gpu-steps", "cuda-step-h200.json", heads=("request",), where={"vocab": 128256},
          rows=[of(shown, {"task": f"step-{task}"}) for shown, task in (
              ("k = 50, p = 0.9", "k50-p0.9"), ("greedy", "greedy"), ("+ min-p", "min-p"), ("+ XTC", "xtc"),
              ("+ repetition, frequency, presence", "penalties"), ("+ DRY", "dry"), ("+ bias", "bias"),
              ("+ a bitmask a row", "bitmask"), ("+ penalties, bias, bad words, min-tokens, a bitmask",
                                                 "all-adjustments"),
              ("+ typical", "typical"), ("+ the 20 most likely tokens", "logprobs-20"))],
          columns=each("batch", 1, 8, 32, 128, 256)),
    table("end-to-end", END, heads=("decoder", "sampler"), where={"task": "k50-p0.9"}, value="gap_percent",
          decimals=1,
          rows=[of((decoder if index == 0 else "", sampler), {"model": model, "peer": peer})
                for decoder, model in DECODERS[::3] for index, (sampler, peer) in enumerate(SAMPLERS)],
          columns=END_BATCHES),
    table("server", "serve-peers.json", heads=("server",),
          rows=[("Sluice", {"peer": "sluice"}), ("aiohttp, frames alone", {"peer": "aiohttp, frames"}),
                ("aiohttp, detokenising, stops and JSON", {"peer": "aiohttp, text and JSON"})],
          columns=[of("tokens a CPU-second", value="tokens_per_cpu_second", decimals=0),
                   of("Sluice does, times", value="ours_by_it", digits=3),
                   of("99 % of the gaps between tokens, ms, at most", value="itl_p99_ms", digits=2)]),
    table("certified-head-gpu", "cuda-head-h200.json", heads=("128256 x 4096",),
          where={"n": 128256, "dim": 4096},
          rows=[*(of(shown, {"task": f"head-{task}"}) for shown, task in HEADS),
                of("cuBLASLt, logits alone", {"task": "head-dense"}, value="library_ns/1000"),
                of("`cuda::Project`, logits alone, in the defined order", {"task": "head-dense"})],
          columns=each("batch", 1, 8, 32, label="batch {}")),
    table("certified-head-end-to-end", END, heads=("decoder", "parameters"), where={"peer": "sluice-certified"},
          value="gap_percent", decimals=1,
          rows=[of((decoder if index == 0 else "", shown), {"model": model, "task": task})
                for decoder, model in DECODERS
                for index, (shown, task) in enumerate((("greedy", "greedy"), ("k = 50, p = 0.9", "k50-p0.9"),
                                                       ("no filter", "no-filter")))],
          columns=BATCHES),
    table("certified-head-cpu", "head-cpu-vnni.json", heads=("head", "planes"), value="ratio", decimals=2,
          rows=[of((f"{vocab} x {dim}" if kind == "dither4" else "", kind),
                   {"vocab": vocab, "dim": dim, "kind": kind})
                for vocab, dim in ((128256, 1024), (262144, 640)) for kind in ("dither4", "strict")],
          columns=[of(shown, parts=[{"where": {"task": task, "batch": batch}} for batch in (1, 8, 32)])
                   for shown, task in (("greedy", "greedy"), ("k = 50, p = 0.9", "k50-p0.9"),
                                       ("no filter", "softmax"), ("p = 0.9", "p0.9-id"),
                                       ("p = 0.9 with its Cut", "p0.9"))]),
    table("topk-gpu", "topk-h200.json", heads=("columns", "first threshold"), first=True,
          where={"task": "topk-2048", "dtype": "float32", "distribution": "normal"},
          rows=[of((n if guess == "sample" else "", shown), {"n": n, "guess": guess})
                for n in (8192, 32768, 65536, 131072, 262144, 524288)
                for shown, guess in (("a sample", "sample"), ("the call before", "threshold"))
                if n > 8192 or guess == "sample"],
          columns=each("batch", 1, 16, 64, 128)),
    table("topk-peers", "topk-h200-peers.json", heads=("columns", "rows"), value="peer_ns/1000",
          where={"task": "topk-2048", "dtype": "float32", "distribution": "normal"},
          rows=[of((n if batch == 1 else "", batch), {"n": n, "batch": batch})
                for n in (8192, 32768, 131072, 524288) for batch in (1, 16, 128)],
          columns=[of(shown, {"peer": peer}) for shown, peer in (
              ("Sluice", "sluice"), ("torch.topk", "torch"), ("FlashInfer cub", "flashinfer-cub"),
              ("FlashInfer radix", "flashinfer-radix"), ("FlashInfer, ties by index", "flashinfer-tie-break"),
              ("SGLang v2", "sglang-v2"))]),
    table("topk-cpu", "topk-cpu.json", heads=("scores",),
          where={"task": "topk-2048", "hint": "none", "backend": "cpu-avx2"},
          rows=[of(shown, {"distribution": kind}) for shown, kind in (
              ("N(0, 1)", "normal"), ("5 + 1e-6 N", "narrowest"), ("all but 0.6 % are 0", "relu99"),
              ("constant", "constant"), ("nine of ten -inf", "padded"))],
          columns=[of(f"{n}, {cache}", {"n": n, "cache": cache}) for n in (65536, 131072)
                   for cache in ("hot", "cold")]),
    *(figure(f"certified-head-{task}-{batch}", "cuda-head-h200.json",
             {"n": 128256, "dim": 4096, "batch": batch, "task": f"head-{task}"}, "ns/library_ns", decimals=2)
      for task, batch in (("greedy", 1), ("k50-p0.9", 1), ("greedy", 8), ("k50-p0.9", 8))),
    *(figure(f"sample-{name}", "cuda-h200-peers-cake.json",
             {"task": "sample-k50-p0.9", "batch": 1, "peer": peer}, "peer_ns/1000", decimals=1)
      for name, peer in (("sluice", "sluice"), ("cake", "flashinfer-cake"))),
    table("shards", "shards-h200-x2.json", heads=("rules",), where={"batch": 32},
          rows=[(shown, {"task": [f"{way}-{task}" for way in ("one-gpu", "sharded", "gathered")]})
                for shown, task in (("greedy", "greedy"), ("top-k 50, top-p 0.9", "k50-p0.9"), ("top-p 0.9", "p0.9"),
                                    ("whole softmax (`kDrawn`)", "softmax"))],
          columns=[*(of(f"{shown}, us", value=lambda rows, way=way: of_way(rows, way) / 1000)
                     for shown, way in (("one GPU", "one-gpu"), ("two, sharded", "sharded"),
                                        ("two, gathered", "gathered"))),
                   of("sharding gains, times", value=lambda rows: of_way(rows, "one-gpu") / of_way(rows, "sharded"))]),
]

# Figures of sentences that are the least or the most of several rows.
SLUICE, VLLM, RUST = ({"sampler": "Sluice"}, {"sampler": "vLLM"}, {"front": "vLLM, Rust front end"})
PENALTIES, LISTS = "penalties, min-p, bias, seeded", "logprobs 20"


def shorter(pick):
    """By how many percent Sluice's step is shorter than vLLM's, the least or the most of all batches."""
    return lambda rows: pick(100 * (1 - ratio) for ratio in
                             ratios(rows, "engine_step_us", SLUICE, VLLM, "task", "batch"))


def added(pick, task):
    """By how many percent a task makes vLLM's own greedy step longer."""
    return lambda rows: pick(100 * (ratio - 1) for ratio in
                             ratios(rows, "engine_step_us", {"task": task}, {"task": "greedy"}, "batch"))


def runs_apart(rows):
    """The two processes of one sampler that differ most, in percent."""
    return max(100 * (max(runs) / min(runs) - 1) for runs in (row["engine_steps_us"] for row in rows))


def fronts(pick, field, other, change=lambda ratio: ratio):
    """What `sluice serve` gives of what another front end gives, by the counts of streams."""
    return lambda rows: pick(change(ratio) for ratio in ratios(rows, field, {"front": "Sluice"}, other, "streams"))


def fastest_peer(pick):
    """How many times Sluice's time on the device vLLM's fastest path takes, by task and batch."""
    def made(rows):
        rows = [row for row in rows if "peer_device_ns" in row]
        cells = {(row["task"], row["batch"]) for row in rows}
        return pick(min(row["peer_device_ns"] / row["device_ns"] for row in rows
                        if (row["task"], row["batch"]) == cell) for cell in cells)
    return made


def drafted(pick):
    """By how many percent drafts shorten a token's time (negative: lengthen it)."""
    return lambda rows: pick(100 * (1 - row["cpu_us"] / base["cpu_us"]) for row in rows if row["drafts"]
                             for base in rows if base["task"] == row["task"] and not base["drafts"])


def field(pick, name, scale=1.0):
    return lambda rows: pick(scale * row[name] for row in rows if name in row)


STEPS, FRONT, AT_ONCE = "vllm-steps-h200.json", "front-vllm-h200.json", {"logprobs": 0, "streams": [256, 512, 2048]}
CERTIFIED = {"peer": "sluice-certified"}
DRAWN_TASKS = ["repeating, T = 0.8", "a story, T = 1"]
CALLS = ["select", "select, params", "select, out", "sample", "sample, params", "sample, no seed", "sample, ids"]
TABLES += [
    *(figure(f"steps-{name}-{pick.__name__}", STEPS, {"task": task}, shorter(pick), decimals=0)
      for name, task in (("penalties", PENALTIES), ("lists", LISTS)) for pick in (min, max)),
    figure("steps-worst", STEPS, {}, lambda rows: -shorter(min)(rows), decimals=2),
    figure("steps-runs", STEPS, {}, runs_apart, decimals=1),
    *(figure(f"steps-vllm-{name}-{pick.__name__}", STEPS, VLLM, added(pick, task), decimals=0)
      for name, task in (("penalties", PENALTIES), ("lists", LISTS)) for pick in (min, max)),
    figure("steps-one-greedy", "vllm-steps-h200-grammar.json", {"task": "greedy", "batch": 1}, shorter(min), decimals=1),
    *(figure(f"front-tokens-{pick.__name__}", FRONT, AT_ONCE, fronts(pick, "tokens_s", {"front": "vLLM"}), decimals=1)
      for pick in (min, max)),
    *(figure(f"front-cpu-{pick.__name__}", FRONT, AT_ONCE,
             fronts(pick, "tokens_per_cpu_second", {"front": "vLLM"}), decimals=1) for pick in (min, max)),
    figure("front-rust-256", FRONT, {"logprobs": 0, "streams": 256},
           fronts(max, "tokens_s", RUST, lambda ratio: 100 * (1 / ratio - 1)), decimals=0),
    *(figure(f"front-rust-{pick.__name__}", FRONT, {"logprobs": 0, "streams": [512, 2048]},
             fronts(pick, "tokens_s", RUST, lambda ratio: 100 * (1 - 1 / ratio)), decimals=0) for pick in (min, max)),
    *(figure(f"steps-peers-{name}-{pick.__name__}", "cuda-step-h200-peers.json", {"task": tasks}, fastest_peer(pick),
             decimals=decimals)
      for name, decimals, tasks in (
          ("drawn", 0, [f"step-{task}" for task in ("k50-p0.9", "bitmask", "bias", "bad-words", "min-tokens",
                                                    "penalties", "min-p", "logprobs-20", "all-adjustments")]),
          ("greedy", 1, ["step-greedy"])) for pick in (min, max)),
    figure("end-to-end-most", END, {"peer": "sluice", "task": "k50-p0.9", "batch": [1, 8, 32]}, field(max, "gap_percent"), decimals=1),
    figure("end-to-end-rounds", END, {"batch": [1, 8, 32]}, field(max, "spread_percent"), decimals=1),
    *(figure(f"certified-saves-{batch}-{name}", END, {**CERTIFIED, "batch": batch}, field(pick, "gap_percent", -1.0),
             decimals=1) for batch, name, pick in ((1, "least", min), (1, "most", max), (8, "most", max))),
    *(figure(f"python-call-{pick.__name__}", "python-overhead.json", {"task": CALLS}, field(pick, "overhead_ns", 0.001),
             decimals=1) for pick in (min, max)),
    *(figure(f"draw-flashinfer-{pick.__name__}", "cuda-h200-peers.json", {"task": "sample"},
             lambda rows, pick=pick: pick(ratios(rows, "peer_ns", {"peer": "flashinfer-logits"}, {"peer": "sluice"},
                                                 "batch")), decimals=1) for pick in (min, max)),
    figure("drafts-gain", "drafts-cpu.json", {"task": DRAWN_TASKS}, drafted(max), decimals=0),
    figure("drafts-cost", "drafts-cpu.json", {"task": DRAWN_TASKS}, lambda rows: -drafted(min)(rows), decimals=0),
    figure("generate-avx2", "generate-cpu.json", {"backend": "cpu-avx2"},
           lambda rows: 1e9 * rows[0]["tokens"] / rows[0]["decode_ns"], digits=3),
    *(figure(f"mask-{pick.__name__}", "structured-cpu.json", {"task": "xgrammar in Python"},
             field(pick, "fill_ns", 0.001), decimals=1) for pick in (min, max)),
    *(figure(f"decoded-once-{pick.__name__}", "traces-cpu.json", {"bench": "algorithms", "algorithm": "certified"},
             field(pick, "read_once", 100.0), decimals=0) for pick in (min, max)),
    *(figure(f"decoded-{name}", "traces-cpu.json", {"task": "kept", "setting": "p=0.9"},
             lambda rows, place=place: 100 * rows[0]["shares"][place], decimals=0)
      for name, place in (("peaked", 0), ("mid", 2))),
]

# docs/research/: what papers propose, measured.
STUDY = {"file": "select-algorithms.json", "backend": "cpu-avx512"}
DECODED = {"file": "traces-cpu.json", "bench": "algorithms", "backend": "cpu-avx512"}
BY_NAME = each("algorithm", "certified", "pivot", "quickselect", "histogram", "radix", "filter_scan", "filter_sort",
               "quick_find_max", "sort", label="`{}`")
QRITA = (("`quaternary`: the whole method", "quaternary"), ("`binary`: one pivot a pass", "binary"),
         ("`sort_finish`: the outliers sorted", "sort_finish"), ("`no_dup`: ties not looked at", "no_dup"),
         ("`one_tile`: one size of blocks", "one_tile"), ("`force_fallback`: every row searched as well", "force_fallback"),
         ("`no_truncation`: every row searched", "no_truncation"), ("`sort`: every row sorted", "sort"),
         ("`auto`: `cuda::Select`", "auto"))
HALF_LOW = "mid, half of the vocabulary lower"

CLUSTER_COUNTS = (500, 1000, 2000, 4000, 8000)
CLUSTER_QUESTIONS = (("first 50", "k50"), ("p = 0.9", "p0.9"), ("softmax within 0.05", "softmax0.05"))
CLUSTER_POSITIONS = ((0, 3), *((first, max(first, 4) // 100 * 100 + 99) for first in (4, *range(100, 1000, 100))))
RESEARCH = [
    table("research-algorithms", "select-algorithms.json", BY_NAME,
          [of("top-p 0.9: us", {"task": "top-p"}), of("reads", {"task": "top-p"}, value="reads"),
           of("top-50: us", {"task": "top-50"}), of("reads", {"task": "top-50"}, value="reads")],
          where=STUDY, stat="mean_ns"),
    table("research-algorithms-decoded", "traces-cpu.json", BY_NAME,
          [of("mean", value="mean_ns/floor_ns"), of("median", value="ns/floor_ns")],
          where={**DECODED, "task": "the model's own"}),
    table("research-qrita", "cuda-ablation-h200.json", [(label, {"algorithm": name}) for label, name in QRITA],
          [of(f"{label}: {batch}", {"task": task, "batch": batch})
           for label, task in (("k = 50, p = 0.9", "k50-p0.9"), ("p = 0.9", "p0.9")) for batch in (1, 32, 128)],
          where={"bench": "cuda_ablation", "distribution": "mid"}, value="ns/1000"),
    table("research-qrita-hits", "cuda-ablation-h200.json",
          [(rows, {"distribution": name}) for rows, name in
           (("peaked", "peaked"), ("mid", "mid"), ("flat", "flat"), (HALF_LOW, "half_unused"))],
          [of(f"p = {p}", {"task": f"p{p}"}, parts=[{"value": "hit_rate_before"}, {"value": "hit_rate_after"}])
           for p in (0.5, 0.7, 0.9, 0.95)],
          where={"bench": "cuda_truncation"}, decimals=2, note="Guess / table."),
    table("research-qrita-guess", "qrita-guess-cpu.json",
          [(label, {"guess": name}) for label, name in
           (("`paper`: the table in vLLM 0.33", "paper"), ("`quantile`: our formula for that table", "quantile"),
            ("`formula`: the guess here", "formula"))],
          [of(f"p = {p}", {"task": f"p{p}"}) for p in (0.5, 0.7, 0.9, 0.95)],
          where={"distribution": "mid"}, value="outliers", decimals=0),
    table("research-clusters-trained", "head-trained-cpu.json",
          [of((name, str(clusters)), {"metric": metric, "clusters": clusters})
           for name, metric in (("balls", "euclidean"), ("cones", "spherical")) for clusters in (500, 1000)],
          [*(of(f"first {k}", value=f"opened_k{k}") for k in (1, 10, 50)), of("xi", value="tightness")],
          where={"task": "clusters", "source": "text"}, heads=("bounds", "clusters"), decimals=3),
    table("research-clusters-epsilon", "head-peers-cpu.json",
          each("clusters", 500, 1000, 2000, 4000, 8000),
          [of(f"within {epsilon}", {"epsilon": epsilon}, value="rows_share") for epsilon in (0.01, 0.05, 0.1, 0.2)]
          + [of(f"in budget, {epsilon}", {"epsilon": epsilon}, value="certified") for epsilon in (0.01, 0.05, 0.2)],
          where={"task": "cluster-softmax", "source": "text"}, heads=("clusters",), decimals=3),
    table("research-clusters-steps", "cluster-steps-cpu.json",
          [((head, label, str(clusters)), {"head": head, "question": question, "clusters": clusters})
           for head, counts in (("built-in", CLUSTER_COUNTS), ("planted", (2000,)))
           for label, question in CLUSTER_QUESTIONS for clusters in counts],
          [of("in budget", value="budget", decimals=3), of("in twice", value="expanded", decimals=3),
           of("fallback", value="fallback", decimals=3), of("rows opened", value="rows_opened", decimals=3),
           *(of(f"p{q}", value=f"p{q}_us", decimals=0) for q in (50, 95, 99)),
           *(of(f"dense p{q}", value=f"dense_p{q}_us", decimals=0) for q in (50, 95, 99))],
          where={"task": "steps"}, heads=("head", "answer", "clusters")),
    table("research-clusters-position", "cluster-steps-cpu.json",
          [(f"{first} to {last}", {"first": first}) for first, last in CLUSTER_POSITIONS],
          [of("first 50: fallback", {"task": "position", "question": "k50"}, value="fallback"),
           of("softmax: fallback", {"task": "position", "question": "softmax0.05"}, value="fallback"),
           of("rows opened", {"task": "position", "question": "softmax0.05"}, value="rows_opened"),
           of("xi", {"task": "xi_position"}, value="mean")],
          where={"head": "built-in"}, heads=("step",), decimals=3),
    table("research-clusters-quality", "cluster-steps-cpu.json",
          [(f"{epsilon}", {"epsilon": epsilon}) for epsilon in (0.01, 0.05, 0.1, 0.2)],
          [of("perplexity", value="perplexity", decimals=3), of("dense head's", value="dense_perplexity", decimals=3),
           of("tokens left out", value="lost_tokens", decimals=0), of("first token equal", value="top1", decimals=3),
           of("largest variation", value="most_variation", decimals=4)],
          where={"task": "quality", "head": "built-in"}, heads=("epsilon",)),
    table("research-clusters-file", "cluster-steps-cpu.json",
          [(str(clusters), {"clusters": clusters}) for clusters in CLUSTER_COUNTS],
          [of("file, MB", value="bytes/1000000", decimals=2), of("weights, MB", value="weight_bytes/1000000", decimals=2),
           of("built, s", value="build_s", decimals=2), of("read, ms", value="load_ms", decimals=2)],
          where={"task": "file", "head": "built-in"}, heads=("clusters",)),
    table("research-clusters-gpu", "cuda-clusters-h200.json",
          [of((head, label), {"head": head, "task": f"clusters-{task}"}) for head in ("planted", "made")
           for label, task in (("k = 10", "k10"), ("softmax within 0.05", "softmax0.05"), ("p = 0.9", "p0.9"))],
          [of("1 state", {"batch": 1}), of("dense head", {"batch": 1}, value="dense_ns/1000"),
           of("8 states", {"batch": 8}), of("dense head", {"batch": 8}, value="dense_ns/1000"),
           of("rows opened", {"batch": 1}, value="rows_opened", decimals=3)],
          heads=("head", "answer"), value="ns/1000"),
]
TABLES += RESEARCH

TABLES += [
    table("grammar-compile", "grammar-cpu.json",
          [of((schema, f"{vocab}"), {"schema": schema, "vocab": vocab})
           for schema in ("40 properties", "40 properties, after others", "a string of at most 100",
                          "a string of at most 100, after another") for vocab in (8192, 128256)],
          [of("compile, ms", {"task": "compile"}, value="ns/1000000"),
           of("the package, ms", {"task": "compile"}, value="peer_ns/1000000"),
           of("again, us", {"task": "compile again"}, value="ns/1000"),
           of("the package, us", {"task": "compile again"}, value="peer_ns/1000")],
          heads=("schema", "vocabulary"), digits=2),
    table("grammar-fill", "grammar-cpu.json",
          [of((schema, f"{vocab}", str(batch)), {"schema": schema, "vocab": vocab, "batch": batch})
           for schema in ("people", "people, bounded names") for vocab in (8192, 128256) for batch in (1, 8, 64)],
          [of("us a mask", value="mean_ns/1000", where={"peer": "xgrammar in Python"}),
           of("a call for each row", value="peer_mean_ns/1000", where={"peer": "xgrammar in Python"}),
           of("its batch", value="peer_mean_ns/1000", where={"peer": "xgrammar in Python, batch"})],
          where={"task": "fill"}, heads=("schema", "vocabulary", "rows"), digits=2),
    figure("structured-soak-requests", "structured-soak-cpu.json", {"task": "answers"}, "requests", decimals=0),
    figure("structured-soak-ended", "structured-soak-cpu.json", {"task": "answers"}, "ended", decimals=0),
    figure("structured-soak-match", "structured-soak-cpu.json", {"task": "answers"}, "match", decimals=0),
]
