"""topk of CUDA tensors gives the bits of the reference, whatever the lengths, hints and plans."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import sluice

torch = pytest.importorskip("torch", reason="torch is not installed")
if not sluice._sluice.build()["cuda"]:
    pytest.skip("this build of Sluice has no CUDA", allow_module_level=True)
if not torch.cuda.is_available():
    pytest.skip("torch sees no CUDA device", allow_module_level=True)

from sluice.tensors import TopkPlan, TopkTensors, plan_topk  # noqa: E402

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def random_scores(rows, columns, dtype=torch.float32):
    random = np.random.default_rng(rows * 8191 + columns)
    return torch.from_numpy(random.normal(size=(rows, columns)).astype("f4")).to(dtype).cuda()


def same(actual, expected):
    """Values bit for bit, so that -0 is not 0."""
    rows = expected.indices.shape[0] if expected.indices.ndim == 2 else 1
    np.testing.assert_array_equal(actual.indices.cpu().numpy(), expected.indices)
    np.testing.assert_array_equal(actual.values.cpu().numpy().view("i4"),
                                  expected.values.view("i4"))
    np.testing.assert_array_equal(actual.statuses.cpu().numpy().reshape(rows),
                                  np.asarray(expected.statuses).astype("u1").reshape(rows))


def check(scores, k, **keywords):
    host = {name: value.cpu() if isinstance(value, torch.Tensor) else value
            for name, value in keywords.items()}
    same(sluice.topk(scores, k, **keywords), sluice.topk(scores.cpu(), k, **host, backend="ref"))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("columns, k", [(1, 1), (33, 5), (33, 40), (5000, 512), (40000, 2048),
                                        (70001, 3)])
def test_equals_the_reference(columns, k, is_sorted, dtype):
    check(random_scores(3, columns, dtype), k, sorted=is_sorted)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lengths_may_lie_anywhere(dtype):
    scores = random_scores(6, 20000, dtype)
    lengths = [20000, 1, 9000]
    for given in (lengths, np.array(lengths), torch.tensor(lengths), torch.tensor(lengths).cuda(),
                  torch.tensor(lengths, dtype=torch.int32).cuda()):
        same(sluice.topk(scores, 700, lengths=given, next_n=2),
             sluice.topk(scores.cpu(), 700, lengths=lengths, next_n=2, backend="ref"))
    for length in (0, 1, 20000):
        check(scores, 7, lengths=length, next_n=3)


def test_a_bad_length_on_the_device_is_the_status_of_its_rows():
    scores = random_scores(3, 100)
    for dtype, bad in ((torch.int32, 101), (torch.int32, -1), (torch.int64, 2**40 + 5),
                       (torch.int64, -2**40)):
        lengths = torch.tensor([5, bad, 100], dtype=dtype).cuda()
        top = sluice.topk(scores, 2, lengths=lengths)
        assert top.statuses.tolist() == [0, int(sluice.Status.BAD_PARAM), 0]
        assert top.indices[1].tolist() == [-1, -1] and (top.indices[::2] >= 0).all()


def test_a_hint_or_a_plan_changes_nothing():
    scores = random_scores(4, 50000)
    plain = sluice.topk(scores, 600)
    hints = (plain.indices, torch.full((4, 3), -7, dtype=torch.int32).cuda(),
             torch.full((4, 3), 2**31 - 1, dtype=torch.int32).cuda())
    assert isinstance(plan_topk(scores, 600), TopkPlan)
    plans = [None, plan_topk(scores, 600)._replace(guess="hint"), TopkPlan("hint", 2, 512, 1024),
             TopkPlan("sample", 1, 1024, 0)]
    for hint in hints:
        for plan in plans:
            top = sluice.topk(scores, 600, hint=hint, hint_shift=1, plan=plan)
            assert torch.equal(top.indices, plain.indices)
            assert torch.equal(top.values, plain.values)


def test_rows_may_be_a_part_of_wider_ones():
    scores = random_scores(12, 9000)
    for part in (scores[:, 3:8000], scores[::2], scores[1:2, 5:], scores[3, 1:]):
        check(part, 100)


def test_one_axis_is_one_row_and_no_rows_are_allowed():
    row = random_scores(1, 9000)[0]
    top = sluice.topk(row, 5)
    assert top.indices.shape == top.values.shape == (5,) and top.statuses.shape == ()
    check(row, 5)
    check(row, 5, lengths=1000, hint=torch.arange(5, dtype=torch.int32).cuda())
    assert sluice.topk(torch.empty((0, 9), device="cuda"), 2).indices.shape == (0, 2)


def test_a_nan_is_the_status_of_its_row():
    scores = random_scores(2, 30000)
    scores[1, 29999] = float("nan")
    check(scores, 40)
    check(scores, 40, lengths=29999)


def test_outputs_may_be_given():
    scores = random_scores(3, 40000)
    expected = sluice.topk(scores, 100)
    out = TopkTensors(torch.full_like(expected.indices, 77), torch.zeros_like(expected.values),
                      torch.full_like(expected.statuses, 9),
                      torch.zeros((3, 2), dtype=torch.int32, device="cuda"))
    assert sluice.topk(scores, 100, out=out) is out
    for name in ("indices", "values", "statuses"):
        assert torch.equal(getattr(out, name), getattr(expected, name))
    assert (out.work[:, 1] >= 100).all()  # candidates
    alone = TopkTensors(torch.full_like(expected.indices, 77))
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    sluice.topk(scores, 100, out=alone)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    assert torch.equal(alone.indices, expected.indices)
    with pytest.raises(AttributeError, match="values=True"):
        sluice.topk(scores, 100, values=False).values
    assert torch.equal(sluice.topk(scores, 100, values=False).indices, expected.indices)


def test_a_threshold_is_carried_from_call_to_call_also_in_a_graph():
    thresholds = torch.full((2,), torch.nan, device="cuda")
    scores = random_scores(2, 60000)
    out = TopkTensors(torch.empty((2, 2048), dtype=torch.int32, device="cuda"),
                      work=torch.zeros((2, 2), dtype=torch.int32, device="cuda"))
    sluice.topk(scores, 2048, thresholds=thresholds)
    told = thresholds.tolist()
    for row, threshold in zip(scores, told):
        assert 2048 < int((row >= threshold).sum()) < 4096
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sluice.topk(scores, 2048, thresholds=thresholds, out=out)
    for step in range(3):
        scores.copy_(random_scores(2, 60000).roll(step, 1))
        graph.replay()
        expected = sluice.topk(scores.cpu(), 2048, backend="ref").indices
        assert out.indices.tolist() == expected.tolist()
        assert thresholds.tolist() == told
    thresholds.fill_(9.0)  # nothing reaches it
    graph.replay()
    assert out.indices.tolist() == expected.tolist()
    assert out.work.view(torch.uint8)[:, 1].tolist() == [2, 2]  # reads


def test_a_hint_in_what_is_written_is_refused():
    scores = random_scores(2, 60000)
    out = TopkTensors(torch.zeros((2, 2048), dtype=torch.int32, device="cuda"))
    with pytest.raises(sluice.Error, match="hint.data = memory of indices"):
        sluice.topk(scores, 2048, hint=out.indices, out=out)


def test_runs_on_the_current_stream_and_waits_for_nothing():
    values = random_scores(4, 40000)
    expected = sluice.topk(values.cpu(), 500, lengths=30000, backend="ref")
    scores = torch.zeros_like(values)
    lengths = torch.full((4,), 30000, dtype=torch.int32, device="cuda")
    sluice.topk(scores, 500, lengths=lengths)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000_000)  # about a second
            start = time.perf_counter()
            scores.copy_(values)
            top = sluice.topk(scores, 500, lengths=lengths)
            other = sluice.topk(scores, 500, lengths=30000)
            passed = time.perf_counter() - start
        assert not stream.query() and passed < 0.5
    finally:
        torch.cuda.set_sync_debug_mode("default")
    stream.synchronize()
    same(top, expected)
    same(other, expected)


def test_a_graph_sees_new_scores_lengths_and_hints():
    first = random_scores(4, 40000)
    scores, lengths = first.clone(), torch.full((2,), 40000, dtype=torch.int32, device="cuda")
    hint = torch.zeros((2, 9), dtype=torch.int32, device="cuda")
    plan = plan_topk(scores, 2048)._replace(guess="hint")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        top = sluice.topk(scores, 2048, lengths=lengths, next_n=2)
        hinted = sluice.topk(scores, 2048, lengths=lengths, next_n=2, hint=hint, plan=plan)
    for step in range(3):
        scores.copy_(first.roll(step, 1))
        lengths.copy_(torch.tensor([40000 - step, 3000]))
        hint.random_(40000)
        graph.replay()
        expected = sluice.topk(scores.cpu(), 2048, lengths=lengths.tolist(), next_n=2,
                               backend="ref")
        same(top, expected)
        same(hinted, expected)


def test_compiles_into_one_graph():
    scores = random_scores(4, 9000)

    def attend(scores, lengths, k):
        top = sluice.topk(scores * 2, k, lengths=lengths, next_n=2, sorted=True)
        out = TopkTensors(torch.empty((4, k), dtype=torch.int32, device="cuda"))
        sluice.topk(scores, k, out=out)
        return top.indices + 1, top.values, top.statuses, out.indices

    compiled = torch.compile(attend, fullgraph=True)
    for length in (9000, 4000):
        lengths = torch.full((2,), length, dtype=torch.int32, device="cuda")
        for got, wanted in zip(compiled(scores, lengths, 30), attend(scores, lengths, 30)):
            assert torch.equal(got, wanted)


def test_operators_keep_what_their_schemas_promise():
    scores = random_scores(2, 300)
    lengths = torch.tensor([300, 20], dtype=torch.int32, device="cuda")
    indices = torch.empty((2, 8), dtype=torch.int32, device="cuda")
    ops = torch.ops.sluice
    thresholds = torch.zeros(2, device="cuda")
    torch.library.opcheck(ops.topk.default,
                          (scores, 8, lengths, None, 0, 1, True, thresholds, True, None))
    torch.library.opcheck(ops.topk_into.default, (scores, 8, lengths, None, 0, 1, False, thresholds,
                                                  None, indices, None, None, None))
    torch.library.opcheck(ops.indexer_topk_decode.default, (scores, lengths, indices, 1, 8))


def test_the_operator_of_sparse_indexers():
    scores = random_scores(4, 9000)
    lengths = torch.tensor([9000, 700], dtype=torch.int32, device="cuda")
    expected = sluice.topk(scores, 2048, lengths=lengths, next_n=2, values=False).indices
    indices = torch.empty((4, 2048), dtype=torch.int32, device="cuda")
    torch.ops.sluice.indexer_topk_decode(scores, lengths, indices, 2)
    assert torch.equal(indices, expected)
    indices.zero_()
    torch.ops.sluice.indexer_topk_decode(scores, lengths, indices, 2, 2048,
                                         pre_idx=expected[::2].contiguous(),
                                         heuristic_scratch=torch.empty((4, 2048), device="cuda"))
    assert torch.equal(indices, expected)
    with pytest.raises(sluice.Error, match="indices.shape"):
        torch.ops.sluice.indexer_topk_decode(scores, lengths, indices, 2, 512)


def test_the_example_runs():
    example = Path(__file__).parents[2] / "examples" / "python" / "topk_cuda.py"
    if not example.exists():
        pytest.skip("the sources are not at hand")
    subprocess.run([sys.executable, example], check=True)


@pytest.mark.parametrize("log, is_printed", [("topk", True), ("other,topk", True), ("other", False)])
def test_the_log_says_what_was_decided(log, is_printed):
    code = "import torch, sluice; sluice.topk(torch.zeros((2, 70000), device='cuda'), 2048)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                          env={**os.environ, "SLUICE_LOG": log})
    assert done.stdout == ""
    assert ("sluice: topk of [2, 70000] float32, k = 2048: guess by sample, "
            in done.stderr) == is_printed


def test_wrong_arguments_are_errors_before_anything_runs():
    x = torch.zeros((2, 8), device="cuda")
    i32 = {"dtype": torch.int32, "device": "cuda"}
    value, type_ = sluice.Error, sluice.ArgumentTypeError
    hint = torch.zeros((2, 3), **i32)
    for call, error, parameter, allowed in (
            (lambda: sluice.topk(x.double(), 1), type_, "scores.dtype", "float32, bfloat16"),
            (lambda: sluice.topk(x[None], 1), value, "scores.ndim", "1 or 2"),
            (lambda: sluice.topk(x.t(), 1), value, "scores.strides", "a last axis"),
            (lambda: sluice.topk(x[:1].expand(3, 8), 1), value, "scores.stride", "at least"),
            (lambda: sluice.topk(x, 0), value, "k", "[1, 8388608]"),
            (lambda: sluice.topk(x, 1.5), type_, "k", "a whole number"),
            (lambda: sluice.topk(x, 1, next_n=0), value, "next_n", "[1, 65536]"),
            (lambda: sluice.topk(x, 1, next_n=3), value, "scores.rows", "a multiple of next_n, 3"),
            (lambda: sluice.topk(x, 1, lengths=9), value, "lengths", "[0, 8]"),
            (lambda: sluice.topk(x, 1, lengths=[1, -1]), value, "lengths", "[0, 8]"),
            (lambda: sluice.topk(x, 1, lengths=[1]), value, "lengths.size", "2"),
            (lambda: sluice.topk(x, 1, lengths=[1.5, 1]), type_, "lengths.dtype", "int32 or int64"),
            (lambda: sluice.topk(x, 1, lengths=x[:, 0]), type_, "lengths.dtype", "int32"),
            (lambda: sluice.topk(x, 1, hint=[1, 2]), type_, "hint", "a CUDA tensor"),
            (lambda: sluice.topk(x, 1, hint=hint.long()), type_, "hint.dtype", "int32"),
            (lambda: sluice.topk(x, 1, hint=hint.cpu()), type_, "hint.device", "that of the"),
            (lambda: sluice.topk(x, 1, hint=hint[:1]), value, "hint.shape", "[2, 3]"),
            (lambda: sluice.topk(x, 1, thresholds=[1.0]), type_, "thresholds", "a CUDA tensor"),
            (lambda: sluice.topk(x, 1, thresholds=x[0, :2].double()), type_, "thresholds.dtype",
             "float32"),
            (lambda: sluice.topk(x, 1, thresholds=x[0, :3]), value, "thresholds.shape", "[2]"),
            (lambda: sluice.topk(x, 1, thresholds=x[:, 0]), value, "thresholds.strides",
             "contiguous"),
            (lambda: sluice.topk(x, 1, hint_shift=2**31), value, "hint_shift", "32 bits"),
            (lambda: sluice.topk(x, 1, sorted=1), type_, "sorted", "True or False"),
            (lambda: sluice.topk(x, 1, backend="ref"), type_, "backend", "one of the keywords"),
            (lambda: sluice.topk(x, 1, plan=3), type_, "plan", "a TopkPlan"),
            (lambda: sluice.topk(x, 1, plan=TopkPlan("sample", 3, 512, 64)), value, "plan.blocks",
             "a power of two"),
            (lambda: sluice.topk(x, 1, out=hint), type_, "out", "sluice.tensors.TopkTensors"),
            (lambda: sluice.topk(x, 1, out=TopkTensors(hint)), value, "out.indices.shape", "[2, 1]"),
            (lambda: sluice.topk(x, 1, out=TopkTensors(hint.float())), type_, "out.indices.dtype",
             "int32"),
    ):
        with pytest.raises(sluice.Error) as caught:
            call()
        assert type(caught.value) is error, caught.value
        assert caught.value.parameter == parameter, caught.value
        assert allowed in caught.value.allowed, caught.value
    torch.cuda.synchronize()
