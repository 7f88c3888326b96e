"""What compilers and fake tensors know of calls on CUDA tensors; no device is needed."""

import pytest

import sluice

torch = pytest.importorskip("torch", reason="torch is not installed")
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

I32, U8, F32 = torch.int32, torch.uint8, torch.float32


@pytest.fixture(autouse=True)
def fake_tensors():
    with FakeTensorMode():
        yield


def looks(tensor):
    return tensor.dtype, tuple(tensor.shape), tensor.device.type


def test_a_call_on_the_host_loads_no_torch():
    import subprocess
    import sys

    code = ("import sys, numpy, sluice; sluice.sample(numpy.zeros((2, 3), 'f4'), seed=1); "
            "assert 'torch' not in sys.modules and 'sluice.tensors' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_results_have_their_types_and_shapes(dtype):
    logits = torch.empty((3, 50), dtype=dtype, device="cuda")
    cuts = sluice.select(logits, top_k=5, masses=True)
    assert looks(cuts.upper) == looks(cuts.lower) == (F32, (3,), "cuda")
    assert looks(cuts.counts) == looks(cuts.ties_kept) == looks(cuts.ties_dropped)
    assert looks(cuts.counts) == (I32, (3,), "cuda") and looks(cuts.statuses) == (U8, (3,), "cuda")
    assert looks(cuts.kept_masses) == looks(cuts.margins) == (torch.int64, (3,), "cuda")
    tokens = sluice.sample(logits, top_k=5, temperature=0.5, seed=torch.empty(
        3, dtype=torch.int64, device="cuda"))
    assert looks(tokens.ids) == (I32, (3,), "cuda") and looks(tokens.statuses) == (U8, (3,), "cuda")
    detailed = sluice.sample(logits, seed=1, with_cuts=True)
    assert looks(detailed.ids) == (I32, (3,), "cuda")
    assert looks(detailed.cuts.lower) == (F32, (3,), "cuda")
    assert sluice.mask_(logits, cuts=detailed.cuts) is logits
    assert sluice.sample(logits[0], seed=1, cuts=sluice.select(logits[0])).ids.shape == ()


def test_topk_has_its_types_and_shapes():
    scores = torch.empty((4, 50), dtype=torch.bfloat16, device="cuda")
    lengths = torch.empty(2, dtype=torch.int64, device="cuda")
    hint = torch.empty((2, 9), dtype=torch.int32, device="cuda")
    thresholds = torch.empty(4, device="cuda")
    top = sluice.topk(scores, 60, lengths=lengths, hint=hint, thresholds=thresholds, next_n=2)
    assert looks(top.indices) == (I32, (4, 60), "cuda")
    assert looks(top.values) == (F32, (4, 60), "cuda")
    assert looks(top.statuses) == (U8, (4,), "cuda")
    assert sluice.topk(scores[0], 3, lengths=7).indices.shape == (3,)
    with pytest.raises(AttributeError, match="values=True"):
        sluice.topk(scores, 3, values=False).values

    def attend(scores, lengths, thresholds):
        top = sluice.topk(scores * 2, 7, lengths=lengths, thresholds=thresholds, next_n=2)
        return top.indices + 1

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    assert looks(compiled(scores, lengths, thresholds)) == (I32, (4, 7), "cuda")


def test_what_was_not_asked_for_says_how_to():
    logits = torch.empty((3, 50), device="cuda")
    tokens = sluice.sample(logits, seed=1)
    with pytest.raises(AttributeError, match="with_cuts=True"):
        tokens.cuts
    with pytest.raises(AttributeError, match="given, not chosen"):
        tokens.seeds
    with pytest.raises(AttributeError, match="masses=True"):
        sluice.select(logits).margins
    assert looks(sluice.sample(logits).seeds) == (torch.int64, (3,), "cuda")


def test_device_params_are_one_memory():
    params = sluice.DeviceParams(rows=4, device="cuda", top_k=5, seed=2**64 - 1)
    memory = params.params
    assert params.update_(sluice.SamplingParams(top_p=0.5), position=3) is params
    assert params.params is memory and len(memory) == len(params.keys) == 4
    logits = torch.empty((4, 50), device="cuda")
    assert looks(sluice.sample(logits, params).ids) == (I32, (4,), "cuda")
    assert looks(sluice.select(logits, params).counts) == (I32, (4,), "cuda")


def test_compiles_into_one_graph():
    packed = sluice.DeviceParams(rows=8, device="cuda", top_k=9, seed=1)

    def decode(logits, seeds, position):
        cuts = sluice.select(logits * 2, min_p=0.01, profile="hf")
        tokens = sluice.sample(logits, top_k=20, top_p=0.9, seed=seeds, position=position)
        others = sluice.sample(logits, packed, with_cuts=True)
        sluice.mask_(logits, top_k=3)
        return tokens.ids, others.cuts.counts, cuts.lower, logits + 1

    compiled = torch.compile(decode, fullgraph=True, backend="aot_eager")
    for position in (0, 1, 2):
        got = compiled(torch.empty((8, 50), device="cuda"),
                       torch.empty(8, dtype=torch.int64, device="cuda"), position)
        assert [looks(tensor) for tensor in got] == [
            (I32, (8,), "cuda"), (I32, (8,), "cuda"), (F32, (8,), "cuda"), (F32, (8, 50), "cuda")]


def test_schemas_say_what_is_written():
    def written(name):
        arguments = getattr(torch.ops.sluice, name).default._schema.arguments
        return [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]

    import sluice.tensors  # noqa: F401

    assert written("mask_") == written("mask_cuts_") == ["logits"]
    assert written("write_fields_") == ["params", "keys"]
    assert written("topk") == ["thresholds"]
    assert written("topk_into") == ["thresholds", "indices", "values", "statuses", "work"]
    assert written("indexer_topk_decode") == ["indices"]
    for name in ("select", "sample", "sample_results", "draw"):
        assert written(name) == []


LOGITS = {"dtype": torch.float32, "device": "cuda"}


@pytest.mark.parametrize("call, error, parameter, allowed", [
    (lambda x: sluice.select(x.double()), sluice.ArgumentTypeError, "logits.dtype", "float32, bf"),
    (lambda x: sluice.select(x[None]), sluice.Error, "logits.ndim", "1 or 2"),
    (lambda x: sluice.select(x[:, ::2]), sluice.Error, "logits.strides", "a last axis"),
    (lambda x: sluice.select(x, top_k=1.5), sluice.ArgumentTypeError, "top_k", "a whole number"),
    (lambda x: sluice.select(x, top_k=x[:, 0]), sluice.ArgumentTypeError, "top_k.dtype", "int32"),
    (lambda x: sluice.select(x, top_p=x[0]), sluice.Error, "top_p.size", "one for all rows"),
    (lambda x: sluice.select(x, profile=5), sluice.ArgumentTypeError, "profile", "one name"),
    (lambda x: sluice.select(x, xtc_probability=1), sluice.Error, "seed", "a seed when XTC is on"),
    (lambda x: sluice.select(x, backend="ref"), sluice.ArgumentTypeError, "backend", "one of"),
    (lambda x: sluice.select(x, 5), sluice.ArgumentTypeError, "params", "SamplingParams"),
    (lambda x: sluice.select(x, sluice.DeviceParams(device="cuda"), top_k=1),
     sluice.ArgumentTypeError, "top_k", "no keyword next to"),
    (lambda x: sluice.select(x, masses=1), sluice.ArgumentTypeError, "masses", "True or False"),
    (lambda x: sluice.select(x, top_p="x"), sluice.ArgumentTypeError, "top_p", "a number"),
    (lambda x: sluice.select(x, max_temperature=x), sluice.ArgumentTypeError, "max_temperature",
     "one value"),
    (lambda x: sluice.sample(x, sluice.DeviceParams(device="cuda")), sluice.Error, "seed", "a"),
    (lambda x: sluice.sample(x, seed=-1), sluice.Error, "seed", "[0, 18446744073709551615]"),
    (lambda x: sluice.sample(x, logprobs=1), sluice.ArgumentTypeError, "logprobs", "None on"),
    (lambda x: sluice.sample(x, sluice.SamplingParams(repetition_penalty=2)),
     sluice.ArgumentTypeError, "repetition_penalty", "one of the keywords"),
    (lambda x: sluice.sample(x, draw_method=5), sluice.ArgumentTypeError, "draw_method", "gumbel"),
    (lambda x: sluice.sample(x, cuts=x, seed=1), sluice.ArgumentTypeError, "cuts", "CutTensors"),
    (lambda x: sluice.mask_(x.requires_grad_()), sluice.Error, "logits.requires_grad", "False"),
    (lambda x: sluice.topk(x.double(), 1), sluice.ArgumentTypeError, "scores.dtype", "float32, b"),
    (lambda x: sluice.topk(x, 0), sluice.Error, "k", "[1, 8388608]"),
    (lambda x: sluice.topk(x, 1, next_n=3), sluice.Error, "scores.rows", "a multiple of next_n"),
    (lambda x: sluice.topk(x, 1, lengths=9), sluice.Error, "lengths", "[0, 8]"),
    (lambda x: sluice.topk(x, 1, hint=x), sluice.ArgumentTypeError, "hint.dtype", "int32"),
    (lambda x: sluice.topk(x, 1, backend="ref"), sluice.ArgumentTypeError, "backend", "one of"),
    (lambda x: sluice.DeviceParams(device="cpu"), sluice.ArgumentTypeError, "device", "a CUDA"),
    (lambda x: sluice.DeviceParams(device="cuda", rows=-1), sluice.Error, "rows", "[0, "),
])
def test_wrong_arguments_are_errors(call, error, parameter, allowed):
    with pytest.raises(sluice.Error) as caught:
        call(torch.empty((2, 8), **LOGITS))
    assert type(caught.value) is error
    assert caught.value.parameter == parameter
    assert allowed in caught.value.allowed
