"""Times of CUDA work by graph replay, and the floors: one read of rows, one read and write of them.

Hot, as in decoding: in the graph a kernel rewrites the logits before each call, and the time of a
graph of rewrites alone is taken off; or, for calls that change nothing, what more of them add to a
graph (call_us). Cold: the calls of a graph work on buffers of their own, and
the L2 cache is flushed before each replay; the time of a graph that does nothing is taken off.
"""

import functools
import statistics

import torch
import triton
import triton.language as tl

REPLAYS, WARM_UPS = 9, 2
FLUSH_BYTES = 256 << 20
MOST_BLOCKS = 128  # of a row, in the floors


def processors():
    return torch.cuda.get_device_properties(0).multi_processor_count


@triton.jit
def copy_kernel(source, target, size, BLOCK: tl.constexpr):
    step = tl.num_programs(0) * BLOCK
    for start in range(tl.program_id(0) * BLOCK, size, step):
        at = start + tl.arange(0, BLOCK)
        tl.store(target + at, tl.load(source + at, mask=at < size), mask=at < size)


@triton.jit
def read_kernel(rows, largest, vocab, BLOCK: tl.constexpr):
    row = rows + tl.program_id(1).to(tl.int64) * vocab
    most = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in tl.range(tl.program_id(0) * BLOCK, vocab, tl.num_programs(0) * BLOCK,
                          num_stages=4):
        at = start + tl.arange(0, BLOCK)
        most = tl.maximum(most, tl.load(row + at, mask=at < vocab, other=-float("inf")))
    tl.store(largest + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0), tl.max(most))


@triton.jit
def read_write_kernel(rows, vocab, threshold, BLOCK: tl.constexpr):
    row = rows + tl.program_id(1).to(tl.int64) * vocab
    for start in tl.range(tl.program_id(0) * BLOCK, vocab, tl.num_programs(0) * BLOCK,
                          num_stages=4):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(row + at, mask=at < vocab)
        tl.store(row + at, tl.where(values < threshold, -float("inf"), values), mask=at < vocab)


def rewrite(source, target):
    size = source.numel()
    blocks = min(max(size // 8192, 1), 4 * processors())
    copy_kernel[(blocks,)](source, target, size, BLOCK=2048, num_warps=8)


def captured(work, pool=None):
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin(pool)
        try:
            work()
        finally:
            graph.capture_end()
    return graph


@functools.cache
def graph_for_its_memory():
    """The graphs that are timed live one after the other, in the pool of one that stays."""
    return captured(lambda: torch.zeros(1, device="cuda"))


def replay_times(work, flush=None):
    """Microseconds of each replay of a graph that holds what `work` enqueues."""
    graph = captured(work, graph_for_its_memory().pool())
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for replay in range(-WARM_UPS, REPLAYS):
        if flush is not None:
            flush()
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        if replay >= 0:
            times.append(1e3 * start.elapsed_time(stop))
    return times


def call_us(call, few=8, many=40):
    """Microseconds that one more call adds to a graph; `call(i)` enqueues call number i."""
    def graph_us(calls):
        return statistics.median(replay_times(lambda: [call(i) for i in range(calls)]))

    return (graph_us(many) - graph_us(few)) / (many - few)


class Timer:
    """Of calls on the rows of `master`."""

    def __init__(self, master):
        self.master = master
        self.logits = master.clone()
        self.calls = 8 if len(master) >= 128 else 20
        self.cold_calls = 4
        self.cold_logits = [master.clone() for _ in range(self.cold_calls)]
        self.flushed = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=master.device)
        self.rewrites_us = self._hot(None)
        nothing = torch.zeros(1, device=master.device)
        self.start_us = statistics.median(replay_times(lambda: nothing.add_(1)))

    def _hot(self, call):
        def work():
            for _ in range(self.calls):
                rewrite(self.master, self.logits)
                if call is not None:
                    call(self.logits)

        return statistics.median(replay_times(work)) / self.calls

    def hot(self, call):
        return self._hot(call) - self.rewrites_us

    def cold(self, call):
        def flush():
            for buffer in self.cold_logits:
                buffer.copy_(self.master)
            self.flushed.zero_()

        def work():
            for buffer in self.cold_logits:
                call(buffer)

        us = statistics.median(replay_times(work, flush)) - self.start_us
        return max(us, 0) / self.cold_calls

    def _best(self, launch):
        most = max(1, 8 * processors() // len(self.master))
        shapes = [(blocks, block, warps) for blocks in (1, 2, 4, 8, 16, 32, 64, MOST_BLOCKS)
                  for block, warps in ((1024, 4), (2048, 4), (4096, 8), (8192, 16), (8192, 32))
                  if blocks <= most and (blocks - 1) * block < self.master.shape[1]]
        return min(self.hot(lambda rows, s=shape: launch(rows, *s)) for shape in shapes)

    def read_floor(self):
        largest = torch.empty((len(self.master), MOST_BLOCKS), device=self.master.device)
        return self._best(lambda rows, blocks, block, warps: read_kernel[(blocks, len(rows))](
            rows, largest, rows.shape[1], BLOCK=block, num_warps=warps))

    def read_write_floor(self):
        return self._best(lambda rows, blocks, block, warps: read_write_kernel[(blocks, len(rows))](
            rows, rows.shape[1], 0.0, BLOCK=block, num_warps=warps))


def peak_bytes(call, logits):
    """The most memory that a call takes in addition to its rows, what it keeps included."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call(logits)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before
