"""CUDA tensors of torch give, on their device, the bits that the reference gives on the host."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import ALL_ROWS, PARAMS, random_rows

import sluice

torch = pytest.importorskip("torch", reason="torch is not installed")
if not sluice._sluice.build()["cuda"]:
    pytest.skip("this build of Sluice has no CUDA", allow_module_level=True)
if not torch.cuda.is_available():
    pytest.skip("torch sees no CUDA device", allow_module_level=True)

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
METHODS = ["gumbel", "cdf"]
CUT_NAMES = ["upper", "lower", "ties_dropped", "ties_kept", "counts", "statuses"]
MASS_NAMES = ["kept_masses", "total_masses", "margins"]


def on_device(rows, dtype=torch.float32):
    return torch.as_tensor(rows).to(dtype).cuda()


def same(actual, expected, name=""):
    actual = actual.cpu().numpy()
    np.testing.assert_array_equal(actual, np.asarray(expected).astype(actual.dtype), name)


def same_cuts(actual, expected, names=CUT_NAMES):
    for name in names:
        same(getattr(actual, name), getattr(expected, name), name)


def same_tokens(actual, expected):
    same(actual.ids, expected.ids)
    same(actual.statuses, expected.statuses)


def reference(call, rows, *args, **keywords):
    return call(rows.cpu(), *args, backend="ref", **keywords)


def check(logits, *args, **keywords):
    """Every call on these logits against the reference."""
    same_cuts(sluice.select(logits, *args, **keywords, masses=True),
              reference(sluice.select, logits, *args, **keywords, masses=True),
              CUT_NAMES + MASS_NAMES)
    for method in METHODS:
        expected = reference(sluice.sample, logits, *args, **keywords, draw_method=method)
        same_tokens(sluice.sample(logits, *args, **keywords, draw_method=method), expected)
        tokens = sluice.sample(logits, *args, **keywords, draw_method=method, with_cuts=True)
        same_tokens(tokens, expected)
        same_cuts(tokens.cuts, expected.cuts)
    masked, host = logits.clone(), logits.cpu().clone()
    assert sluice.mask_(masked, *args, **keywords) is masked
    sluice.mask_(host, *args, **keywords, backend="ref")
    assert torch.equal(masked.cpu().view(torch.uint8), host.view(torch.uint8))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("params", PARAMS, ids=str)
@pytest.mark.parametrize("name", ALL_ROWS)
def test_equals_the_reference(name, params, dtype):
    check(on_device(ALL_ROWS[name], dtype), **params, seed=5, position=11)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("params", [{"top_k": 50, "top_p": 0.9}, {"top_p": 0.7}, {}], ids=str)
def test_equals_the_reference_at_full_size(params, dtype):
    check(on_device(random_rows(5, 128256), dtype), **params, seed=list(range(5)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_may_be_a_part_of_wider_ones(dtype):
    logits = on_device(random_rows(24), dtype)
    for part in (logits[:, 3:90], logits[::2], logits[1:2, 5:], logits[5:9, 1:]):
        view = part.clone()
        same_tokens(sluice.sample(part, top_k=9, seed=3),
                    reference(sluice.sample, view, top_k=9, seed=3))
        outside = logits.clone()
        sluice.mask_(part, top_k=9)
        host = view.cpu()
        sluice.mask_(host, top_k=9)
        assert torch.equal(part.cpu(), host)
        part.copy_(view)
        assert torch.equal(logits, outside)


def test_one_axis_is_one_row():
    logits = on_device(random_rows(1)[0])
    expected = reference(sluice.sample, logits, top_k=5, seed=1)
    tokens = sluice.sample(logits, top_k=5, seed=1, with_cuts=True)
    assert tokens.ids.shape == () and tokens.ids.item() == expected.ids
    assert tokens.cuts.counts.item() == 5
    cuts = sluice.select(logits, top_k=5, masses=True)
    assert cuts.upper.item() == np.inf and cuts.total_masses.item() > 0
    assert int((sluice.mask_(logits, cuts=cuts) > -np.inf).sum()) == 5


def test_no_rows_are_allowed():
    logits = torch.empty((0, 9), device="cuda")
    assert sluice.sample(logits, seed=1).ids.shape == (0,)
    assert sluice.select(logits).counts.shape == (0,)
    assert sluice.mask_(logits, top_k=1) is logits


def test_parameters_may_be_one_a_row_wherever_they_lie():
    rows = random_rows(6)
    logits = on_device(rows)
    values = {"temperature": np.array([0.5, 1, 0, 0.8, 1.5, 1]), "top_k": np.arange(6),
              "top_p": np.array([0.9, 1, 0.5, 0.7, 0.3, 0.8], np.float32),
              "seed": np.arange(6) * 2**40, "position": np.arange(6)}
    expected = reference(sluice.sample, logits, **values)
    here = {name: torch.from_numpy(value).cuda() for name, value in values.items()}
    same_tokens(sluice.sample(logits, **here), expected)
    same_tokens(sluice.sample(logits, **values), expected)
    same_tokens(sluice.sample(logits, **{n: v.tolist() for n, v in values.items()}), expected)
    here["top_k"] = here["top_k"].int()
    here["seed"] = here["seed"].repeat_interleave(2)[::2]
    same_tokens(sluice.sample(logits, **here), expected)
    params = [sluice.SamplingParams(**{name: values[name][row].item() for name in values
                                       if name != "position"}) for row in range(6)]
    same_tokens(sluice.sample(logits, params, position=values["position"]), expected)
    one = sluice.SamplingParams(top_k=4, seed=2**64 - 1, profile="hf", draw_method="cdf")
    same_tokens(sluice.sample(logits, one), reference(sluice.sample, logits, one))
    packed = sluice.DeviceParams(params, rows=6, position=values["position"])
    same_tokens(sluice.sample(logits, packed), expected)
    packed.update_(top_k=3, seed=torch.arange(6).cuda())
    values |= {"top_k": 3, "seed": np.arange(6)}
    same_tokens(sluice.sample(logits, packed), reference(sluice.sample, logits, **values))


def test_a_bad_value_on_the_device_is_the_status_of_its_row():
    logits = on_device(random_rows(4))
    top_p = torch.tensor([0.5, 1.5, float("nan"), 0.5]).cuda()
    statuses = [0, 64, 64, 0]
    assert sluice.select(logits, top_p=top_p).statuses.tolist() == statuses
    top_k = torch.tensor([1, -2, -2**40, 2**40]).cuda()
    tokens = sluice.sample(logits, top_k=top_k, seed=1)
    assert tokens.statuses.tolist() == statuses
    assert tokens.ids[1:3].tolist() == [-1, -1]
    with pytest.raises(sluice.Error, match=r"top_p = 1.5 is not allowed: \(0, 1\]"):
        sluice.select(logits, top_p=1.5)


def test_cuts_serve_further_calls():
    logits = on_device(random_rows(8))
    cuts = sluice.select(logits, top_p=0.8)
    same_tokens(sluice.sample(logits, cuts=cuts, seed=4),
                reference(sluice.sample, logits, top_p=0.8, seed=4))
    tokens = sluice.sample(logits, top_p=0.8, seed=4, with_cuts=True)
    masked = sluice.mask_(logits.clone(), cuts=tokens.cuts)
    assert torch.equal(masked, sluice.mask_(logits.clone(), top_p=0.8))


def test_without_a_seed_the_generator_of_torch_chooses():
    logits = torch.zeros((64, 1000), device="cuda")
    torch.manual_seed(3)
    tokens = sluice.sample(logits)
    torch.manual_seed(3)
    assert torch.equal(sluice.sample(logits).ids, tokens.ids)
    assert not torch.equal(sluice.sample(logits).ids, tokens.ids)
    assert torch.equal(sluice.sample(logits, seed=tokens.seeds).ids, tokens.ids)
    with pytest.raises(AttributeError, match="seeds were given"):
        sluice.sample(logits, seed=1).seeds
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tokens = sluice.sample(logits)
    replays = [(graph.replay(), tokens.ids.tolist())[1] for _ in range(2)]
    assert replays[0] != replays[1]


def test_runs_on_the_current_stream_and_waits_for_nothing():
    values = on_device(random_rows())
    expected = reference(sluice.sample, values, top_k=9, seed=1)
    logits = torch.zeros_like(values)
    params = sluice.DeviceParams(top_k=9)
    sluice.sample(logits, top_k=9, seed=1)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000_000)  # about a second
            start = time.perf_counter()
            logits.copy_(values)
            tokens = sluice.sample(logits, top_k=9, seed=1)
            params.update_(seed=1)
            packed = sluice.sample(logits, params)
            sluice.mask_(logits, top_k=9)
            passed = time.perf_counter() - start
        assert not stream.query() and passed < 0.5
    finally:
        torch.cuda.set_sync_debug_mode("default")
    stream.synchronize()
    same_tokens(tokens, expected)
    same_tokens(packed, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_graph_sees_the_parameters_of_each_replay(dtype):
    first = on_device(random_rows(8), dtype)
    logits = first.clone()
    params = sluice.DeviceParams(rows=8, top_k=50, top_p=0.9, seed=1)
    top_k = torch.full((8,), 7, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tokens = sluice.sample(logits, params)
        detailed = sluice.sample(logits, params, with_cuts=True)
        with_numbers = sluice.sample(logits, top_k=top_k, top_p=0.8, seed=2, position=3)
        sluice.mask_(logits, params)
    for step, keywords in enumerate([{"top_k": 50}, {"top_k": 3}, {"top_k": 0}]):
        logits.copy_(first.roll(step, 1))
        rows = logits.cpu()
        params.update_(position=step, **keywords)
        top_k.fill_(step + 1)
        graph.replay()
        expected = reference(sluice.sample, rows, top_p=0.9, seed=1, position=step, **keywords)
        same_tokens(tokens, expected)
        same_cuts(detailed.cuts, expected.cuts)
        same_tokens(with_numbers, reference(sluice.sample, rows, top_k=step + 1, top_p=0.8, seed=2,
                                            position=3))
        assert torch.equal(logits.cpu(), sluice.mask_(rows, top_p=0.9, **keywords))


def test_the_first_call_of_a_process_may_be_captured():
    code = """if True:
        import torch, sluice
        logits = torch.randn(4, 5000, device="cuda")
        params = sluice.DeviceParams(top_k=5, seed=1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            tokens = sluice.sample(logits, params)
        graph.replay()
        assert tokens.ids.tolist() == sluice.sample(logits.cpu(), top_k=5, seed=1).ids.tolist()
    """
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["sample_cuda.py", "step_cuda.py", "head_cuda.py"])
def test_the_example_runs(name):
    example = Path(__file__).parents[2] / "examples" / "python" / name
    if not example.exists():
        pytest.skip("the sources are not at hand")
    subprocess.run([sys.executable, example], check=True)


def test_compiles_into_one_graph():
    rows = on_device(random_rows(8))
    packed = sluice.DeviceParams(rows=8, top_k=9, seed=1)

    def decode(logits, seeds, position):
        logits = logits * 2
        cuts = sluice.select(logits, min_p=0.01)
        tokens = sluice.sample(logits, top_k=20, top_p=0.9, seed=seeds, position=position)
        others = sluice.sample(logits, packed, with_cuts=True)
        sluice.mask_(logits, top_k=3)
        return tokens.ids + 1, tokens.statuses, others.ids, others.cuts.counts, cuts.lower, logits

    compiled = torch.compile(decode, fullgraph=True)
    for position in (0, 1, 2):
        seeds = torch.arange(8, device="cuda") + position
        expected = decode(rows, seeds, position)
        for got, wanted in zip(compiled(rows, seeds, position), expected):
            assert torch.equal(got, wanted)
        same(expected[0] - 1, reference(sluice.sample, rows * 2, top_k=20, top_p=0.9,
                                        seed=seeds.cpu(), position=position).ids)


def test_operators_keep_what_their_schemas_promise():
    logits = on_device(random_rows(4, 33))
    ops, packed = torch.ops.sluice, sluice.DeviceParams(top_k=3, seed=1)
    rows = (logits, packed.params, packed.keys, 2.0)
    cuts = ops.select.default(*rows, False)[0]
    for op, arguments in ((ops.sample, (*rows, "gumbel")),
                          (ops.mask_cuts_, (logits.clone(), cuts)),
                          (ops.write_fields_, (packed.params, packed.keys, True))):
        torch.library.opcheck(op.default, arguments)
    # The padding of structs holds anything, so outputs are not compared as they are.
    for op, arguments in ((ops.select, (*rows, True)), (ops.mask_, rows),
                          (ops.sample_results, (*rows, "cdf")), (ops.draw, (*rows, "cdf", cuts))):
        torch.library.opcheck(op.default, arguments, test_utils=(
            "test_schema", "test_autograd_registration", "test_faketensor"))


def test_wrong_arguments_are_errors_before_anything_runs():
    logits = torch.zeros((2, 8), device="cuda")
    other = torch.zeros(3)
    params = sluice.DeviceParams(top_k=1)
    value, type_ = sluice.Error, sluice.ArgumentTypeError
    for call, error, parameter, allowed in (
            (lambda: sluice.select(logits.double()), type_, "logits.dtype", "float32, bfloat16"),
            (lambda: sluice.select(logits[None]), value, "logits.ndim", "1 or 2"),
            (lambda: sluice.select(logits[:, ::2]), value, "logits.strides", "a last axis"),
            (lambda: sluice.select(logits.t()), value, "logits.strides", "a last axis"),
            (lambda: sluice.select(logits[:1].expand(3, 8)), value, "logits.stride", "at least"),
            (lambda: sluice.select(logits[:, :0]), value, "logits.vocab", "[1, 8388608]"),
            (lambda: sluice.mask_(logits.requires_grad_()), value, "logits.requires_grad", "False"),
            (lambda: sluice.select(logits, top_k=1.5), type_, "top_k", "a whole number"),
            (lambda: sluice.select(logits, top_k=2**40), value, "top_k", "[-1, 2147483647]"),
            (lambda: sluice.select(logits, top_k=[1]), value, "top_k.size", "one for all rows"),
            (lambda: sluice.select(logits, top_k=other.cuda()), type_, "top_k.dtype", "int32 or"),
            (lambda: sluice.select(logits, top_p=other.cuda()), value, "top_p.size", "one for"),
            (lambda: sluice.select(logits, temperature=3), value, "temperature", "[0, 2]"),
            (lambda: sluice.select(logits, xtc_probability=1), value, "seed", "a seed when XTC"),
            (lambda: sluice.select(logits, backend="ref"), type_, "backend", "one of the keywords"),
            (lambda: sluice.select(logits, params, top_k=1), type_, "top_k", "no keyword next to"),
            (lambda: sluice.select(logits, 5), type_, "params", "SamplingParams"),
            (lambda: sluice.sample(logits, params), value, "seed", "a seed in the DeviceParams"),
            (lambda: sluice.sample(logits, seed=-1), value, "seed", "[0, 18446744073709551615]"),
            (lambda: sluice.sample(logits, logprobs=1), type_, "logprobs", "None on a CUDA"),
            (lambda: sluice.sample(logits, draw_method="x", seed=1), value, "draw_method", "gum"),
            (lambda: sluice.sample(logits, profile=["hf", "hf"], seed=1), type_, "profile", "one"),
            (lambda: sluice.sample(logits, cuts=other, seed=1), type_, "cuts", "CutTensors"),
            (lambda: sluice.sample(logits, sluice.DeviceParams(rows=3, seed=1)), value,
             "params.size", "1 or the number of rows"),
            (lambda: sluice.DeviceParams(device="cpu"), type_, "device", "a CUDA device"),
            (lambda: params.update_(max_temperature=3), type_, "max_temperature", "one of"),
    ):
        try:
            call()
            pytest.fail(f"nothing was raised for {parameter}: {allowed}")
        except sluice.Error as caught_error:
            caught = caught_error
        assert type(caught) is error, caught
        assert caught.parameter == parameter, caught
        assert allowed in caught.allowed, caught
    torch.cuda.synchronize()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one CUDA device")
def test_every_device_has_its_own_calls():
    rows = random_rows()
    expected = sluice.sample(rows, top_k=5, seed=1)
    for index in range(2):
        tokens = sluice.sample(torch.from_numpy(rows).to(index), top_k=5, seed=1)
        assert tokens.ids.device.index == index
        same_tokens(tokens, expected)
    with pytest.raises(sluice.ArgumentTypeError, match="top_k.device"):
        sluice.select(torch.zeros((2, 8), device=1), top_k=torch.ones(2, dtype=int, device=0))
