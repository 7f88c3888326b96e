"""Heads on CUDA tensors of torch: the bits and tokens of the same heads on the host."""

import numpy as np
import pytest

import sluice

torch = pytest.importorskip("torch", reason="torch is not installed")

if not torch.cuda.is_available():
    pytest.skip("torch sees no CUDA device", allow_module_level=True)

VOCAB, DIM, ROWS = 3000, 256, 5
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def made(dtype):
    generator = torch.Generator().manual_seed(4)
    weight = torch.randn((VOCAB, DIM), generator=generator) / DIM ** 0.5
    hidden = torch.randn((ROWS, DIM), generator=generator) + 8 * weight[:ROWS]
    bias = torch.linspace(-1, 1, VOCAB)
    return weight.to(dtype), bias, hidden.to(dtype)


@pytest.fixture(params=DTYPES, ids=str)
def heads(request):
    weight, bias, hidden = made(request.param)
    here = sluice.CertifiedHead(weight.cuda(), bias.cuda(), seed=3)
    return here, weight, bias, hidden


def test_the_dense_head_gives_the_hosts_bits(heads):
    _, weight, bias, hidden = heads
    expected = sluice.dense_head(weight, hidden, bias=bias.numpy())
    found = sluice.dense_head(weight.cuda(), hidden.cuda(), bias=bias.cuda())
    np.testing.assert_array_equal(found.cpu().numpy(), expected)
    out = torch.empty(VOCAB, device="cuda")
    assert sluice.dense_head(weight.cuda(), hidden[1].cuda(), bias=bias.cuda(), out=out) is out
    np.testing.assert_array_equal(out.cpu().numpy(), expected[1])


def test_topk_is_the_hosts(heads):
    here, weight, bias, hidden = heads
    there = sluice.CertifiedHead(weight, bias.numpy(), seed=3).topk(hidden, 7)
    top = here.topk(hidden.cuda(), 7)
    np.testing.assert_array_equal(top.indices.cpu().numpy(), there.indices)
    np.testing.assert_array_equal(top.values.cpu().numpy(), there.values)
    np.testing.assert_array_equal(here.topk(hidden[2].cuda(), 7).indices.cpu(), there.indices[2])


@pytest.mark.parametrize("params", [
    {"temperature": 0.0}, {"temperature": 1.0}, {"top_k": 3, "top_p": 0.9}, {"min_p": 0.2},
    {"top_p": 0.9}, {"top_k": 4, "draw_method": "cdf"}])
def test_sample_is_dense_head_and_sample(heads, params):
    here, weight, bias, hidden = heads
    keys = {"seed": 5, "position": np.arange(ROWS)}
    expected = sluice.sample(sluice.dense_head(weight, hidden, bias=bias.numpy()), **params, **keys)
    reports = torch.full((ROWS, 2), -1, dtype=torch.int32, device="cuda")
    tokens = here.sample(hidden.cuda(), **params, **keys, reports=reports)
    np.testing.assert_array_equal(tokens.ids.cpu().numpy(), expected.ids)
    np.testing.assert_array_equal(tokens.statuses.cpu().numpy(), expected.statuses)
    assert set((reports[:, 0] & 255).tolist()) <= {1, 3}
    assert here.sample(hidden[1].cuda(), **params, seed=5, position=1).ids.item() == expected.ids[1]


def test_masks_are_heeded_and_rows_without_a_number_have_a_status(heads):
    here, weight, bias, hidden = heads
    bitmask = torch.zeros((ROWS, (VOCAB + 31) // 32), dtype=torch.int32, device="cuda")
    bitmask[:, 3] = 0b1010
    logits = sluice.dense_head(weight, hidden, bias=bias.numpy())[:, [97, 99]]
    best = np.where(logits[:, 0] >= logits[:, 1], 97, 99)
    tokens = here.sample(hidden.cuda(), temperature=0.0, seed=1, bitmask=bitmask)
    np.testing.assert_array_equal(tokens.ids.cpu().numpy(), best)
    broken = hidden.clone()
    broken[1, 3] = torch.nan
    tokens = here.sample(broken.cuda(), temperature=0.0, seed=1)
    assert tokens.ids[1] == -1 and tokens.statuses[1] != 0 and tokens.statuses[0] == 0


def test_a_captured_graph_draws_anew(heads):
    here, weight, bias, hidden = heads
    positions = torch.arange(ROWS, device="cuda")
    params = sluice.DeviceParams(rows=ROWS, top_k=20, seed=9, position=positions)
    states = hidden.cuda()
    here.reserve(ROWS)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        params.update_(position=positions)
        tokens = here.sample(states, params)
    logits = sluice.dense_head(weight, hidden, bias=bias.numpy())
    for step in range(3):
        positions.add_(100)
        graph.replay()
        expected = sluice.sample(logits, top_k=20, seed=9, position=positions.cpu().numpy())
        np.testing.assert_array_equal(tokens.ids.cpu().numpy(), expected.ids)


def test_wrong_arguments_are_named():
    weight, bias, hidden = (tensor.cuda() for tensor in made(torch.bfloat16))
    head = sluice.CertifiedHead(weight)
    for call, said in [
            (lambda: head.topk(hidden.cpu(), 3), "hidden"),
            (lambda: head.topk(hidden, 0), "k = 0"),
            (lambda: head.topk(hidden[:, :8].contiguous(), 1), "hidden"),
            (lambda: head.sample(hidden, temperature=9.0, seed=1), "temperature"),
            (lambda: head.sample(hidden, seed=1, bitmask=bias), "bitmask"),
            (lambda: sluice.CertifiedHead(weight, bias[:3]), "bias"),
            (lambda: sluice.CertifiedHead(weight, kind="int3"), "dither4 or strict"),
            (lambda: sluice.dense_head(weight, hidden, bias=bias[:3]), "bias")]:
        with pytest.raises(sluice.Error, match=said):
            call()
